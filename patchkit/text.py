"""A source file between two patches, as bytes and as a tree, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from patchkit.errors import DEFECT, RewriteUnsound

if TYPE_CHECKING:
    import libcst


class Text:
    """A source file of a target, patched or not."""

    def __init__(self, path: str, data: bytes, pristine: bytes | None = None, *, is_listed: bool = False) -> None:
        self.path = path
        self.data = data
        self.pristine = pristine
        """What it was before the first patch, where that is known."""
        self.is_listed = is_listed
        """Whether the result of all patches will be held against a listed digest, which is made by the same patches."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and (self.path, self.data) == (other.path, other.data)

    def becomes(self, data: bytes) -> Text:
        """Return what a patch makes of the bytes; the text itself where nothing changes."""
        return self if data == self.data else Text(self.path, data, self.pristine, is_listed=self.is_listed)

    def becomes_tree(self, module: libcst.Module, patch_id: str) -> Text:
        """Return what a patch makes of the tree; the text itself where nothing changes."""
        from patchkit.tree import is_same

        return self if is_same(self.module, module) else _Tree(self, module, patch_id)

    @cached_property
    def module(self) -> libcst.Module:
        """The tree; refuses source that LibCST cannot read or, where nothing was rewritten yet, print back."""
        from patchkit import cst

        parse = cst.parse_exactly if self.data == self.pristine else cst.parse
        return parse(self.data, self.path, is_python=self.is_listed)

    def parsed_anew(self, names: Iterable[str]) -> libcst.Module:
        """Return the tree with some definitions, by dotted path, as LibCST reads what is printed of them."""
        return self.module


class _Tree(Text):
    """What a patch makes of a tree: it is printed only when its bytes are asked for."""

    def __init__(self, before: Text, module: libcst.Module, patch_id: str) -> None:
        self.path, self.pristine, self.module, self.is_listed = before.path, before.pristine, module, before.is_listed
        self._patch_id = patch_id
        self._names: set[str] = set()

    @cached_property
    def _fitted(self) -> libcst.Module:
        from patchkit import cst

        return cst.fitted(self.module)

    @cached_property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes; refuses a tree that cannot be printed."""
        try:
            return self._fitted.bytes
        except UnicodeError as error:
            problem = f"adds what the file's encoding does not have: {error}"
            raise RewriteUnsound(f"{self._patch_id} {problem}", DEFECT) from error
        except Exception as error:
            raise RewriteUnsound(f"{self._patch_id} gives a tree that cannot be printed: {error}", DEFECT) from error

    def parsed_anew(self, names: Iterable[str]) -> libcst.Module:
        """Return the tree with some definitions parsed anew, beside those that were asked for before."""
        from patchkit import cst

        for name in set(names) - self._names:
            self._anew = cst.parsed_anew(self._anew, name)
            self._names.add(name)
        return self._anew

    @cached_property
    def _anew(self) -> libcst.Module:
        return self._fitted
