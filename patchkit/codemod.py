"""A patch that rewrites the syntax tree: the code of a Python patch file, run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from patchkit.catalog import load_patch
from patchkit.errors import DEFECT, AnchorNotFound, PatchError, RewriteUnsound, changes_again
from patchkit.header import Header
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
        """Return what the patch makes of a text, the text itself where it finds what it wants.

        It is run twice, and must give the same; a listed digest says as much and more.
        """
        from patchkit.tree import is_same

        rewriting = self._patch.rewritings[text.path]
        made = self._call(rewriting, text.module)
        if not (text.is_listed or is_same(made, self._call(rewriting, text.module))):
            raise RewriteUnsound(f"{self._header.id} gives two different results for the same source", DEFECT)
        return text.becomes_tree(made, self._header.id)

    def restore(self, text: Text) -> Text:
        """Return a text with the patch taken back, the text itself where it is not there."""
        way_back = self._patch.restorings.get(text.path)
        return text if way_back is None else text.becomes_tree(self._call(way_back, text.module), self._header.id)

    def prove(self, before: Text, after: Text) -> None:
        """Refuse a change outside the definitions named; a marker comment may stand above one of them."""
        from patchkit.cst import code_of, find_definition
        from patchkit.extent import find_stray

        for name in self._names(before.path):
            with suppress(AnchorNotFound):  # it may be added
                find_definition(before.module, name)
            find_definition(after.module, name)
        names = self._header.files[before.path]
        stray = find_stray(before.module, after.module, names)
        if stray is not None:
            where = f"{before.path} outside {', '.join(names)}, at: {code_of(stray).strip().splitlines()[0]}"
            raise RewriteUnsound(f"{self._header.id} changes {where}", DEFECT)

    def prove_again(self, result: Text) -> None:
        """Refuse a result in which the patch, once it is printed and parsed again, does not find what it wants."""
        from patchkit.tree import is_same

        module = result.parsed_anew(self._names(result.path))
        if not is_same(module, self._call(self._patch.rewritings[result.path], module)):
            raise changes_again(self._header.id, result.path)

    def _names(self, path: str) -> list[str]:
        """Return the dotted paths of the definitions named for a file."""
        return [name for name in self._header.files[path] if name != "import"]

    def _call(self, rewriting: Rewriting, module: libcst.Module) -> libcst.Module:
        try:
            found = rewriting(module)
        except PatchError:
            raise
        except (Exception, SystemExit) as error:
            raise RewriteUnsound(f"{self._header.id} fails with {type(error).__name__}: {error}", DEFECT) from error
        if type(found) is not type(module):
            raise RewriteUnsound(f"{self._header.id} gives {type(found).__name__}, not a Module", DEFECT)
        return found
