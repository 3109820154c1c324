from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from patchkit.gates.checkpoint import open_checkpoint
from patchkit.gates.gate import Gate, Subject
from patchkit.gates.image_token import find_chain, follow, judge
from tests.gates.fragments import TARGET, TEXT, VLLM, subject

PROPOSER = dedent(VLLM["vllm/v1/spec_decode/eagle.py"])
SEE_CLASS = dedent(VLLM["vllm/model_executor/models/see.py"])
SEE: dict[str, Any] = {
    "architectures": ["SeeForConditionalGeneration"],
    "model_type": "see",
    "text_config": TEXT | {"model_type": "llama"},
}
WIDE: dict[str, Any] = SEE | {"architectures": ["WideForConditionalGeneration"], "model_type": "wide"}
V2 = """
    class VllmConfig:
        def use_v2_model_runner(self):
            return HAS_TRITON
    """
SEE_LINE = "self.model.config.image_token_index = target_model.config.image_token_id"
ELSE_LINE = "self.model.config.image_token_index = target_model.config.image_token_index"
SEE_TEST = 'self.get_model_name(target_model) in ["SeeForConditionalGeneration"]'


def lines(gate: Gate) -> list[tuple[str, str]]:
    return [(Path(evidence.path).name, evidence.text) for evidence in gate.evidence]


def on(made: Subject) -> Gate:
    gate = judge(made)
    assert (gate.id, gate.when) == ("image-token", "target-loaded")
    return gate


def test_class_with_a_branch_and_its_attribute_passes(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, SEE))
    assert (gate.verdict, gate.error) == ("pass", None)
    assert gate.message == "SeeForConditionalGeneration: config.image_token_id is there"
    assert lines(gate) == [("eagle.py", SEE_LINE), ("configuration_see.py", "class SeeConfig(PretrainedConfig):")]


def test_class_without_a_branch_fails_with_the_text_of_vllm(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, WIDE))
    assert gate.verdict == "fail"
    assert gate.error == "AttributeError: 'WideConfig' object has no attribute 'image_token_index'"
    assert gate.message == (
        "WideForConditionalGeneration: the proposer reads config.image_token_index, "
        "and WideConfig has no image_token_index"
    )
    assert lines(gate) == [("eagle.py", ELSE_LINE), ("wide.py", "class WideConfig(PretrainedConfig):")]


@pytest.mark.parametrize("value", [5, None, "5", [], True])
def test_key_of_the_config_is_enough(tmp_path: Path, value: object) -> None:
    gate = on(subject(tmp_path, WIDE | {"image_token_index": value}))
    assert gate.verdict == "pass"
    assert lines(gate)[1] == ("config.json", f'"image_token_index": {json.dumps(value)}')


@pytest.mark.parametrize(
    ("vision", "verdict", "said"),
    [
        ({"image_token_id": 3}, "pass", "config.vision_config.image_token_id is there"),
        ({}, "unknown", "config.vision_config.image_token_id, and whether it is there cannot be told"),
        (None, "unknown", "config.vision_config.image_token_id, and whether it is there cannot be told"),
        ([3], "unknown", "config.vision_config.image_token_id, and whether it is there cannot be told"),
    ],
)
def test_attribute_of_a_part_is_looked_for_in_it(tmp_path: Path, vision: object, verdict: str, said: str) -> None:
    source = PROPOSER.replace("NestForConditionalGeneration", "WideForConditionalGeneration")
    gate = on(subject(tmp_path, WIDE | {"vision_config": vision}, vllm__v1__spec_decode__eagle=source))
    assert (gate.verdict, gate.error) == (verdict, None)
    assert said in gate.message
    assert lines(gate)[0][1].endswith("= target_model.config.vision_config.image_token_id")


def test_config_of_unknown_class_cannot_be_told(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, WIDE | {"model_type": "none"}))
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message.endswith("reads config.image_token_index, and whether it is there cannot be told")
    assert lines(gate) == [("eagle.py", ELSE_LINE)]


def test_plain_params_have_their_keys_and_no_others(tmp_path: Path) -> None:
    made = subject(tmp_path, WIDE)
    folder = tmp_path / "params"
    folder.mkdir()
    (folder / "params.json").write_text("{}")
    assert made.structure is not None
    made.structure.checkpoint = open_checkpoint(folder)
    gate = on(made)
    assert (gate.verdict, gate.error) == (
        "fail",
        "AttributeError: 'PretrainedConfig' object has no attribute 'image_token_index'",
    )
    assert gate.message.endswith("reads config.image_token_index, and PretrainedConfig has no image_token_index")


def test_unknown_target_cannot_be_told(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, TARGET | {"architectures": ["None"]}))
    assert (gate.verdict, gate.message, gate.evidence) == ("unknown", "the target's class is not known", ())


