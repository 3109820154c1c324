from __future__ import annotations

from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError
from patchkit.record import digest
from tests.support import (
    check_nothing_to_restore,
    check_refused,
    check_restored,
    check_rewritten,
    check_unchanged,
    rewriter,
)

ID = "generator_more_sequences"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
SAMPLE = "self.executor.sample_tokens(model_output)"
FINISH = """\
self.scheduler.finish_requests(
    [
        req_id
        for req_id in scheduler_output.num_scheduled_tokens
        if request_num_computed[req_id] >= request_id_to_prompt_len[req_id]
    ],
    RequestStatus.FINISHED_ABORTED,
)
"""
BOTH = f"{SAMPLE}\n{FINISH}"
MARKED = f"# patchkit: {ID}\n{BOTH}"


def fragment(code: str, method: str = "generate") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self, prompts):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.generate"
ANCHOR = rf"{METHOD}: self\.executor\.sample_tokens\(model_output\)"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "class twice": (fragment(SAMPLE) * 2, AnchorAmbiguous, "^VllmHiddenStatesGenerator: found 2 times"),
    "no method": (fragment(SAMPLE, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (
        f"def generate(self):\n    {SAMPLE}\n",
        AnchorNotFound,
        "^VllmHiddenStatesGenerator: ",
    ),
    "not sampled": (fragment("pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "sampled twice": (fragment(f"{SAMPLE}\n{SAMPLE}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "of another output": (fragment(SAMPLE.replace("model_output", "None")), AnchorNotFound, f"{ANCHOR}: not found"),
    "result kept": (fragment(f"x = {SAMPLE}"), AnchorNotFound, f"{ANCHOR}: not found"),
    "two statements in a line": (fragment(f"{SAMPLE}; x = 1"), AnchorNotFound, f"{ANCHOR}: not found"),
    "finished, not sampled": (fragment(FINISH), AnchorNotFound, f"{ANCHOR}: not found"),
}
OTHERS = FINISH.replace(">=", "==")
REWRITTEN = {
    "smallest": (SAMPLE, MARKED),
    "comments": (
        f"# above\n\n{SAMPLE}  # beside\n\n# below\nx = 1",
        f"# above\n\n{MARKED.rstrip()}  # beside\n\n# below\nx = 1",
    ),
    "nested": (f"while x:\n    {SAMPLE}\nelse:\n    x = 1", f"while x:\n{indent(MARKED, '    ')}else:\n    x = 1"),
    "finished otherwise": (f"{SAMPLE}\n{OTHERS}", f"{MARKED}{OTHERS}"),
    "not finished right after": (f"{SAMPLE}\nx = 1\n{FINISH}", f"{MARKED}x = 1\n{FINISH}"),
    "other layout": ("self.executor.sample_tokens(\n    model_output,\n)", MARKED),
}
RESTORABLE = [case for case in REWRITTEN if case != "other layout"]


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize("code", [BOTH, f"# upstream\n{SAMPLE}  # beside\n\n# why\n{FINISH}"])
def test_unchanged_where_it_finishes_them_already(code: str) -> None:
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


@pytest.mark.parametrize("code", [SAMPLE, BOTH, f"# patchkit: other\n{BOTH}"], ids=["pristine", "native", "another's"])
def test_nothing_to_restore(code: str) -> None:
    check_nothing_to_restore(ID, PATH, fragment(code))


@pytest.mark.parametrize("data", ["x = 1\n", fragment(BOTH)], ids=["no method", "native"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(SAMPLE).encode())) is None


def test_not_restored_to_a_layout_that_is_lost() -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN["other layout"])
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


GENERATE = f"""\
request_id_to_prompt_len = {{req_id: length for req_id, length in prompts.items()}}
request_num_computed = dict.fromkeys(prompts, 0)
while (scheduler_output := self.scheduler.schedule()).num_scheduled_tokens:
    for req_id, count in scheduler_output.num_scheduled_tokens.items():
        request_num_computed[req_id] += count
    model_output = self.executor.execute_model(scheduler_output)
    {SAMPLE}
self.scheduler.finish_requests([*prompts], RequestStatus.FINISHED_ABORTED)
return request_num_computed
"""


class Scheduler:
    """Runs a few requests at once, a few tokens of each in a step, and holds a place for each until it is finished."""

    def __init__(self, prompts: dict[str, int], limit: int, chunk: int) -> None:
        self.left, self.limit, self.chunk = dict(prompts), limit, chunk
        self.finished: list[list[str]] = []

    def schedule(self) -> SimpleNamespace:
        running = [*self.left][: self.limit]
        counts = {name: min(self.chunk, self.left[name]) for name in running if self.left[name]}
        for name, count in counts.items():
            self.left[name] -= count
        return SimpleNamespace(num_scheduled_tokens=counts)

    def finish_requests(self, names: list[str], status: str) -> None:
        assert status == "aborted"
        self.finished.append(names)
        for name in names:
            self.left.pop(name, None)


class Executor:
    """Notes the calls, each with what it gets."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def execute_model(self, scheduler_output: SimpleNamespace) -> str:
        self.calls.append(f"run {' '.join(scheduler_output.num_scheduled_tokens)}")
        return f"output {len(self.calls)}"

    def sample_tokens(self, model_output: str) -> None:
        self.calls.append(f"sample {model_output}")


def generate(patches: set[str], prompts: dict[str, int], limit: int, chunk: int = 8) -> SimpleNamespace:
    """Return how many tokens of each prompt were run, and what was called."""
    namespace: dict[str, type] = {"RequestStatus": type("RequestStatus", (), {"FINISHED_ABORTED": "aborted"})}
    code = rewriter().fold(PATH, fragment(GENERATE).encode(), patches).after
    exec(compile(code, "fragment.py", "exec"), namespace)
    generator = SimpleNamespace(scheduler=Scheduler(prompts, limit, chunk), executor=Executor())
    computed = namespace["VllmHiddenStatesGenerator"].__dict__["generate"](generator, prompts)
    return SimpleNamespace(
        computed=computed,
        finished=generator.scheduler.finished,
        left=generator.scheduler.left,
        calls=generator.executor.calls,
    )


ELEVEN = {f"req_0_{place}": 1 + place % 3 for place in range(11)}


def test_those_above_the_limit_are_never_run_before() -> None:
    assert generate(set(), ELEVEN, limit=4).computed == {
        name: length if place < 4 else 0 for place, (name, length) in enumerate(ELEVEN.items())
    }


@pytest.mark.parametrize("chunk", [1, 2, 8])
@pytest.mark.parametrize("limit", [1, 4, 10, 11, 32])
def test_every_sequence_is_run_once_after(limit: int, chunk: int) -> None:
    ran = generate({ID}, ELEVEN, limit, chunk)
    assert ran.computed == ELEVEN
    assert ran.left == {}
    *early, last = ran.finished
    assert sorted(name for names in early for name in names) == sorted(ELEVEN)
    assert last == [*ELEVEN]


def test_a_request_ends_with_its_own_last_chunk() -> None:
    ran = generate({ID}, {"a": 3, "b": 1, "c": 2}, limit=2, chunk=1)
    assert ran.finished == [["b"], [], ["a", "c"], ["a", "b", "c"]]
    assert ran.calls == [
        "run a b",
        "sample output 1",
        "run a c",
        "sample output 3",
        "run a c",
        "sample output 5",
    ]


def test_limit_of_the_engine() -> None:
    prompts = {f"req_0_{place}": 2 for place in range(33)}
    assert generate(set(), prompts, limit=32).computed["req_0_32"] == 0
    assert generate({ID}, prompts, limit=32).computed == prompts
