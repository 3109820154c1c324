"""A small Kimi-K2.5 and an EAGLE-3 drafter whose weights are constructed, so that their tokens can be told beforehand.

Run it where torch, safetensors and tokenizers are: ``python checkpoint.py FOLDER`` writes ``FOLDER/target``, its text
model alone as ``FOLDER/target-text``, ``FOLDER/draft`` and drafters that are wrong in one way each.

The target. A token t is one-hot in the first VOCABULARY dimensions of the state (E), beside a constant in one more.
Every attention is zero. Layer k's MLP (a dense one, then the shared expert of a mixture) has a gate that reads the
constant, so it is linear, and moves a second one-hot (L) from ``t + shift(k)`` to ``t + shift(k + 1)``: the states
that enter two layers are never the same. lm_head reads E and says t + 1.

The drafter. ``fc`` turns L of each of its three auxiliary states back into t, if and only if it is the state of the
right layer. The attention looks at its own position alone (rotary embeddings of a large constant) and carries E of
the next token's embedding, which the target owns. These four voters each vote for t + 2 with weight 1, and each for a
decoy of its own with weight DECOY: only four right votes together (4.0) beat a decoy (3.4). One state off by one
layer, or embeddings that are not the target's, and another token wins. So the acceptance rate of the first position
is 1 or 0.

Everything is one-hot, so bfloat16 is as good as float32.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCABULARY = 256
HIDDEN = 1024
LAYERS = 8
EXPERTS = 8
HEADS = 8
MEDIA_TOKEN = 250
CONSTANT = 2 * VOCABULARY
"""Dimension that holds the constant; E lies below VOCABULARY, L from there to here."""
SIZE = 8.0
"""Size of each one-hot and of the constant in the target's state."""
GATE = 4.0
FOCUS = 16.0
DECOY = 3.4
DECOYS = (40, 80, 120, 160)
"""How far each voter's decoy is from the token, none reachable by another voter's error."""

Weights = dict[str, torch.Tensor]


def shift(layer: int) -> int:
    """Return how far L of the state that enters a layer is from the token; the first layer's state has no L."""
    return 11 * layer


def default_layers(layers: int = LAYERS) -> tuple[int, int, int]:
    """Return the ids that vLLM takes where a drafter's config names none."""
    return 2, layers // 2, layers - 3


def _rms(*sizes: float) -> float:
    return math.sqrt(sum(size * size for size in sizes) / HIDDEN)


def _silu(value: float) -> float:
    return value / (1 + math.exp(-value))


def _one_hot(rows: int, columns: int, pairs: Sequence[tuple[int, int]], size: float = 1.0) -> torch.Tensor:
    weight = torch.zeros(rows, columns)
    for row, column in pairs:
        weight[row, column] += size
    return weight


def _tokens(move: int, start: int = 0) -> list[tuple[int, int]]:
    """Return (token, place of token + move) of every token."""
    return [(token, start + (token + move) % VOCABULARY) for token in range(VOCABULARY)]


def _mlp(layer: int) -> Weights:
    """Return the MLP that moves L from where it is before a layer to where it is to be after it."""
    rms = _rms(SIZE, SIZE) if layer == 0 else _rms(SIZE, SIZE, SIZE)
    gate = torch.zeros(VOCABULARY, HIDDEN)
    gate[:, CONSTANT] = GATE * rms / SIZE
    up = _one_hot(VOCABULARY, HIDDEN, _tokens(0), rms / SIZE)
    down = _one_hot(VOCABULARY, HIDDEN, _tokens(shift(layer + 1), VOCABULARY))
    if layer:
        down -= _one_hot(VOCABULARY, HIDDEN, _tokens(shift(layer), VOCABULARY))
    return {"gate_proj": gate, "up_proj": up, "down_proj": down.T * SIZE / _silu(GATE)}


