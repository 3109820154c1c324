from __future__ import annotations

import libcst
import pytest

from patchkit import cst, edits
from tests.support import parse


def test_mark_goes_below_other_comments_and_off_again() -> None:
    line = parse("y\n# why\nx = 1\n").body[1]
    marked = edits.mark(line, "one")
    assert cst.code_of(marked) == "# why\n# patchkit: one\nx = 1"
    assert [edits.is_marked(node, "one") for node in (line, marked)] == [False, True]
    assert not edits.is_marked(marked, "on")
    assert cst.is_same(edits.unmark(marked, "one").leading_lines, line.leading_lines)
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
