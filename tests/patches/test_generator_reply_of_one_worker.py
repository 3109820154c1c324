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

ID = "generator_reply_of_one_worker"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
TAKE = "aux_hidden_states = captured_states_list[0]"
WHOLE = "aux_hidden_states = captured_states_list"
MARKED = f"# patchkit: {ID}\n{WHOLE}"


def fragment(code: str, method: str = "generate") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.generate"
ANCHOR = rf"{METHOD}: aux_hidden_states = captured_states_list\[0\]"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "class twice": (fragment(TAKE) * 2, AnchorAmbiguous, "^VllmHiddenStatesGenerator: found 2 times"),
    "no method": (fragment(TAKE, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (
        f"def generate(self):\n    {TAKE}\n",
        AnchorNotFound,
        "^VllmHiddenStatesGenerator: not",
    ),
    "not taken": (fragment("pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "taken twice": (fragment(f"{TAKE}\n{TAKE}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "taken in two branches": (
        fragment(f"if x:\n    {TAKE}\nelse:\n    {TAKE}"),
        AnchorAmbiguous,
        f"{ANCHOR}: found 2 times",
    ),
    "another element": (fragment(TAKE.replace("[0]", "[1]")), AnchorNotFound, f"{ANCHOR}: not found"),
    "another list": (fragment(TAKE.replace("captured", "other")), AnchorNotFound, f"{ANCHOR}: not found"),
    "another name": (fragment(TAKE.replace("aux_", "")), AnchorNotFound, f"{ANCHOR}: not found"),
    "annotated": (fragment(TAKE.replace(" =", ": list =")), AnchorNotFound, f"{ANCHOR}: not found"),
    "two statements in a line": (fragment(f"{TAKE}; x = 1"), AnchorNotFound, f"{ANCHOR}: not found"),
    "beside a colon": (fragment(f"if x: {TAKE}"), AnchorNotFound, f"{ANCHOR}: not found"),
}
REWRITTEN = {
    "smallest": (TAKE, MARKED),
    "comments": (
        f"# above\n\n{TAKE}  # beside\n# below\nx = 1",
        f"# above\n\n# patchkit: {ID}\n{WHOLE}  # beside\n# below\nx = 1",
    ),
    "nested": (f"if x:\n    {TAKE}\nelse:\n    x = 1", f"if x:\n{indent(MARKED, '    ')}\nelse:\n    x = 1"),
    "neighbours": (
        f"states = captured_states_list[0]\n{TAKE}\naux_hidden_states = captured_states_list[1]",
        f"states = captured_states_list[0]\n{MARKED}\naux_hidden_states = captured_states_list[1]",
    ),
    "other layout": ("aux_hidden_states = (\n    captured_states_list[ 0 ]\n)", MARKED),
}
RESTORABLE = ("smallest", "comments", "nested", "neighbours")


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize("code", [WHOLE, f"# upstream\n{WHOLE}  # beside", f"if x:\n    {WHOLE}"])
def test_unchanged_where_it_takes_the_reply_already(code: str) -> None:
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


@pytest.mark.parametrize("code", [TAKE, WHOLE, f"# patchkit: other\n{WHOLE}"], ids=["pristine", "native", "another's"])
def test_nothing_to_restore(code: str) -> None:
    check_nothing_to_restore(ID, PATH, fragment(code))


@pytest.mark.parametrize("data", ["x = 1\n", fragment(WHOLE)], ids=["no method", "native"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(TAKE).encode())) is None


def test_not_restored_to_a_layout_that_is_lost() -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN["other layout"])
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


GENERATE = f"""\
captured_states_list = self.executor.collective_rpc("get", unique_reply_rank=0)
{TAKE}
if not aux_hidden_states:
    raise RuntimeError("nothing captured")
return aux_hidden_states
"""


class Tensor:
    """The states of a layer, which are not true or false."""

    def __bool__(self) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


def generate(patches: set[str], reply: object) -> object:
    """Return what the method makes of the reply of the one worker that was asked."""
    namespace: dict[str, type] = {}
    code = rewriter().fold(PATH, fragment(GENERATE).encode(), patches).after
    exec(compile(code, "fragment.py", "exec"), namespace)
    executor = SimpleNamespace(collective_rpc=lambda method, unique_reply_rank: reply)
    return namespace["VllmHiddenStatesGenerator"].__dict__["generate"](SimpleNamespace(executor=executor))


def test_first_layer_alone_is_taken_before() -> None:
    with pytest.raises(RuntimeError, match=CATALOG.headers[ID].patch.symptom):
        generate(set(), [Tensor(), Tensor()])


def test_every_layer_is_taken_after() -> None:
    layers = [Tensor(), Tensor()]
    assert generate({ID}, layers) is layers


@pytest.mark.parametrize("reply", [None, []], ids=str)
def test_an_empty_reply_is_an_error_after(reply: object) -> None:
    with pytest.raises(RuntimeError, match=r"^nothing captured$"):
        generate({ID}, reply)
