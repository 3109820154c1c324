from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from patchkit.gates.model_runner import model_runner
from tests.gates.fragments import TARGET, subject

PLAIN = """
    class VllmConfig:
        def use_v2_model_runner(self):
            return HAS_TRITON
    """
RULE = """
    DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES = frozenset({"DeepForCausalLM", NAME})

    class VllmConfig:
        def use_v2_model_runner(self):
            return self._is_default_v2_model_runner_model()

        def _is_default_v2_model_runner_model(self):
            if self.model_config is None:
                return False
            return self.is_listed or not self.model_config.is_moe
    """
LAST = "self.is_listed or not self.model_config.is_moe"
ANY = RULE.replace(LAST, "any(name in LISTED for name in self.names)")
DECISION, DECIDES = "def use_v2_model_runner(self):", "def _is_default_v2_model_runner_model(self):"
DEEP = TARGET | {"architectures": ["DeepForCausalLM"]}


def ask(tmp_path: Path, source: str, target: dict[str, Any] = TARGET, pipeline: int = 1) -> tuple[str, list[str]]:
    made = subject(tmp_path, target, vllm__config__vllm=source)
    made.pipeline_parallel = pipeline
    runner, said = model_runner(made)
    assert {evidence.path for evidence in said} <= {"vllm/config/vllm.py"}
    return runner, [evidence.text for evidence in said]


@pytest.mark.parametrize("source", ["", "class Other: ...", "class VllmConfig: ...", "class VllmConfig(:"])
def test_release_that_decides_nothing_takes_v1(tmp_path: Path, source: str) -> None:
    assert ask(tmp_path, source) == ("v1", [])


@pytest.mark.parametrize(("pipeline", "expected"), [(1, "v2"), (2, "either")])
def test_release_without_a_rule_takes_v2_on_one_rank(tmp_path: Path, pipeline: int, expected: str) -> None:
    assert ask(tmp_path, PLAIN, pipeline=pipeline) == (expected, [DECISION])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (RULE, DEEP, "either"),
        (RULE, DEEP | {"num_experts": 8}, "either"),
        (RULE, TARGET, "either"),
        (RULE, TARGET | {"num_experts": 0}, "either"),
        (RULE, TARGET | {"num_experts": 8}, "v1"),
        (RULE, TARGET | {"moe_num_experts": 8}, "v1"),
        (RULE, TARGET | {"n_routed_experts": 8}, "v1"),
        (RULE, TARGET | {"text_config": {"num_local_experts": 8}}, "v1"),
        (ANY, DEEP, "either"),
        (ANY, TARGET, "v1"),
        (ANY, TARGET | {"num_experts": 8}, "v1"),
        (RULE.replace("frozenset", "other").replace("DEFAULT_V2", "SOME"), DEEP | {"num_experts": 8}, "v1"),
        (PLAIN + "    def _is_default_v2_model_runner_model(self): ...\n    ", TARGET, "either"),
    ],
    ids=[
        "listed", "listed experts", "dense", "no experts", "experts", "experts by another name", "routed experts",
        "experts of the text model", "only listed", "not listed", "not listed experts", "no table", "returns nothing",
    ],
)  # fmt: skip
def test_rule_decides_by_the_model(tmp_path: Path, source: str, target: dict[str, Any], expected: str) -> None:
    runner, said = ask(tmp_path, source, target)
    assert runner == expected
    assert [line.removesuffix(" ...") for line in said] == [DECIDES, DECISION]


@pytest.mark.parametrize(
    ("last", "dense", "experts"),
    [
        ("any(LISTED)", "v1", "v1"),
        ("not self.is_moe", "v1", "v1"),
        ("not self.is_moe and not self.is_hybrid and not self.has_mixer", "v1", "v1"),
        ("not (self.is_moe or self.is_hybrid)", "v1", "v1"),
        ("self.is_listed or not self.is_moe", "either", "v1"),
        ("any(LISTED) or not self.is_moe", "either", "v1"),
        ("not self.is_hybrid or not self.is_moe", "either", "v1"),
        ("self.is_listed", "either", "either"),
        ("self.is_listed and not self.is_moe", "either", "either"),
        ("not self.is_moe and self.is_listed", "either", "either"),
        ("all(LISTED)", "either", "either"),
        ("self.any(LISTED)", "either", "either"),
        ("-self.is_moe", "either", "either"),
        ("True", "either", "either"),
    ],
)
def test_what_a_rule_returns_last_says_which_models_it_lets_in(
    tmp_path: Path, last: str, dense: str, experts: str
) -> None:
    source = RULE.replace(LAST, last)
    assert ask(tmp_path / "dense", source)[0] == dense
    assert ask(tmp_path / "experts", source, TARGET | {"num_experts": 8})[0] == experts


@pytest.mark.parametrize("step", ["return", "pass"])
def test_rule_without_a_last_value_lets_anything_in(tmp_path: Path, step: str) -> None:
    source = RULE.replace(f"return {LAST}", step).replace("return False", "return")
    assert ask(tmp_path, source) == ("either", [DECIDES, DECISION])


@pytest.mark.parametrize("experts", ["8", [8], True, 8.5, {}, -8, 2**40])
def test_experts_that_are_no_number_are_none(tmp_path: Path, experts: object) -> None:
    assert ask(tmp_path, RULE, TARGET | {"num_experts": experts})[0] == "either"
