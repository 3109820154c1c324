from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from patchkit.gates.checkpoint import open_checkpoint
from patchkit.gates.gate import Gate, Subject
from patchkit.gates.target import judge
from tests.gates.fragments import TARGET, VLLM, subject

ENTRY = '"LlamaForCausalLM": ("llama", "LlamaForCausalLM"),'
AUTO = "transformers__models__auto__configuration_auto"


def on(made: Subject) -> Gate:
    gate = judge(made)
    assert (gate.id, gate.when) == ("target-architecture", "configuration")
    return gate


def texts(gate: Gate) -> list[str]:
    return [line.text for line in gate.evidence]


def test_class_in_the_registry_passes(tmp_path: Path) -> None:
    gate = on(subject(tmp_path))
    assert (gate.verdict, gate.message) == ("pass", "LlamaForCausalLM is LlamaForCausalLM")
    assert texts(gate) == [ENTRY, '"architectures": [']


def test_code_of_the_folder_is_noted(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, TARGET | {"model_type": "none", "auto_map": {"AutoConfig": "conf.Conf"}}))
    assert gate.verdict == "pass"
    assert gate.message == "LlamaForCausalLM is LlamaForCausalLM; its configuration may need --trust-remote-code"


@pytest.mark.parametrize("source", ["", "x = {", "_ALL = {'A': ('a', 'A')}", "_TEXT_MODELS = make()"])
def test_registry_that_cannot_be_read_leaves_it_open(tmp_path: Path, source: str) -> None:
    gate = on(subject(tmp_path, vllm__model_executor__models__registry=source))
    assert (gate.verdict, gate.message, gate.evidence) == ("unknown", "vLLM's registry of models cannot be read", ())


@pytest.mark.parametrize("value", [None, [], "LlamaForCausalLM", 3, [3], [["LlamaForCausalLM"]], {}, True])
def test_config_that_names_no_architecture_cannot_be_told(tmp_path: Path, value: object) -> None:
    gate = on(subject(tmp_path, TARGET | {"architectures": value}))
    assert (gate.verdict, gate.message) == ("unknown", "the target's config.json names no architecture")
    assert texts(gate)[-1] == '"model_type": "llama"'


def test_class_that_the_registry_has_not_may_still_run(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, TARGET | {"architectures": ["A", "B\ud800"]}))
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message.startswith("vLLM's registry has no A or B\ud800; it may still run through Transformers")
    assert texts(gate) == ['"architectures": [', '"model_type": "llama"']


@pytest.mark.parametrize("source", ["", "class LlamaForCausalLM(:", "class Other: ..."])
def test_class_that_is_not_where_the_registry_says_cannot_be_told(tmp_path: Path, source: str) -> None:
    gate = on(subject(tmp_path, vllm__model_executor__models__llama=source))
    assert (gate.verdict, gate.message) == ("unknown", "LlamaForCausalLM is not in llama, where the registry says")
    assert texts(gate) == [ENTRY]


def test_type_that_nothing_installed_knows_fails(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, TARGET | {"model_type": "none"}))
    assert (gate.verdict, gate.hint) == ("fail", "install the Transformers that this model asks for")
    assert gate.error == "The checkpoint you are trying to load has model type `none`"
    assert gate.message == "neither vLLM nor Transformers knows model_type none, and the folder brings no code"
    assert texts(gate) == ['"architectures": [', '"model_type": "none"']


@pytest.mark.parametrize(
    ("target", "changes"),
    [
        ({"model_type": "wide"}, {}),
        ({"model_type": None}, {}),
        ({"model_type": 3}, {}),
        ({"model_type": ["llama"]}, {}),
        ({"model_type": "none"}, {AUTO: ""}),
    ],
    ids=["vLLM's own", "no type", "a number", "a list", "no Transformers"],
)
def test_type_that_may_be_known_passes(tmp_path: Path, target: dict[str, Any], changes: dict[str, str]) -> None:
    assert on(subject(tmp_path, TARGET | target, **changes)).verdict == "pass"


@pytest.mark.parametrize("mapping", [3, [], "conf.Conf", {"AutoConfig": 3}, {"AutoModel": "a.B"}, {"AutoConfig": None}])
def test_mapping_that_names_no_code_brings_none(tmp_path: Path, mapping: object) -> None:
    assert on(subject(tmp_path, TARGET | {"model_type": "none", "auto_map": mapping})).verdict == "fail"


def test_plain_params_ask_for_no_type(tmp_path: Path) -> None:

    registry = VLLM["vllm/model_executor/models/registry.py"].replace(
        '"LlamaForCausalLM": (', '"MistralForCausalLM": ('
    )
    made = subject(tmp_path, vllm__model_executor__models__registry=registry)
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "params.json").write_text('{"model_type": "none"}')
    made.target = open_checkpoint(tmp_path / "params")
    gate = on(made)
    assert (gate.verdict, gate.message) == ("pass", "MistralForCausalLM is LlamaForCausalLM")
