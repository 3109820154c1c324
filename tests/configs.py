"""Facts of public models' config.json files, written out: what vLLM's gates read of them, and no more.

Sources: the config.json of each model on its hub, by the name in the comment. ``small`` makes a model of the same
kind that the real engine builds on two cores.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

Config = dict[str, Any]

DEEPSEEK: Config = {
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 129280,
}
KIMI_TEXT: Config = DEEPSEEK | {
    "first_k_dense_replace": 1,
    "max_position_embeddings": 262144,
    "n_group": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
    "topk_group": 1,
    "vocab_size": 163840,
}
LLAMA_TEXT: Config = {
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}

TARGETS: dict[str, Config] = {
    # moonshotai/Kimi-K2.5
    "kimi-k2.5": {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config"},
        "model_type": "kimi_k25",
        "media_placeholder_token_id": 163605,
        "text_config": KIMI_TEXT | {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"},
        "vision_config": {
            "init_pos_emb_height": 64,
            "init_pos_emb_time": 4,
            "init_pos_emb_width": 64,
            "merge_kernel_size": [2, 2],
            "mm_hidden_size": 1152,
            "mm_projector_type": "patchmerger",
            "model_type": "moonvit3d",
            "patch_size": 14,
            "pos_emb_type": "divided_fixed",
            "text_hidden_size": 7168,
            "vt_hidden_size": 1152,
            "vt_intermediate_size": 4304,
            "vt_num_attention_heads": 16,
            "vt_num_hidden_layers": 27,
        },
    },
    # moonshotai/Kimi-K2-Instruct
    "kimi-k2": KIMI_TEXT
    | {
        "architectures": ["DeepseekV3ForCausalLM"],
        "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
        "model_type": "kimi_k2",
    },
    # deepseek-ai/DeepSeek-V3
    "deepseek-v3": DEEPSEEK | {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"},
    # Qwen/Qwen3-VL-8B-Instruct
    "qwen3-vl": {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "image_token_id": 151655,
        "model_type": "qwen3_vl",
        "text_config": {
            "attention_bias": False,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "max_position_embeddings": 262144,
            "model_type": "qwen3_vl_text",
            "num_attention_heads": 32,
            "num_hidden_layers": 36,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-6,
            "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
            "rope_theta": 5000000,
            "vocab_size": 151936,
        },
        "video_token_id": 151656,
        "vision_config": {
            "deepstack_visual_indexes": [8, 16, 24],
            "depth": 27,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": 1152,
            "in_channels": 3,
            "intermediate_size": 4304,
            "model_type": "qwen3_vl",
            "num_heads": 16,
            "num_position_embeddings": 2304,
            "out_hidden_size": 4096,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        "vision_end_token_id": 151653,
        "vision_start_token_id": 151652,
    },
    # meta-llama/Llama-3.1-8B-Instruct
    "llama": LLAMA_TEXT | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    # llava-hf/llava-1.5-7b-hf
    "llava": {
        "architectures": ["LlavaForConditionalGeneration"],
        "image_token_index": 32000,
        "model_type": "llava",
        "projector_hidden_act": "gelu",
        "text_config": LLAMA_TEXT
        | {
            "architectures": ["LlamaForCausalLM"],
            "intermediate_size": 11008,
            "model_type": "llama",
            "num_key_value_heads": 32,
            "vocab_size": 32064,
        },
        "vision_config": {
            "hidden_size": 1024,
            "image_size": 336,
            "intermediate_size": 4096,
            "model_type": "clip_vision_model",
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "patch_size": 14,
            "projection_dim": 768,
        },
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
    },
    # Qwen/Qwen2-VL-7B-Instruct
    "qwen2-vl": {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "hidden_act": "silu",
        "hidden_size": 3584,
        "image_token_id": 151655,
        "intermediate_size": 18944,
        "max_position_embeddings": 32768,
        "model_type": "qwen2_vl",
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
        "rope_scaling": {"mrope_section": [16, 24, 24], "type": "mrope"},
        "rope_theta": 1000000.0,
        "video_token_id": 151656,
        "vision_config": {
            "depth": 32,
            "embed_dim": 1280,
            "hidden_size": 3584,
            "in_channels": 3,
            "mlp_ratio": 4,
            "num_heads": 16,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
        "vision_end_token_id": 151653,
        "vision_start_token_id": 151652,
        "vocab_size": 152064,
    },
    # mistralai/Mistral-Small-3.1-24B-Instruct-2503
    "mistral3": {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "image_token_index": 10,
        "model_type": "mistral3",
        "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu",
        "spatial_merge_size": 2,
        "text_config": LLAMA_TEXT
        | {
            "hidden_size": 5120,
            "intermediate_size": 32768,
            "model_type": "mistral",
            "num_hidden_layers": 40,
            "rope_theta": 1000000000.0,
            "vocab_size": 131072,
        },
        "vision_config": {
            "head_dim": 64,
            "hidden_act": "silu",
            "hidden_size": 1024,
            "image_size": 1540,
            "intermediate_size": 4096,
            "model_type": "pixtral",
            "num_attention_heads": 16,
            "num_channels": 3,
            "num_hidden_layers": 24,
            "patch_size": 14,
            "rope_theta": 10000.0,
        },
        "vision_feature_layer": -1,
    },
}
"""config.json of targets."""

PARAMS: dict[str, Config] = {
    # mistralai/Pixtral-12B-2409
    "pixtral": {
        "dim": 5120,
        "head_dim": 128,
        "hidden_dim": 14336,
        "n_heads": 32,
        "n_kv_heads": 8,
        "n_layers": 40,
        "norm_eps": 1e-5,
        "rope_theta": 1000000000.0,
        "vision_encoder": {
            "adapter_bias": True,
            "hidden_size": 1024,
            "image_break_token_id": 12,
            "image_end_token_id": 13,
            "image_size": 1024,
            "image_token_id": 10,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "num_channels": 3,
            "num_hidden_layers": 24,
            "patch_size": 16,
            "rope_theta": 10000.0,
        },
        "vocab_size": 131072,
    },
}
"""params.json of targets in Mistral's own format."""

