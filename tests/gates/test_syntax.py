from __future__ import annotations

import ast

import pytest

from patchkit.gates.syntax import (
    bound,
    constant,
    dotted,
    leaf,
    returned,
    split_lines,
    statements,
    strings,
    top_level,
    walk,
)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def unparsed(nodes: list[ast.expr]) -> list[str]:
    return [ast.unparse(node) for node in nodes]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a\nb", ["a", "b"]),
        ("if a:\n  b\nelif c:\n  d\nelse:\n  e\nf", ["b", "d", "e", "f"]),
        ("if TYPE_CHECKING:\n  a\nelse:\n  b", ["b"]),
        ("if typing.TYPE_CHECKING:\n  a", []),
        ("if not TYPE_CHECKING:\n  a", ["a"]),
        ("try:\n  a\nexcept E:\n  b\nelse:\n  c\nfinally:\n  d", ["a", "c"]),
        ("try:\n  if a:\n    b\nexcept E:\n  c", ["b"]),
        ("", []),
    ],
)
def test_statements_of_an_import(source: str, expected: list[str]) -> None:
    assert [ast.unparse(node) for node in top_level(ast.parse(source).body)] == expected


def test_definitions_are_not_entered() -> None:
    (node,) = top_level(ast.parse("def f():\n  a = 1").body)
    assert isinstance(node, ast.FunctionDef)


def test_chain_of_conditions_may_be_long() -> None:
    tree = ast.parse("if a:\n  b\n" + "elif c:\n  d\n" * 1500)
    assert len(list(top_level(tree.body))) == 1501


def test_nodes_come_in_the_order_of_the_source() -> None:
    tree = ast.parse("def f():\n  a\n  if b:\n    c\n  d\ne")
    assert [node.id for node in walk(tree) if isinstance(node, ast.Name)] == ["a", "b", "c", "d", "e"]
    assert tree not in list(walk(tree))


def test_walk_goes_as_deep_as_the_parser() -> None:
    tree = expression("a" + ".b" * 900)
    assert sum(isinstance(node, ast.Attribute) for node in walk(tree)) == 899


def test_statements_at_any_depth_in_the_order_of_the_source() -> None:
    source = """
class A:
    def f():
        a1
        if x: a2
        elif y: a3
        else: a4
        try: a5
        except E: a6
        else: a7
        finally: a8
        with x: a9
        match x:
            case 1: b1
        for x in y: b2
        else: b3
b4
"""
    found = [node.value for node in statements(ast.parse(source)) if isinstance(node, ast.Expr)]
    assert unparsed(found) == [*(f"a{number}" for number in range(1, 10)), "b1", "b2", "b3", "b4"]


def test_values_of_a_local_name() -> None:
    source = """
def f(x):
    x = 1
    y = x = 2
    x: int = 3
    x: int
    y: int = 4
    x.y = 5
    self.x = 6
    if y:
        x, y = 7
        x = 8
"""
    assert unparsed(list(bound(ast.parse(source), "x"))) == ["1", "2", "3", "8"]


def test_returned_values() -> None:
    assert unparsed(returned(ast.parse("def f():\n  if a:\n    return 1\n  return\n  return b.c"))) == ["1", "b.c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a",)),
        ("a.b.c", ("a", "b", "c")),
        ("a().b", ()),
        ("a[0].b", ()),
        ("a()", ()),
        ("'a'", ()),
        ("(a).b", ("a", "b")),
    ],
)
def test_dotted_name(text: str, expected: tuple[str, ...]) -> None:
    assert dotted(expression(text)) == expected


def test_long_dotted_name() -> None:
    assert dotted(expression("a" + ".b" * 900)) == ("a", *["b"] * 900)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a'", ("a",)),
        ("['a', 'b']", ("a", "b")),
        ("('a',)", ("a",)),
        ("{'a'}", ("a",)),
        ("['a', 1, b, b'c', ['d'], 'e']", ("a", "e")),
        ("1", ()),
        ("b'a'", ()),
        ("a", ()),
        ("[]", ()),
        ("f'a'", ()),
        ("'a' 'b'", ("ab",)),
        ("{'a': 'b'}", ()),
    ],
)
def test_string_literals(text: str, expected: tuple[str, ...]) -> None:
    assert strings(expression(text)) == expected


def test_no_expression_has_no_strings() -> None:
    assert strings(None) == ()


def test_leaf_is_what_is_subscripted() -> None:
    expression = ast.parse("nn.Module[int][str]", mode="eval").body
    assert dotted(leaf(expression)) == ("nn", "Module")
    assert leaf(ast.Name("x")).id == "x"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("source", "expected"), [("'a'", "a"), ("1", None), ("name", None), ("('a',)", None)])
def test_constant_is_a_string_literal(source: str, expected: str | None) -> None:
    assert constant(ast.parse(source, mode="eval").body) == expected


def test_no_expression_is_no_constant() -> None:
    assert constant(None) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\r\nb\rc\nd", ["a", "b", "c", "d"]),
        ("a\n\nb", ["a", "", "b"]),
        ("a\fb\x1cc\x85d\u2028e", ["a\fb\x1cc\x85d\u2028e"]),
    ],
)
def test_lines_end_where_python_ends_them(text: str, expected: list[str]) -> None:
    assert split_lines(text) == expected
