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

ID = "generator_encoder_decoder_setting"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
FUNCTION = "SchedulerConfig"
START = f"config = {FUNCTION}("
FIRST = "max_num_seqs=seqs"
GIVEN = "is_encoder_decoder=False"
MARKER = f"# patchkit: {ID}"
SMALLEST = f"{START}\n    {FIRST},\n)\n"
PATCHED = f"{START}\n    {FIRST},\n    {MARKER}\n    {GIVEN},\n)\n"


def fragment(code: str, method: str = "_create_vllm_config") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self, seqs):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\._create_vllm_config"
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
    "no arguments": (fragment(f"{START})"), UnexpectedShape, LAYOUT),
    "one line": (fragment(f"{START}{FIRST})"), UnexpectedShape, LAYOUT),
    "no comma at the end": (fragment(f"{START}\n    {FIRST}\n)"), UnexpectedShape, LAYOUT),
    "first beside the bracket": (fragment(f"{START}{FIRST},\n    x=1,\n)"), UnexpectedShape, LAYOUT),
    "last beside the bracket": (fragment(f"{START}\n    {FIRST},)"), UnexpectedShape, LAYOUT),
}
REWRITTEN = {
    "smallest": (SMALLEST, PATCHED),
    "more arguments": (
        f"{START}\n    x,\n    *y,\n    {FIRST},\n    **z,\n)",
        f"{START}\n    x,\n    *y,\n    {FIRST},\n    **z,\n    {MARKER}\n    {GIVEN},\n)",
    ),
    "comments": (
        f"# above\n{START}  # open\n    # why\n    {FIRST},  # beside\n)  # close\n\n# below\nx = 1",
        f"# above\n{START}  # open\n    # why\n    {FIRST},  # beside\n    {MARKER}\n    {GIVEN},\n)  # close\n\n"
        "# below\nx = 1",
    ),
    "in another call": (
        f"return f(\n    x={FUNCTION}(\n        {FIRST},\n    ),\n    {GIVEN},\n)",
        f"return f(\n    x={FUNCTION}(\n        {FIRST},\n        {MARKER}\n        {GIVEN},\n    ),\n    {GIVEN},\n)",
    ),
    "in a block": (
        f"if x:\n    {START}\n        {FIRST},\n    )\nelse:\n    x = f({GIVEN})",
        f"if x:\n    {START}\n        {FIRST},\n        {MARKER}\n        {GIVEN},\n    )\nelse:\n    x = f({GIVEN})",
    ),
}
UNCHANGED = {
    "given": f"{START}\n    {FIRST},\n    {GIVEN},\n)",
    "given, comments": f"{START}\n    {FIRST},\n    # why\n    {GIVEN},  # beside\n)",
    "given first": f"{START}\n    {GIVEN},\n    {FIRST},\n)",
    "given in one line": f"{START}{FIRST}, {GIVEN})",
    "given otherwise": f"{START}{FIRST}, is_encoder_decoder=other)",
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


class SchedulerConfig:
    """As vLLM's: the setting must be given."""

    def __init__(self, *, max_num_seqs: int, is_encoder_decoder: bool) -> None:
        self.given = (max_num_seqs, is_encoder_decoder)


def configure(data: bytes) -> SchedulerConfig:
    """Return the config that the method makes."""
    namespace: dict[str, type] = {"SchedulerConfig": SchedulerConfig}
    exec(compile(data, "fragment.py", "exec"), namespace)
    return namespace["VllmHiddenStatesGenerator"].__dict__["_create_vllm_config"](None, 32)


def test_config_is_made_with_the_setting() -> None:
    before = fragment(f"{SMALLEST}return config").encode()
    with pytest.raises(TypeError, match=CATALOG.headers[ID].patch.symptom):
        configure(before)
    assert configure(rewriter().fold(PATH, before, {ID}).after).given == (32, False)
