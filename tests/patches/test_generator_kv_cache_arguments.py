from __future__ import annotations

from textwrap import dedent, indent

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

ID = "generator_kv_cache_arguments"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
FUNCTION = "get_kv_cache_config_from_groups"
START = f"layout = {FUNCTION}("
FIRST = "groups=[kv_cache_spec]"
GIVEN = "kv_cache_specs=kv_cache_spec"
LAST = "memory=7"
MARKER = f"# patchkit: {ID}"
SMALLEST = f"{START}\n    {FIRST},\n    {GIVEN},\n    {LAST},\n)\n"
PATCHED = f"{START}\n    {FIRST},\n    {MARKER}\n    {LAST},\n)\n"


def fragment(code: str, method: str = "__init__") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self, kv_cache_spec):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.__init__"
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
    "given by place": f"{START}kv_cache_spec, {FIRST})",
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
    assert CATALOG.headers[ID].patch.requires == {"vllm": ">=0.15.0,<0.18.0"}


def lay_out(groups: list[str], memory: int) -> tuple[list[str], int]:
    """As vLLM's: the groups carry the specs."""
    return groups, memory


def call(data: bytes) -> tuple[list[str], int]:
    """Return the layout that the method asks for."""
    namespace: dict[str, object] = {"get_kv_cache_config_from_groups": lay_out}
    exec(compile(data, "fragment.py", "exec"), namespace)
    return vars(namespace["VllmHiddenStatesGenerator"])["__init__"](None, "a spec")


def test_layout_is_asked_for_without_the_specs() -> None:
    before = fragment(f"{SMALLEST}return layout").encode()
    with pytest.raises(TypeError, match=CATALOG.headers[ID].patch.symptom):
        call(before)
    assert call(rewriter().fold(PATH, before, {ID}).after) == (["a spec"], 7)
