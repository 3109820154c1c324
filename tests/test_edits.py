from __future__ import annotations

from collections.abc import Callable

import libcst
import pytest

from patchkit import cst, edits
from patchkit.errors import AnchorAmbiguous, AnchorNotFound
from patchkit.tree import is_same
from tests.support import parse


def test_mark_goes_below_other_comments_and_off_again() -> None:
    line = parse("y\n# why\nx = 1\n").body[1]
    marked = edits.mark(line, "one")
    assert cst.code_of(marked) == "# why\n# patchkit: one\nx = 1"
    assert [edits.is_marked(node, "one") for node in (line, marked)] == [False, True]
    assert not edits.is_marked(marked, "on")
    assert is_same(edits.unmark(marked, "one").leading_lines, line.leading_lines)
    assert cst.code_of(edits.unmark(edits.mark(marked, "two"), "one")) == "# why\n# patchkit: two\nx = 1"


LISTS = {
    "one": ("['a']", '[\'a\', "y", "z"]'),
    "one, comma": ("['a',]", '[\'a\', "y", "z",]'),
    "blanks": ("[ 'a','b' ]", "[ 'a','b', \"y\", \"z\" ]"),
    "one a line": ("[\n  'a',\n]", '[\n  \'a\',\n  "y",\n  "z",\n]'),
    "one a line, no comma": ("[\n  'a'\n]", '[\n  \'a\',\n  "y",\n  "z"\n]'),
    "below the first": ("['a',\n 'b']", "['a',\n 'b',\n \"y\",\n \"z\"]"),
    "several a line": ("[\n  'a', 'b',\n  'c',\n]", "[\n  'a', 'b',\n  'c', \"y\", \"z\",\n]"),
    "comment at the last": ("[\n  'a',\n  'b',  # b\n]", "[\n  'a',\n  'b',  # b\n  \"y\",\n  \"z\",\n]"),
    "the same, no comma": ("[\n  'a',\n  'b'  # b\n]", "[\n  'a',\n  'b',  # b\n  \"y\",\n  \"z\"\n]"),
    "comment at the only": ("[\n  'a',  # a\n]", '[\n  \'a\',  # a\n  "y",\n  "z",\n]'),
    "comment at the row": ("[\n  'a', 'b',  # a, b\n]", "[\n  'a', 'b', \"y\", \"z\",  # a, b\n]"),
    "comments elsewhere": (
        "[  # open\n  # a\n  'a',  # a\n\n  # b\n  'b',\n  # end\n]",
        "[  # open\n  # a\n  'a',  # a\n\n  # b\n  'b',\n  \"y\",\n  \"z\",\n  # end\n]",
    ),
}


@pytest.mark.parametrize(("before", "after"), LISTS.values(), ids=LISTS)
def test_list_is_extended_and_shortened(before: str, after: str) -> None:
    short, long = (libcst.parse_expression(code) for code in (before, after))
    assert isinstance(short, libcst.List) and isinstance(long, libcst.List)
    assert cst.code_of(edits.extend_list(short, ["y", "z"])) == after
    assert cst.code_of(edits.shorten_list(long, 2)) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("class A(B): pass", "class A(B, C): pass"),
        ("class A(\n    X, B\n): pass", "class A(\n    X, B, C\n): pass"),
        ("class A(\n    B,\n): pass", "class A(\n    B, C,\n): pass"),
    ],
)
def test_base_is_added_and_dropped(before: str, after: str) -> None:
    short, long = (cst.statements(code)[0] for code in (before, after))
    assert isinstance(short, libcst.ClassDef) and isinstance(long, libcst.ClassDef)
    assert cst.code_of(edits.add_base(short, "C")) == after
    assert cst.code_of(edits.drop_last_base(long)) == before
    assert edits.base_names(long)[-1] == "C"


