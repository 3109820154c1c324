"""Folders of small targets and drafters for the real engine: ``python folders.py SPEC FOLDER``.

SPEC is a JSON file: config.json of ``targets`` and params.json of ``params`` by name, and ``drafters``, each with its
``config``, the weights that it is ``without`` and, where it is not the width that the configuration asks for, that of
``fc``. Targets get whatever an engine wants beside a configuration, and no weights; drafters get random ones.
"""

from __future__ import annotations

import base64
import copy
import json
import math
import sys
from pathlib import Path
from typing import Any


def prepare(spec: dict[str, Any], folder: Path) -> None:
    """Write a folder for each target and each drafter."""
    for name, config in spec.get("targets", {}).items():
        config = shrink(config)
        place = write_json(folder / name / "config.json", config).parent
        complete(place, config)
    for name, params in spec.get("params", {}).items():
        params = shrink_params(params)
        place = write_json(folder / name / "params.json", params).parent
        write_json(place / "tekken.json", tekken(params))
        (place / "consolidated.safetensors").touch()  # by which vLLM tells Mistral's format
    for name, drafter in spec.get("drafters", {}).items():
        place = write_json(folder / name / "config.json", drafter["config"]).parent
        write_weights(place, drafter)


def shrink(config: dict[str, Any]) -> dict[str, Any]:
    """Return a target whose vision tower is small too, and whose special tokens lie within its vocabulary."""
    made = copy.deepcopy(config)
    text = made.get("text_config", made)
    vision = made.get("vision_config")
    if vision is None:
        return made
    vision.update({key: value for key, value in SMALL_VISION.items() if key in vision})
    if made["model_type"] == "kimi_k25":  # vLLM reads these names, and takes its defaults for the published ones
        vision |= {name: SMALL_VISION[f"vt_{name}"] for name in KIMI_VISION}
    wide = {"text_hidden_size", "out_hidden_size"} & vision.keys()
    vision.update(dict.fromkeys(wide, text["hidden_size"]))
    if made["model_type"] == "qwen2_vl":
        vision["hidden_size"] = text["hidden_size"]  # there it is the width of what leaves the tower
    last = text["vocab_size"] - len(SPECIAL)
    for place, key in enumerate(SPECIAL):
        if key in made and made[key] >= text["vocab_size"]:
            made[key] = last + place
    return made


def shrink_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return a target in Mistral's format as small as the others."""
    made = copy.deepcopy(params)
    made.update({key: value for key, value in SMALL_PARAMS.items() if key in made})
    vision = made.get("vision_encoder", {})
    vision.update({key: value for key, value in SMALL_VISION.items() if key in vision})
    return made


def complete(place: Path, config: dict[str, Any]) -> None:
    """Write what an engine wants in a target's folder beside its configuration and its weights."""
    kind = config["model_type"]
    text = config.get("text_config", config)
    words = {config[key]: word for key, word in SPECIAL.items() if key in config}
    if kind == "llava":
        words[config["image_token_index"]] = "<image>"
    if kind == "mistral3":
        words |= {12: "[IMG_BREAK]", 13: "[IMG_END]"}
    write_tokenizer(place, text["vocab_size"], words, kind)
    for name, content in PROCESSORS.get(kind, {}).items():
        write_json(place / name, content)
    if kind == "kimi_k25":
        from checkpoint import PROCESSOR, PROCESSOR_SETTINGS

        write_json(place / "preprocessor_config.json", PROCESSOR_SETTINGS)
        (place / "tiny_processor.py").write_text(PROCESSOR)
    if remote := config.get("auto_map", {}).get("AutoConfig"):
        module, _, name = remote.partition(".")
        (place / f"{module}.py").write_text(REMOTE.format(name=name, kind=kind))


