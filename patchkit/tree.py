"""Ways through a tree of LibCST, which its own visitors go slowly, and the comparison of two trees."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst


class Step(NamedTuple):
    """A node and one of its children."""

    parent: cst.CSTNode
    field: str
    child: cst.CSTNode


STATEMENTS = (cst.BaseStatement, cst.BaseSuite, cst.Else, cst.ExceptHandler, cst.Finally)
BLOCKS = (*STATEMENTS, cst.ExceptStarHandler, cst.MatchCase)
"""The kinds of nodes that hold statements, or are one."""
_LAYOUT = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Newline, cst.Comment)


class Ways(NamedTuple):
    """Which children of a node to go to."""

    kinds: tuple[type[cst.CSTNode], ...]
    but: tuple[type[cst.CSTNode], ...] = ()


_NODES, SPOKEN, _BLOCKS = Ways((cst.CSTNode,)), Ways((cst.CSTNode,), _LAYOUT), Ways(BLOCKS)


def ways_to(kind: type[cst.CSTNode]) -> Ways:
    """Return the shortest ways to nodes of a kind: a statement is in no expression, and nothing is in the layout."""
    if issubclass(kind, BLOCKS):
        return _BLOCKS
    return _NODES if kind is cst.CSTNode or issubclass(kind, _LAYOUT) else SPOKEN


@functools.cache
def is_kind(kind: type, kinds: tuple[type, ...], but: tuple[type, ...] = ()) -> bool:
    """Tell whether a class is one of some kinds; LibCST's are abstract ones, of which each ``isinstance`` is slow."""
    return issubclass(kind, kinds) and not issubclass(kind, but)


def steps_of(parent: cst.CSTNode, ways: Ways = _NODES) -> Iterator[Step]:
    """Yield the children of a node; its own ``children`` builds a visitor for each node, which is slow."""
    kinds, but = ways
    for field in parent.__dataclass_fields__:
        value = getattr(parent, field)
        for child in value if value.__class__ in _SEQUENCES else (value,):
            if is_kind(child.__class__, kinds, but):
                yield Step(parent, field, child)


_SEQUENCES = (list, tuple)


def is_same(one: object, other: object) -> bool:
    """Tell whether two trees are equal; what they share is not compared, so it is quick for rewrites of one tree."""
    if one is other:
        return True
    if isinstance(one, cst.CSTNode) and type(one) is type(other):
        return all(is_same(getattr(one, field), getattr(other, field)) for field in one.__dataclass_fields__)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


def way_to(root: cst.CSTNode, node: cst.CSTNode) -> list[Step]:
    """Return the steps from a tree to one of its nodes, through statements alone where these lead there."""
    return _search(root, node, _BLOCKS) or _search(root, node, _NODES)


def _search(root: cst.CSTNode, node: cst.CSTNode, ways: Ways) -> list[Step]:
    way: dict[int, Step] = {}
    queue = deque([root])
    while queue and id(node) not in way:
        for step in steps_of(queue.popleft(), ways):
            way[id(step.child)] = step
            queue.append(step.child)
    steps: list[Step] = []
    while id(node) in way:
        steps.append(way[id(node)])
        node = steps[-1].parent
    return steps[::-1]