def test_body_is_replaced() -> None:
    (loop,) = cst.statements("for x in y:\n    a\n    b\n")
    assert isinstance(loop, libcst.For)
    assert [cst.code_of(statement) for statement in edits.body_of(loop)] == ["a", "b"]
    assert cst.code_of(edits.with_body(loop, edits.body_of(loop)[::-1])) == "for x in y:\n    b\n    a"
    (line,) = cst.statements("for x in y: a")
    assert isinstance(line, libcst.For)
    assert edits.body_of(line) == []


@pytest.mark.parametrize(
    ("code", "names"), [("class A: pass", ()), ("class A(): pass", ()), ("class A(b.C, D, m=M): pass", ("b.C", "D"))]
)
def test_bases_have_names_as_written(code: str, names: tuple[str, ...]) -> None:
    (node,) = cst.statements(code)
    assert isinstance(node, libcst.ClassDef)
    assert edits.base_names(node) == names


def test_body_of_a_definition_is_replaced_below_its_docstring() -> None:
    (function,) = cst.statements('def f():  # why\n    """Say."""\n\n    # one\n    a\n    # end\n')
    assert isinstance(function, libcst.FunctionDef)
    first, second = edits.body_of(function)
    assert cst.code_of(edits.with_body(function, [first, second, second])).splitlines()[3:] == [
        "    # one",
        "    a",
        "",
        "    # one",
        "    a",
        "    # end",
    ]


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        ("# patchkit: one", True),
        ("", False),
        ("# why", False),
        ("# patchkit: on", False),
        ("# patchkit: one_more", False),
        ("# patchkit: one, more", False),
        ("#patchkit: one", False),
    ],
)
def test_marker_is_known(line: str, is_ours: bool) -> None:
    above = parse(f"y\n{line}\nx = 1\n").body[1].leading_lines
    assert [edits.is_marker(found, "one") for found in above] == [is_ours]


def test_marker_is_a_comment() -> None:
    assert cst.code_of(edits.marker("one")) == "# patchkit: one"
    assert edits.is_marker(edits.marker("one"), "one")
    assert not edits.is_marker(edits.marker("one"), "two")


MEMBERS = """
    y: int = 1

    @property
    def f(self):  # f
        # why
        return self.y
"""
APPENDED = """
    # patchkit: one
    y: int = 1

    @property
    def f(self):  # f
        # why
        return self.y
"""
CLASSES = {
    "field": ("class A:  # A\n    x = 1  # x\n", "\nz = 1\n"),
    "docstring": ('@d\nclass A(B):\n    """Say."""\n', ""),
    "method": ("class A:\n    def g(self):\n        pass\n        # end of g\n", "\n\n# next\nz = 1\n"),
    "comment at the end": ("class A:\n    x = 1\n", "    # end of A\n\nz = 1\n"),
    "members from the beginning": ("class A:\n    # patchkit: one\n    y: int = 1\n", ""),
}


@pytest.mark.parametrize(("above", "below"), CLASSES.values(), ids=CLASSES)
def test_members_are_appended_and_dropped(above: str, below: str) -> None:
    module = parse(above + below)
    node = cst.find_definition(module, "A")
    assert isinstance(node, libcst.ClassDef)
    after = cst.replace(module, node, edits.append_members(node, MEMBERS, "one")).code
    assert after == above + APPENDED + below
    again = parse(after)
    long = cst.find_definition(again, "A")
    assert isinstance(long, libcst.ClassDef)
    assert cst.replace(again, long, edits.drop_last_members(long, MEMBERS)).code == above + below


def test_members_take_on_the_indent_of_the_class() -> None:
    module = parse("if x:\n  class A:\n    x = 1\n")
    node = cst.find_definition(module, "A")
    assert isinstance(node, libcst.ClassDef)
    changed = edits.append_members(node, "def f(self):\n        return 1\n", "one")
    expected = "if x:\n  class A:\n    x = 1\n\n    # patchkit: one\n    def f(self):\n      return 1\n"
    assert cst.fitted(cst.replace(module, node, changed)).code == expected