def write_tokenizer(place: Path, size: int, special: dict[int, str], kind: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {special.get(token, f"t{token}"): token for token in range(size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="t0", eos_token="t1", additional_special_tokens=list(special.values())
    ).save_pretrained(place)
    if kind.startswith("qwen"):  # their processors take no other class
        settings = json.loads((place / "tokenizer_config.json").read_text())
        write_json(place / "tokenizer_config.json", settings | {"tokenizer_class": "Qwen2TokenizerFast"})


def tekken(params: dict[str, Any]) -> dict[str, Any]:
    """Return a tokenizer in Mistral's format: the bytes, and special tokens before them."""
    vocabulary = [
        {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": None}
        for byte in range(256)
    ]
    config = {
        "pattern": ".",
        "num_vocab_tokens": 256,
        "default_vocab_size": params["vocab_size"],
        "default_num_special_tokens": params["vocab_size"] - 256,
        "version": "v3",
    }
    vision = params.get("vision_encoder", {})
    image = {"image_patch_size": vision.get("patch_size"), "max_image_size": vision.get("image_size")}
    return {"vocab": vocabulary, "config": config, "multimodal": image}


def write_weights(place: Path, drafter: dict[str, Any]) -> None:
    """Write random weights of the names and shapes that the drafter's configuration asks for."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    dropped = tuple(drafter.get("without", ("embed_tokens",)))
    weights = {}
    for name, shape in shapes(drafter).items():
        if not name.startswith(dropped):
            weight = torch.ones(shape) if len(shape) == 1 else torch.randn(shape) / math.sqrt(shape[-1])
            weights[name] = weight.to(torch.bfloat16)
    vocabulary, drafted = vocabularies(drafter["config"])
    if drafted < vocabulary and "d2t" not in dropped:
        step = vocabulary // drafted
        weights["d2t"] = torch.arange(drafted) * (step - 1)
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})


def shapes(drafter: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight of a drafter."""
    config = drafter["config"]
    text = config.get("transformer_layer_config", config)
    width, inner = text["hidden_size"], text["intermediate_size"]
    size = text.get("head_dim") or width // text["num_attention_heads"]
    queries, keys = size * text["num_attention_heads"], size * text.get("num_key_value_heads", 1)
    vocabulary, drafted = vocabularies(config)
    target = config.get("target_hidden_size") or width
    made: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, drafter.get("fc") or 3 * target),
        "norm.weight": (width,),
        "lm_head.weight": (drafted, width),
        "embed_tokens.weight": (vocabulary, width),
    }
    for layer in range(text["num_hidden_layers"]):
        prefix = f"layers.{layer}" if layer else "midlayer"
        entering = width if layer else 2 * width  # the first layer takes the embeddings beside the state
        made |= {f"{prefix}.{norm}.weight": (width,) for norm in NORMS}
        made |= {
            f"{prefix}.self_attn.q_proj.weight": (queries, entering),
            f"{prefix}.self_attn.k_proj.weight": (keys, entering),
            f"{prefix}.self_attn.v_proj.weight": (keys, entering),
            f"{prefix}.self_attn.o_proj.weight": (width, queries),
            f"{prefix}.mlp.gate_proj.weight": (inner, width),
            f"{prefix}.mlp.up_proj.weight": (inner, width),
            f"{prefix}.mlp.down_proj.weight": (width, inner),
        }
    return made


def vocabularies(config: dict[str, Any]) -> tuple[int, int]:
    """Return the sizes of what a drafter reads and of what it writes."""
    whole = int(config.get("transformer_layer_config", config)["vocab_size"])
    return whole, int(config.get("draft_vocab_size") or whole)


def write_json(place: Path, content: dict[str, Any]) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(content, indent=1))
    return place


NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
SPECIAL = {
    "media_placeholder_token_id": "<|media_pad|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_index": "[IMG]",
}
"""The special tokens that a configuration names."""
KIMI_VISION = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
SMALL_VISION = {
    "deepstack_visual_indexes": [0, 1, 2],
    "depth": 4,
    "embed_dim": 64,
    "head_dim": 32,
    "hidden_size": 64,
    "image_size": 56,
    "init_pos_emb_height": 8,
    "init_pos_emb_width": 8,
    "intermediate_size": 128,
    "mm_hidden_size": 64,
    "num_attention_heads": 2,
    "num_heads": 2,
    "num_hidden_layers": 2,
    "num_position_embeddings": 16,
    "projection_dim": 64,
    "vt_hidden_size": 64,
    "vt_intermediate_size": 128,
    "vt_num_attention_heads": 2,
    "vt_num_hidden_layers": 2,
}
SMALL_PARAMS = {
    "dim": 128,
    "head_dim": 32,
    "hidden_dim": 128,
    "n_heads": 4,
    "n_kv_heads": 4,
    "n_layers": 8,
    "vocab_size": 512,
}
QWEN_IMAGES = {"min_pixels": 3136, "max_pixels": 4096, "temporal_patch_size": 2, "merge_size": 2}
PROCESSORS: dict[str, dict[str, dict[str, Any]]] = {
    "llava": {
        "preprocessor_config.json": {
            "image_processor_type": "CLIPImageProcessor",
            "crop_size": {"height": 56, "width": 56},
            "size": {"shortest_edge": 56},
        },
        "processor_config.json": {
            "processor_class": "LlavaProcessor",
            "patch_size": 14,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
            "image_token": "<image>",
        },
    },
    "mistral3": {
        "preprocessor_config.json": {
            "image_processor_type": "PixtralImageProcessor",
            "patch_size": {"height": 14, "width": 14},
            "size": {"longest_edge": 56},
        },
        "processor_config.json": {"processor_class": "PixtralProcessor", "patch_size": 14, "spatial_merge_size": 2},
    },
    "qwen2_vl": {
        "preprocessor_config.json": QWEN_IMAGES
        | {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor", "patch_size": 14},
    },
    "qwen3_vl": {
        "preprocessor_config.json": QWEN_IMAGES
        | {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "processor_class": "Qwen3VLProcessor",
            "patch_size": 16,
        },
        "video_preprocessor_config.json": {
            "video_processor_type": "Qwen3VLVideoProcessor",
            "processor_class": "Qwen3VLProcessor",
            "size": {"shortest_edge": 4096, "longest_edge": 16384},
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
        },
    },
}
"""The files of a multimodal target's processors."""
REMOTE = '''\
"""The configuration as a checkpoint brings it."""

from transformers import PretrainedConfig


class {name}(PretrainedConfig):
    model_type = "{kind}"

    def __init__(self, text_config=None, **keywords):
        if text_config is not None:
            self.text_config = PretrainedConfig(**text_config)
        super().__init__(**keywords)
'''


if __name__ == "__main__":
    prepare(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
