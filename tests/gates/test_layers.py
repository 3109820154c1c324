from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from patchkit.gates.gate import Gate, Subject
from patchkit.gates.layers import KEY, default_ids, judge, layer_ids
from tests.gates.fragments import DRAFT, TARGET, TEXT, VLLM, subject

LLAMA = dedent(VLLM["vllm/model_executor/models/llama.py"])
DEFAULTS = "return (2, num_layers // 2, num_layers - 3)"
CAUGHT = "aux_hidden_states.append(hidden_states + residual)"
TEST = "if idx in self.aux_hidden_state_layers:"
CORRECT = f'correct "{KEY}" in the drafter\'s config.json'
DEEP = TARGET | {"architectures": ["DeepForCausalLM"]}
SEE: dict[str, Any] = {"architectures": ["SeeForConditionalGeneration"], "model_type": "see", "text_config": TEXT}
READS = """
    def read(config):
        for name in ("dflash_config", "eagle_config"):
            ids = config.get("{}")
    """
STRICT = """
    def set_aux_hidden_state_layers(self, layers):
        if max(layers) > len(self.layers):
            raise ValueError("no such layer")

class LlamaForCausalLM"""
REFUSES = LLAMA.replace("\nclass LlamaForCausalLM", STRICT).replace(
    "self.model.aux_hidden_state_layers = layers", "self.model.set_aux_hidden_state_layers(layers)"
)


def made(tmp_path: Path, ids: object, source: str = LLAMA, target: dict[str, Any] = TARGET) -> Subject:
    return subject(tmp_path, target, DRAFT | {KEY: ids}, vllm__model_executor__models__llama=source)


def on(subject: Subject) -> Gate:
    gate = judge(subject)
    assert gate is not None and gate.id == "layer-ids"
    return gate


def test_nothing_is_said_without_a_drafter(tmp_path: Path) -> None:
    alone = subject(tmp_path)
    alone.draft = None
    assert judge(alone) is None


def test_drafter_without_auxiliary_states_needs_no_layers(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, draft={"eagle_config": {"use_aux_hidden_state": False}}))
    assert (gate.verdict, gate.when) == ("pass", "in-service")
    assert gate.message == "the drafter takes no auxiliary hidden states"


@pytest.mark.parametrize("count", [None, "8", [8], True, 8.0, 0, -8, 2**40])
def test_target_of_unknown_depth_cannot_be_told(tmp_path: Path, count: object) -> None:
    gate = on(subject(tmp_path, TARGET | {"num_hidden_layers": count}))
    assert (gate.verdict, gate.when) == ("unknown", "in-service")
    assert gate.message == "the target's config.json does not say how many layers it has"


def test_layers_in_order_pass(tmp_path: Path) -> None:
    gate = on(made(tmp_path, [1, 3, 7]))
    assert (gate.verdict, gate.when, gate.hint) == ("pass", "in-service", "")
    assert gate.message == "[1, 3, 7] are distinct layers of 8, in order"
    (line,) = gate.evidence
    assert (line.path, line.text) == (str(tmp_path / "draft" / "config.json"), f'"{KEY}": [')


@pytest.mark.parametrize(
    ("ids", "shown", "when"),
    [
        ([2, 4, 9], "[9] is outside the target: its 8 layers have ids 0 to 8", "first-request"),
        ([-2, 4, -1], "[-2, -1] is outside", "first-request"),
        ([2, 10**400], f"[{10**400}] is outside the target", "first-request"),
        ([2, 4, 4], "[2, 4, 4] names a layer twice, and its state is given once", "first-request"),
        ([0, 4, 5], "id 0, the state that enters the first layer, cannot be given", "first-forward"),
        ([2, 4, 8], "id 8, the state that leaves the last layer, is dropped", "first-request"),
    ],
)
def test_layer_that_cannot_be_given_fails(tmp_path: Path, ids: list[int], shown: str, when: str) -> None:
    gate = on(made(tmp_path, ids))
    assert (gate.verdict, gate.when, gate.hint) == ("fail", when, CORRECT)
    assert shown in gate.message
    assert gate.evidence[0].text == f'"{KEY}": ['
    assert [line.text for line in gate.evidence[1:]] == ([TEST] if "id " in shown[:3] else [])


@pytest.mark.parametrize("ids", [[2, 4, 9], [4, 4, 5]])
def test_decoder_that_refuses_stops_the_server_when_it_is_loaded(tmp_path: Path, ids: list[int]) -> None:
    gate = on(made(tmp_path, ids, REFUSES))
    assert (gate.verdict, gate.when) == ("fail", "drafter-loaded")


@pytest.mark.parametrize(
    "ids", [["2", "4"], [[2, 4]], [None], [{}], [2, "4"], [2.5, "4"], [True, None]], ids=lambda ids: str(ids)
)
def test_ids_that_are_no_numbers_fail(tmp_path: Path, ids: list[object]) -> None:
    gate = on(made(tmp_path, ids))
    assert (gate.verdict, gate.when, gate.hint) == ("fail", "first-forward", CORRECT)
    assert gate.message == f"{KEY} is not a list of numbers"
    assert [line.text for line in gate.evidence] == [f'"{KEY}": [']