TWO = "x = f(a)\ny = x.b\n"
ONE = "y = f(a).b\n"
LOOK = """
if x is None:
    # why
    x = f(a)  # new
"""
MANY = """
for x in a:
    f(x)
z = 1
"""
METHOD = "class A:\n    def f(self, a):\n"
SWAPPED = {
    "one by one": ("x = 1", "x = 2", "        x = 1\n", "        # patchkit: one\n        x = 2\n"),
    "two by one": (
        TWO,
        ONE,
        "        v = 1\n        x = f(a)\n        y = x.b  # b\n        w = 1\n",
        "        v = 1\n        # patchkit: one\n        y = f(a).b  # b\n        w = 1\n",
    ),
    "one by two": (
        ONE,
        TWO,
        "        # above\n\n        # more\n        y = f(a).b  # b\n        # below\n        w = 1\n",
        "        # above\n\n        # more\n        # patchkit: one\n        x = f(a)\n        y = x.b  # b\n"
        "        # below\n        w = 1\n",
    ),
    "by a block": (
        "x = f(a)",
        LOOK,
        '        """Say."""\n\n        x = f(a)\n\n        # below\n        w = 1\n',
        '        """Say."""\n\n        # patchkit: one\n        if x is None:\n            # why\n'
        "            x = f(a)  # new\n\n        # below\n        w = 1\n",
    ),
    "a block": (
        MANY.partition("z")[0],
        MANY.replace("f(x)", "g(x)"),
        "        for x in a:\n            f(x)\n        else_ = 1\n",
        "        # patchkit: one\n        for x in a:\n            g(x)\n        z = 1\n        else_ = 1\n",
    ),
    "in a nested block": (
        TWO,
        MANY,
        "        if a:\n            with b:\n                x = f(a)\n                y = x.b\n        else:\n"
        "            x = f(a)\n",
        "        if a:\n            with b:\n                # patchkit: one\n                for x in a:\n"
        "                    f(x)\n                z = 1\n        else:\n            x = f(a)\n",
    ),
    "in a nested function": (
        "x = 1",
        "x = 2",
        "        def g():\n            try:\n                x = 1\n            finally:\n                pass\n",
        "        def g():\n            try:\n                # patchkit: one\n                x = 2\n"
        "            finally:\n                pass\n",
    ),
    "below the marker of another patch": (
        "x = 1",
        "x = 2",
        "        # patchkit: other\n        x = 1\n",
        "        # patchkit: other\n        # patchkit: one\n        x = 2\n",
    ),
    "beside a part of it": (
        TWO,
        ONE,
        "        x = f(a)\n        x = f(a)\n        y = x.b\n        y = x.b\n",
        "        x = f(a)\n        # patchkit: one\n        y = f(a).b\n        y = x.b\n",
    ),
    "elsewhere in the file": (
        "x = 1",
        "x = 2",
        "        x = 1\n\n    def g(self):\n        x = 1\n",
        "        # patchkit: one\n        x = 2\n\n    def g(self):\n        x = 1\n",
    ),
}
UNSWAPPED = {
    "not there": (TWO, "        x = 1\n", AnchorNotFound, r"^A\.f: x = f\(a\): not found$"),
    "part of it": (TWO, "        x = f(a)\n", AnchorNotFound, "not found"),
    "something between": (TWO, "        x = f(a)\n        z = 1\n        y = x.b\n", AnchorNotFound, "not found"),
    "other order": (TWO, "        y = x.b\n        x = f(a)\n", AnchorNotFound, "not found"),
    "over two blocks": (TWO, "        if a:\n            x = f(a)\n        y = x.b\n", AnchorNotFound, "not found"),
    "in one line": (TWO, "        x = f(a); y = x.b\n", AnchorNotFound, "not found"),
    "beside a colon": ("x = 1", "        if a: x = 1\n", AnchorNotFound, "not found"),
    "in another method": ("x = 1", "        pass\n\n    def g(self):\n        x = 1\n", AnchorNotFound, "not found"),
    "twice": ("x = 1", "        x = 1\n        x = 1\n", AnchorAmbiguous, r"^A\.f: x = 1: found 2 times$"),
    "twice, nested": (
        TWO,
        "        x = f(a)\n        y = x.b\n        if a:\n            x = f(a)\n            y = x.b\n",
        AnchorAmbiguous,
        "found 2 times",
    ),
}


