from __future__ import annotations

from typing import Any

import pytest

from patchkit.gates.mistral import adapt

MISTRAL: dict[str, Any] = {"model_type": "transformer", "architectures": ["MistralForCausalLM"]}
MIXTRAL = MISTRAL | {"architectures": ["MixtralForCausalLM"]}
LARGE: dict[str, Any] = {"model_type": "deepseek_v3", "architectures": ["MistralLarge3ForCausalLM"]}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, MISTRAL),
        ({"model_type": "own", "architectures": ["Own"]}, MISTRAL | {"model_type": "own"}),
        ({"moe": {"num_experts": 8}}, MIXTRAL | {"moe": {"num_experts": 8}}),
        ({"moe": {}}, MISTRAL | {"moe": {}}),
        ({"moe": {"num_shared_experts": 0}}, MIXTRAL | {"moe": {"num_shared_experts": 0}}),
        ({"moe": {"num_shared_experts": 1}}, LARGE | {"moe": {"num_shared_experts": 1}}),
        ({"moe": [1], "model_type": 7}, MIXTRAL | {"moe": [1], "model_type": 7}),
        ({"multimodal": None}, MISTRAL),
        ({"multimodal": {}}, MISTRAL),
        ({"multimodal": "hostile", "vision_encoder": [1]}, MISTRAL),
        ({"multimodal": {"vision_encoder_args": {}}}, MISTRAL),
    ],
)
def test_text_model(params: dict[str, Any], expected: dict[str, Any]) -> None:
    assert adapt(params) == expected


def test_keys_take_the_names_of_vllm() -> None:
    params = {"dim": 1, "n_layers": 2, "n_heads": 3, "n_kv_heads": 4, "hidden_dim": 5, "vocab_size": 6}
    assert adapt(params) == MISTRAL | {
        "hidden_size": 1,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 4,
        "intermediate_size": 5,
        "vocab_size": 6,
    }


@pytest.mark.parametrize(
    ("key", "part"),
    [("vision_encoder", {"a": 1}), ("multimodal", {"vision_encoder_args": {"a": 1}})],
)
def test_pixtral(key: str, part: dict[str, Any]) -> None:
    assert adapt({"dim": 8, key: part}) == {
        "model_type": "pixtral",
        "architectures": ["PixtralForConditionalGeneration"],
        "text_config": MISTRAL | {"hidden_size": 8},
        "vision_config": part,
    }


def test_pixtral_around_experts() -> None:
    config = adapt({"moe": {"num_shared_experts": 2}, "multimodal": {}, "vision_encoder": {"a": 1}})
    assert (config["model_type"], config["text_config"]["model_type"]) == ("pixtral", "deepseek_v3")
    assert config["text_config"]["architectures"] == ["MistralLarge3ForCausalLM"]
    assert "multimodal" not in config["text_config"]


@pytest.mark.parametrize(
    ("params", "architecture"),
    [
        ({"vision_encoder": {}}, "MistralForCausalLM"),
        ({"model_type": "mamba"}, "Mamba2ForCausalLM"),
        ({"multimodal": {"whisper_model_args": {"encoder_args": {"dim": 1}}}}, "VoxtralForConditionalGeneration"),
        (
            {"multimodal": {"whisper_model_args": {"encoder_args": {"causal": True}}}},
            "VoxtralRealtimeGeneration",
        ),
    ],
)
def test_architecture_is_that_of_vllm(params: dict[str, Any], architecture: str) -> None:
    assert adapt(params)["architectures"] == [architecture]


def test_params_are_left_alone() -> None:
    params = {"dim": 1, "vision_encoder": {"a": 1}}
    adapt(params)
    assert params == {"dim": 1, "vision_encoder": {"a": 1}}
