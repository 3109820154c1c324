from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
from patchkit.record import digest
from tests.support import check_refused, check_restored, check_rewritten, check_unchanged, rewriter

ID = "custom_worker_unwrap"
PATH = "speculators/data_generation/custom_worker.py"
GATE = """\
if not supports_eagle3(model):
    raise ValueError(
        f"Model {type(model).__name__} does not support hidden state extraction"
    )
"""
TAKE = "base_model = model.model\n"
LOOKUP = """\
# patchkit: custom_worker_unwrap
if supports_eagle3(model) and hasattr(model, "model"):
    base_model = model.model{comment}
elif hasattr(model, "language_model"):
    base_model = getattr(model.language_model, "model", model.language_model)
elif hasattr(getattr(model, "model", None), "layers"):
    base_model = model.model
else:
    raise ValueError(
        f"Model {{type(model).__name__}} does not support hidden state extraction: "
        "it supports no EAGLE-3 interface, and neither language_model nor model "
        "leads to decoder layers"
    )
"""
COMMENT = "  # type: ignore[attr-defined]"


def fragment(code: str, method: str = "_setup_hidden_states_capture(self, model)") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class HiddenStatesWorkerExtension:\n    def {method}:\n{body}\n        return base_model\n"


def lookup(comment: str = "") -> str:
    return LOOKUP.format(comment=comment)


SMALLEST = f"{GATE}\n{TAKE}"
METHOD = r"^HiddenStatesWorkerExtension\._setup_hidden_states_capture"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^HiddenStatesWorkerExtension: not found"),
    "no method": (fragment(SMALLEST, "f(self, model)"), AnchorNotFound, f"{METHOD}: not found"),
    "class twice": (fragment(SMALLEST) * 2, AnchorAmbiguous, "^HiddenStatesWorkerExtension: found 2 times"),
    "no check": (fragment(TAKE), AnchorNotFound, f"{METHOD}: the check: not found"),
    "check twice": (fragment(f"{GATE}{GATE}{TAKE}"), AnchorAmbiguous, "the check: found 2 times"),
    "no model taken": (fragment(GATE), AnchorNotFound, "base_model = model.model: not found"),
    "model taken twice": (fragment(f"{SMALLEST}{TAKE}"), AnchorAmbiguous, "base_model = model.model: found 2 times"),
    "check of other words": (
        fragment(SMALLEST.replace("hidden", "no hidden")),
        UnexpectedShape,
        "expected the check to raise its ValueError and nothing else",
    ),
    "check of another error": (
        fragment(SMALLEST.replace("ValueError", "TypeError")),
        UnexpectedShape,
        "expected the check to raise its ValueError and nothing else",
    ),
    "check with an else": (
        fragment(f"{GATE}else:\n    x = 1\n{TAKE}"),
        UnexpectedShape,
        "expected the check to raise its ValueError and nothing else",
    ),
    "something between": (fragment(f"{GATE}x = 1\n{TAKE}"), UnexpectedShape, "right after the check"),
    "taken before": (fragment(f"{TAKE}{GATE}"), UnexpectedShape, "right after the check"),
    "taken elsewhere": (fragment(f"{GATE}if x:\n    {TAKE}"), UnexpectedShape, "right after the check"),
    "check under an if": (
        fragment(f"if x:\n{indent(GATE, '    ')}{TAKE}"),
        UnexpectedShape,
        "right after the check|the check",
    ),
    "another look-up": (
        fragment(lookup().replace("hasattr(model", "has(model")),
        AnchorNotFound,
        "the check: not found",
    ),
}
REWRITTEN = {
    "smallest": (SMALLEST, lookup()),
    "comments": (
        f"# above\n{GATE}\nbase_model = model.model{COMMENT}\n# below\nx = 1",
        f"# above\n{lookup(COMMENT)}# below\nx = 1",
    ),
    "more of the method": (
        f"x = 1\n\n{SMALLEST}base_model.owner = self\nif x:\n    y = 2",
        f"x = 1\n\n{lookup()}base_model.owner = self\nif x:\n    y = 2",
    ),
    "other layout": (
        f"if not supports_eagle3( model ):\n    raise ValueError(\n        # why\n{GATE.splitlines()[2]})\n{TAKE}",
        lookup(),
    ),
    "no blank line": (f"{GATE}{TAKE}", lookup()),
}
RESTORABLE = ("smallest", "comments", "more of the method")


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize("comment", ["", COMMENT], ids=["bare", "comment"])
def test_unchanged_where_it_looks_through_already(comment: str) -> None:
    check_unchanged(ID, PATH, fragment(lookup(comment).replace("# patchkit: custom_worker_unwrap", "# upstream")))


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize("case", RESTORABLE)
def test_restored(case: str) -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN[case])
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old, new = (fragment(code).replace("\n", "\r\n").encode() for code in REWRITTEN["comments"])
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize("case", ["other layout", "no blank line"])
def test_not_restored_to_a_layout_that_is_lost(case: str) -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN[case])
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


@pytest.mark.parametrize("data", [b"x = 1\n", fragment(SMALLEST).encode()], ids=["no method", "not patched"])
def test_not_restored_without_anchor(data: bytes) -> None:
    assert rewriter().restore(PATH, data, {ID}, digest(data + b"#")) is None


Setup = Callable[[object, object], object]


@pytest.fixture
def setup() -> Setup:
    namespace = {"supports_eagle3": lambda model: getattr(model, "is_eagle3", False)}
    exec(compile(rewriter().fold(PATH, fragment(SMALLEST).encode(), {ID}).after, "fragment.py", "exec"), namespace)
    return namespace["HiddenStatesWorkerExtension"].__dict__["_setup_hidden_states_capture"]


LAYERS = SimpleNamespace(layers=[])
OTHER = SimpleNamespace(layers=[1])


@pytest.mark.parametrize(
    "model",
    [
        SimpleNamespace(is_eagle3=True, model=LAYERS),
        SimpleNamespace(is_eagle3=True, model=LAYERS, language_model=SimpleNamespace(model=OTHER)),
        SimpleNamespace(is_eagle3=True, language_model=SimpleNamespace(model=LAYERS)),
        SimpleNamespace(language_model=SimpleNamespace(model=LAYERS)),
        SimpleNamespace(language_model=LAYERS),
        SimpleNamespace(language_model=LAYERS, model=OTHER),
        SimpleNamespace(model=LAYERS),
    ],
    ids=[
        "interface",
        "interface before language_model",
        "interface without model",
        "language_model with model",
        "language_model itself",
        "language_model before model",
        "model with layers",
    ],
)
def test_rewritten_method_finds_the_layers(setup: Setup, model: object) -> None:
    assert setup(None, model) is LAYERS


class Encoder:
    """A model without decoder layers."""

    model = None


@pytest.mark.parametrize("model", [Encoder(), SimpleNamespace(), SimpleNamespace(is_eagle3=True)])
def test_rewritten_method_refuses_a_model_without_layers(setup: Setup, model: object) -> None:
    words = f"^Model {type(model).__name__} does not support hidden state extraction: it supports no EAGLE-3"
    with pytest.raises(ValueError, match=words):
        setup(None, model)
