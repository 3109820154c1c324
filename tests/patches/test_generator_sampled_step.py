from __future__ import annotations

from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError
from patchkit.record import digest
from tests.support import (
    CATALOG,
    check_nothing_to_restore,
    check_refused,
    check_restored,
    check_rewritten,
    check_unchanged,
    rewriter,
)

ID = "generator_sampled_step"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
RUN = "self.executor.execute_model(scheduler_output)"
SAMPLE = f"if {RUN} is None:\n    self.executor.sample_tokens(None)"
MARKED = f"# patchkit: {ID}\n{SAMPLE}"


def fragment(code: str, method: str = "generate") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.generate"
ANCHOR = rf"{METHOD}: self\.executor\.execute_model\(scheduler_output\)"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "class twice": (fragment(RUN) * 2, AnchorAmbiguous, "^VllmHiddenStatesGenerator: found 2 times"),
    "no method": (fragment(RUN, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (
        f"def generate(self):\n    {RUN}\n",
        AnchorNotFound,
        "^VllmHiddenStatesGenerator: not",
    ),
    "not run": (fragment("pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "run twice": (fragment(f"{RUN}\n{RUN}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "output kept": (fragment(f"output = {RUN}"), AnchorNotFound, f"{ANCHOR}: not found"),
    "more arguments": (fragment(RUN.replace(")", ", True)")), AnchorNotFound, f"{ANCHOR}: not found"),
    "of another": (fragment(RUN.replace("executor", "worker")), AnchorNotFound, f"{ANCHOR}: not found"),
    "two statements in a line": (fragment(f"{RUN}; x = 1"), AnchorNotFound, f"{ANCHOR}: not found"),
    "beside a colon": (fragment(f"while x: {RUN}"), AnchorNotFound, f"{ANCHOR}: not found"),
    "another look, not run": (fragment(SAMPLE.replace("is None", "is not None")), AnchorNotFound, "not found"),
    "sampled otherwise": (fragment(f"{SAMPLE}\nelse:\n    x = 1"), AnchorNotFound, f"{ANCHOR}: not found"),
}
REWRITTEN = {
    "smallest": (RUN, MARKED),
    "comments": (f"# above\n\n{RUN}\n\n# below\nx = 1", f"# above\n\n{MARKED}\n\n# below\nx = 1"),
    "nested": (f"while x:\n    {RUN}\nelse:\n    x = 1", f"while x:\n{indent(MARKED, '    ')}\nelse:\n    x = 1"),
    "neighbours": (f"output = {RUN}\n{RUN}\n{RUN}.x", f"output = {RUN}\n{MARKED}\n{RUN}.x"),
    "other layout": ("self.executor.execute_model(\n    scheduler_output,\n)", MARKED),
}
RESTORABLE = ("smallest", "comments", "nested", "neighbours")


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize("code", [SAMPLE, f"# upstream\n{SAMPLE}  # beside", f"while x:\n{indent(SAMPLE, '    ')}"])
def test_unchanged_where_it_samples_already(code: str) -> None:
    check_unchanged(ID, PATH, fragment(code))


@pytest.mark.parametrize("case", RESTORABLE)
def test_restored(case: str) -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN[case])
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old, new = (fragment(code).replace("\n", "\r\n").encode() for code in REWRITTEN["comments"])
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize("code", [RUN, SAMPLE, f"# patchkit: other\n{SAMPLE}"], ids=["pristine", "native", "another's"])
def test_nothing_to_restore(code: str) -> None:
    check_nothing_to_restore(ID, PATH, fragment(code))


@pytest.mark.parametrize("data", ["x = 1\n", fragment(SAMPLE)], ids=["no method", "native"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(RUN).encode())) is None


def test_not_restored_to_a_layout_that_is_lost() -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN["other layout"])
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


class Executor:
    """Runs steps; one that gives no output waits to be sampled."""

    def __init__(self, outputs: list[object]) -> None:
        self.outputs, self.calls, self.is_waiting = outputs, [], False

    def execute_model(self, scheduler_output: object) -> object:
        if self.is_waiting:
            raise RuntimeError("State error: sample_tokens() must be called after execute_model() returns None.")
        self.calls.append(scheduler_output)
        output = self.outputs.pop(0)
        self.is_waiting = output is None
        return output

    def sample_tokens(self, grammar_output: object) -> None:
        assert self.is_waiting and grammar_output is None
        self.calls.append("sample")
        self.is_waiting = False


def generate(patches: set[str], outputs: list[object]) -> Executor:
    """Run one step for each output that the model gives."""
    namespace: dict[str, type] = {}
    code = fragment(f"for scheduler_output in self.steps:\n    {RUN}").encode()
    exec(compile(rewriter().fold(PATH, code, patches).after, "fragment.py", "exec"), namespace)
    executor = Executor([*outputs])
    generator = SimpleNamespace(executor=executor, steps=range(1, len(outputs) + 1))
    namespace["VllmHiddenStatesGenerator"].__dict__["generate"](generator)
    return executor


def test_second_step_is_refused_before() -> None:
    with pytest.raises(RuntimeError) as caught:
        generate(set(), [None, None])
    assert CATALOG.headers[ID].patch.symptom in str(caught.value)


def test_first_step_is_left_waiting_before() -> None:
    assert generate(set(), [None]).is_waiting


@pytest.mark.parametrize(
    ("outputs", "calls"),
    [
        ([None], [1, "sample"]),
        ([None, None, None], [1, "sample", 2, "sample", 3, "sample"]),
        (["output", "output"], [1, 2]),
        (["output", None, "output"], [1, 2, "sample", 3]),
        ([0, []], [1, 2]),
    ],
    ids=["one", "several", "whole steps", "some whole", "outputs that are not true"],
)
def test_a_step_is_sampled_where_it_waits_after(outputs: list[object], calls: list[object]) -> None:
    executor = generate({ID}, outputs)
    assert (executor.calls, executor.is_waiting) == (calls, False)