@pytest.mark.parametrize(("base", "verdict"), [("nn.Module", "pass"), ("Elsewhere", "unknown")])
def test_text_model_is_not_asked_where_its_bases_are_known(tmp_path: Path, base: str, verdict: str) -> None:
    source = VLLM["vllm/model_executor/models/deep.py"].replace("Causal" + "LM(nn.Module", f"CausalLM({base}")
    target = TARGET | {"architectures": ["DeepForCausalLM"]}
    gate = on(subject(tmp_path, target, vllm__model_executor__models__deep=source))
    assert (gate.verdict, gate.message) == (
        verdict,
        "DeepForCausalLM is not multimodal, so it is not asked for an image token",
    )
    assert lines(gate) == [("deep.py", f"class DeepForCausalLM({base}, SupportsPP):")]


def test_runner_v2_does_not_ask(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, WIDE, vllm__config__vllm=V2))
    assert gate.verdict == "pass"
    assert gate.message.startswith("model runner v2 does not ask") and "VLLM_USE_V2_MODEL_RUNNER=0" in gate.message
    assert lines(gate) == [("vllm.py", "def use_v2_model_runner(self):")]


@pytest.mark.parametrize(("target", "verdict"), [(WIDE, "unknown"), (SEE, "pass")])
def test_only_a_failure_depends_on_the_runner(tmp_path: Path, target: dict[str, Any], verdict: str) -> None:
    made = subject(tmp_path, target, vllm__config__vllm=V2)
    made.pipeline_parallel = 2
    gate = on(made)
    assert (gate.verdict, gate.error) == (verdict, None)
    assert ("v2 does not ask, and the start decides which one runs" in gate.message) == (verdict == "unknown")
    assert (("vllm.py", "def use_v2_model_runner(self):") in lines(gate)) == (verdict == "unknown")


@pytest.mark.parametrize("source", ["class SpecDecodeBaseProposer(:", "\0"])
def test_proposer_that_is_not_there_cannot_be_told(tmp_path: Path, source: str) -> None:
    gate = on(subject(tmp_path, WIDE, vllm__v1__spec_decode__eagle=source))
    assert (gate.verdict, gate.message) == ("unknown", "vLLM's proposer is not where it is looked for")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "def load_model(self): ...",
        "class SpecDecodeBaseProposer:\n    kind = 1\n    def load_model(self): ...",
        PROPOSER.replace("image_token_index", "other"),
        PROPOSER.replace("image_token_index", "other") + "\nimage_token_index = 'image_token_index'\n",
    ],
)
def test_proposer_without_a_chain_does_not_ask(tmp_path: Path, source: str) -> None:
    made = subject(tmp_path, WIDE, vllm__v1__spec_decode__eagle=source)
    assert find_chain(made) is None
    gate = on(made)
    assert (gate.verdict, gate.message) == ("pass", "this release's proposer does not ask for it")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SEE_TEST, SEE_TEST.replace("[", "(").replace("]", ",)")),
        (SEE_TEST, SEE_TEST.replace("[", "{").replace("]", "}")),
        (SEE_TEST, 'self.get_model_name(target_model) == "SeeForConditionalGeneration"'),
        (SEE_TEST, 'get_model_name(target_model) in ["SeeForConditionalGeneration"]'),
        ("def load_model", "kind: int = 1\n\n    async def load_model"),
    ],
    ids=["tuple", "set", "one name", "function", "after a setting"],
)
def test_chain_is_found_in_the_shapes_of_other_releases(tmp_path: Path, old: str, new: str) -> None:
    source = PROPOSER.replace(old, new)
    assert source != PROPOSER
    for target, verdict in ((SEE, "pass"), (WIDE, "fail")):
        assert on(subject(tmp_path / verdict, target, vllm__v1__spec_decode__eagle=source)).verdict == verdict


def test_base_proposer_of_later_releases_comes_first(tmp_path: Path) -> None:
    later = PROPOSER.replace('["See', '["WideForConditionalGeneration", "See').replace("image_token_id", "place")
    made = subject(tmp_path, WIDE, vllm__v1__spec_decode__llm_base_proposer=later)
    chain = find_chain(made)
    assert chain is not None
    assert chain.module.path == "vllm/v1/spec_decode/llm_base_proposer.py"
    assert "WideForConditionalGeneration" in chain.names
    gate = on(made)
    assert gate.verdict == "fail"
    assert "'WideConfig' object has no attribute 'place'" in str(gate.error)
    assert lines(gate)[0] == ("llm_base_proposer.py", SEE_LINE.replace("image_token_id", "place"))


def test_names_are_those_of_every_branch(tmp_path: Path) -> None:
    source = PROPOSER.replace("elif self", 'elif self.kind == "Other":\n                pass\n            elif self')
    chain = find_chain(subject(tmp_path, vllm__v1__spec_decode__eagle=source))
    assert chain is not None
    assert chain.names == {"SeeForConditionalGeneration", "NestForConditionalGeneration"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('elif self.get_model_name(target_model) == "Nest', 'elif self.kind == "Nest'),
        ('elif self.get_model_name(target_model) == "Nest', 'elif self.get_model_name(target_model) != "Nest'),
        ('self.get_model_name(target_model) == "Nest', '"A" == self.get_model_name(target_model) == "Nest'),
        ("self.get_model_name(target_model) ==", "isinstance(target_model, Nest) or"),
        (ELSE_LINE, "pass"),
        (f"else:\n                {ELSE_LINE}", ""),
    ],
    ids=["other question", "turned", "double", "isinstance", "branch without", "no branch"],
)
def test_chain_that_is_not_understood_cannot_be_told(tmp_path: Path, old: str, new: str) -> None:
    source = PROPOSER.replace(old, new)
    assert source != PROPOSER
    gate = on(subject(tmp_path, WIDE, vllm__v1__spec_decode__eagle=source))
    assert (gate.verdict, gate.message) == ("unknown", "the proposer asks in a way that is not known here")
    assert lines(gate) == [("eagle.py", f"if {SEE_TEST}:")]