def target_weights(text: dict[str, int], vision: dict[str, int]) -> Weights:
    """Return the target's weights under the names of a published checkpoint."""
    heads, nope, rope, value = HEADS, text["qk_nope_head_dim"], text["qk_rope_head_dim"], text["v_head_dim"]
    q_rank, kv_rank, routed = text["q_lora_rank"], text["kv_lora_rank"], text["moe_intermediate_size"]
    embeddings = _one_hot(VOCABULARY, HIDDEN, _tokens(0), SIZE)
    embeddings[:, CONSTANT] = SIZE
    weights = {
        "model.embed_tokens.weight": embeddings,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": _one_hot(
            VOCABULARY, HIDDEN, [((token + 1) % VOCABULARY, token) for token in range(VOCABULARY)]
        ),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        attention = {
            "q_a_proj": torch.zeros(q_rank, HIDDEN),
            "q_a_layernorm": torch.ones(q_rank),
            "q_b_proj": torch.zeros(heads * (nope + rope), q_rank),
            "kv_a_proj_with_mqa": torch.zeros(kv_rank + rope, HIDDEN),
            "kv_a_layernorm": torch.ones(kv_rank),
            "kv_b_proj": torch.zeros(heads * (nope + value), kv_rank),
            "o_proj": torch.zeros(HIDDEN, heads * value),
        }
        weights |= {f"{prefix}.self_attn.{name}.weight": weight for name, weight in attention.items()}
        weights[f"{prefix}.input_layernorm.weight"] = torch.ones(HIDDEN)
        weights[f"{prefix}.post_attention_layernorm.weight"] = torch.ones(HIDDEN)
        inner = "mlp" if layer < text["first_k_dense_replace"] else "mlp.shared_experts"
        weights |= {f"{prefix}.{inner}.{name}.weight": weight for name, weight in _mlp(layer).items()}
        if inner == "mlp":
            continue
        weights[f"{prefix}.mlp.gate.weight"] = torch.zeros(EXPERTS, HIDDEN)
        weights[f"{prefix}.mlp.gate.e_score_correction_bias"] = torch.zeros(EXPERTS)
        for expert in range(EXPERTS):
            shapes = {"gate_proj": (routed, HIDDEN), "up_proj": (routed, HIDDEN), "down_proj": (HIDDEN, routed)}
            for name, shape in shapes.items():
                weights[f"{prefix}.mlp.experts.{expert}.{name}.weight"] = torch.zeros(shape)
    return {f"language_model.{name}": weight for name, weight in weights.items()} | _vision_weights(vision)


def _vision_weights(vision: dict[str, int]) -> Weights:
    """Return zeros for the vision tower and the projector: the tests send no images."""
    width, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    places = vision["init_pos_emb_height"], vision["init_pos_emb_width"]
    merged = width * 4
    weights = {
        "vision_tower.patch_embed.proj.weight": torch.zeros(width, 3, patch, patch),
        "vision_tower.patch_embed.proj.bias": torch.zeros(width),
        "vision_tower.patch_embed.pos_emb.weight": torch.zeros(*places, width),
        "vision_tower.encoder.final_layernorm.weight": torch.ones(width),
        "vision_tower.encoder.final_layernorm.bias": torch.zeros(width),
        "mm_projector.pre_norm.weight": torch.ones(width),
        "mm_projector.pre_norm.bias": torch.zeros(width),
        "mm_projector.proj.0.weight": torch.zeros(merged, merged),
        "mm_projector.proj.0.bias": torch.zeros(merged),
        "mm_projector.proj.2.weight": torch.zeros(HIDDEN, merged),
        "mm_projector.proj.2.bias": torch.zeros(HIDDEN),
    }
    for layer in range(vision["num_hidden_layers"]):
        shapes = {
            "norm0": (width,),
            "norm1": (width,),
            "wqkv": (3 * width, width),
            "wo": (width, width),
            "mlp.fc0": (inner, width),
            "mlp.fc1": (width, inner),
        }
        for name, shape in shapes.items():
            weights[f"vision_tower.encoder.blocks.{layer}.{name}.weight"] = torch.zeros(shape)
            weights[f"vision_tower.encoder.blocks.{layer}.{name}.bias"] = torch.zeros(shape[0])
    return weights


def draft_weights(layers: Sequence[int]) -> Weights:
    """Return the drafter's weights for auxiliary states of these layers; it has no embeddings of its own."""
    fc = torch.zeros(HIDDEN, 3 * HIDDEN)
    for voter, layer in enumerate(layers):
        for token, place in _tokens(shift(layer), VOCABULARY):
            fc[voter * VOCABULARY + token, voter * HIDDEN + place] = 1.0 / SIZE
    scale = _rms(SIZE, SIZE) / SIZE
    focus = torch.zeros(VOCABULARY, 2 * HIDDEN)
    focus[:, CONSTANT] = FOCUS * scale
    lm_head = torch.zeros(VOCABULARY, HIDDEN)
    for voter, decoy in enumerate(DECOYS):
        sees = 1 if voter == 3 else 0
        for token in range(VOCABULARY):
            column = voter * VOCABULARY + (token + sees) % VOCABULARY
            lm_head[(token + 2) % VOCABULARY, column] = 1.0
            lm_head[(token + 2 + decoy) % VOCABULARY, column] = DECOY
    inner = VOCABULARY
    return {
        "fc.weight": fc,
        "lm_head.weight": lm_head,
        "norm.weight": torch.ones(HIDDEN),
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "midlayer.input_layernorm.weight": torch.ones(HIDDEN),
        "midlayer.post_attention_layernorm.weight": torch.ones(HIDDEN),
        "midlayer.self_attn.q_proj.weight": focus,
        "midlayer.self_attn.k_proj.weight": focus.clone(),
        "midlayer.self_attn.v_proj.weight": _one_hot(VOCABULARY, 2 * HIDDEN, _tokens(0), scale),
        "midlayer.self_attn.o_proj.weight": _one_hot(
            HIDDEN, VOCABULARY, [(3 * VOCABULARY + t, t) for t in range(VOCABULARY)]
        ),
        "midlayer.mlp.gate_proj.weight": torch.zeros(inner, HIDDEN),
        "midlayer.mlp.up_proj.weight": torch.zeros(inner, HIDDEN),
        "midlayer.mlp.down_proj.weight": torch.zeros(HIDDEN, inner),
    }


