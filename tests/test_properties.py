"""What must hold of every rewrite, whatever the rest of the file looks like: generated Python around a fragment."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit import cst
from patchkit.diff import prove, unified_diff
from patchkit.errors import PatchError, UnexpectedShape
from patchkit.record import digest
from tests.support import CATALOG, rewriter

MODULES = [
    importlib.import_module(f"tests.patches.{place.stem}")
    for place in sorted((Path(__file__).parent / "patches").glob("test_*.py"))
]


def case(module: ModuleType) -> tuple[str, str] | None:
    """Return the path of the file that a patch rewrites, and the smallest fragment that it rewrites there."""
    path, cases = getattr(module, "PATH", None), getattr(module, "REWRITTEN", None)
    for whole in (str, getattr(module, "fragment", str)):  # some tests give only the body of what is looked for
        try:
            text = whole(next(iter(cases.values()))[0])  # type: ignore[union-attr]
            rewriter().fold(str(path), text.encode(), {module.ID})
        except (PatchError, AttributeError, TypeError, KeyError):
            continue
        return str(path), text
    return None


CASES = {module.ID: found for module in MODULES if (found := case(module))}
NEIGHBOURS = (
    "# a remark\n",
    "#!not a shebang, \t and a tab\n",
    "\n\n\n",
    "\f\n",
    "   \n",
    "x_1 = [\n    1,  # one\n  2, # two\n\n]\n",
    "def f_1(a, /, b: int = 1, *c, d=lambda: (yield), **e) -> None:  # say\n\treturn None\n",
    "@decorate(1)\n@other.one\nclass C_1(Base, metaclass=M):\n  '''Say.'''\n\n  x: int = 1; y = 2\n",
    "async def g_1():\n    async with a as b, c:\n        return [x async for x in y if x]\n",
    "if x:\n    pass\nelif y: z\nelse:\n        w = '''a\n   b\\\n'''\n",
    "try:\n    a\nexcept E:\n    b\nfinally:\n    c\n",
    "match x:\n    case [1, *_] | {'a': b}: pass\n    case _:\n        d\n",
    's_1 = f"{x!r:>{width}} {{}}" if (y := 1) else ...\n',
    "while True: break\n",
    "del a, b ;  c = 1  ;\n",
    "with (open(a) as b, c,):\n\n    # only a remark here\n\n    pass\n  # a remark at an odd place\n",
    "a = b = (  # one\n    c\n    # two\n)\n",
    "name_é = 'ü'  # ö\n",
)
around = st.lists(st.sampled_from(NEIGHBOURS), max_size=6).map("".join)
encodings = st.sampled_from(("utf-8", "utf-8-sig", "latin-1"))


@st.composite
def files(draw: st.DrawFn, fragment: str) -> tuple[bytes, bytes, bytes]:
    """Return what stands before a fragment, the fragment and what stands after it, in one file's bytes."""
    encoding, end = draw(encodings), draw(st.sampled_from(("\n", "\r\n")))
    cookie = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    before, after = cookie + draw(around), draw(around)
    if draw(st.booleans()):
        after = after.rstrip("\r\n\f\t ") or "end = 1"
    parts = [part.replace("\n", end) for part in (before, fragment.strip("\n") + "\n", after)]
    mark = b"\xef\xbb\xbf" if encoding == "utf-8-sig" else b""
    first, second, third = (part.encode(encoding.removesuffix("-sig")) for part in parts)
    return mark + first, second, third


@pytest.mark.parametrize("patch_id", CASES)
@given(data=st.data())
def test_rewrite_touches_its_nodes_alone_once_and_can_be_taken_back(patch_id: str, data: st.DataObject) -> None:
    path, fragment = CASES[patch_id]
    parts = data.draw(files(fragment))
    before = b"".join(parts)
    try:
        rewrite = rewriter().fold(path, before, {patch_id})
    except UnexpectedShape:
        # A form feed or a remark at an odd place may be what LibCST does not print back; nothing else is refused.
        assert cst.parse(before, path).bytes != before
        return
    assert rewrite.patches == {patch_id}
    assert rewriter().fold(path, rewrite.after, {patch_id}).patches == frozenset()
    prove(unified_diff(path, before, rewrite.after), before, rewrite.after)
    if "import" not in CATALOG.headers[patch_id].files[path]:
        assert rewrite.after.startswith(parts[0])
        assert rewrite.after.endswith(parts[2])
        assert meaning(rewrite.after) == meaning(parts[0] + alone(path, patch_id, parts) + parts[2])
    restored = rewriter().restore(path, rewrite.after, {patch_id}, digest(before))
    assert restored is not None
    assert restored.before == before


def alone(path: str, patch_id: str, parts: tuple[bytes, bytes, bytes]) -> bytes:
    """Return what a patch makes of the fragment where nothing stands around it."""
    return rewriter().fold(path, parts[1], {patch_id}).after


def meaning(source: bytes) -> str:
    """Return a source without its layout."""
    return ast.dump(ast.parse(source))


def test_most_patches_have_a_case() -> None:
    assert len(CASES) > 12
