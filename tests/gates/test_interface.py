from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from patchkit.gates.gate import Gate, Subject
from patchkit.gates.interface import Capture, judge_capture, judge_interface
from tests.gates.fragments import DRAFT, TARGET, TEXT, VLLM, subject

LLAMA = dedent(VLLM["vllm/model_executor/models/llama.py"])
DEEP_CLASS = dedent(VLLM["vllm/model_executor/models/deep.py"])
SEE_CLASS = dedent(VLLM["vllm/model_executor/models/see.py"])
INTERFACES = dedent(VLLM["vllm/model_executor/models/interfaces.py"])
DEEP = TARGET | {"architectures": ["DeepForCausalLM"]}
SEE: dict[str, Any] = {"architectures": ["SeeForConditionalGeneration"], "model_type": "see", "text_config": TEXT}
WIDE: dict[str, Any] = SEE | {"architectures": ["WideForConditionalGeneration"], "model_type": "wide"}
SILENT = DRAFT | {"eagle_config": {"use_aux_hidden_state": False}}

MIXIN = """
from typing import Protocol

class SupportsPP(Protocol):
    ...

class EagleModelMixin:
    aux_hidden_state_layers: tuple = ()

    def _maybe_add_hidden_state(self, states, index, hidden_states, residual):
        if index in self.aux_hidden_state_layers:
            states.append(hidden_states)
        return states

class SupportsEagle3(Protocol):
    supports_eagle3 = True

    def set_aux_hidden_state_layers(self, layers):
        holder = self.model
        assert isinstance(holder, EagleModelMixin), "must inherit"
        holder._set(layers)

    def get_eagle3_default_aux_hidden_state_layers(self):
        num_layers = len(self.model.layers)
        return (2, num_layers // 2, num_layers - 3)
"""
LATER = """
from torch import nn
from .interfaces import EagleModelMixin, SupportsEagle3, SupportsPP

class LlamaModel(nn.Module, EagleModelMixin):
    def __init__(self, *, vllm_config, prefix=""):
        self.layers = make_layers(vllm_config)

    def forward(self, input_ids, positions, intermediate_tensors):
        states = self._maybe_add_hidden_state([], 0, hidden_states, residual)
        return hidden_states, states

class LlamaForCausalLM(nn.Module, SupportsPP, SupportsEagle3):
    def __init__(self, *, vllm_config, prefix=""):
        self.model = LlamaModel(vllm_config=vllm_config)
"""
BARE = LATER.replace("LlamaModel(nn.Module, EagleModelMixin)", "LlamaModel(nn.Module)")
OWN_SETTER = "\n    def set_aux_hidden_state_layers(self, layers): ...\n"
TEST = "if idx in self.aux_hidden_state_layers:"
CAUGHT = "aux_hidden_states.append(hidden_states + residual)"


def lines(gate: Gate) -> list[tuple[str, str]]:
    return [(Path(evidence.path).name, evidence.text) for evidence in gate.evidence]


def llama(tmp_path: Path, source: str, interfaces: str = INTERFACES) -> Subject:
    return subject(
        tmp_path, vllm__model_executor__models__llama=source, vllm__model_executor__models__interfaces=interfaces
    )


def capture_of(made: Subject) -> Capture:
    assert made.structure and made.structure.decoder
    return Capture(made, made.structure, made.structure.decoder)


# The interface


@pytest.mark.parametrize("target", [TARGET, SEE], ids=["text", "multimodal"])
def test_class_with_the_base_passes(tmp_path: Path, target: dict[str, Any]) -> None:
    gate = judge_interface(subject(tmp_path, target))
    name = target["architectures"][0]
    assert (gate.id, gate.verdict, gate.when) == ("interface", "pass", "drafter-loaded")
    assert gate.message == f"{name} is a SupportsEagle3"
    protocol, own = lines(gate)
    assert protocol == ("interfaces.py", "class SupportsEagle3(SupportsEagleBase, Protocol):")
    assert own[1].startswith(f"class {name}(")


MEMBERS = """
    supports_eagle3 = True
    has_own_lm_head = False

    def set_aux_hidden_state_layers(self, layers): ...

    def get_eagle3_aux_hidden_state_layers(self): ...

    def load(self):
        self.has_own_embed_tokens = False
"""


def test_class_with_every_member_passes_as_a_protocol_lets_it(tmp_path: Path) -> None:
    gate = judge_interface(subject(tmp_path, DEEP, vllm__model_executor__models__deep=DEEP_CLASS + MEMBERS))
    assert (gate.verdict, gate.message) == ("pass", "DeepForCausalLM has every member of SupportsEagle3")


