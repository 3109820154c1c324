"""Edits that keep the layout of what they change: marker comments, lists, bases, bodies."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeVar

import libcst as cst

from patchkit.cst import code_of, find_all, find_definition, is_alike, only, replace, require, statements

Marked = TypeVar("Marked", bound=cst.BaseStatement)
Suited = TypeVar("Suited", cst.FunctionDef, cst.ClassDef, cst.For)


def mark(node: Marked, patch_id: str) -> Marked:
    """Return a statement with the comment above it that tells a reader of the source who wrote it."""
    return node.with_changes(leading_lines=(*_lines_above(node), marker(patch_id)))


def unmark(node: Marked, patch_id: str) -> Marked:
    """Return a statement without the comment that ``mark`` put above it."""
    return node.with_changes(leading_lines=[line for line in _lines_above(node) if not is_marker(line, patch_id)])


def is_marked(node: Marked, patch_id: str) -> bool:
    """Tell whether a statement carries the comment of a patch."""
    return any(is_marker(line, patch_id) for line in _lines_above(node))


def _lines_above(node: cst.BaseStatement) -> Sequence[cst.EmptyLine]:
    lines: Sequence[cst.EmptyLine] = getattr(node, "leading_lines")  # noqa: B009  # only its subclasses declare it
    return lines


def marker(patch_id: str) -> cst.EmptyLine:
    """Return the comment of a patch as a line."""
    return cst.EmptyLine(comment=cst.Comment(f"# patchkit: {patch_id}"))


def is_marker(line: cst.EmptyLine, patch_id: str) -> bool:
    """Tell whether a line is the comment of a patch."""
    return line.comment is not None and line.comment.value == f"# patchkit: {patch_id}"


def extend_list(node: cst.List, values: Sequence[str]) -> cst.List:
    """Return a list literal, not an empty one, with strings added at its end, one a line where it has one a line."""
    last, between, closing = node.elements[-1], _separator(node), node.rbracket.whitespace_before
    added = [cst.Element(cst.SimpleString(f'"{value}"'), between) for value in values]
    added[-1] = added[-1].with_changes(comma=last.comma)
    kept, space = between, between.whitespace_after
    if isinstance(closing, cst.ParenthesizedWhitespace) and isinstance(space, cst.ParenthesizedWhitespace):
        # A comment beside the last element belongs to the bracket; it stays beside its element.
        kept = between.with_changes(whitespace_after=space.with_changes(first_line=closing.first_line))
        closing = closing.with_changes(first_line=cst.TrailingWhitespace())
    return node.with_changes(
        elements=(*node.elements[:-1], last.with_changes(comma=kept), *added),
        rbracket=node.rbracket.with_changes(whitespace_before=closing),
    )


def shorten_list(node: cst.List, count: int) -> cst.List:
    """Return a list literal without its last elements: what ``extend_list`` did, taken back."""
    kept, last, closing = node.elements[:-count], node.elements[-1], node.rbracket.whitespace_before
    comma = kept[-1].comma
    space = comma.whitespace_after if isinstance(comma, cst.Comma) else None
    if isinstance(closing, cst.ParenthesizedWhitespace) and isinstance(space, cst.ParenthesizedWhitespace):
        closing = closing.with_changes(first_line=space.first_line)
    return node.with_changes(
        elements=(*kept[:-1], kept[-1].with_changes(comma=last.comma)),
        rbracket=node.rbracket.with_changes(whitespace_before=closing),
    )


def _separator(node: cst.List) -> cst.Comma:
    """Return the comma between elements: as between the first two, else as after the opening bracket."""
    first = node.elements[0].comma
    space = first.whitespace_after if len(node.elements) > 1 and isinstance(first, cst.Comma) else None
    space = space or node.lbracket.whitespace_after
    if isinstance(space, cst.ParenthesizedWhitespace):
        return cst.Comma(whitespace_after=space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=()))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def base_names(node: cst.ClassDef) -> tuple[str, ...]:
    """Return the bases of a class as they are written."""
    return tuple(code_of(base.value) for base in node.bases)


def add_base(node: cst.ClassDef, name: str) -> cst.ClassDef:
    """Return a class that has one or more bases with another at their end."""
    last = node.bases[-1]
    added = cst.Arg(cst.Name(name), comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    kept = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    return node.with_changes(bases=(*node.bases[:-1], kept, added))


def drop_last_base(node: cst.ClassDef) -> cst.ClassDef:
    """Return a class without its last base: what ``add_base`` did, taken back."""
    kept, last = node.bases[-2], node.bases[-1]
    kept = kept.with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return node.with_changes(bases=(*node.bases[:-2], kept))


def with_body(node: Suited, body: Sequence[cst.BaseStatement]) -> Suited:
    """Return a definition or a loop with other statements in its body."""
    return node.with_changes(body=node.body.with_changes(body=tuple(body)))


def body_of(node: cst.FunctionDef | cst.ClassDef | cst.For) -> list[cst.BaseStatement]:
    """Return the statements of an indented body; one on the line of its colon has none."""
    return [statement for statement in node.body.body if isinstance(statement, cst.BaseStatement)]


def append_members(node: cst.ClassDef, code: str, patch_id: str) -> cst.ClassDef:
    """Return a class with members at its end, each below a blank line and the first also below the marker."""
    require(bool(body_of(node)), node.name.value, "an indented body")
    blank = cst.EmptyLine(indent=False)
    first, *others = (member.with_changes(leading_lines=(blank,)) for member in statements(code))
    return with_body(node, [*body_of(node), mark(first, patch_id), *others])


def drop_last_members(node: cst.ClassDef, code: str) -> cst.ClassDef:
    """Return a class without its last members: what ``append_members`` did, taken back."""
    return with_body(node, body_of(node)[: -len(_sought(code))])


def swap(module: cst.Module, dotted: str, old: str, new: str, patch_id: str) -> cst.Module:
    """Put statements, the first of them marked, in place of others in a definition; where they are, nothing is done."""
    scope = find_definition(module, dotted)
    found = _find_runs(scope, old)
    room = len(_sought(old)) - len(_sought(new))
    # What is to come may be a part of what stands there.
    parts = [(block, start + step) for block, start in found for step in range(room + 1)]
    if any(run not in parts for run in _find_runs(scope, new)):
        return module
    block, place = only(found, f"{dotted}: {old.strip().splitlines()[0]}")
    return _put(module, block, place, old, new, patch_id)


def swap_back(module: cst.Module, dotted: str, old: str, new: str, patch_id: str) -> cst.Module:
    """Take back what ``swap`` did, where the marker says that it did; ``old`` must be laid out as it was."""
    runs = _find_runs(find_definition(module, dotted), new)
    for block, place in runs:
        if is_marked(block.body[place], patch_id):
            return _put(module, block, place, new, old, patch_id)
    return module


def _find_runs(scope: cst.CSTNode, code: str) -> list[tuple[cst.IndentedBlock, int]]:
    """Return where these statements follow each other: the block, and the place of the first."""
    wanted = _sought(code)
    return [
        (block, place)
        for block in find_all(scope, cst.IndentedBlock)
        for place in range(len(block.body) - len(wanted) + 1)
        if all(map(is_alike, block.body[place:], wanted))
    ]


_sought = functools.lru_cache(256)(statements)
"""Statements to compare with only: what is put into a tree must not be in it twice."""


def _put(module: cst.Module, block: cst.IndentedBlock, place: int, old: str, new: str, patch_id: str) -> cst.Module:
    """Replace the statements at a place; the lines above the first stay, but the marker, as does the last's comment."""
    end = place + len(_sought(old))
    first, last = block.body[place], block.body[end - 1]
    fresh = list(statements(new))
    is_back = is_marked(first, patch_id)
    fresh[0] = fresh[0].with_changes(leading_lines=_lines_above(unmark(first, patch_id)))
    if not is_back:
        fresh[0] = mark(fresh[0], patch_id)
    if isinstance(last, cst.SimpleStatementLine) and isinstance(fresh[-1], cst.SimpleStatementLine):
        fresh[-1] = fresh[-1].with_changes(trailing_whitespace=last.trailing_whitespace)
    return replace(module, block, block.with_changes(body=(*block.body[:place], *fresh, *block.body[end:])))
