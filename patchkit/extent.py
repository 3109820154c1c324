"""The proof that a rewrite changed nothing but the definitions that its patch names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import TypeGuard

import libcst as cst

from patchkit.tree import BLOCKS, is_same

_IMPORT = "import"
"""The name that stands for the import statements at the top level."""
_MARKER = "# patchkit: "
_LINES = ("header", "footer", "leading_lines", "lines_after_decorators")


def find_stray(before: cst.CSTNode | None, after: cst.CSTNode | None, names: Collection[str]) -> cst.CSTNode | None:
    """Return the innermost statement or line that differs, or is gone, outside the definitions with these dotted paths.

    Blank lines and marker comments may differ anywhere. What both trees share is not looked into, so this is quick for
    a rewrite of the same tree.
    """
    if before is after:
        return None
    if before is None or type(before) is not type(after):
        return after or before
    if isinstance(before, (cst.ClassDef, cst.FunctionDef)):
        names = [name.partition(".")[2] for name in names if name.partition(".")[0] == before.name.value]
    for field in before.__dataclass_fields__:
        one, other = getattr(before, field), getattr(after, field)
        if not (_is_block(one) or _is_block(other)):
            if not is_same(_said(field, one), _said(field, other)):
                return after
            continue
        for pair in zip_longest(_items(before, one, names), _items(before, other, names)):
            stray = find_stray(*pair, names)
            if stray is not None:
                return stray
    return None


def _is_block(value: object) -> bool:
    return BLOCKS[(value[0] if isinstance(value, (list, tuple)) and value else value).__class__]


def _said(field: str, value: object) -> object:
    """Return a value, the lines above or below a statement without those that may differ."""
    return [*filter(_says, value)] if field in _LINES and isinstance(value, (list, tuple)) else value


def _says(line: cst.CSTNode) -> TypeGuard[cst.EmptyLine]:
    comment = getattr(line, "comment", None)
    return comment is not None and not comment.value.startswith(_MARKER)


def _items(
    parent: cst.CSTNode, value: cst.CSTNode | Sequence[cst.CSTNode], names: Collection[str]
) -> Iterator[cst.CSTNode]:
    """Yield the blocks of a field; of one that may change only the lines above it."""
    for node in value if isinstance(value, (list, tuple)) else (value,):
        if _may_change(parent, node, names):
            yield from filter(_says, node.leading_lines)
        elif node is not None:
            yield node


def _may_change(parent: cst.CSTNode, node: cst.CSTNode, names: Collection[str]) -> bool:
    if isinstance(node, (cst.ClassDef, cst.FunctionDef)):
        return node.name.value in names
    is_import = isinstance(node, cst.SimpleStatementLine) and all(
        isinstance(part, (cst.Import, cst.ImportFrom)) for part in node.body
    )
    return _IMPORT in names and is_import and isinstance(parent, cst.Module)
