from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from patchkit.gates.gate import Gate
from patchkit.gates.whitelist import judge
from tests.gates.fragments import TARGET, VLLM, subject

SOURCE = dedent(VLLM["vllm/config/speculative.py"])
LIST = 'supported = ["llama", "qwen"]'
DEEP = TARGET | {"architectures": ["DeepForCausalLM"], "model_type": "deep"}
SEE: dict[str, Any] = {"architectures": ["SeeForConditionalGeneration"], "model_type": "see", "text_config": {}}


def lines(gate: Gate) -> list[tuple[str, str]]:
    return [(Path(evidence.path).name, evidence.text) for evidence in gate.evidence]


def on(tmp_path: Path, source: str, target: dict[str, Any] = TARGET) -> Gate:
    gate = judge(subject(tmp_path, target, vllm__config__speculative=source))
    assert (gate.id, gate.when) == ("whitelist", "configuration")
    return gate


def test_listed_target_passes(tmp_path: Path) -> None:
    gate = on(tmp_path, SOURCE)
    assert (gate.verdict, gate.message, gate.error) == ("pass", "model_type llama matches 'llama'", None)
    assert lines(gate) == [("speculative.py", LIST), ("config.json", '"model_type": "llama"')]


def test_substring_is_enough_and_the_inner_model_counts(tmp_path: Path) -> None:
    gate = on(tmp_path, SOURCE, SEE)
    assert (gate.verdict, gate.message) == ("pass", "model_type see_llama_text matches 'llama'")
    assert lines(gate)[1] == ("configuration_see.py", 'model_type = "see_llama_text"')


def test_target_that_is_not_listed_fails_with_the_text_of_vllm(tmp_path: Path) -> None:
    gate = on(tmp_path, SOURCE, DEEP)
    assert (gate.verdict, gate.message) == ("fail", "model_type deep contains none of llama, qwen")
    assert gate.error == (
        "eagle3 is only supported for ['llama', 'qwen'] models. "
        "Got self.target_model_config.hf_text_config.model_type='deep'"
    )
    assert lines(gate) == [("speculative.py", LIST), ("config.json", '"model_type": "deep"')]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (SOURCE.replace("supported", "aux_hidden_states_supported"), f"aux_hidden_states_{LIST}"),
        ('NAMES = ["llama", "qwen"]\n' + SOURCE.replace(LIST, "pass").replace("in supported", "in NAMES"),
         'NAMES = ["llama", "qwen"]'),
        (SOURCE.replace("for name in supported\n", 'for name in ("llama", "qwen")\n').replace(LIST, "pass"),
         'name in self.target_model_config.hf_text_config.model_type for name in ("llama", "qwen")'),
        (SOURCE.replace(LIST, 'supported = ("llama", "qwen")'), 'supported = ("llama", "qwen")'),
        (SOURCE.replace(LIST, 'supported: list[str] = ["llama", "qwen"]'), 'supported: list[str] = ["llama", "qwen"]'),
        (SOURCE.replace('self.method == "eagle3"', 'self.method in ("eagle3", "other")'), LIST),
        (SOURCE.replace("def _verify_args", "async def _verify"), LIST),
    ],
    ids=["renamed", "at module level", "in place", "tuple", "annotated", "several methods", "other method"],
)  # fmt: skip
def test_list_is_found_in_the_shapes_of_other_releases(tmp_path: Path, source: str, line: str) -> None:
    passing, failing = on(tmp_path / "a", source), on(tmp_path / "b", source, DEEP)
    assert (passing.verdict, failing.verdict) == ("pass", "fail")
    assert lines(passing)[0] == lines(failing)[0] == ("speculative.py", line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SOURCE, "class SpeculativeConfig: ..."),
        ('self.method == "eagle3"', 'self.method == "mtp"'),
        ('self.method == "eagle3"', 'self.method in ("mtp", "eagle")'),
        ("hf_text_config.model_type", "hf_text_config.kind"),
        ("hf_text_config.model_type", "hf_config.model_type"),
        ("name in self.target_model_config.hf_text_config.model_type", "bool(name)"),
    ],
    ids=["removed", "for mtp", "for two others", "other key", "other config", "other test"],
)
def test_release_without_the_list_passes_every_target(tmp_path: Path, old: str, new: str) -> None:
    gate = on(tmp_path, SOURCE.replace(old, new), DEEP)
    assert (gate.verdict, gate.message) == ("pass", "this release has no such list")
    assert lines(gate)[0][1].startswith("class SpeculativeConfig:")


