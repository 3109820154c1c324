from __future__ import annotations

from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit import cst
from patchkit.catalog import load_patch
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from tests.support import (
    CATALOG,
    check_nothing_to_restore,
    check_refused,
    check_restored,
    check_rewritten,
    check_unchanged,
    rewriter,
)

ID = "kimi_k25_image_token"
PATH = "vllm/v1/spec_decode/eagle.py"
KIMI = "KimiK25ForConditionalGeneration"
ASKED = "self.get_model_name(target_model)"
INDEX = "self.model.config.image_token_index"
SMALLEST = f"""
if {ASKED} == "Other":
    {INDEX} = 1
else:
    {INDEX} = target_model.config.image_token_index
"""
BRANCH = f"""\
# patchkit: {ID}
elif {ASKED} == "{KIMI}":
    {INDEX} = (
        target_model.config.media_placeholder_token_id
    )
"""
MAPPED = f"{INDEX} = target_model.config.media_placeholder_token_id"


def fragment(code: str) -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class SpecDecodeBaseProposer:\n    def load_model(self, target_model):\n{body}\n"


def patched(code: str) -> str:
    """Return the code with the branch before its last else."""
    before, _, after = code.rpartition("else:")
    return f"{before}{BRANCH}else:{after}"


FALLBACK = f"{INDEX} = target_model.config.image_token_index"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^SpecDecodeBaseProposer: not found"),
    "no method": ("class SpecDecodeBaseProposer: pass\n", AnchorNotFound, "^SpecDecodeBaseProposer.load_model: not"),
    "no chain": (fragment("pass"), AnchorNotFound, "the chain for image_token_index: not found"),
    "two chains": (fragment(SMALLEST + SMALLEST), AnchorAmbiguous, "the chain for image_token_index: found 2 times"),
    "chain without else": (fragment(f'if {ASKED} == "Other":\n    pass'), AnchorNotFound, "not found"),
    "another else": (fragment(SMALLEST.replace(FALLBACK, "pass")), AnchorNotFound, "not found"),
    "more in the else": (fragment(f"{SMALLEST}    x = 1"), AnchorNotFound, "not found"),
    "another question": (fragment(SMALLEST.replace(ASKED, "self.name")), AnchorNotFound, "not found"),
    "a test that compares nothing": (fragment(f"if x:\n    pass\nelse:\n    {FALLBACK}"), AnchorNotFound, "not found"),
    "branch of other meaning": (
        fragment(patched(SMALLEST).replace("media_placeholder_token_id", "other_id")),
        UnexpectedShape,
        f"expected the branch for {KIMI}",
    ),
    "branch that does more": (
        fragment(f'if {ASKED} in ["{KIMI}"]:\n    {MAPPED}\n    x = 1\nelse:\n    {FALLBACK}'),
        UnexpectedShape,
        f"expected the branch for {KIMI}",
    ),
}
CHANGED = {
    "smallest": SMALLEST,
    "several branches": f"""
        if {ASKED} in [
            "A",  # one
            "B",
        ]:
            {INDEX} = 1
        elif {ASKED} == "Other":  # two
            {INDEX} = (
                2  # three
            )
        else:
            {FALLBACK}
    """,
    "comments": f"""
        # above
        if {ASKED} == "Other":
            {INDEX} = 1
            # below

        # before else
        else:  # at else
            # in else
            {INDEX} = (
                target_model.config.image_token_index
            )  # end
        # after
        x = 1
    """,
    "nested, beside other chains": f"""
        if target_model:
            if x:
                y = 1
            elif {ASKED} == "Other":
                y = 2
            if {ASKED} == "Other":
                {INDEX} = 1
            else:
                {FALLBACK}
    """,
    "suites on one line": f"""
        if {ASKED} == "Other": {INDEX} = 1
        else: {FALLBACK}
    """,
}


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(
    "test",
    [f'{ASKED} == "{KIMI}"', f'{ASKED} in ["Other", "{KIMI}"]', f"{ASKED} == '{KIMI}'"],
    ids=["alone", "among others", "other quotes"],
)
def test_unchanged_where_the_branch_is_there(test: str) -> None:
    check_unchanged(ID, PATH, fragment(f"if {test}:\n    {MAPPED}  # fixed\nelse:\n    {FALLBACK}"))


