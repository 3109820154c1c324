from __future__ import annotations

from itertools import permutations
from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit import cst
from patchkit.catalog import load_patch
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from tests.support import CATALOG, check_refused, check_restored, check_rewritten, check_unchanged, rewriter

ID = "kimi_k25_bare_language_model"
OTHER = "kimi_k25_image_token"
PATH = "vllm/v1/spec_decode/eagle.py"
TAKE = "target_language_model = target_model.get_language_model()"
SEE = """\
if not hasattr(target_language_model, "model"):
    from types import SimpleNamespace

    target_language_model = SimpleNamespace(
        model=target_language_model, lm_head=target_model.lm_head
    )
"""
MARKED = f"# patchkit: {ID}\n{SEE}"
CHAIN = """\
if self.get_model_name(target_model) == "Other":
    self.model.config.image_token_index = 1
else:
    self.model.config.image_token_index = target_model.config.image_token_index
"""
BRANCH = f"""\
# patchkit: {OTHER}
elif self.get_model_name(target_model) == "KimiK25ForConditionalGeneration":
    self.model.config.image_token_index = (
        target_model.config.media_placeholder_token_id
    )
"""


def fragment(code: str, method: str = "load_model") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class SpecDecodeBaseProposer:\n    def {method}(self, target_model):\n{body}\n"


METHOD = r"^SpecDecodeBaseProposer\.load_model"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^SpecDecodeBaseProposer: not found"),
    "class twice": (fragment(TAKE) * 2, AnchorAmbiguous, "^SpecDecodeBaseProposer: found 2 times"),
    "no method": (fragment(TAKE, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (f"def load_model(self):\n    {TAKE}\n", AnchorNotFound, "SpecDecodeBaseProposer: not"),
    "not taken": (fragment("pass"), AnchorNotFound, f"{METHOD}: target_language_model = .*: not found"),
    "taken twice": (
        fragment(f"{TAKE}\n{TAKE}"),
        AnchorAmbiguous,
        f"{METHOD}: target_language_model = .*: found 2 times",
    ),
    "taken from elsewhere": (fragment(TAKE.replace("target_model.", "self.")), AnchorNotFound, "not found"),
    "taken under another name": (fragment(TAKE.replace("target_language_model", "x")), AnchorNotFound, "not found"),
    "two statements in a line": (fragment(f"{TAKE}; x = 1"), AnchorNotFound, "not found"),
    "annotated": (fragment(TAKE.replace(" =", ": object =")), AnchorNotFound, "not found"),
    "another look, not taken": (fragment(SEE.replace("not hasattr", "hasattr")), AnchorNotFound, "not found"),
}
REWRITTEN = {
    "smallest": (TAKE, f"{TAKE}\n{MARKED}"),
    "comments": (
        f"# above\n{TAKE}  # beside\n\n# below\nx = 1",
        f"# above\n{TAKE}  # beside\n{MARKED}\n# below\nx = 1",
    ),
    "over several lines": (
        "target_language_model = (\n    target_model.get_language_model()  # why\n)\nx = 1",
        f"target_language_model = (\n    target_model.get_language_model()  # why\n)\n{MARKED}x = 1",
    ),
    "nested": (
        f"if x:\n    {TAKE}\nelse:\n    target_language_model = target_model",
        f"if x:\n    {TAKE}\n{indent(MARKED, '    ')}else:\n    target_language_model = target_model",
    ),
    "beside another look": (
        f"{TAKE}\n{SEE.replace('not hasattr', 'hasattr')}",
        f"{TAKE}\n{MARKED}{SEE.replace('not hasattr', 'hasattr')}",
    ),
}


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize("taken", [TAKE, "target_language_model = other()"], ids=["taken the same", "otherwise"])
def test_unchanged_where_it_looks_already(taken: str) -> None:
    look = SEE.replace("(\n        model=", "(  # same\n        model=")
    check_unchanged(ID, PATH, fragment(f"{taken}\nx = 1\n# upstream\n{look}"))


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_restored(before: str, after: str) -> None:
    old, new = fragment(before).encode(), fragment(after).encode()
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old, new = (fragment(code).replace("\n", "\r\n").encode() for code in REWRITTEN["comments"])
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewrite


def test_nothing_to_restore() -> None:
    data = fragment(TAKE).encode()
    assert rewriter().restore(PATH, data, {ID}, digest(data)) == Rewrite(data, data, frozenset())


@pytest.mark.parametrize("data", ["x = 1\n", fragment(f"{TAKE}\n{SEE}")], ids=["no method", "not ours"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(TAKE).encode())) is None


SHARED = f"{CHAIN}\n# shares the embeddings\n{TAKE}\nreturn target_language_model"
SHARED_PATCHED = SHARED.replace("else:", f"{BRANCH}else:").replace(f"{TAKE}\n", f"{TAKE}\n{MARKED}")


@pytest.mark.parametrize("order", list(permutations((ID, OTHER))), ids=" ".join)
def test_commutes_with_the_other_patch_of_its_file(order: tuple[str, str]) -> None:
    module = cst.parse_exactly(fragment(SHARED).encode(), PATH)
    for name in order:
        module = load_patch(CATALOG.headers[name]).rewritings[PATH](module)
    assert module.code == fragment(SHARED_PATCHED)
    rewrite = rewriter().fold(PATH, fragment(SHARED).encode(), {ID, OTHER})
    assert (rewrite.after.decode(), rewrite.patches) == (module.code, {ID, OTHER})


def test_both_patches_are_restored() -> None:
    old, new = fragment(SHARED).encode(), fragment(SHARED_PATCHED).encode()
    assert rewriter().restore(PATH, new, {ID, OTHER}, digest(old)) == rewriter().fold(PATH, old, {ID, OTHER})


def load(code: str, patches: set[str], target_model: object) -> object:
    """Return what the patched method takes from a target."""
    namespace: dict[str, type] = {}
    exec(compile(rewriter().fold(PATH, fragment(code).encode(), patches).after, "fragment.py", "exec"), namespace)
    proposer = SimpleNamespace(
        get_model_name=lambda model: "KimiK25ForConditionalGeneration",
        model=SimpleNamespace(config=SimpleNamespace()),
    )
    return namespace["SpecDecodeBaseProposer"].__dict__["load_model"](proposer, target_model)


def target(language_model: object) -> object:
    config = SimpleNamespace(media_placeholder_token_id=7)
    return SimpleNamespace(lm_head="of the wrapper", config=config, get_language_model=lambda: language_model)


@pytest.mark.parametrize(("code", "patches"), [(f"{TAKE}\nreturn target_language_model", {ID}), (SHARED, {ID, OTHER})])
def test_bare_language_model_is_seen_with_model_and_lm_head(code: str, patches: set[str]) -> None:
    decoder = SimpleNamespace(layers=[])
    seen = load(code, patches, target(decoder))
    assert (seen.model, seen.lm_head) == (decoder, "of the wrapper")


@pytest.mark.parametrize("fields", [{"model": 1}, {"model": None, "lm_head": "its own"}], ids=str)
def test_whole_language_model_is_seen_as_it_is(fields: dict[str, object]) -> None:
    whole = SimpleNamespace(**fields)
    assert load(f"{TAKE}\nreturn target_language_model", {ID}, target(whole)) is whole