def test_class_without_members_fails_with_the_text_of_vllm(tmp_path: Path) -> None:
    gate = judge_interface(subject(tmp_path, DEEP))
    assert (gate.verdict, gate.when) == ("fail", "drafter-loaded")
    assert gate.error == "Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested"
    assert gate.message == (
        "DeepForCausalLM is no SupportsEagle3: it has no get_eagle3_aux_hidden_state_layers, has_own_embed_tokens, "
        "has_own_lm_head, set_aux_hidden_state_layers, supports_eagle3"
    )
    assert lines(gate)[1] == ("deep.py", "class DeepForCausalLM(nn.Module, SupportsPP):")


def test_one_member_that_is_missing_is_named(tmp_path: Path) -> None:
    source = DEEP_CLASS + MEMBERS.replace("has_own_lm_head", "other")
    gate = judge_interface(subject(tmp_path, DEEP, vllm__model_executor__models__deep=source))
    assert (gate.verdict, gate.message) == ("fail", "DeepForCausalLM is no SupportsEagle3: it has no has_own_lm_head")


def test_private_members_of_the_protocol_are_not_asked_for(tmp_path: Path) -> None:
    interfaces = INTERFACES + "\n    def _own(self): ...\n"
    made = subject(
        tmp_path,
        DEEP,
        vllm__model_executor__models__deep=DEEP_CLASS + MEMBERS,
        vllm__model_executor__models__interfaces=interfaces,
    )
    assert judge_interface(made).verdict == "pass"


def test_base_that_cannot_be_read_leaves_it_open(tmp_path: Path) -> None:
    source = DEEP_CLASS.replace("LM(nn.Module", "LM(Elsewhere")
    gate = judge_interface(subject(tmp_path, DEEP, vllm__model_executor__models__deep=source))
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message == "a base of DeepForCausalLM cannot be read, so its members are not all known"


@pytest.mark.parametrize("source", ["", "class SupportsEagle3(:", "class Other: ..."])
def test_release_without_the_interface_cannot_be_told(tmp_path: Path, source: str) -> None:
    gate = judge_interface(subject(tmp_path, vllm__model_executor__models__interfaces=source))
    assert (gate.verdict, gate.message) == ("unknown", "this vLLM has no SupportsEagle3")


def test_unknown_target_has_no_known_interface_nor_decoder(tmp_path: Path) -> None:
    made = subject(tmp_path, TARGET | {"architectures": []})
    interface, capture = judge_interface(made), judge_capture(made)
    assert (interface.verdict, interface.message) == ("unknown", "the target's class is not known")
    assert capture.verdict == "unknown"
    assert capture.message == "the class that owns the decoder layers cannot be told: the target's class is not known"


def test_drafter_without_auxiliary_states_asks_for_nothing(tmp_path: Path) -> None:
    made = subject(tmp_path, DEEP, SILENT)
    for gate, when in ((judge_interface(made), "drafter-loaded"), (judge_capture(made), "first-forward")):
        assert (gate.verdict, gate.when) == ("pass", when)
        assert gate.message.startswith("the drafter takes no auxiliary hidden states")
        assert lines(gate) == [("config.json", '"use_aux_hidden_state": false')]


# The capture


def test_decoder_that_asks_for_the_layers_passes(tmp_path: Path) -> None:
    gate = judge_capture(subject(tmp_path))
    assert (gate.id, gate.verdict, gate.when) == ("capture", "pass", "first-forward")
    assert gate.message == "LlamaModel gives auxiliary hidden states"
    assert lines(gate) == [("llama.py", TEST)]


def test_decoder_that_gives_nothing_fails(tmp_path: Path) -> None:
    gate = judge_capture(subject(tmp_path, DEEP))
    assert (gate.verdict, gate.message) == ("fail", "DeepModel.forward gives no auxiliary hidden states")
    assert gate.error == "ValueError: too many values to unpack (expected 2)"
    assert lines(gate) == [("deep.py", "def forward(self, input_ids, positions, intermediate_tensors):")]


def test_no_drafter_at_all_is_judged_as_one_with_auxiliary_states(tmp_path: Path) -> None:
    made = subject(tmp_path, DEEP)
    made.draft = None
    assert judge_capture(made).verdict == "fail"