def branches(code: str) -> str:
    """Return the fragment after the patch: the branch stands before the else and what leads to it."""
    lines = fragment(code).splitlines(keepends=True)
    place = next(index for index, line in enumerate(lines) if line.strip().startswith("else:"))
    while lines[place - 1].strip() in ("", "# before else"):
        place -= 1
    depth = next(line for line in lines if line.lstrip().startswith("else:")).index("else:")
    return "".join([*lines[:place], indent(BRANCH, " " * depth), *lines[place:]])


@pytest.mark.parametrize("code", CHANGED.values(), ids=CHANGED)
def test_rewritten(code: str) -> None:
    check_rewritten(ID, PATH, fragment(code), branches(code))


@pytest.mark.parametrize("code", CHANGED.values(), ids=CHANGED)
def test_restored(code: str) -> None:
    old, new = fragment(code).encode(), branches(code).encode()
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old = fragment(SMALLEST).replace("\n", "\r\n").encode()
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == branches(SMALLEST).replace("\n", "\r\n").encode()
    assert rewriter().restore(PATH, rewrite.after, {ID}, digest(old)) == rewrite


def test_nothing_to_restore() -> None:
    data = fragment(SMALLEST).encode()
    assert rewriter().restore(PATH, data, {ID}, digest(data)) == Rewrite(data, data, frozenset())


def test_not_restored_where_the_branch_is_not_ours() -> None:
    data = branches(SMALLEST).replace(f"# patchkit: {ID}", "# upstream").encode()
    assert rewriter().restore(PATH, data, {ID}, digest(fragment(SMALLEST).encode())) is None


def test_not_restored_without_anchor() -> None:
    assert rewriter().restore(PATH, b"x = 1\n", {ID}, digest(b"x = 2\n")) is None
    check_nothing_to_restore(ID, PATH, "x = 1\n")  # it is what the wheel shipped, so nothing is there to take back


@pytest.mark.parametrize(
    ("name", "expected"), [("Other", 1), (KIMI, 7), ("Llava", 8)], ids=["known before", "Kimi-K2.5", "fallback"]
)
def test_rewritten_chain_takes(name: str, expected: int) -> None:
    namespace: dict[str, type] = {}
    exec(compile(rewriter().fold(PATH, fragment(SMALLEST).encode(), {ID}).after, "fragment.py", "exec"), namespace)
    proposer = SimpleNamespace(
        get_model_name=lambda model: model.name, model=SimpleNamespace(config=SimpleNamespace(image_token_index=None))
    )
    fields = {"media_placeholder_token_id": 7} if name == KIMI else {"image_token_index": 8}
    target = SimpleNamespace(name=name, config=SimpleNamespace(**fields))
    namespace["SpecDecodeBaseProposer"].__dict__["load_model"](proposer, target)
    assert proposer.model.config.image_token_index == expected


def test_commutes_with_the_other_patch_of_its_target() -> None:
    source = fragment(SMALLEST) + dedent("""\
        class SpeculativeConfig:
            def _verify_args(self):
                eagle3_target_supported = ["llama"]
                return any(name in self.x for name in eagle3_target_supported)
    """)
    other = load_patch(CATALOG.headers["eagle3_target_whitelist"]).rewritings["vllm/config/speculative.py"]
    own = load_patch(CATALOG.headers[ID]).rewritings[PATH]
    module = cst.parse_exactly(source.encode(), PATH)
    assert own(other(module)).code == other(own(module)).code
    assert own(other(module)).code.count("# patchkit: ") == 2