@pytest.mark.parametrize(
    "ids",
    [[2.5, 4], [2.0, 4.0, 5.0], [True, 4], [2, False], [float("inf")], [float("nan"), 4], [9.0, 9.0]],
    ids=lambda ids: str(ids),
)
def test_ids_that_are_no_whole_numbers_cannot_be_told(tmp_path: Path, ids: list[object]) -> None:
    gate = on(made(tmp_path, ids))
    assert (gate.verdict, gate.when, gate.hint) == ("unknown", "first-forward", "write whole numbers")
    assert gate.message == f"{KEY} is not a list of whole numbers"
    assert [line.text for line in gate.evidence] == [f'"{KEY}": [']


@pytest.mark.parametrize("ids", [None, [], "2,4,5", "", 0, 3, True, 2.5, {}, {"2": 4}])
def test_what_is_no_list_is_passed_over_as_vllm_does(tmp_path: Path, ids: object) -> None:
    given = made(tmp_path, ids)
    assert layer_ids(given) is None
    gate = on(given)
    assert (gate.verdict, gate.when) == ("unknown", "in-service")
    assert gate.message == (
        f"the drafter names no layers ({KEY}), so vLLM takes [2, 4, 5]: "
        "right only for a drafter that was trained on these"
    )
    assert gate.hint.startswith("write the layers of its training")
    assert [line.text for line in gate.evidence] == ['"num_hidden_layers": 8,']


def test_defaults_that_cannot_be_told_are_said_to_be_so(tmp_path: Path) -> None:
    gate = on(made(tmp_path, None, LLAMA.replace(DEFAULTS, "return find(num_layers)")))
    assert gate.verdict == "unknown"
    assert gate.message == f"the drafter names no layers ({KEY}), and the target's defaults cannot be told"


@pytest.mark.parametrize(("count", "shown"), [(4, "[2, 2, 1]"), (2, "[2, 1, -1]"), (5, "[2, 2, 2]"), (1, "[2, 0, -2]")])
def test_defaults_of_a_shallow_target_fail(tmp_path: Path, count: int, shown: str) -> None:
    target = TARGET | {"num_hidden_layers": count}
    gate = on(made(tmp_path, None, target=target))
    assert (gate.verdict, gate.when) == ("fail", "first-request")
    assert gate.message == f"the drafter names no layers, and the defaults for {count} layers are {shown}"
    assert on(made(tmp_path / "strict", None, REFUSES, target)).when == "drafter-loaded"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("(2, n // 2, n - 3)", (2, 4, 5)),
        ("(n + 1,)", (9,)),
        ("(n // 0, self.config.n - 3)", (8, 5)),
        ("(2, n * 2)", None),
        ("(2, n // other)", None),
        ("(2, len(n) - 3)", None),
        ("(2, n)", None),
        ('("2",)', None),
        ("(n - 1.5,)", None),
        ("[2, 4]", None),
        ("()", ()),
    ],
)
def test_defaults_are_reckoned_from_the_source(tmp_path: Path, value: str, expected: tuple[int, ...] | None) -> None:
    assert default_ids(made(tmp_path, None, LLAMA.replace(DEFAULTS, f"return {value}")), 8) == expected


def test_later_name_of_the_defaults_comes_first(tmp_path: Path) -> None:
    later = "    def get_eagle3_default_aux_hidden_state_layers(self):\n        return (1, 2)\n"
    assert default_ids(made(tmp_path, None, LLAMA + later), 8) == (1, 2)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", (2, 4, 5)),
        (DEFAULTS, "return self.model.get_eagle3_aux_hidden_state_layers()", (1, 3)),
        (DEFAULTS, "pass", (1, 3)),
        ("def get_eagle3_aux_hidden_state_layers", "def other", None),
    ],
    ids=["of the language model", "of the decoder", "returns nothing", "nowhere but in the decoder"],
)
def test_defaults_of_a_wrapper_are_those_that_it_hands_on(
    tmp_path: Path, old: str, new: str, expected: tuple[int, ...] | None
) -> None:
    inner = "\n    def get_eagle3_aux_hidden_state_layers(self):\n        return (1, 3)\n\nclass LlamaForCausalLM"
    source = LLAMA.replace(old, new).replace("\nclass LlamaForCausalLM", inner)
    source = source.replace("(nn.Module, SupportsPP, SupportsEagle3)", "(nn.Module, SupportsPP)")
    assert default_ids(made(tmp_path, None, source, SEE), 8) == expected


def test_defaults_that_the_decoder_hands_on_to_itself_end(tmp_path: Path) -> None:
    inner = "\n    def get_eagle3_aux_hidden_state_layers(self):\n        return find()\n\nclass LlamaForCausalLM"
    source = LLAMA.replace(DEFAULTS, "return find()").replace("\nclass LlamaForCausalLM", inner)
    assert default_ids(made(tmp_path, None, source, SEE), 8) is None


