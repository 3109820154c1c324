from __future__ import annotations

from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
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

ID = "generator_request_without_eos"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
FUNCTION = "Request"
START = f"req = {FUNCTION}("
FIRST = "prompt=ids"
GIVEN = "eos_token_id=self.tokenizer.eos_token_id"
LAST = "arrival_time=0.0"
MARKER = f"# patchkit: {ID}"
SMALLEST = f"{START}\n    {FIRST},\n    {GIVEN},\n    {LAST},\n)\n"
PATCHED = f"{START}\n    {FIRST},\n    {MARKER}\n    {LAST},\n)\n"


def fragment(code: str, method: str = "generate") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self, ids):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.generate"
CALL = f"^the call of {FUNCTION}"
LAYOUT = f"^{FUNCTION}: expected one argument or more before it, one a line, each with a comma"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "class twice": (fragment(SMALLEST) * 2, AnchorAmbiguous, "^VllmHiddenStatesGenerator: found 2 times"),
    "no method": (fragment(SMALLEST, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (dedent(fragment(SMALLEST).partition("\n")[2]), AnchorNotFound, "Generator: not found"),
    "method twice": (
        fragment(SMALLEST) + fragment(SMALLEST).partition("\n")[2],
        AnchorAmbiguous,
        f"{METHOD}: found 2 times",
    ),
    "no call": (fragment("pass"), AnchorNotFound, f"{CALL}: not found"),
    "call twice": (fragment(f"{SMALLEST}{SMALLEST}"), AnchorAmbiguous, f"{CALL}: found 2 times"),
    "call twice, once patched": (fragment(f"{SMALLEST}{PATCHED}"), AnchorAmbiguous, f"{CALL}: found 2 times"),
    "call of an attribute": (
        fragment(SMALLEST.replace(FUNCTION, f"x.{FUNCTION}")),
        AnchorNotFound,
        f"{CALL}: not found",
    ),
    "call of a longer name": (
        fragment(SMALLEST.replace(FUNCTION, f"{FUNCTION}s")),
        AnchorNotFound,
        f"{CALL}: not found",
    ),
    "not called": (fragment(SMALLEST.replace(f"{FUNCTION}(", f"f({FUNCTION}, ")), AnchorNotFound, f"{CALL}: not found"),
    "the only": (fragment(f"{START}\n    {GIVEN},\n)"), UnexpectedShape, LAYOUT),
    "first": (fragment(f"{START}\n    {GIVEN},\n    {LAST},\n)"), UnexpectedShape, LAYOUT),
    "one line": (fragment(f"{START}{FIRST}, {GIVEN})"), UnexpectedShape, LAYOUT),
    "no comma at the end": (fragment(f"{START}\n    {FIRST},\n    {GIVEN}\n)"), UnexpectedShape, LAYOUT),
    "beside the one before": (fragment(f"{START}\n    {FIRST}, {GIVEN},\n)"), UnexpectedShape, LAYOUT),
    "beside the one after": (fragment(f"{START}\n    x,\n    {GIVEN}, {LAST},\n)"), UnexpectedShape, LAYOUT),
    "first beside the bracket": (fragment(f"{START}{FIRST},\n    {GIVEN},\n)"), UnexpectedShape, LAYOUT),
}
REWRITTEN = {
    "smallest": (SMALLEST, PATCHED),
    "last": (f"{START}\n    {FIRST},\n    {GIVEN},\n)", f"{START}\n    {FIRST},\n    {MARKER}\n)"),
    "comments": (
        f"# above\n{START}  # open\n    # why\n    {FIRST},  # one\n    {GIVEN},\n    {LAST},  # two\n)  # close\n\n"
        "# below\nx = 1",
        f"# above\n{START}  # open\n    # why\n    {FIRST},  # one\n    {MARKER}\n    {LAST},  # two\n)  # close\n\n"
        "# below\nx = 1",
    ),
    "in another call": (
        f"return f(\n    {FUNCTION}(\n        x,\n        {GIVEN},\n    ),\n    {GIVEN},\n)",
        f"return f(\n    {FUNCTION}(\n        x,\n        {MARKER}\n    ),\n    {GIVEN},\n)",
    ),
    "in a block": (
        f"for x in y:\n    {START}\n        x=x,\n        {GIVEN},\n        {LAST},\n    )\n    f({GIVEN})",
        f"for x in y:\n    {START}\n        x=x,\n        {MARKER}\n        {LAST},\n    )\n    f({GIVEN})",
    ),
}
UNCHANGED = {
    "left out": f"{START}\n    {FIRST},\n    {LAST},\n)",
    "left out, comments": f"{START}\n    {FIRST},\n    # why\n    {LAST},  # beside\n)",
    "left out, one line": f"{START}{FIRST}, {LAST})",
    "given by place": f"{START}self.tokenizer.eos_token_id, {FIRST})",
    "given elsewhere": f"{START}{FIRST}, x=f({GIVEN}))",
    "no arguments": f"{START})",
}


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize("code", UNCHANGED.values(), ids=UNCHANGED)
def test_unchanged(code: str) -> None:
    check_unchanged(ID, PATH, fragment(code))


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_restored(before: str, after: str, line_end: str) -> None:
    old, new = (fragment(code).replace("\n", line_end).encode() for code in (before, after))
    assert check_restored(ID, PATH, old, new) == rewriter().fold(PATH, old, {ID})


@pytest.mark.parametrize("code", [SMALLEST, *UNCHANGED.values()], ids=["pristine", *UNCHANGED])
def test_nothing_to_restore(code: str) -> None:
    check_nothing_to_restore(ID, PATH, fragment(code))


@pytest.mark.parametrize(
    "data",
    ["x = 1\n", fragment(PATCHED.replace(MARKER, "# patchkit: another"))],
    ids=["no method", "not ours"],
)
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(SMALLEST).encode())) is None


def test_release_of_the_engine_is_required() -> None:
    assert CATALOG.headers[ID].patch.requires == {"vllm": ">=0.17.0,<0.18.0"}


class Request:
    """As vLLM's from 0.17.0 on: it has no such token."""

    def __init__(self, prompt: list[int], arrival_time: float | None = None) -> None:
        self.given = (prompt, arrival_time)


def request(data: bytes) -> Request:
    """Return the request that the method makes."""
    namespace: dict[str, type] = {"Request": Request}
    exec(compile(data, "fragment.py", "exec"), namespace)
    generator = SimpleNamespace(tokenizer=SimpleNamespace(eos_token_id=2))
    return namespace["VllmHiddenStatesGenerator"].__dict__["generate"](generator, [1, 2])


def test_request_is_made_without_the_token() -> None:
    before = fragment(f"{SMALLEST}return req").encode()
    with pytest.raises(TypeError, match=CATALOG.headers[ID].patch.symptom):
        request(before)
    assert request(rewriter().fold(PATH, before, {ID}).after).given == ([1, 2], 0.0)
