"""The checks that every patch is tested with."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from patchkit import cst
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from patchkit.testing import Checks

CHECKS = Checks(Path(__file__).parent.parent)
CATALOG = CHECKS.catalog

rewriter = CHECKS.rewriter
check_rewritten = CHECKS.rewritten
check_unchanged = CHECKS.unchanged
check_refused = CHECKS.refused
check_restored = CHECKS.restored


def check_nothing_to_restore(patch_id: str, path: str, code: str) -> None:
    """Assert that the way back leaves a file alone that does not carry the patch."""
    data = code.encode()
    assert rewriter().restore(path, data, {patch_id}, digest(data)) == Rewrite(data, data, frozenset())


def parse(code: str) -> cst.cst.Module:
    """Parse a dedented fragment."""
    return cst.parse(dedent(code).encode(), "fragment.py")
