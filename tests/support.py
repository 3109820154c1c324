"""The checks that every patch is tested with."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from patchkit import cst
from patchkit.catalog import load_catalog
from patchkit.diff import prove, unified_diff
from patchkit.environment import Environment
from patchkit.errors import PatchError
from patchkit.record import digest
from patchkit.rewrite import Rewrite, Rewriter

CATALOG = load_catalog(Path(__file__).parent.parent)


def rewriter() -> Rewriter:
    """Return what runs the patches of the catalog for the oldest Python."""
    return Rewriter(CATALOG, Environment(None, (3, 10), ()))


def check_rewritten(patch_id: str, path: str, before: str, after: str) -> None:
    """Assert what a patch makes of a fragment; that it is sound, idempotent and can be taken back."""
    old, new = dedent(before).encode(), dedent(after).encode()
    rewrite = rewriter().fold(path, old, {patch_id})
    assert rewrite.after.decode() == new.decode()
    prove(unified_diff(path, old, new), old, new)
    assert rewriter().fold(path, new, {patch_id}) == Rewrite(new, new, ())


def check_unchanged(patch_id: str, path: str, before: str) -> None:
    """Assert that a patch finds what it wants in a fragment."""
    check_rewritten(patch_id, path, before, before)


def check_refused(patch_id: str, path: str, before: str, error: type[PatchError], words: str) -> None:
    """Assert that a patch refuses a fragment, and says why."""
    with pytest.raises(error, match=words):
        rewriter().fold(path, dedent(before).encode(), {patch_id})


def check_restored(patch_id: str, path: str, before: bytes, after: bytes) -> Rewrite:
    """Assert that a patch alone is taken back from what it made, to the byte; return the rewrite."""
    rewrite = rewriter().restore(path, after, {patch_id}, digest(before))
    assert rewrite is not None
    assert (rewrite.before, rewrite.after, rewrite.patches) == (before, after, {patch_id})
    return rewrite


def check_nothing_to_restore(patch_id: str, path: str, code: str) -> None:
    """Assert that the way back leaves a file alone that does not carry the patch."""
    data = code.encode()
    assert rewriter().restore(path, data, {patch_id}, digest(data)) == Rewrite(data, data, ())


def parse(code: str) -> cst.cst.Module:
    """Parse a dedented fragment."""
    return cst.parse(dedent(code).encode(), "fragment.py")