@pytest.mark.parametrize(
    "test",
    [
        "if idx not in self.aux_hidden_state_layers:",
        "if idx == self.aux_hidden_state_layers:",
        "if idx in self.other_layers:",
        "if self.aux_hidden_state_layers:",
    ],
)
def test_other_tests_are_no_capture(tmp_path: Path, test: str) -> None:
    assert judge_capture(llama(tmp_path, LLAMA.replace(TEST, test))).verdict == "fail"


def test_decoder_with_a_base_that_cannot_be_read_is_left_open(tmp_path: Path) -> None:
    source = DEEP_CLASS.replace("DeepModel(nn.Module)", "DeepModel(Elsewhere)")
    gate = judge_capture(subject(tmp_path, DEEP, vllm__model_executor__models__deep=source))
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message == "a base of DeepModel cannot be read"


def test_decoder_without_a_forward_shows_its_class(tmp_path: Path) -> None:
    source = LLAMA.replace("def forward(self, input_ids, positions, intermediate_tensors):", "def other(self):")
    gate = judge_capture(llama(tmp_path, source))
    assert gate.verdict == "fail"
    assert lines(gate) == [("llama.py", "class LlamaModel(nn.Module):")]


def test_decoder_that_cannot_be_told_shows_the_way_to_it(tmp_path: Path) -> None:
    source = SEE_CLASS.replace('["LlamaForCausalLM"]', "names")
    gate = judge_capture(subject(tmp_path, SEE, vllm__model_executor__models__see=source))
    assert gate.verdict == "unknown"
    assert gate.message == "the class that owns the decoder layers cannot be told: SeeForConditionalGeneration"


ASKS = """
def {}(self, idx):
    if idx in self.aux_hidden_state_layers:
        pass
"""


def decoder(forward: str, above: str = "", bases: str = "nn.Module") -> str:
    """Return a module whose decoder has these methods and bases."""
    methods = indent(forward, "    ")
    head = LLAMA[LLAMA.index("class LlamaForCausalLM") :]
    own = f"class LlamaModel({bases}):\n    def __init__(self, vllm_config):\n        self.layers = ()\n{methods}"
    return f"{LLAMA[: LLAMA.index('class LlamaModel')]}\n{above}\n{own}\n{head}"


def test_capture_in_a_method_that_forward_calls_is_seen(tmp_path: Path) -> None:
    source = decoder("def forward(self, idx):\n    self._take(idx)\n    self._none(idx)\n" + ASKS.format("_take"))
    gate = judge_capture(llama(tmp_path, source))
    assert (gate.verdict, lines(gate)) == ("pass", [("llama.py", TEST)])


def test_capture_in_a_method_that_forward_does_not_call_does_not_count(tmp_path: Path) -> None:
    source = decoder("def forward(self, idx):\n    other._take(idx)\n" + ASKS.format("_take"))
    assert judge_capture(llama(tmp_path, source)).verdict == "fail"


@pytest.mark.parametrize(
    ("call", "above", "verdict"),
    [
        ("super().forward(idx)", ASKS.format("forward"), "pass"),
        ("super().forward(idx)", "def forward(self, idx):\n    return idx", "fail"),
        ("super().forward(idx)", "kind = 1", "fail"),
        ("super().other(idx)", ASKS.format("forward"), "fail"),
        ("other(idx)", ASKS.format("forward"), "fail"),
    ],
    ids=["captures", "does not", "no forward", "calls another", "calls none"],
)
def test_capture_in_the_forward_above_counts_where_it_is_called(
    tmp_path: Path, call: str, above: str, verdict: str
) -> None:
    base = f"class Base(nn.Module):\n{indent(above, '    ')}\n"
    source = decoder(f"def forward(self, idx):\n    return {call}\n", base, "Base")
    gate = judge_capture(llama(tmp_path, source))
    assert (gate.verdict, gate.error is None) == (verdict, verdict == "pass")


# The mixin of later releases


def test_mixin_captures_and_takes_every_id(tmp_path: Path) -> None:
    made = llama(tmp_path, LATER, MIXIN)
    assert (judge_interface(made).verdict, judge_capture(made).verdict) == ("pass", "pass")
    capture = capture_of(made)
    assert capture.by_mixin and capture.takes_first and capture.takes_last and capture.needs_mixin
    assert not capture.is_strict
    assert capture.evidence[0].path == "vllm/model_executor/models/llama.py"


def test_setter_that_wants_the_mixin_refuses_another_decoder(tmp_path: Path) -> None:
    gate = judge_capture(llama(tmp_path, BARE, MIXIN))
    assert (gate.verdict, gate.when) == ("fail", "drafter-loaded")
    assert gate.error == "AssertionError: Model instance must inherit from EagleModelMixin to set auxiliary layers"
    assert gate.message == "LlamaModel is no EagleModelMixin, which the interface's own setter wants"


