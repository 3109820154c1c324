"""A patch that rewrites the syntax tree: the code of a Python patch file, run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from patchkit.catalog import load_patch
from patchkit.diff import LineRange, changed_lines, split_lines
from patchkit.errors import DEFECT, AnchorAmbiguous, AnchorNotFound, PatchError, RewriteUnsound
from patchkit.header import Header
from patchkit.syntax import parse_quietly
from patchkit.text import Text

if TYPE_CHECKING:
    import libcst

    from patchkit.patch import Rewriting


class Codemod:
    """A Python patch file. This is where LibCST is loaded and the catalog's code is run."""

    leaves_mark = True

    def __init__(self, header: Header) -> None:
        self._header, self._patch = header, load_patch(header)

    def rewrite(self, text: Text) -> Text:
        """Return what the patch makes of a text, the text itself where it finds what it wants."""
        from patchkit import cst

        rewriting = self._patch.rewritings[text.path]
        first, second = (self._call(rewriting, text.module) for _ in range(2))
        if not cst.is_same(first, second):
            raise RewriteUnsound(f"{self._header.id} gives two different results for the same source", DEFECT)
        return self._text(text, first)

    def is_settled(self, text: Text) -> bool:
        """Tell whether the patch finds all that it wants in a text."""
        return self._text(text, self._call(self._patch.rewritings[text.path], text.module)) is text

    def restore(self, text: Text) -> Text:
        """Return a text with the patch taken back, the text itself where it is not there."""
        way_back = self._patch.restorings.get(text.path)
        return text if way_back is None else self._text(text, self._call(way_back, text.module))

    def prove_extent(self, before: Text, after: Text) -> None:
        """Refuse a change outside the definitions named; a marker comment may stand above one of them."""
        names = self._header.files[before.path]
        old = _ranges(before.data, names, all_there=False) + _blanks(before.data)
        new = _ranges(after.data, names, all_there=True) + _blanks(after.data) + _markers(after.data)
        for hunk in changed_lines(before.data, after.data):
            if not (_covered(hunk.before, old) and _covered(hunk.after, new)):
                where = f"{before.path} at line {hunk.after[0]}"
                raise RewriteUnsound(f"{self._header.id} changes {where}, outside {', '.join(names)}", DEFECT)

    def _call(self, rewriting: Rewriting, module: libcst.Module) -> libcst.Module:
        try:
            return rewriting(module)
        except PatchError:
            raise
        except (Exception, SystemExit) as error:
            raise RewriteUnsound(f"{self._header.id} fails with {type(error).__name__}: {error}", DEFECT) from error

    def _text(self, text: Text, module: libcst.Module) -> Text:
        if module is text.module:
            return text
        from patchkit import cst

        try:
            return text.becomes(cst.fitted(module).bytes)
        except UnicodeError as error:
            problem = f"adds what the file's encoding does not have: {error}"
            raise RewriteUnsound(f"{self._header.id} {problem}", DEFECT) from error
        except Exception as error:
            raise RewriteUnsound(f"{self._header.id} gives a tree that cannot be printed: {error}", DEFECT) from error


def _covered(lines: LineRange, ranges: list[LineRange]) -> bool:
    """Tell whether lines lie in one of the ranges, or in several that adjoin."""
    wanted = set(range(*lines))
    for low, high in ranges:
        wanted -= set(range(low, high))
    return not wanted


def _ranges(data: bytes, names: tuple[str, ...], *, all_there: bool) -> list[LineRange]:
    """Return the lines of the definitions named; before the change, one that it adds may be missing."""
    tree, found = parse_quietly(data), []
    for name in names:
        try:
            found += _imports(tree) if name == "import" else [_definition(tree, name)]
        except AnchorNotFound:
            if all_there:
                raise
    return found


def _blanks(data: bytes) -> list[LineRange]:
    """Return the blank lines: which of several equal ones a diff calls changed says nothing."""
    lines = enumerate(split_lines(data), start=1)
    return [(number, number + 1) for number, line in lines if not line.strip()]


def _markers(data: bytes) -> list[LineRange]:
    lines = enumerate(split_lines(data), start=1)
    return [(number, number + 1) for number, line in lines if line.strip().startswith(b"# patchkit: ")]


def _imports(tree: ast.Module) -> list[LineRange]:
    return [
        (node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]


def _definition(tree: ast.Module, dotted: str) -> LineRange:
    scope: ast.AST = tree
    for name in dotted.split("."):
        found = [node for node in _definitions(scope) if node.name == name]
        if len(found) != 1:
            kind = AnchorAmbiguous if found else AnchorNotFound
            raise kind(f"{dotted}: {name} is defined {len(found)} times", DEFECT)
        (node,) = found
        scope = node
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first, (node.end_lineno or first) + 1


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(scope: ast.AST) -> list[_Definition]:
    """Return the definitions directly in a scope, also those under an ``if`` or ``try``."""
    found: list[_Definition] = []
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.append(child)
        elif isinstance(child, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            found += _definitions(child)
    return found