TEXT = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": VOCABULARY,
    "moe_intermediate_size": VOCABULARY,
    "num_hidden_layers": LAYERS,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
VISION = {
    "patch_size": 14,
    "init_pos_emb_height": 8,
    "init_pos_emb_width": 8,
    "init_pos_emb_time": 4,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "merge_kernel_size": [2, 2],
    "mm_hidden_size": 64,
}
DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "target_hidden_size": HIDDEN,
    "intermediate_size": VOCABULARY,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": VOCABULARY // HEADS,
    "vocab_size": VOCABULARY,
    "draft_vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}
CONFIGURATION = '''\
"""The configuration as a checkpoint brings it, for what asks transformers and not vLLM."""

from transformers import PretrainedConfig


class TinyConfig(PretrainedConfig):
    model_type = "kimi_k25"

    def __init__(self, text_config=None, **keywords):
        self.text_config = PretrainedConfig(**(text_config or {}))
        super().__init__(**keywords)
'''
TOKENIZER = '''\
"""A tokenizer in Python alone, as Kimi's is: the UTF-8 bytes, and special tokens at ids that UTF-8 has no use for."""

import re

from transformers import PreTrainedTokenizer

SPECIAL = {"<|user|>": 245, "<|assistant|>": 246, "<|end|>": 247, "[EOS]": 248, "[BOS]": 249, "<|media_pad|>": 250}


class TinyTokenizer(PreTrainedTokenizer):
    vocab_files_names = {}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, **keywords):
        keywords.setdefault("bos_token", "[BOS]")
        keywords.setdefault("eos_token", "[EOS]")
        keywords.setdefault("additional_special_tokens", ["<|user|>", "<|assistant|>", "<|end|>", "<|media_pad|>"])
        super().__init__(**keywords)

    @property
    def vocab_size(self):
        return 256

    def get_vocab(self):
        return {self._convert_id_to_token(number): number for number in range(256)}

    def _tokenize(self, text, **_):
        return [f"<{byte:02x}>" for byte in text.encode()]

    def _convert_token_to_id(self, token):
        return SPECIAL[token] if token in SPECIAL else int(token[1:3], 16)

    def _convert_id_to_token(self, number):
        return {place: name for name, place in SPECIAL.items()}.get(number, f"<{number:02x}>")

    def convert_tokens_to_string(self, tokens):
        pieces = [token.encode() if token in SPECIAL else bytes([int(token[1:3], 16)]) for token in tokens]
        return b"".join(pieces).decode(errors="replace")

    def save_vocabulary(self, save_directory, filename_prefix=None):
        return ()
'''
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PROCESSOR_SETTINGS = {
    "auto_map": {"AutoImageProcessor": "tiny_processor.TinyProcessor"},
    "image_processor_type": "TinyProcessor",
    "media_proc_cfg": {  # read by later releases, which have a processor of their own
        "temporal_merge_kernel_size": 4,
        "merge_kernel_size": 2,
        "patch_size": 14,
        "in_patch_limit": 64,
        "patch_limit_on_one_side": 64,
        "fixed_output_tokens": None,
        "in_patch_limit_each_frame": 64,
        "in_patch_limit_video": None,
        "sample_fps": 2.0,
        "max_num_frames_each_video": None,
        "timestamp_mode": "hh:mm:ss.fff",
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
}
"""preprocessor_config.json for the processor below."""
PROCESSOR = '''\
"""An image processor that vLLM asks for sizes; the tests send no images."""

import torch
from transformers.image_processing_utils import BaseImageProcessor


class TinyProcessor(BaseImageProcessor):
    num_frames_per_chunk = 1

    def media_tokens_calculator(self, media):
        return 4

    def preprocess(self, medias, **_):
        count = 16 * len(medias)
        return {"pixel_values": torch.zeros(count, 3, 14, 14), "grid_thws": torch.tensor([[1, 4, 4]] * len(medias))}

    def split_video_chunks(self, url_or_video):
        return []
'''


def write(folder: Path) -> None:
    """Write the target, the right drafter, and drafters that are wrong in one way each."""
    ids = default_layers()
    _write_target(folder / "target")
    _write_random_targets(folder)
    _write_text_target(folder / "target-text")
    _write_draft(folder / "draft", ids, ids)
    _write_draft(folder / "draft-default-ids", None, ids)
    for place, step in enumerate((1, -1, 1)):
        off = [layer + step * (number == place) for number, layer in enumerate(ids)]
        _write_draft(folder / f"draft-off-by-one-{place}", off, ids)
    _write_draft(folder / "draft-same-layer-twice", (ids[0], ids[1], ids[1]), ids)
    own = torch.zeros(VOCABULARY, HIDDEN)
    own[:, CONSTANT] = SIZE
    _write_draft(folder / "draft-own-embeddings", ids, ids, {"embed_tokens.weight": own})
    _write_draft(folder / "draft-last-state", (ids[0], ids[1], LAYERS), (ids[0], ids[1], LAYERS))
    _write_draft(folder / "draft-no-such-layer", (2, 4, LAYERS + 1), ids)


def _write_random_targets(folder: Path) -> None:
    """Write targets with random weights, so that attention counts, the multimodal one and its text model alone.

    Their tokenizer, and the multimodal one's configuration, are remote code. Their router is constant: a choice of
    experts that noise can turn over would drown every comparison.
    """
    torch.manual_seed(0)
    weights = target_weights(TEXT, VISION)  # type: ignore[arg-type]
    for name, weight in weights.items():
        if "norm" not in name and not name.endswith("mlp.gate.weight"):
            weight.copy_(torch.randn(weight.shape) / math.sqrt(weight.shape[-1]))
    place, text = folder / "target-random", folder / "target-random-text"
    _write_target(place, weights, torch.float32)
    config = json.loads((place / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "tiny_configuration.TinyConfig"}
    (place / "config.json").write_text(json.dumps(config, indent=1))
    (place / "tiny_configuration.py").write_text(CONFIGURATION)
    _write_text_target(text, weights, torch.float32)
    _write_remote_tokenizer(place)
    _write_remote_tokenizer(text)


def _write_remote_tokenizer(place: Path) -> None:
    for name in ("tokenizer.json", "special_tokens_map.json"):
        (place / name).unlink()
    (place / "tiny_tokenizer.py").write_text(TOKENIZER)
    settings = {
        "auto_map": {"AutoTokenizer": ["tiny_tokenizer.TinyTokenizer", None]},
        "tokenizer_class": "TinyTokenizer",
        "chat_template": TEMPLATE,
    }
    (place / "tokenizer_config.json").write_text(json.dumps(settings))


def _write_target(place: Path, weights: Weights | None = None, kind: torch.dtype = torch.bfloat16) -> None:
    name = str(kind).removeprefix("torch.")
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "media_placeholder_token_id": MEDIA_TOKEN,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "text_config": TEXT | {"torch_dtype": name},
        "vision_config": VISION,
        "tie_word_embeddings": False,
        "torch_dtype": name,
    }
    _write(place, config, weights or target_weights(TEXT, VISION), kind)  # type: ignore[arg-type]
    (place / "tiny_processor.py").write_text(PROCESSOR)
    (place / "preprocessor_config.json").write_text(json.dumps(PROCESSOR_SETTINGS))


def _write_text_target(place: Path, weights: Weights | None = None, kind: torch.dtype = torch.bfloat16) -> None:
    """Write the text model alone, as a DeepSeek-V3."""
    weights = weights or target_weights(TEXT, VISION)  # type: ignore[arg-type]
    own = {name.removeprefix("language_model."): weight for name, weight in weights.items() if "language_model" in name}
    name = str(kind).removeprefix("torch.")
    _write(place, TEXT | {"model_type": "deepseek_v3", "torch_dtype": name}, own, kind)


def _write_draft(
    place: Path, named: Sequence[int] | None, built_for: Sequence[int], extra: Weights | None = None
) -> None:
    ids = {} if named is None else {"eagle_aux_hidden_state_layer_ids": list(named)}
    _write(place, DRAFT | ids, draft_weights(built_for) | (extra or {}))


def _write(place: Path, config: dict[str, object], weights: Weights, wanted: torch.dtype = torch.bfloat16) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps(config, indent=1))
    data = {}
    for name, weight in weights.items():
        kind = torch.float32 if name.endswith("e_score_correction_bias") else wanted
        data[name] = weight.to(kind).contiguous()
    save_file(data, place / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(place)


def _write_tokenizer(place: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"t{token}": token for token in range(VOCABULARY)}
    del words[f"t{MEDIA_TOKEN}"]
    words["<|media_pad|>"] = MEDIA_TOKEN
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="t0", eos_token="t1").save_pretrained(place)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
