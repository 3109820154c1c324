"""A source file between two patches, as bytes and as a tree, each made when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst


@dataclass(frozen=True)
class Text:
    """A source file of a target, patched or not."""

    path: str
    data: bytes
    pristine: bytes | None = None
    """What it was before the first patch, where that is known."""

    def becomes(self, data: bytes) -> Text:
        """Return what a patch makes of it; itself where nothing changes."""
        return self if data == self.data else Text(self.path, data, self.pristine)

    @cached_property
    def module(self) -> libcst.Module:
        """The tree; refuses source that LibCST cannot read or, where nothing was rewritten yet, print back."""
        from patchkit import cst

        parse = cst.parse_exactly if self.data == self.pristine else cst.parse
        return parse(self.data, self.path)
