"""The rewriting toolbox: find exactly one anchor, compare code whatever its layout, put new code in."""

from __future__ import annotations

import ast
import functools
import operator
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

import libcst as cst

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, UnexpectedShape
from patchkit.syntax import parse_quietly
from patchkit.tree import BLOCKS, SPOKEN, STATEMENTS, Kinds, children_of, way_to, ways_to

Node = TypeVar("Node", bound=cst.CSTNode)
Found = TypeVar("Found")

_ANCHOR_HINT = "this release is not one that the patch knows; look for a newer patchkit or exclude the patch"


def parse(data: bytes, path: str, *, is_python: bool = False) -> cst.Module:
    """Parse source bytes, refusing what Python or LibCST does not take; ``is_python`` saves the question."""
    try:
        # CPython's parser goes first: LibCST's native one overflows the stack on nesting that CPython refuses.
        if not is_python:
            parse_quietly(data)
        module = cst.parse_module(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError, cst.ParserSyntaxError) as error:
        raise UnexpectedShape(f"{path} does not parse: {error}", _ANCHOR_HINT) from error
    except BaseException as error:
        # A Rust panic arrives as pyo3's PanicException, which derives from BaseException only (LibCST#901).
        if type(error).__name__ != "PanicException":
            raise
        raise UnexpectedShape(f"{path} makes LibCST's parser panic: {error}", _ANCHOR_HINT) from error
    return module


def parse_exactly(data: bytes, path: str, *, is_python: bool = False) -> cst.Module:
    """Parse source bytes, refusing also what LibCST cannot print back byte for byte (a form feed, mixed line ends)."""
    module = parse(data, path, is_python=is_python)
    if module.bytes != data:
        raise UnexpectedShape(f"{path} does not print back byte for byte", "LibCST cannot rewrite this file")
    return module


def find_all(root: cst.CSTNode, kind: type[Node], claim: Callable[[Node], bool] = lambda _: True) -> list[Node]:
    """Return every node of a kind for which the claim holds, an outer one before what is in it."""
    wanted, ways = Kinds(kind), ways_to(kind)
    found: list[Node] = []
    stack: list[cst.CSTNode] = [root]
    while stack:
        node = stack.pop()
        if wanted[node.__class__] and claim(node):  # type: ignore[arg-type]
            found.append(node)  # type: ignore[arg-type]
        stack.extend(reversed([child for _, child in children_of(node, ways)]))
    return found


def find_one(root: cst.CSTNode, kind: type[Node], claim: Callable[[Node], bool], anchor: str) -> Node:
    """Return the only node for which the claim holds; ``anchor`` says in words what was looked for."""
    return only(find_all(root, kind, claim), anchor)


def only(found: Sequence[Found], anchor: str) -> Found:
    """Return the only thing found, refusing none and several."""
    if not found:
        raise AnchorNotFound(f"{anchor}: not found", _ANCHOR_HINT)
    if len(found) > 1:
        raise AnchorAmbiguous(f"{anchor}: found {len(found)} times", _ANCHOR_HINT)
    return found[0]


def find_call(root: cst.CSTNode, name: str) -> cst.Call:
    """Return the only call of what is written as this name, as in ``self.scheduler.add_request``."""
    return find_one(root, cst.Call, lambda call: code_of(call.func) == name, f"the call of {name}")


def find_definition(module: cst.Module, dotted: str) -> cst.FunctionDef | cst.ClassDef:
    """Return the class or function that a dotted path names, as in ``SpeculativeConfig._verify_args``."""
    scope: cst.CSTNode = module
    for depth, name in enumerate(dotted.split("."), start=1):
        so_far = ".".join(dotted.split(".")[:depth])
        scope = only([node for node in _definitions(scope) if node.name.value == name], so_far)
    assert isinstance(scope, (cst.FunctionDef, cst.ClassDef))
    return scope


def _definitions(scope: cst.CSTNode) -> list[cst.FunctionDef | cst.ClassDef]:
    """Return the definitions directly in a scope, also those under an ``if`` or ``try``."""
    found: list[cst.FunctionDef | cst.ClassDef] = []
    for _, child in children_of(scope, STATEMENTS):
        if isinstance(child, (cst.FunctionDef, cst.ClassDef)):
            found.append(child)
        else:
            found += _definitions(child)
    return found


def is_code(node: cst.CSTNode, code: str) -> bool:
    """Tell whether a node is this code; comments and layout may differ."""
    return _normal(code_of(node)) == _normal(code)


