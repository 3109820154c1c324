from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from patchkit.gates.gate import GATES, WHEN, Subject
from patchkit.gates.preflight import judge
from tests.gates.fragments import DRAFT, TARGET, TEXT, TRANSFORMERS, VLLM, checkpoint, subject

DRAFTER = {"draft-architecture", "speculative-tokens", "layer-ids", "drafter-sizes"}
WIDE: dict[str, Any] = {
    "architectures": ["WideForConditionalGeneration"],
    "model_type": "wide",
    "text_config": TEXT | {"model_type": "mamba", "architectures": ["DeepForCausalLM"]},
}
SEE: dict[str, Any] = {"architectures": ["SeeForConditionalGeneration"], "model_type": "see", "text_config": TEXT}
SPECULATORS: dict[str, Any] = {
    "architectures": ["X"],
    "speculators_model_type": "eagle3",
    "transformer_layer_config": TEXT | {"model_type": "llama"},
}
VALUES = [
    None, True, False, 0, -1, 3, 2**70, 1.5, "", "llama", "x\ud800", "../../etc", "a\0b", [], [1], [True], ["2"],
    [None], {}, {"a": 1}, {"model_type": []}, {"text_config": 3}, {"AutoConfig": "a.b"}, {"AutoConfig": 3},
]  # fmt: skip
KEYS = [
    "architectures", "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids", "eagle_config",
    "n_predict", "speculators_model_type", "transformer_layer_config", "num_aux_hidden_states", "auto_map",
    "text_config", "thinker_config", "num_experts", "vision_config",
]  # fmt: skip


def test_pair_that_fits_passes_every_gate(tmp_path: Path) -> None:
    gates = judge(subject(tmp_path))
    assert {gate.id: gate.verdict for gate in gates} == dict.fromkeys(GATES, "pass")


def test_gates_come_in_the_order_of_a_start(tmp_path: Path) -> None:
    assert [gate.id for gate in judge(subject(tmp_path))] == [
        "target-architecture", "draft-architecture", "speculative-tokens", "parallel", "whitelist", "plugins",
        "image-token", "embeddings", "interface", "capture", "drafter-sizes", "layer-ids",
    ]  # fmt: skip


def test_pair_that_does_not_fit_fails_in_the_order_of_a_start(tmp_path: Path) -> None:
    draft = DRAFT | {"eagle_aux_hidden_state_layer_ids": [2, 4, 9], "n_predict": 2}
    gates = judge(subject(tmp_path, WIDE, draft))
    assert [(gate.id, gate.when) for gate in gates if gate.verdict == "fail"] == [
        ("speculative-tokens", "configuration"),
        ("whitelist", "configuration"),
        ("image-token", "target-loaded"),
        ("interface", "drafter-loaded"),
        ("capture", "first-forward"),
        ("layer-ids", "first-request"),
    ]
    places = [list(WHEN).index(gate.when) for gate in gates]
    assert places == sorted(places)


def test_gates_of_one_time_keep_their_own_order(tmp_path: Path) -> None:
    gates = judge(subject(tmp_path, TARGET | {"num_attention_heads": 3}))
    first = [list(GATES).index(gate.id) for gate in gates if gate.when == "configuration"]
    assert first == sorted(first)


def test_target_alone_is_judged_without_the_gates_of_a_drafter(tmp_path: Path) -> None:
    made = subject(tmp_path)
    made.draft = None
    assert {gate.id for gate in judge(made)} == set(GATES) - DRAFTER


def test_empty_configs_are_not_passed_where_they_matter(tmp_path: Path) -> None:
    verdicts = {gate.id: gate.verdict for gate in judge(subject(tmp_path, {}, {}))}
    assert {name for name, verdict in verdicts.items() if verdict == "pass"} == {
        "parallel", "plugins", "speculative-tokens"
    }  # fmt: skip
    assert "fail" not in verdicts.values()


def test_environment_without_vllm_is_not_passed_where_it_matters(tmp_path: Path) -> None:
    hollow = subject(tmp_path, **{name.removesuffix(".py").replace("/", "__"): "" for name in VLLM | TRANSFORMERS})
    passed = {gate.id for gate in judge(hollow) if gate.verdict == "pass"}
    assert passed == {"parallel", "plugins", "speculative-tokens", "layer-ids", "drafter-sizes"}


@pytest.mark.parametrize("whose", ["target", "text", "draft", "inner"])
@pytest.mark.parametrize("key", KEYS)
def test_hostile_setting_gives_verdicts(tmp_path: Path, whose: str, key: str) -> None:
    shared = subject(tmp_path)
    for number, value in enumerate(VALUES):
        if whose in ("draft", "inner") and key == "hidden_size" and value == 0:
            continue  # a width of nothing has a test of its own, in test_drafter.py
        pair = {
            "target": (TARGET | {key: value}, DRAFT),
            "text": (SEE | {"text_config": TEXT | {key: value}}, DRAFT),
            "draft": (TARGET, DRAFT | {key: value}),
            "inner": (TARGET, SPECULATORS | {"transformer_layer_config": TEXT | {key: value}}),
        }[whose]
        target, draft = (checkpoint(tmp_path / f"{number}{name}", config) for name, config in zip("td", pair))
        gates = judge(Subject(shared.code, shared.registry, target, draft, 2, 2, 3))
        assert {gate.id for gate in gates} == set(GATES)
        assert {gate.verdict for gate in gates} <= {"pass", "fail", "unknown"}
        assert {gate.when for gate in gates} <= set(WHEN)
