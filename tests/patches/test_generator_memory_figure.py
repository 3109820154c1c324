from __future__ import annotations

import sys
from collections.abc import Callable
from textwrap import dedent, indent
from types import ModuleType, SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from tests.support import CATALOG, check_refused, check_restored, check_rewritten, check_unchanged, rewriter

ID = "generator_memory_figure"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
TORCH = "import torch\n"
OURS = "from speculators.utils.util import empty_cache, mem_get_info\n"
ASK = "free_memory, _ = torch.cuda.mem_get_info()"
ASK_OURS = "free_memory, _ = mem_get_info()"
OTHERWISE = """\
else:
    from vllm.platforms import current_platform

    free_memory = current_platform.get_device_total_memory()
"""
LOOK = f"if torch.cuda.is_available():\n    {ASK}\n{OTHERWISE}"
LOOK_OURS = f"if torch.accelerator.is_available():\n    {ASK_OURS}\n{OTHERWISE}"
MARKED, MARKED_OURS = f"# patchkit: {ID}\n{LOOK}", f"# patchkit: {ID}\n{LOOK_OURS}"


def fragment(imports: str, code: str, method: str = "__init__") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"{imports}\n\nclass VllmHiddenStatesGenerator:\n    def {method}(self):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.__init__"
ANCHOR = rf"{METHOD}: free_memory, _ = torch\.cuda\.mem_get_info\(\)"
ANCHOR_OURS = rf"{METHOD}: free_memory, _ = mem_get_info\(\)"
REFUSED = {
    "no class": (TORCH, AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "class twice": (fragment("", ASK) * 2, AnchorAmbiguous, "^VllmHiddenStatesGenerator: found 2 times"),
    "no method": (fragment(TORCH, ASK, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (
        f"def __init__(self):\n    {ASK}\n",
        AnchorNotFound,
        "^VllmHiddenStatesGenerator: not",
    ),
    "not asked": (fragment(TORCH, "pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "asked twice": (fragment(TORCH, f"{ASK}\n{ASK}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "asked twice, 0.4": (fragment(OURS, f"{ASK_OURS}\n{ASK_OURS}"), AnchorAmbiguous, f"{ANCHOR_OURS}: found 2 times"),
    "imported, asked of torch": (fragment(OURS, ASK), AnchorNotFound, f"{ANCHOR_OURS}: not found"),
    "asked, not imported": (fragment(TORCH, ASK_OURS), AnchorNotFound, f"{ANCHOR}: not found"),
    "imported as a module": (fragment("import mem_get_info.x\n", ASK_OURS), AnchorNotFound, f"{ANCHOR}: not found"),
    "total taken too": (fragment(TORCH, ASK.replace("_", "total", 1)), AnchorNotFound, f"{ANCHOR}: not found"),
    "of a device": (fragment(TORCH, ASK.replace("()", "(0)")), AnchorNotFound, f"{ANCHOR}: not found"),
    "two statements in a line": (fragment(TORCH, f"{ASK}; x = 1"), AnchorNotFound, f"{ANCHOR}: not found"),
    "another way out, not asked": (
        fragment(TORCH, f"if x:\n    free_memory = 1\n{OTHERWISE}"),
        AnchorNotFound,
        f"{ANCHOR}: not found",
    ),
}
REWRITTEN = {
    "smallest": (TORCH, ASK, MARKED),
    "smallest, 0.4": (OURS, ASK_OURS, MARKED_OURS),
    "imported under another name": (
        OURS.replace("mem_get_info", "mem_get_info as ask"),
        ASK_OURS,
        MARKED_OURS,
    ),
    "comments": (TORCH, f"# above\n\n{ASK}\n\n# below\nx = 1", f"# above\n\n{MARKED}\n# below\nx = 1"),
    "comments, 0.4": (OURS, f"x = 1\n\n{ASK_OURS}\n# below\nx = 1", f"x = 1\n\n{MARKED_OURS}# below\nx = 1"),
    "nested": (TORCH, f"if x:\n    {ASK}\nelse:\n    x = 1", f"if x:\n{indent(MARKED, '    ')}else:\n    x = 1"),
    "neighbours": (TORCH, f"free_memory, total = x\n{ASK}\n{ASK}[0]", f"free_memory, total = x\n{MARKED}{ASK}[0]"),
    "other layout": (TORCH, "(free_memory, _) = torch.cuda.mem_get_info(\n)", MARKED),
}
RESTORABLE = [case for case in REWRITTEN if case != "other layout"]


def both(case: str) -> tuple[bytes, bytes]:
    imports, before, after = REWRITTEN[case]
    return fragment(imports, before).encode(), fragment(imports, after).encode()


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize("case", REWRITTEN)
def test_rewritten(case: str) -> None:
    old, new = both(case)
    check_rewritten(ID, PATH, old.decode(), new.decode())


@pytest.mark.parametrize(("imports", "look"), [(TORCH, LOOK), (OURS, LOOK_OURS)], ids=["0.3.0", "0.4"])
def test_unchanged_where_it_asks_the_platform_already(imports: str, look: str) -> None:
    check_unchanged(ID, PATH, fragment(imports, f"x = 1\n# upstream\n{look}x = 2"))


@pytest.mark.parametrize("case", RESTORABLE)
def test_restored(case: str) -> None:
    old, new = both(case)
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old, new = (code.replace(b"\n", b"\r\n") for code in both("comments"))
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize(
    ("imports", "code"),
    [(TORCH, ASK), (OURS, ASK_OURS), (TORCH, LOOK), (OURS, LOOK_OURS), (TORCH, MARKED.replace(ID, "other"))],
    ids=["pristine", "pristine, 0.4", "native", "native, 0.4", "another's"],
)
def test_nothing_to_restore(imports: str, code: str) -> None:
    data = fragment(imports, code).encode()
    assert rewriter().restore(PATH, data, {ID}, digest(data)) == Rewrite(data, data, frozenset())


@pytest.mark.parametrize(
    "data",
    ["x = 1\n", fragment(TORCH, LOOK), fragment(TORCH, MARKED_OURS)],
    ids=["no method", "native", "of another release"],
)
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(TORCH, ASK).encode())) is None


def test_not_restored_to_a_layout_that_is_lost() -> None:
    old, new = both("other layout")
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


FORMS = {
    "0.3.0": ("", f"{ASK}\nself.free_memory = free_memory"),
    "0.4": (OURS, f"{ASK_OURS}\nself.free_memory = free_memory"),
}


def refuse() -> tuple[int, int]:
    raise RuntimeError("Found no NVIDIA driver on your system. Please check")


def module(name: str, **members: object) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(members)
    return made


@pytest.fixture
def has_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Put a platform with 7 bytes beside a device with 5 bytes free of 6, or none."""
    ask: Callable[[], tuple[int, int]] = (lambda: (5, 6)) if request.param else refuse
    platform = SimpleNamespace(get_device_total_memory=lambda: 7)
    device = SimpleNamespace(is_available=lambda: request.param, mem_get_info=ask)
    modules = [
        module("torch", cuda=device, accelerator=SimpleNamespace(is_available=lambda: request.param)),
        module("vllm"),
        module("vllm.platforms", current_platform=platform),
        module("speculators"),
        module("speculators.utils"),
        module("speculators.utils.util", mem_get_info=ask, empty_cache=None),
    ]
    for made in modules:
        monkeypatch.setitem(sys.modules, made.__name__, made)
    return bool(request.param)


def free_memory(patches: set[str], form: str) -> int:
    """Return the memory that the generator finds."""
    imports, code = FORMS[form]
    namespace: dict[str, type] = {}
    after = rewriter().fold(PATH, fragment(f"{TORCH}{imports}", code).encode(), patches).after
    exec(compile(after, "fragment.py", "exec"), namespace)
    found: int = namespace["VllmHiddenStatesGenerator"]().__dict__["free_memory"]
    return found


@pytest.mark.parametrize("has_device", [False], indirect=True, ids=["no device"])
@pytest.mark.parametrize("form", FORMS)
def test_no_device_stops_it_before(has_device: bool, form: str) -> None:
    with pytest.raises(RuntimeError, match=CATALOG.headers[ID].patch.symptom):
        free_memory(set(), form)


@pytest.mark.parametrize("has_device", [True, False], indirect=True, ids=["device", "no device"])
@pytest.mark.parametrize("form", FORMS)
def test_memory_of_the_device_else_of_the_platform_after(has_device: bool, form: str) -> None:
    assert free_memory({ID}, form) == (5 if has_device else 7)


@pytest.mark.parametrize("has_device", [True], indirect=True, ids=["device"])
@pytest.mark.parametrize("form", FORMS)
def test_memory_of_the_device_before(has_device: bool, form: str) -> None:
    assert free_memory(set(), form) == 5