@pytest.mark.parametrize("target", [{"architectures": []}, DEEP, SEE | {"text_config": 3}])
def test_defaults_of_a_class_that_says_none_are_not_known(tmp_path: Path, target: dict[str, Any]) -> None:
    source = LLAMA.replace("def get_eagle3_aux_hidden_state_layers", "def other")
    assert default_ids(made(tmp_path, None, source, target), 8) is None


@pytest.mark.parametrize(
    ("module", "name", "settings", "expected"),
    [
        ("gpu_model_runner", KEY, {KEY: [1, 2]}, [1, 2]),
        ("gpu__spec_decode__eagle__eagle3_utils", "layer_ids", {"layer_ids": [1, 2]}, [1, 2]),
        ("gpu_model_runner", KEY, {"layer_ids": [1, 2]}, None),
        ("gpu_model_runner", "other", {KEY: [1, 2], "layer_ids": [1, 2]}, None),
        ("gpu_model_runner", KEY, {KEY: "1,2"}, None),
        ("gpu_model_runner", KEY, [[1, 2]], None),
        ("gpu_model_runner", KEY, "1,2", None),
        ("gpu_model_runner", KEY, None, None),
    ],
)
def test_ids_of_eagle_config_count_where_the_release_reads_them(
    tmp_path: Path, module: str, name: str, settings: object, expected: list[int] | None
) -> None:
    draft = TEXT | {"eagle_config": settings}
    given = subject(tmp_path, draft=draft, **{f"vllm__v1__worker__{module}": READS.format(name)})
    assert layer_ids(given) == expected


def test_ids_at_the_top_come_first(tmp_path: Path) -> None:
    draft = DRAFT | {"eagle_config": {KEY: [1]}}
    assert layer_ids(subject(tmp_path, draft=draft, vllm__v1__worker__gpu_model_runner=READS.format(KEY))) == [2, 4, 5]


@pytest.mark.parametrize(
    ("ids", "verdict", "shown"),
    [
        ([1, 3, 7], "pass", "[1, 3, 7] are distinct layers of 8, in order"),
        ([0, 3], "unknown", "[0, 3] are distinct layers of 8; whether the target can give them cannot be told"),
        ([8], "unknown", "[8] are distinct layers of 8; whether the target can give them cannot be told"),
        ([9], "fail", "[9] is outside the target"),
        ([3, 3], "fail", "[3, 3] names a layer twice"),
    ],
)
@pytest.mark.parametrize("target", [DEEP, TARGET | {"architectures": []}], ids=["no capture", "no class"])
def test_edges_of_a_decoder_that_is_not_understood_cannot_be_told(
    tmp_path: Path, target: dict[str, Any], ids: list[int], verdict: str, shown: str
) -> None:
    gate = on(made(tmp_path, ids, target=target))
    assert gate.verdict == verdict
    assert gate.message.startswith(shown)


@pytest.mark.parametrize(
    ("old", "new", "ids", "verdict"),
    [
        (CAUGHT, "aux_hidden_states.append(hidden_states)", [0, 4], "pass"),
        (TEST, "if idx + 1 in self.aux_hidden_state_layers:", [2, 8], "pass"),
        (TEST, "if idx + 1 in self.aux_hidden_state_layers:", [0, 8], "fail"),
        (TEST, "if self.end_layer in self.aux_hidden_state_layers:", [2, 8], "pass"),
        (TEST, "if self.start_layer in self.aux_hidden_state_layers:", [0, 4], "pass"),
    ],
)
def test_edges_pass_where_the_decoder_gives_them(
    tmp_path: Path, old: str, new: str, ids: list[int], verdict: str
) -> None:
    assert on(made(tmp_path, ids, LLAMA.replace(old, new))).verdict == verdict


def test_ids_out_of_order_are_doubtful(tmp_path: Path) -> None:
    gate = on(made(tmp_path, [5, 2, 4]))
    assert (gate.verdict, gate.when) == ("unknown", "in-service")
    assert gate.message.startswith("[5, 2, 4] is not in ascending order")
    assert gate.hint == "put the ids in the order of the training"


@pytest.mark.parametrize(
    ("ids", "kind", "verdict"),
    [([2, 4, 5], "eagle3", "unknown"), ([2, 4, 6], "eagle3", "pass"), ([2, 4, 5], None, "pass")],
)
def test_default_layers_of_speculators_may_be_off_by_one(
    tmp_path: Path, ids: list[int], kind: str | None, verdict: str
) -> None:
    draft = DRAFT | {KEY: ids} | ({"speculators_model_type": kind} if kind else {})
    gate = on(subject(tmp_path, draft=draft))
    assert (gate.verdict, gate.when) == (verdict, "in-service")
    assert gate.hint == (f'if so, set "{KEY}": [3, 5, 6]' if verdict == "unknown" else "")
    assert ("[2, 4, 5] are speculators' default layers" in gate.message) == (verdict == "unknown")
