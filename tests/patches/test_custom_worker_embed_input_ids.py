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

ID = "custom_worker_embed_input_ids"
PATH = "speculators/data_generation/custom_worker.py"
OLD = """\
hidden_states = (
    inputs_embeds
    if inputs_embeds is not None
    else self.get_input_embeddings(input_ids)
)
"""
NEW = OLD.replace("get_input_embeddings", "embed_input_ids")
MARKED = f"# patchkit: {ID}\n{NEW}"
LINE = "hidden_states = inputs_embeds if inputs_embeds is not None else self.{look_up}(input_ids)"


def fragment(code: str, function: str = "_patched_forward") -> str:
    body = indent(dedent(code).strip("\n"), " " * 4)
    return f"def {function}(self, input_ids, inputs_embeds=None):\n{body}\n"


ANCHOR = r"^_patched_forward: hidden_states = \("
REFUSED = {
    "no function": ("x = 1\n", AnchorNotFound, "^_patched_forward: not found"),
    "function twice": (fragment(OLD) * 2, AnchorAmbiguous, "^_patched_forward: found 2 times"),
    "another function": (fragment(OLD, "forward"), AnchorNotFound, "^_patched_forward: not found"),
    "function in a class": (
        f"class A:\n{indent(fragment(OLD), '    ')}",
        AnchorNotFound,
        "^_patched_forward: not found",
    ),
    "not looked up": (fragment("pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "looked up twice": (fragment(f"{OLD}{OLD}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "another look-up": (fragment(OLD.replace("get_input", "input")), AnchorNotFound, f"{ANCHOR}: not found"),
    "another condition": (fragment(OLD.replace("is not None", "is None")), AnchorNotFound, f"{ANCHOR}: not found"),
    "no condition": (
        fragment("hidden_states = self.get_input_embeddings(input_ids)"),
        AnchorNotFound,
        f"{ANCHOR}: not found",
    ),
    "another name": (fragment(OLD.replace("hidden_states", "states")), AnchorNotFound, f"{ANCHOR}: not found"),
    "two statements in a line": (
        fragment(f"{LINE.format(look_up='get_input_embeddings')}; x = 1"),
        AnchorNotFound,
        f"{ANCHOR}: not found",
    ),
}
REWRITTEN = {
    "smallest": (OLD, MARKED),
    "comments": (
        f"# above\n\n{OLD.rstrip()}  # beside\n# below\nx = 1",
        f"# above\n\n{MARKED.rstrip()}  # beside\n# below\nx = 1",
    ),
    "nested": (
        f"if x:\n{indent(OLD, '    ')}    residual = None\nelse:\n    hidden_states = x",
        f"if x:\n{indent(MARKED, '    ')}    residual = None\nelse:\n    hidden_states = x",
    ),
    "neighbours": (
        f"x = self.get_input_embeddings(input_ids)\n{OLD}self.get_input_embeddings(x)",
        f"x = self.get_input_embeddings(input_ids)\n{MARKED}self.get_input_embeddings(x)",
    ),
    "other layout": (LINE.format(look_up="get_input_embeddings"), MARKED),
}
RESTORABLE = ("smallest", "comments", "nested", "neighbours")


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize("code", [NEW, f"# upstream\n{NEW}", LINE.format(look_up="embed_input_ids")])
def test_unchanged_where_it_calls_that_name_already(code: str) -> None:
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


@pytest.mark.parametrize("code", [OLD, NEW, f"# patchkit: other\n{NEW}"], ids=["pristine", "native", "another's"])
def test_nothing_to_restore(code: str) -> None:
    check_nothing_to_restore(ID, PATH, fragment(code))


@pytest.mark.parametrize("data", ["x = 1\n", fragment(NEW)], ids=["no function", "native"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(OLD).encode())) is None


def test_not_restored_to_a_layout_that_is_lost() -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN["other layout"])
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


DECODER = SimpleNamespace(embed_input_ids=lambda input_ids: [f"embedding of {token}" for token in input_ids])


def forward(patches: set[str], decoder: object, *inputs: object) -> object:
    """Return the hidden states with which the decoder starts."""
    namespace: dict[str, object] = {}
    code = rewriter().fold(PATH, fragment(f"{OLD}return hidden_states").encode(), patches).after
    exec(compile(code, "fragment.py", "exec"), namespace)
    function = namespace["_patched_forward"]
    assert callable(function)
    return function(decoder, *inputs)


def test_token_ids_stop_it_before() -> None:
    with pytest.raises(AttributeError, match=CATALOG.headers[ID].patch.symptom):
        forward(set(), DECODER, [1, 2])


def test_token_ids_are_embedded_after() -> None:
    assert forward({ID}, DECODER, [1, 2]) == ["embedding of 1", "embedding of 2"]


@pytest.mark.parametrize("patches", [set(), {ID}], ids=["before", "after"])
@pytest.mark.parametrize("embeddings", [["given"], []], ids=["some", "none"])
def test_embeddings_that_are_given_are_taken(patches: set[str], embeddings: list[str]) -> None:
    assert forward(patches, SimpleNamespace(), None, embeddings) is embeddings
