"""The checks that every patch is tested with, for the tests of any catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent

from patchkit.blanks import find_blanks
from patchkit.catalog import Catalog, load_catalog
from patchkit.diff import prove, unified_diff
from patchkit.environment import Environment
from patchkit.errors import PatchError
from patchkit.record import digest
from patchkit.rewrite import Rewrite, Rewriter

# What fails here is a test, so it fails as tests do: by an AssertionError, which needs no pytest.


@dataclass(frozen=True)
class Checks:
    """The checks of the patches of one catalog."""

    place: Path
    """The folder with targets.toml and patches/."""

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, read when it is first asked for."""
        return load_catalog(self.place)

    def rewriter(self) -> Rewriter:
        """Return what runs the patches of the catalog, for the oldest Python."""
        return Rewriter(self.catalog, Environment(None, (3, 10), ()))

    def filled_in(self, patch_id: str, test: Path) -> None:
        """Assert that a new patch and its test have no blank left."""
        left = []
        for place in (self.catalog.headers[patch_id].place, test):
            left += [f"{place.name}, line {line}: {words}" for line, words in find_blanks(place.read_bytes())]
        _claim(not left, "fill in\n" + "\n".join(left))

    def rewritten(self, patch_id: str, path: str, before: str, after: str) -> None:
        """Assert what a patch makes of a fragment; that it is sound, idempotent and can be taken back."""
        old, new = dedent(before).encode(), dedent(after).encode()
        made = self._fold(path, old, patch_id).after
        difference = unified_diff(path, new, made).decode()
        _claim(made == new, f"{patch_id} makes something else of it, from the expected to what it is:\n{difference}")
        prove(unified_diff(path, old, new), old, new)
        _claim(self._fold(path, new, patch_id) == Rewrite(new, new, frozenset()), f"{patch_id} changes its own result")

    def unchanged(self, patch_id: str, path: str, before: str) -> None:
        """Assert that a patch finds what it wants in a fragment."""
        self.rewritten(patch_id, path, before, before)

    def refused(self, patch_id: str, path: str, before: str, error: type[PatchError], words: str) -> None:
        """Assert that a patch refuses a fragment, and says why; the words are a regular expression."""
        try:
            made = self._fold(path, dedent(before).encode(), patch_id).after
        except error as caught:
            _claim(re.search(words, str(caught)) is not None, f"{patch_id} refuses it, but says: {caught}")
        else:
            _claim(False, f"{patch_id} does not refuse it, and makes of it:\n{made.decode()}")

    def restored(self, patch_id: str, path: str, before: bytes, after: bytes) -> Rewrite:
        """Assert that a patch alone is taken back from what it made, to the byte; return the rewrite."""
        made = self._fold(path, before, patch_id)
        rewrite = self.rewriter().restore(path, after, {patch_id}, digest(before))
        _claim(made.after == after and rewrite == made, f"{patch_id} is not taken back to the byte")
        return made

    def _fold(self, path: str, data: bytes, patch_id: str) -> Rewrite:
        _claim(not find_blanks(data), "fill in the test: " + "; ".join(words for _, words in find_blanks(data)))
        return self.rewriter().fold(path, data, {patch_id})


def _claim(holds: bool, words: str) -> None:
    __tracebackhide__ = True  # pytest shows the caller's line
    if not holds:
        raise AssertionError(words)
