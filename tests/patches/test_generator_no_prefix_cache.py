from __future__ import annotations

from itertools import permutations
from textwrap import dedent, indent

import pytest

from patchkit import cst
from patchkit.catalog import load_patch
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

ID = "generator_no_prefix_cache"
OTHER = "generator_encoder_decoder_setting"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
FUNCTION = "CacheConfig"
START = f"config = {FUNCTION}("
FIRST = "block_size=size"
GIVEN = "enable_prefix_caching=False"
MARKER = f"# patchkit: {ID}"
SMALLEST = f"{START}\n    {FIRST},\n)\n"
PATCHED = f"{START}\n    {FIRST},\n    {MARKER}\n    {GIVEN},\n)\n"
OTHER_CALL = "f(\n    SchedulerConfig(\n        x,\n    ),\n)\n"
OTHER_PATCHED = OTHER_CALL.replace("x,\n", f"x,\n        # patchkit: {OTHER}\n        is_encoder_decoder=False,\n")


def fragment(code: str, method: str = "_create_vllm_config") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self, size):\n{body}\n"


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
    "given otherwise": f"{START}{FIRST}, enable_prefix_caching=other)",
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


@pytest.mark.parametrize("order", list(permutations((ID, OTHER))), ids=" ".join)
def test_commutes_with_the_other_patch_of_its_method(order: tuple[str, str]) -> None:
    before, after = fragment(f"{SMALLEST}{OTHER_CALL}"), fragment(f"{PATCHED}{OTHER_PATCHED}")
    module = cst.parse_exactly(before.encode(), PATH)
    for name in order:
        module = load_patch(CATALOG.headers[name]).rewritings[PATH](module)
    assert module.code == after
    rewrite = rewriter().fold(PATH, before.encode(), {ID, OTHER})
    assert (rewrite.after.decode(), rewrite.patches) == (after, {ID, OTHER})
    assert rewriter().restore(PATH, after.encode(), {ID, OTHER}, digest(before.encode())) == rewrite


def test_release_of_the_engine_is_required() -> None:
    assert CATALOG.headers[ID].patch.requires == {"vllm": ">=0.15.0,<0.18.0"}


class CacheConfig:
    """As vLLM's: prefixes are cached unless told otherwise."""

    def __init__(self, block_size: int, enable_prefix_caching: bool = True) -> None:
        self.block_size, self.enable_prefix_caching = block_size, enable_prefix_caching


def blocks_to_run(config: CacheConfig, tokens: int, block_hashes: list[int]) -> int:
    """Return how many blocks of a request a scheduler runs: those that it does not find in the cache."""
    wanted = -(-tokens // config.block_size)
    if not config.enable_prefix_caching:
        return wanted
    assert len(block_hashes) >= tokens // config.block_size
    return wanted - len(block_hashes)


def configure(data: bytes) -> CacheConfig:
    """Return the config that the method makes."""
    namespace: dict[str, type] = {"CacheConfig": CacheConfig}
    exec(compile(data, "fragment.py", "exec"), namespace)
    return namespace["VllmHiddenStatesGenerator"].__dict__["_create_vllm_config"](None, 16)


def test_prompt_is_run_whole() -> None:
    before = fragment(f"{SMALLEST}return config").encode()
    config = configure(before)
    with pytest.raises(AssertionError):
        blocks_to_run(config, 40, [])
    assert blocks_to_run(config, 40, [1, 2]) == 1
    config = configure(rewriter().fold(PATH, before, {ID}).after)
    assert [blocks_to_run(config, 40, hashes) for hashes in ([], [1, 2])] == [3, 3]
