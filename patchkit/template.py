"""The files of a new patch: small, and with blanks that keep it from being applied before they are filled in."""

from __future__ import annotations

from collections.abc import Iterable

from patchkit.blanks import blank
from patchkit.targets import NamedSet, Target

_PATCH = '''\
"""{title}

{reason}
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_all, find_definition, find_one, is_code, replace, statements
from patchkit.edits import mark, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target={target},
    versions={versions},
    symptom={symptom},
    upstream=Upstream(status="unreported"),
)

SCOPE = {scope}
OLD = {old}
NEW = {new}


@patch.rewrites({path}, within=({within},))
def put_new(module: cst.Module) -> cst.Module:
    """Put the new statement in place of the old one."""
    scope = find_definition(module, SCOPE)  # an error, unless it is there once
    if find_all(scope, cst.SimpleStatementLine, lambda node: is_code(node, NEW)):
        return module  # already satisfied: this release has it
    # An error, too, unless it is there once.
    old = find_one(scope, cst.SimpleStatementLine, lambda node: is_code(node, OLD), f"{{SCOPE}}: {{OLD}}")
    (new,) = statements(NEW)
    return replace(module, old, mark(new.with_changes(leading_lines=old.leading_lines), __name__))  # rewritten


@patch.restores({path})
def put_old(module: cst.Module) -> cst.Module:
    """Take that back, where the journal with the pristine bytes is lost."""
    return swap_back(module, SCOPE, OLD, NEW, __name__)
'''

_TEST = '''\
from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError
from patchkit.testing import Checks

CHECKS = Checks(Path(__file__).parents[2])
ID = "{patch_id}"
PATH = {path}

BEFORE = """\\
{before}
"""
AFTER = """\\
{after}
"""
REFUSED = {{
    "scope missing": ("x = 1\\n", AnchorNotFound, "not found"),
    "scope twice": (BEFORE + BEFORE, AnchorAmbiguous, "found 2 times"),
    "statement missing": (
        """\\
{without}
""",
        AnchorNotFound,
        "not found",
    ),
}}


def test_filled_in() -> None:
    CHECKS.filled_in(ID, Path(__file__))


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    CHECKS.refused(ID, PATH, before, error, words)


def test_already_satisfied() -> None:
    CHECKS.unchanged(ID, PATH, AFTER)


def test_rewritten() -> None:
    CHECKS.rewritten(ID, PATH, BEFORE, AFTER)


def test_restored() -> None:
    CHECKS.restored(ID, PATH, BEFORE.encode(), AFTER.encode())
'''

_TARGETS = """\
schema = 1

# Meant when a command names no patch and no set.
default = ["{name}"]
{targets}
[sets.{name}]
title = "{title}"
patches = [
{patches}]
"""


def patch_text(target: str, path: str, versions: str, symptom: str | None) -> str:
    """Return the patch file."""
    return _PATCH.format(
        title=blank("what becomes true, as one sentence in the present, without a full stop"),
        reason=blank("what the installed code does, why that is wrong, what the rewrite does, what it leaves alone"),
        target=quoted(target),
        versions=quoted(versions),
        symptom=quoted(symptom or blank("the shortest stable part of the error text that this cures")),
        scope=quoted(blank("the definition with the statement, as Class.method")),
        old=quoted(blank("the statement as the release has it")),
        new=quoted(blank("the statement as it should be")),
        within=quoted(blank("SCOPE again: nothing else may change")),
        path=quoted(path),
    )


def test_text(patch_id: str, path: str) -> str:
    """Return its test."""
    return _TEST.format(
        patch_id=patch_id,
        path=quoted(path),
        before=blank("a small definition of your own with the old statement in it"),
        after=blank(f"the same with the new statement, and the line # patchkit: {patch_id} above it"),
        without=blank("the same without the old statement"),
    )


def targets_text(named: NamedSet, targets: Iterable[Target]) -> str:
    """Return the targets.toml of a new catalog: some targets, and one set, which is the default; without digests."""
    tables = ""
    for target in targets:
        names = "".join(f'    "{distribution}",\n' for distribution in target.distributions)
        tables += f'\n[targets.{target.name}]\npackage = "{target.package}"\ndistributions = [\n{names}]\n'
    patches = "".join(f'    "{patch_id}",\n' for patch_id in named.patches)
    return _TARGETS.format(targets=tables, name=named.name, title=named.title, patches=patches)


def quoted(text: str) -> str:
    """Return a string literal as ruff and black write it."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal.startswith("'") and '"' not in text else literal