KEY = "eagle_aux_hidden_state_layer_ids"

DRAFTERS: dict[str, Config] = {
    # lightseekorg/kimi-k2.5-eagle3
    "kimi-k2.5": LLAMA_TEXT
    | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 163840,
        KEY: [2, 30, 58],
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "model_type": "llama",
        "num_attention_heads": 64,
        "num_hidden_layers": 1,
        "num_key_value_heads": 64,
        "rope_theta": 1000000.0,
        "vocab_size": 163840,
    },
    # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: names no layers, and is trained on the defaults
    "llama": LLAMA_TEXT
    | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 32000,
        "model_type": "llama",
        "num_hidden_layers": 1,
    },
    # RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3, in speculators' own format
    "llama-speculators": {
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": 32000,
        "norm_before_residual": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {
                "architectures": ["LlamaForCausalLM"],
                "name_or_path": "meta-llama/Llama-3.1-8B-Instruct",
            },
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.1.0.dev42",
        "target_hidden_size": None,
        "transformer_layer_config": LLAMA_TEXT | {"model_type": "llama", "num_hidden_layers": 1},
    },
}
"""config.json of drafters."""

_SMALL = {
    "first_k_dense_replace": 1,
    "head_dim": 32,
    "hidden_size": 128,
    "intermediate_size": 128,
    "kv_lora_rank": 32,
    "max_position_embeddings": 256,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "n_routed_experts": 4,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 8,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "topk_group": 1,
    "v_head_dim": 16,
    "vocab_size": 512,
}


def drafter_for(target: Config, **changes: Any) -> Config:
    """Return a right drafter for a target: as wide, with its vocabulary, and with three of its layers."""
    text = target.get("text_config", target)
    count = text["num_hidden_layers"]
    config = copy.deepcopy(DRAFTERS["kimi-k2.5"])
    same = {key: text[key] for key in ("hidden_size", "vocab_size", "num_attention_heads") if key in text}
    config |= same | {"num_key_value_heads": same["num_attention_heads"], "draft_vocab_size": text["vocab_size"]}
    config["head_dim"] = text["hidden_size"] // text["num_attention_heads"]
    config[KEY] = [2, count // 2, count - 3]
    config |= changes
    return {key: value for key, value in config.items() if value is not ...}


def small(config: Config) -> Config:
    """Return a model of the same kind with 8 layers of width 128 and a vocabulary of 512."""
    made = copy.deepcopy(config)
    for part in (made, made.get("text_config", {}), made.get("transformer_layer_config", {})):
        part.update({key: value for key, value in _SMALL.items() if key in part})
        if "rope_scaling" in part and "mrope_section" in part["rope_scaling"]:
            part["rope_scaling"]["mrope_section"] = [4, 6, 6]
    return made


def write(place: Path, config: Config, name: str = "config.json") -> Path:
    """Write a model's folder with nothing in it but its configuration."""
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(json.dumps(config, indent=2))
    return place
