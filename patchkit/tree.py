"""Ways through a tree of LibCST, which its own visitors go slowly, and the comparison of two trees."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst


class Step(NamedTuple):
    """A node and one of its children."""

    parent: cst.CSTNode
    field: str
    child: cst.CSTNode


class Kinds(dict[type, bool]):
    """Whether a class is of some kinds; LibCST's are abstract ones, of which each ``isinstance`` is slow."""

    def __init__(self, *kinds: type, but: tuple[type, ...] = ()) -> None:
        super().__init__()
        self._kinds, self._but = kinds, but

    def __missing__(self, kind: type) -> bool:
        self[kind] = found = issubclass(kind, self._kinds) and not issubclass(kind, self._but)
        return found


_OF_STATEMENTS = (cst.BaseStatement, cst.BaseSuite, cst.Else, cst.ExceptHandler, cst.Finally)
_OF_BLOCKS = (*_OF_STATEMENTS, cst.ExceptStarHandler, cst.MatchCase)
_LAYOUT = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Newline, cst.Comment)
STATEMENTS = Kinds(*_OF_STATEMENTS)
BLOCKS = Kinds(*_OF_BLOCKS)
"""The kinds of nodes that hold statements, or are one."""
SPOKEN = Kinds(cst.CSTNode, but=_LAYOUT)
_NODES = Kinds(cst.CSTNode)
_SEQUENCES = (list, tuple)


def ways_to(kind: type[cst.CSTNode]) -> Kinds:
    """Return through which nodes the shortest ways lead to those of a kind.

    A statement is in no expression, and nothing is in the layout.
    """
    if issubclass(kind, _OF_BLOCKS):
        return BLOCKS
    return _NODES if kind is cst.CSTNode or issubclass(kind, _LAYOUT) else SPOKEN


def children_of(parent: cst.CSTNode, kinds: Kinds = _NODES) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yield the fields and children of a node; its own ``children`` builds a visitor for each node, which is slow."""
    for field in parent.__dataclass_fields__:
        value = getattr(parent, field)
        for child in value if value.__class__ in _SEQUENCES else (value,):
            if kinds[child.__class__]:
                yield field, child


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
    return _search(root, node, BLOCKS) or _search(root, node, _NODES)


def _search(root: cst.CSTNode, node: cst.CSTNode, kinds: Kinds) -> list[Step]:
    way: dict[int, Step] = {}
    queue = deque([root])
    while queue and id(node) not in way:
        parent = queue.popleft()
        for field, child in children_of(parent, kinds):
            way[id(child)] = Step(parent, field, child)
            queue.append(child)
    steps: list[Step] = []
    while id(node) in way:
        steps.append(way[id(node)])
        node = steps[-1].parent
    return steps[::-1]
