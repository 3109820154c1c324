"""Mistral's own params.json, under the names that vLLM gives its keys (vllm/transformers_utils/configs/mistral.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
}


def adapt(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that vLLM makes of a params.json: a text model, or Pixtral or Voxtral around one."""
    text = {_NAMES.get(key, key): value for key, value in params.items()}
    text.setdefault("model_type", "transformer")
    experts = _part(params, "moe")
    if text["model_type"] == "mamba":
        text["architectures"] = ["Mamba2ForCausalLM"]
    elif experts.get("num_shared_experts"):
        text |= {"model_type": "deepseek_v3", "architectures": ["MistralLarge3ForCausalLM"]}
    else:
        text["architectures"] = ["MixtralForCausalLM" if params.get("moe") else "MistralForCausalLM"]
    media, vision = _part(params, "multimodal"), _part(params, "vision_encoder")
    audio = _part(_part(media, "whisper_model_args"), "encoder_args")
    for key in ("multimodal", "vision_encoder"):
        text.pop(key, None)
    if media.get("vision_encoder_args") or vision:
        return _around(text, "pixtral", "PixtralForConditionalGeneration") | {"vision_config": media or vision}
    if audio:
        name = "VoxtralRealtimeGeneration" if audio.get("causal") else "VoxtralForConditionalGeneration"
        return _around(text, "voxtral", name)
    return text


def _around(text: dict[str, Any], model_type: str, architecture: str) -> dict[str, Any]:
    return {"model_type": model_type, "architectures": [architecture], "text_config": text}


def _part(keys: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of a configuration; empty where it is not there or is no object."""
    found = keys.get(name)
    return found if isinstance(found, dict) else {}
