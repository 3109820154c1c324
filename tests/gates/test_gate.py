from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from patchkit.gates.gate import GATES, WHEN, Gate
from patchkit.gates.module import Evidence
from tests.gates.fragments import DRAFT, TARGET, TEXT, subject

SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 50,
    "target_hidden_size": 0,
    "hidden_size": 1,
    "transformer_layer_config": TEXT | {"target_hidden_size": 32, "draft_vocab_size": 40},
}


def test_words_are_in_the_order_of_a_start() -> None:
    assert list(WHEN) == [
        "configuration", "target-loaded", "drafter-loaded", "first-forward", "first-request", "in-service"
    ]  # fmt: skip
    assert list(GATES)[:3] == ["target-architecture", "draft-architecture", "speculative-tokens"]
    assert len(GATES) == 12


def test_gate_says_nothing_that_it_was_not_told() -> None:
    gate = Gate("parallel", "pass", "fits", "configuration")
    assert (gate.evidence, gate.error, gate.cure, gate.hint) == ((), None, None, "")


@pytest.mark.parametrize(
    ("architectures", "expected"),
    [
        (["LlamaForCausalLM"], "LlamaForCausalLM"),
        (["NoneForCausalLM", "DeepForCausalLM", "LlamaForCausalLM"], "DeepForCausalLM"),
        (["NoneForCausalLM"], None),
        ([], None),
        ("LlamaForCausalLM", None),
        ([["LlamaForCausalLM"], 3, None], None),
        ({"LlamaForCausalLM": 1}, None),
    ],
)
def test_architecture_is_the_first_that_the_registry_has(
    tmp_path: Path, architectures: object, expected: str | None
) -> None:
    made = subject(tmp_path, TARGET | {"architectures": architectures})
    assert made.architecture == expected
    assert (made.structure.cls.name if made.structure else None) == expected


def test_class_that_is_not_where_the_registry_says_gives_no_structure(tmp_path: Path) -> None:
    made = subject(tmp_path, vllm__model_executor__models__llama="class Other: ...")
    assert made.architecture == "LlamaForCausalLM"
    assert made.structure is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 8),
        ({"num_hidden_layers": None, "n_layer": 5}, 5),
        ({"text_config": {"num_hidden_layers": 3}}, 3),
        ({"text_config": [3]}, 8),
        ({"num_hidden_layers": "8"}, None),
        ({"num_hidden_layers": True}, None),
        ({"num_hidden_layers": 8.0}, None),
        ({"num_hidden_layers": [8]}, None),
        ({"num_hidden_layers": 0}, None),
        ({"num_hidden_layers": -8}, None),
        ({"num_hidden_layers": 1}, 1),
        ({"num_hidden_layers": 2**40 - 1}, 2**40 - 1),
        ({"num_hidden_layers": 2**40}, None),
        ({"num_hidden_layers": 10**400}, None),
        ({"num_hidden_layers": 0, "n_layer": -1, "num_layers": 2**40, "n_layers": 5}, 5),
        ({"text_config": {"num_hidden_layers": 0}}, 8),
    ],
)
def test_layers_are_a_number_or_not_known(tmp_path: Path, changes: dict[str, Any], expected: int | None) -> None:
    assert subject(tmp_path, TARGET | changes).layers == expected


def test_keys_of_a_plain_drafter_are_its_own(tmp_path: Path) -> None:
    assert subject(tmp_path).draft_keys == DRAFT


def test_keys_of_speculators_format_are_moved_up_where_they_say_something(tmp_path: Path) -> None:
    keys = subject(tmp_path, draft=SPECULATORS).draft_keys
    assert keys == TEXT | {"target_hidden_size": 32, "draft_vocab_size": 50}


@pytest.mark.parametrize("inner", [None, [], "x", 3])
def test_speculators_format_without_a_layer_config_is_taken_as_it_is(tmp_path: Path, inner: object) -> None:
    draft = SPECULATORS | {"transformer_layer_config": inner}
    assert subject(tmp_path, draft=draft).draft_keys == draft


def test_layer_config_of_another_format_is_not_moved_up(tmp_path: Path) -> None:
    draft = {key: value for key, value in SPECULATORS.items() if key != "speculators_model_type"}
    assert subject(tmp_path, draft=draft).draft_keys == draft


def test_without_a_drafter_there_are_no_keys(tmp_path: Path) -> None:
    made = subject(tmp_path)
    made.draft = None
    assert made.draft_keys == {}
    assert made.draft_number("hidden_size") is None
    assert made.uses_aux_hidden_states


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3), (1, 1), (2**40 - 1, 2**40 - 1), (2**40, 7), (10**400, 7), (0, 7), (-1, 7), (True, 7), ("3", 7),
        (3.0, 7), ([3], 7), ({}, 7), (None, 7),
    ],
)  # fmt: skip
def test_number_of_a_drafter_is_the_first_that_is_a_size(tmp_path: Path, value: object, expected: int) -> None:
    made = subject(tmp_path, draft={"a": value, "b": 7})
    assert made.draft_number("none", "a", "b") == expected
    assert made.draft_number("none") is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (None, True),
        ({}, True),
        ({"use_aux_hidden_state": True}, True),
        ({"use_aux_hidden_state": False}, False),
        ({"use_aux_hidden_state": 0}, False),
        ({"use_aux_hidden_state": None}, False),
        ({"use_aux_hidden_state": ""}, False),
        ({"use_aux_hidden_state": 1}, True),
        ({"use_aux_hidden_state": "false"}, True),
        ([False], True),
        ("use_aux_hidden_state", True),
        (0, True),
    ],
)
def test_drafter_takes_auxiliary_states_unless_it_says_no(tmp_path: Path, settings: object, expected: bool) -> None:
    assert subject(tmp_path, draft=DRAFT | {"eagle_config": settings}).uses_aux_hidden_states is expected


def test_lines_of_a_config_are_said_where_they_are(tmp_path: Path) -> None:
    made = subject(tmp_path, {"architectures": ["A"], "model_type": "a"})
    place = str(tmp_path / "target" / "config.json")
    assert made.said(made.target, "model_type", "none", "architectures") == (
        Evidence(place, 5, '"model_type": "a"'),
        Evidence(place, 2, '"architectures": ['),
    )
    assert made.said(made.target) == ()