@pytest.mark.parametrize(("old", "body", "error", "words"), UNSWAPPED.values(), ids=UNSWAPPED)
def test_statements_to_swap_must_be_there_once(old: str, body: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        edits.swap(parse(METHOD + body), "A.f", old, "new = 1", "one")


@pytest.mark.parametrize("edit", [edits.swap, edits.swap_back])
def test_definition_to_swap_in_must_be_there(edit: Callable[..., libcst.Module]) -> None:
    with pytest.raises(AnchorNotFound, match=r"^A\.g: not found$"):
        edit(parse(f"{METHOD}        x = 1\n"), "A.g", "x = 1", "x = 2", "one")


@pytest.mark.parametrize(("old", "new", "before", "after"), SWAPPED.values(), ids=SWAPPED)
def test_statements_are_swapped_and_swapped_back(old: str, new: str, before: str, after: str) -> None:
    assert edits.swap(parse(METHOD + before), "A.f", old, new, "one").code == METHOD + after
    again = parse(METHOD + after)
    assert edits.swap(again, "A.f", old, new, "one") is again
    assert edits.swap_back(again, "A.f", old, new, "one").code == METHOD + before


@pytest.mark.parametrize(
    "body",
    [
        "        x = 2\n",
        "        x = (2)  # upstream\n",
        "        x = 2\n        x = 1\n",
        "        if a:\n            x = 2\n        x = 2\n",
    ],
    ids=["alone", "other layout", "beside the old ones", "twice"],
)
def test_nothing_is_swapped_where_the_new_statements_are(body: str) -> None:
    module = parse(METHOD + body)
    assert edits.swap(module, "A.f", "x = 1", "x = 2", "one") is module


@pytest.mark.parametrize(
    "body",
    [
        "        x = 1\n",
        "        x = 2\n",
        "        # patchkit: one_more\n        x = 2\n",
        "        # patchkit: one\n        x = 3\n",
        "        # patchkit: one\n        y = 1\n        x = 2\n",
        "        x = 2  # patchkit: one\n",
        "        pass\n\n    def g(self):\n        # patchkit: one\n        x = 2\n",
    ],
    ids=["old", "not marked", "another patch", "edited", "marker above another", "marker beside", "another method"],
)
def test_nothing_is_swapped_back_without_the_marker(body: str) -> None:
    module = parse(METHOD + body)
    assert edits.swap_back(module, "A.f", "x = 1", "x = 2", "one") is module


def test_only_the_marked_statements_are_swapped_back() -> None:
    body = "        x = 2\n        if a:\n            # patchkit: one\n            x = 2\n"
    back = edits.swap_back(parse(METHOD + body), "A.f", "x = 1", "x = 2", "one")
    assert back.code == METHOD + "        x = 2\n        if a:\n            x = 1\n"


def test_swap_keeps_line_ends_and_indents() -> None:
    before, after = "def f():\r\n\tx = 1  # x\r\n", "def f():\r\n\t# patchkit: one\r\n\tif y:\r\n\t\tx = 2\r\n\tz\r\n"
    new = "if y:\n    x = 2\nz"
    swapped = cst.fitted(edits.swap(cst.parse_exactly(before.encode(), "a.py"), "f", "x = 1", new, "one"))
    assert swapped.bytes == after.replace("\tz", "\tz  # x").encode()
    assert edits.swap_back(swapped, "f", "x = 1", new, "one").bytes == before.encode()
