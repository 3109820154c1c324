"""Edits that keep the layout of what they change: marker comments, lists, bases, bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst

from patchkit.cst import code_of

Marked = TypeVar("Marked", cst.SimpleStatementLine, cst.If, cst.FunctionDef)
Suited = TypeVar("Suited", cst.FunctionDef, cst.ClassDef, cst.For)


def mark(node: Marked, patch_id: str) -> Marked:
    """Return a statement with the comment above it that tells a reader of the source who wrote it."""
    return node.with_changes(leading_lines=(*node.leading_lines, _marker(patch_id)))


def unmark(node: Marked, patch_id: str) -> Marked:
    """Return a statement without the comment that ``mark`` put above it."""
    comment = f"# patchkit: {patch_id}"
    kept = [line for line in node.leading_lines if line.comment is None or line.comment.value != comment]
    return node.with_changes(leading_lines=kept)


def is_marked(node: Marked, patch_id: str) -> bool:
    """Tell whether a statement carries the comment of a patch."""
    return len(unmark(node, patch_id).leading_lines) < len(node.leading_lines)


def _marker(patch_id: str) -> cst.EmptyLine:
    return cst.EmptyLine(comment=cst.Comment(f"# patchkit: {patch_id}"))


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