@pytest.mark.parametrize("value", ["find(target_model)", "target_model.image_token_index", "other.config.x", "7"])
def test_value_that_is_not_understood_cannot_be_told(tmp_path: Path, value: str) -> None:
    source = PROPOSER.replace("target_model.config.image_token_index", value)
    gate = on(subject(tmp_path, WIDE, vllm__v1__spec_decode__eagle=source))
    assert (gate.verdict, gate.message) == ("unknown", "what the proposer reads is not known here")
    assert lines(gate) == [("eagle.py", f"self.model.config.image_token_index = {value}")]


ANNOTATED = "config: SeeConfig = vllm_config.model_config.hf_config"
KEPT = "self.config = config"


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (KEPT, f"{KEPT}.text_config", "fail"),
        (KEPT, "other = config\n        self.config = other.text_config", "fail"),
        (KEPT, "self.config = vllm_config.model_config.hf_config", "pass"),
        (KEPT, "", "unknown"),
        (KEPT, "self.config = find()", "unknown"),
        (KEPT, f"{KEPT}\n        self.config = config.text_config", "unknown"),
        (ANNOTATED, "", "unknown"),
        (ANNOTATED, "config = find()", "unknown"),
        (ANNOTATED, "config = config", "unknown"),
        (ANNOTATED, f"{ANNOTATED}\n        config = vllm_config.hf_config", "unknown"),
    ],
    ids=[
        "part", "part of another name", "directly", "not kept", "called", "kept twice", "never bound",
        "bound to a call", "bound to itself", "bound twice",
    ],
)  # fmt: skip
def test_what_the_model_keeps_as_its_config_counts(tmp_path: Path, old: str, new: str, verdict: str) -> None:
    source = SEE_CLASS.replace(old, new)
    assert source != SEE_CLASS
    gate = on(subject(tmp_path, SEE, vllm__model_executor__models__see=source))
    assert gate.verdict == verdict
    if verdict == "unknown":
        assert gate.message == "what the proposer reads is not known here"
    if verdict == "fail":
        assert str(gate.error).endswith("object has no attribute 'image_token_id'")


def test_classes_of_the_configuration_may_be_given(tmp_path: Path) -> None:
    made = subject(tmp_path, {"architectures": ["WideForConditionalGeneration"]})
    chain, known = find_chain(made), made.registry.config("wide")
    assert made.structure and chain and known
    assert follow(made, made.structure, chain).verdict == "unknown"
    gate = follow(made, made.structure, chain, [known])
    assert (gate.verdict, gate.error) == (
        "fail",
        "AttributeError: 'WideConfig' object has no attribute 'image_token_index'",
    )


SET = "self.model.config.image_token_index ="
ISINSTANCE = PROPOSER.replace(f"if {SEE_TEST}", "if isinstance(target_model, See)").replace(
    'self.get_model_name(target_model) == "Nest', 'self == "Nest'
)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (ISINSTANCE, SEE_LINE),
        (PROPOSER.replace(SET, "index ="), ELSE_LINE.replace(SET, "index =")),
        (PROPOSER.replace(SET, "return"), ELSE_LINE.replace(SET, "return")),
        ("draft.image_token_index = 3\n", "draft.image_token_index = 3"),
        ("def find(config):\n    return config.get().image_token_index\n", "return config.get().image_token_index"),
    ],
    ids=["isinstance", "bound elsewhere", "returned", "module level", "function"],
)
def test_proposer_that_asks_in_another_shape_cannot_be_told(tmp_path: Path, source: str, line: str) -> None:
    made = subject(tmp_path, WIDE, vllm__v1__spec_decode__eagle=source)
    assert find_chain(made) is None
    gate = on(made)
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message == "the proposer asks in a way that is not known here"
    assert lines(gate) == [("eagle.py", line)]


def test_any_of_the_proposers_may_ask_in_another_shape(tmp_path: Path) -> None:
    changes = {"vllm__v1__spec_decode__eagle": ISINSTANCE, "vllm__v1__spec_decode__llm_base_proposer": "x = 1\n"}
    gate = on(subject(tmp_path, WIDE, **changes))
    assert (gate.verdict, lines(gate)) == ("unknown", [("eagle.py", SEE_LINE)])


def test_runner_v2_does_not_ask_in_another_shape_either(tmp_path: Path) -> None:
    changes = {"vllm__v1__spec_decode__eagle": ISINSTANCE, "vllm__config__vllm": V2}
    assert on(subject(tmp_path, WIDE, **changes)).verdict == "pass"