LOOP = """
    class SpeculativeConfig:
        def _verify_args(self):
            if self.method == "eagle3":
                for name in ["llama", "qwen"]:
                    if name in self.target_model_config.hf_text_config.model_type:
                        return self
                raise ValueError("Eagle3 is only supported for few models.")
    """


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('self.method == "eagle3"', 'self.kind == "eagle3"'),
        ('self.method == "eagle3"', '"eagle3" == self.method'),
        ('self.method == "eagle3"', "self.method"),
        ("name in self", "name not in self"),
        (SOURCE, LOOP),
        (SOURCE, LOOP.replace("def _", "async def _")),
        (SOURCE, LOOP.replace('"Eagle3', 'f"{self.method}')),
        (SOURCE, LOOP.replace("def _", "names = 1\n\n        def _")),
    ],
    ids=[
        "no method", "method on the right", "no comparison", "turned", "loop", "other method", "loop with a name",
        "after a setting",
    ],
)  # fmt: skip
def test_list_that_is_asked_in_another_shape_cannot_be_told(tmp_path: Path, old: str, new: str) -> None:
    source = SOURCE.replace(old, new)
    assert source != SOURCE
    gate = on(tmp_path, source, DEEP)
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message == "targets are refused by their model_type in a way that is not known here"
    ((name, text),) = lines(gate)
    assert name == "speculative.py" and text.endswith("def _verify_args(self):")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("only supported for few", "made for few"),
        ("hf_text_config.model_type", "hf_text_config.kind"),
        ('self.method == "eagle3"', 'self.method == "mtp"'),
    ],
    ids=["other text", "other key", "for mtp"],
)
def test_other_methods_of_the_class_are_no_list(tmp_path: Path, old: str, new: str) -> None:
    source = LOOP.replace(old, new)
    assert source != LOOP
    gate = on(tmp_path, source, DEEP)
    assert (gate.verdict, gate.message) == ("pass", "this release has no such list")


def test_method_that_refuses_is_found_behind_one_for_others(tmp_path: Path) -> None:
    before = LOOP.replace("_verify_args", "_other").replace("eagle3", "mtp")
    source = dedent(before) + dedent(LOOP).partition(":\n")[2]
    (line,) = lines(on(tmp_path, source, DEEP))
    assert line == ("speculative.py", "def _verify_args(self):")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("supported = load()", "supported = load()"),
        ("supported = []", "supported = []"),
        ("supported = [LLAMA, QWEN]", "supported = [LLAMA, QWEN]"),
        ("supported = BASE + MORE", "supported = BASE + MORE"),
        ("pass", 'if self.method == "eagle3" and not any('),
        ('supported = "llama"', 'supported = "llama"'),
        ('supported = ["llama", 3]', 'supported = ["llama", 3]'),
        ('supported = ["llama", OTHER]', 'supported = ["llama", OTHER]'),
        ('supported = ["llama", *MORE]', 'supported = ["llama", *MORE]'),
        (f'{LIST}\n        supported = ["deep"]', LIST),
        (f"{LIST}\n        supported: list[str] = more()", LIST),
        (f"if self.old:\n            {LIST}\n        else:\n            supported = []", LIST),
    ],
)
def test_list_that_is_not_written_out_cannot_be_told(tmp_path: Path, value: str, line: str) -> None:
    gate = on(tmp_path, SOURCE.replace(LIST, value), DEEP)
    assert (gate.verdict, gate.message) == ("unknown", "the list is not written as a list of strings")
    assert lines(gate) == [("speculative.py", line)]


@pytest.mark.parametrize("source", ["class Other: ...", "", "class SpeculativeConfig(:", "\0"])
def test_release_without_the_class_cannot_be_told(tmp_path: Path, source: str) -> None:
    gate = on(tmp_path, source)
    assert (gate.verdict, gate.evidence) == ("unknown", ())
    assert gate.message == "vLLM's SpeculativeConfig is not where it is looked for"


@pytest.mark.parametrize("model_type", [None, 3, True, ["llama"], {"llama": 1}])
def test_model_type_that_is_no_text_cannot_be_told(tmp_path: Path, model_type: object) -> None:
    gate = on(tmp_path, SOURCE, TARGET | {"model_type": model_type})
    assert (gate.verdict, gate.message) == ("unknown", "the model_type of the text model cannot be told")
    assert lines(gate) == [("speculative.py", LIST)]


def test_settings_beside_the_methods_are_passed_over(tmp_path: Path) -> None:
    source = SOURCE.replace("    @staticmethod", '    method: str = "eagle3"\n\n    @staticmethod')
    assert on(tmp_path, source, DEEP).verdict == "fail"


@pytest.mark.parametrize("value", ['["llama", OTHER]', "find()"])
def test_list_at_module_level_that_is_not_written_out_cannot_be_told(tmp_path: Path, value: str) -> None:
    source = f"NAMES = {value}\n" + SOURCE.replace(LIST, "pass").replace("in supported", "in NAMES")
    gate = on(tmp_path, source, DEEP)
    assert (gate.verdict, gate.message) == ("unknown", "the list is not written as a list of strings")
    assert lines(gate) == [("speculative.py", f"NAMES = {value}")]


@pytest.mark.parametrize("added", ['supported += ["mamba"]', 'supported.append("mamba")', "supported.extend(MORE)"])
def test_list_that_is_added_to_cannot_be_told(tmp_path: Path, added: str) -> None:
    bound = 'supported = ["llama", "qwen"]'
    source = SOURCE.replace(bound, f"{bound}; {added}")
    assert source != SOURCE
    gate = on(tmp_path, source, DEEP)
    assert (gate.verdict, gate.message) == ("unknown", "the list is not written as a list of strings")


@pytest.mark.parametrize("asked", ["self.method in EAGLE_METHODS", 'self.method != "mtp"'])
def test_methods_that_are_not_named_may_be_ours(tmp_path: Path, asked: str) -> None:
    source = SOURCE.replace('self.method == "eagle3"', asked)
    assert source != SOURCE
    assert on(tmp_path, source, DEEP).verdict == "unknown"