def is_alike(node: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Tell whether two nodes are the same code; comments and layout may differ."""
    # Most nodes differ in their first names already, and to print and parse them would be slow.
    return (
        type(node) is type(other)
        and all(one == two for one, two in zip_longest(_names(node), _names(other)))
        and is_code(node, code_of(other))
    )


def _names(node: cst.CSTNode) -> Iterator[str]:
    """Yield the names in a node, in the order of its fields, which is that of the code or at least always the same."""
    for _, child in children_of(node, SPOKEN):
        if child.__class__ is cst.Name:
            yield child.value
        else:
            yield from _names(child)


def code_of(node: cst.CSTNode) -> str:
    """Return the source text of a node, dedented; of a suite, that of its statements."""
    if isinstance(node, cst.IndentedBlock):
        return textwrap.dedent(
            cst.Module(body=()).code_for_node(node.with_changes(header=cst.TrailingWhitespace()))
        ).strip()
    return textwrap.dedent(cst.Module(body=()).code_for_node(node)).strip()


@functools.lru_cache(1024)
def _normal(code: str) -> str:
    try:
        return ast.dump(parse_quietly(textwrap.dedent(code).strip().encode()))
    except SyntaxError:
        return code


def find_chains(root: cst.CSTNode) -> list[tuple[cst.If, ...]]:
    """Return every if/elif chain in source order, each as its branches."""
    chains = []
    tails: set[int] = set()
    for node in find_all(root, cst.If):
        if id(node) in tails:
            continue
        branches = [node]
        while isinstance(branches[-1].orelse, cst.If):
            branches.append(branches[-1].orelse)
        tails.update(map(id, branches))
        chains.append(tuple(branches))
    return chains


def parsed_anew(module: cst.Module, dotted: str) -> cst.Module:
    """Return a tree in which one definition is as LibCST reads what it prints of it."""
    node = find_definition(module, dotted)
    code = module.code_for_node(node.with_changes(leading_lines=()))
    (fresh,) = cst.parse_module(code, module.config_for_parsing).body
    return replace(module, node, fresh.with_changes(leading_lines=node.leading_lines))


class _Fitting(str):
    """The indentation of a new block: that of the block around it, once it has one."""


def statements(code: str) -> tuple[cst.SimpleStatementLine | cst.BaseCompoundStatement, ...]:
    """Parse a dedented fragment into statements that take on the layout of where they are put."""
    module = cst.parse_module(textwrap.dedent(code))
    return tuple(_reindented(module, lambda _, _around: _Fitting(module.default_indent)).body)


def fitted(module: cst.Module) -> cst.Module:
    """Return a tree in which new blocks are indented as those around them, in a file of several styles, too.

    LibCST alone takes the file's first indentation for them, which may be that of a function far away.
    """
    return _reindented(module, lambda indent, around: around if isinstance(indent, _Fitting) else indent)


def _reindented(node: Node, choose: Callable[[str | None, str | None], str | None], around: str | None = None) -> Node:
    """Return a tree with the indentation that is chosen for each block, given its own and that of the one around."""
    changes: dict[str, object] = {}
    if isinstance(node, cst.IndentedBlock):
        around = choose(node.indent, around)
        changes["indent"] = around
    for field in node.__dataclass_fields__:
        value = getattr(node, field)
        if BLOCKS[value.__class__]:
            changes[field] = _reindented(value, choose, around)
        elif isinstance(value, (list, tuple)) and value and BLOCKS[value[0].__class__]:
            children = [_reindented(child, choose, around) for child in value]
            changes[field] = value if all(map(operator.is_, children, value)) else children
    return node if all(getattr(node, field) is new for field, new in changes.items()) else node.with_changes(**changes)


def replace(root: Node, old: cst.CSTNode, new: cst.CSTNode | Sequence[cst.CSTNode]) -> Node:
    """Return the tree with one node, taken from it, replaced by one or, in a body, by several.

    Only the nodes on the way to the old one are built anew; every other node stays the same object.
    """
    steps = way_to(root, old)
    assert steps, "the node is not in the tree"
    fresh: tuple[cst.CSTNode, ...] = tuple(new) if isinstance(new, Sequence) else (new,)
    for step in reversed(steps):
        value = getattr(step.parent, step.field)
        if isinstance(value, Sequence):
            place = next(index for index, item in enumerate(value) if item is step.child)
            parent = step.parent.with_changes(**{step.field: (*value[:place], *fresh, *value[place + 1 :])})
        else:
            parent = step.parent.with_changes(**{step.field: fresh[0]})
        fresh = (parent,)
    assert isinstance(parent, type(root))
    return parent


def require(holds: bool, anchor: str, expected: str) -> None:
    """Refuse a source whose anchor is there but looks different from what the patch was written for."""
    if not holds:
        raise UnexpectedShape(f"{anchor}: expected {expected}", _ANCHOR_HINT)


def list_strings(node: cst.BaseExpression, anchor: str) -> tuple[str, ...]:
    """Return the values of a list literal that holds one or more strings and nothing else."""
    elements = node.elements if isinstance(node, cst.List) else ()
    values = [getattr(element.value, "evaluated_value", None) for element in elements]
    strings = tuple(value for value in values if isinstance(value, str))
    require(0 < len(strings) == len(values), anchor, "a list literal of strings")
    return strings
