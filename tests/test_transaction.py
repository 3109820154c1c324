"""Every change, or none."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit import transaction
from patchkit.catalog import load_catalog
from patchkit.cli import run
from patchkit.environment import find_environment
from patchkit.errors import Abandoned, RollbackFailed
from patchkit.journal import FOLDER
from patchkit.orders import Draft, draft_of, order_apply
from patchkit.survey import Survey
from patchkit.transaction import Gate, Transaction
from tests.faults import armed, fail
from tests.trees import Tree, make_tree, snapshot

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_error_at_every_step_leaves_all_or_nothing(tree: Tree, tmp_path: Path, verb: str, code: int) -> None:
    run([*tree.options(), "status"])  # what is loaded once is loaded before steps are counted
    pristine = snapshot(tree.site)
    assert run([*tree.options(), "apply"]) == 0
    applied = snapshot(tree.site)
    if verb == "apply":
        assert run([*tree.options(), "revert"]) == 0
    before = snapshot(tree.site)
    at = 0
    while True:
        copy = tmp_path / str(at) / "site-packages"
        shutil.copytree(tree.site, copy, symlinks=True)
        options = ["--site", str(copy), "--catalog", str(tree.catalog)]
        with armed(copy, at, fail(code)) as fault:
            exit_code = run([*options, verb])
        found = snapshot(copy)
        if fault.steps <= at:
            break
        files = {path: entry for path, entry in found.items() if not path.startswith(".patchkit")}
        wholes = [{p: e for p, e in whole.items() if not p.startswith(".patchkit")} for whole in (pristine, applied)]
        assert files in wholes, f"step {at}"
        if exit_code != 0:
            assert exit_code == 1, f"step {at}"
        assert run([*options, "apply"]) == 0, f"step {at}"
        assert run([*options, "check"]) == 0, f"step {at}"
        assert run([*options, "revert"]) == 0, f"step {at}"
        assert snapshot(copy) == pristine, f"step {at}"
        at += 1
    assert exit_code == 0
    assert at > 40
    assert before in (pristine, applied)


def test_kill_at_every_step_is_recovered(tree: Tree, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crash", str(tree.site), str(tree.catalog), str(tmp_path / "work")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    points = re.search(r"points: (\d+) (\d+)", done.stderr)
    assert points is not None
    assert min(int(points[1]), int(points[2])) > 40


def test_journal_that_changes_under_the_lock_stops_the_run(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock holds other patchkits off, and nobody else."""
    real = transaction.swap

    def meddling(temporary: Path, place: Path) -> None:
        real(temporary, place)
        (tree.site / ".patchkit/journal.json").unlink()

    monkeypatch.setattr(transaction, "swap", meddling)
    assert run([*tree.options(), "apply", "engine_models"]) == 1
    monkeypatch.undo()
    assert run([*tree.options(), "revert"]) == 0
    assert "kimi" not in tree.engine.read_text()


class Refusal(Gate):
    """Takes a transaction back after its commitment, and first does what a test asks for."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.before = before

    def finished(self) -> None:
        self.before()
        raise Abandoned("taken back")


def drafted(tree: Tree, *names: str) -> Draft:
    catalog = load_catalog(tree.catalog)
    environment = find_environment(None, tree.site, None, [])
    order = order_apply(catalog.select(names), allow_unlisted=False)
    return draft_of(order, Survey(catalog, environment))


def test_what_is_committed_can_be_taken_back(tree: Tree) -> None:
    assert run([*tree.options(), "apply", "worker_unwrap"]) == 0
    before = snapshot(tree.site)
    draft = drafted(tree)
    with pytest.raises(Abandoned), Transaction(draft.sites, None).held() as transaction:
        draft.write(transaction, Refusal())
    assert snapshot(tree.site) == before


def test_two_folders_are_taken_back_together(tree: Tree, tmp_path: Path) -> None:
    other = make_tree(tmp_path / "other")
    before = snapshot(tree.site), snapshot(other.site)
    first, second = drafted(tree), drafted(other)
    both = replace(first, changes=(*first.changes, *second.changes), sites=first.sites | second.sites)
    with pytest.raises(Abandoned), Transaction(both.sites, None).held() as transaction:
        both.write(transaction, Refusal())
    assert (snapshot(tree.site), snapshot(other.site)) == before


def test_what_cannot_be_taken_back_stays_and_is_said(tree: Tree) -> None:
    draft = drafted(tree)

    def spoil() -> None:
        (tree.site / FOLDER / "journal.json").unlink()
        (tree.site / FOLDER / "journal.json").mkdir()

    def mend() -> None:
        (tree.site / FOLDER / "journal.json").rmdir()

    with pytest.raises(RollbackFailed, match="what was written stays"), Transaction(draft.sites, None).held() as one:
        draft.write(one, Refusal(spoil))
    mend()
    assert run([*tree.options(), "check"]) == 0  # the digests are listed, so it is explained without a journal


def test_all_is_on_disk_before_it_is_committed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order in which a crash of the machine may find it: each file, each name, then the journal that says so."""
    events: list[tuple[str, str]] = []
    replace, fsync = os.replace, os.fsync

    def recorded(source: str, target: str, **folders: int) -> None:
        events.append(("named", os.path.join(os.readlink(f"/proc/self/fd/{folders['dst_dir_fd']}"), target)))
        replace(source, target, **folders)

    def flushed(descriptor: int) -> None:
        events.append(("flushed", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "replace", recorded)
    monkeypatch.setattr(os, "fsync", flushed)
    assert run([*tree.options(), "apply"]) == 0
    site = os.path.realpath(tree.site)
    intended, committed = (place for place, event in enumerate(events) if event[1].endswith("/journal.json"))
    for file in map(os.path.realpath, (tree.engine, tree.worker)):
        named, folder = events.index(("named", file)), os.path.dirname(file)
        assert [what for what, where in events[intended:named] if where.startswith(f"{folder}/.")] == ["flushed"]
        assert ("flushed", folder) in events[named:committed]
    for folder in (f"{site}/.patchkit/objects", f"{site}/.patchkit", site):
        assert ("flushed", folder) in events[:intended]
    for place in (intended, committed):
        assert events[place - 1] == ("flushed", f"{site}/.patchkit/.journal.json.new")
        assert events[place + 1] == ("flushed", f"{site}/.patchkit")
