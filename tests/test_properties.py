"""What must hold of every rewrite, whatever the rest of the file looks like: generated Python around a fragment."""

from __future__ import annotations

import ast
import importlib
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchkit import cst
from patchkit.catalog import load_patch
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
    "\fdef after_a_form_feed(): pass\n\f\n",
    "if a:\n\tif b:\n\t\tif c:\n\t\t\tclass D_1: x = 1\n\t\t\t# deep\n\t\telse: pass\n",
    "def o_1():\n  def i_1():\n          class C:\n            def m(s):\n             return lambda: 1\n  return 1\n",
    "@(yes := lambda f: f)\n# between\n\n@staticmethod  # one\n\n@classmethod\ndef d_1(cls): 'doc'\n",
    "y_1 = 1 + \\\n  2; \\\nz_1 = 3\n",
    's_2 = rb\'\\x00\' b"""\n\t\'\'\'\n"""\n',
    "global_1: 'dict[str, int]'\nassert a, (b)\nraise E from e\n",
    "for i, (j, *k) in a: ...\nelse:\n\n\n  # far\n  after_1 = 0\n",
    "print(*a, **b, sep='''\n''')\nx_2 = [*a, *b,]\nx_3 = {**a, 'b': {c for c in d}}\n",
    "try: a\nexcept (A, B) as e: b\nelse: c\n",
    "class K_1(\n    A,  # a\n    # b\n): pass\n",
    "async def h_1():\n\tasync for a in b:\n\t\tawait c\n\treturn\n",
    " \t \n\t# a remark after a tab\n",
)
UNITS = ("    ", "  ", "\t", "        ")
"""What the code to rewrite is indented by."""
around = st.lists(st.sampled_from(NEIGHBOURS), max_size=6).map("".join)
encodings = st.sampled_from(("utf-8", "utf-8-sig", "latin-1"))


def indented(code: str, unit: str) -> str:
    """Return code that is indented by four spaces with another indentation."""
    lines = code.split("\n")
    blanks = [len(line) - len(line.lstrip(" ")) for line in lines]
    return "\n".join(unit * (blank // 4) + line[blank - blank % 4 :] for line, blank in zip(lines, blanks))


@st.composite
def files(draw: st.DrawFn, fragment: str) -> tuple[bytes, bytes, bytes]:
    """Return what stands before a fragment, the fragment and what stands after it, in one file's bytes."""
    encoding, end = draw(encodings), draw(st.sampled_from(("\n", "\r\n")))
    cookie = "# -*- coding: latin-1 -*-\n" if encoding == "latin-1" else ""
    before, after = cookie + draw(around), draw(around)
    if draw(st.booleans()):
        after = after.rstrip("\r\n\f\t ") or "end = 1"
    fragment = indented(fragment.strip("\n") + "\n", draw(st.sampled_from(UNITS)))
    parts = [part.replace("\n", end) for part in (before, fragment, after)]
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
    assert restored.before == before if restored else is_relaid(fragment, parts[1])


def alone(path: str, patch_id: str, parts: tuple[bytes, bytes, bytes]) -> bytes:
    """Return what a patch makes of the fragment where nothing stands around it."""
    return rewriter().fold(path, parts[1], {patch_id}).after


def is_relaid(fragment: str, part: bytes) -> bool:
    """Tell whether a fragment is laid out otherwise than in a release: its brackets cannot be worked out then."""
    return part.replace(b"\r\n", b"\n").decode().strip("\n") != fragment.strip("\n")


def meaning(source: bytes) -> str:
    """Return a source without its layout."""
    return ast.dump(ast.parse(source))


def joined(one: str, other: str) -> str | None:
    """Return two fragments as one, the bodies of a class of both together; None where they have the same function."""
    first, second = cst.cst.parse_module(one), cst.cst.parse_module(other)
    body = {name_of(node) or number: node for number, node in enumerate(first.body)}
    for number, node in enumerate(second.body):
        name = name_of(node)
        twin = body.get(name) if name else None
        if twin is None:
            body[name or -1 - number] = node
            continue
        if not isinstance(node, cst.cst.ClassDef) or not isinstance(twin, cst.cst.ClassDef):
            return None
        if {*map(name_of, twin.body.body)} & {*map(name_of, node.body.body)} - {None}:
            return None
        body[name] = twin.with_changes(body=twin.body.with_changes(body=[*twin.body.body, *node.body.body]))
    return first.with_changes(body=list(body.values())).code


def name_of(node: cst.cst.CSTNode) -> str | None:
    """Return the name of a class or function."""
    return node.name.value if isinstance(node, (cst.cst.ClassDef, cst.cst.FunctionDef)) else None


def pairs() -> dict[tuple[str, str], tuple[str, str]]:
    """Return the path and the code of every two patches of a file whose fragments fit into one."""
    found = {}
    for one, other in combinations(CASES, 2):
        path, code = CASES[one]
        both = joined(code, CASES[other][1]) if CASES[other][0] == path else None
        try:
            if both is not None and rewriter().fold(path, both.encode(), {one, other}).patches == {one, other}:
                found[one, other] = path, both
        except PatchError:
            continue
    return found


PAIRS = pairs()


@pytest.mark.parametrize("ids", PAIRS, ids="+".join)
@given(data=st.data())
def test_patches_commute_and_are_taken_back_together(ids: tuple[str, str], data: st.DataObject) -> None:
    path, fragment = PAIRS[ids]
    parts = data.draw(files(fragment))
    before = b"".join(parts)
    try:
        both = rewriter().fold(path, before, ids)
    except UnexpectedShape:
        assert cst.parse(before, path).bytes != before
        return
    assert both.patches == set(ids)
    for order in (ids, ids[::-1]):
        module = cst.parse_exactly(before, path)
        for name in order:
            module = load_patch(CATALOG.headers[name]).rewritings[path](module)
        assert cst.fitted(module).bytes == both.after
    restored = rewriter().restore(path, both.after, ids, digest(before))
    assert restored.before == before if restored else is_relaid(fragment, parts[1])


def test_some_patches_have_a_pair() -> None:
    assert len(PAIRS) > 5


def test_most_patches_have_a_case() -> None:
    assert len(CASES) > 12
