"""Questions to a syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


def top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported, those of its conditions too."""
    waiting = list(body)[::-1]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If):
            is_for_types = dotted(node.test)[-1:] == ("TYPE_CHECKING",)
            waiting += [*([] if is_for_types else node.body), *node.orelse][::-1]
        elif isinstance(node, ast.Try):
            waiting += [*node.body, *node.orelse][::-1]
        else:
            yield node


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node in the order of the source."""
    waiting = list(ast.iter_child_nodes(node))[::-1]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += list(ast.iter_child_nodes(found))[::-1]


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements below a node in the order of the source, with nothing of their expressions."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if isinstance(found, ast.stmt):
            yield found
        inner = [part for name in _BLOCKS for part in getattr(found, name, ())]
        waiting += inner[::-1]


def bound(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield what a local name is bound to below a node."""
    for found in walk(node):
        if isinstance(found, ast.Assign) and any(dotted(target) == (name,) for target in found.targets):
            yield found.value
        if isinstance(found, ast.AnnAssign) and dotted(found.target) == (name,) and found.value is not None:
            yield found.value


def returned(node: ast.AST) -> list[ast.expr]:
    """Return what a function returns, in the order of the source."""
    return [found.value for found in walk(node) if isinstance(found, ast.Return) and found.value is not None]


def dotted(expression: ast.expr) -> tuple[str, ...]:
    """Return the parts of a dotted name, or nothing for any other expression."""
    parts: list[str] = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    return tuple(reversed([*parts, expression.id])) if isinstance(expression, ast.Name) else ()


def leaf(expression: ast.expr) -> ast.expr:
    """Return an expression without its subscripts, as a base without its type arguments."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    return expression


def constant(expression: ast.expr | None) -> str | None:
    """Return the value of a string literal."""
    value = expression.value if isinstance(expression, ast.Constant) else None
    return value if isinstance(value, str) else None


def split_lines(text: str) -> list[str]:
    """Return the lines as Python and JSON count them; other characters that end a line elsewhere end none here."""
    lines = re.split(r"\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def strings(expression: ast.expr | None) -> tuple[str, ...]:
    """Return the string literals of a list, tuple or set, or of one string."""
    nodes = getattr(expression, "elts", [expression])
    return tuple(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