@pytest.mark.parametrize(
    ("source", "interfaces"),
    [(BARE + OWN_SETTER, MIXIN), (BARE, MIXIN.replace("assert isinstance(holder, EagleModelMixin),", "note ="))],
    ids=["own setter", "setter that does not ask"],
)
def test_setter_that_does_not_ask_takes_any_decoder(tmp_path: Path, source: str, interfaces: str) -> None:
    made = llama(tmp_path, source, interfaces)
    assert not capture_of(made).needs_mixin
    assert judge_capture(made).verdict == "pass"


def test_mixin_s_own_method_is_no_test_of_the_decoder(tmp_path: Path) -> None:
    source = LATER.replace("LlamaModel(nn.Module, EagleModelMixin)", "LlamaModel(EagleModelMixin)")
    capture = capture_of(llama(tmp_path, source, MIXIN))
    assert capture.is_there and capture._tests == []


def test_line_that_captures_by_the_mixin_is_shown(tmp_path: Path) -> None:
    gate = judge_capture(llama(tmp_path, LATER, MIXIN))
    assert lines(gate) == [("llama.py", "states = self._maybe_add_hidden_state([], 0, hidden_states, residual)")]


# Which ids can be given


@pytest.mark.parametrize(
    ("test", "body", "first", "last"),
    [
        (TEST, CAUGHT, False, False),
        (TEST, "aux_hidden_states.append(hidden_states)", True, False),
        (TEST, "aux_hidden_states.append(hidden_states if residual is None else hidden_states + residual)",
         True, False),
        ("if idx + 1 in self.aux_hidden_state_layers:", CAUGHT, False, True),
        ("if self.end_layer in self.aux_hidden_state_layers:", CAUGHT, False, True),
        ("if self.start_layer in self.aux_hidden_state_layers:", CAUGHT, True, False),
        ("if idx in self.aux_hidden_state_layers and residual is not None:", CAUGHT, False, False),
    ],
    ids=["residual", "no residual", "asks", "after the layer", "end layer", "start layer", "two tests"],
)  # fmt: skip
def test_edges_are_told_from_the_test(tmp_path: Path, test: str, body: str, first: bool, last: bool) -> None:
    capture = capture_of(llama(tmp_path, LLAMA.replace(TEST, test).replace(CAUGHT, body)))
    assert capture.is_there
    assert (capture.takes_first, capture.takes_last) == (first, last)


STRICT = """
    def set_aux_hidden_state_layers(self, layers):
        if max(layers) > len(self.layers):
            raise ValueError("no such layer")
        self.aux_hidden_state_layers = layers
"""


REFUSES = LLAMA.replace("\nclass LlamaForCausalLM", f"{STRICT}\nclass LlamaForCausalLM")


@pytest.mark.parametrize(("source", "expected"), [(LLAMA, False), (REFUSES, True)], ids=["takes any", "refuses"])
def test_setter_of_the_decoder_counts_where_it_is_called(tmp_path: Path, source: str, expected: bool) -> None:
    own = "self.model.aux_hidden_state_layers = layers"
    handed_on = source.replace(own, "self.model.set_aux_hidden_state_layers(layers)")
    assert capture_of(llama(tmp_path / "a", handed_on)).is_strict is expected
    assert not capture_of(llama(tmp_path / "b", source)).is_strict


def test_setters_are_followed_from_the_wrapper_to_the_language_model(tmp_path: Path) -> None:
    source = LLAMA.replace("self.model.aux_hidden_state_layers = layers", "raise ValueError")
    made = subject(tmp_path, SEE, vllm__model_executor__models__llama=source)
    assert capture_of(made).is_strict


def test_wrapper_whose_language_model_is_not_known_has_only_its_own_setter(tmp_path: Path) -> None:
    made = subject(tmp_path, SEE, vllm__model_executor__models__see=SEE_CLASS.replace('["LlamaForCausalLM"]', "names"))
    decoder = made.registry.model("DeepForCausalLM")
    assert made.structure and made.structure.language_model is None and decoder
    assert not Capture(made, made.structure, decoder).is_strict


def test_hostile_source_gives_a_verdict(tmp_path: Path) -> None:
    source = LLAMA.replace(TEST, f"f{'()' * 900}\n            {TEST}")
    assert judge_capture(llama(tmp_path, source)).verdict in ("pass", "unknown")
