"""A kill, or an error, at each system call of apply and revert that touches the tree."""

from __future__ import annotations

import contextlib
import io
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.cli import run
from tests.torture.calls import Call, Outcome, calls_below, run_with
from tests.trees import Tree, snapshot

KILL = "signal=SIGKILL"
ERRORS = ("ENOSPC", "EROFS", "EIO", "EACCES", "EINTR")
OF_WRITING = (KILL, "error=ENOSPC", "error=EROFS")
"""Faults that a call that only looks cannot have, or that say no more there than before the next one that writes."""
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


@dataclass
class Campaign:
    """A tree with its two whole states, and what has been done to copies of it."""

    tree: Tree
    work: Path
    points: int = 0
    killed: int = 0
    refused: int = 0
    """Runs that said that something went wrong, exit code 1."""
    unharmed: int = 0
    """Runs that did what they were asked to in spite of the fault."""

    def __post_init__(self) -> None:
        """Take both states."""
        self.pristine = snapshot(self.tree.site)
        self._quietly("apply")
        self.applied = snapshot(self.tree.site)
        self._quietly("revert")
        assert snapshot(self.tree.site) == self.pristine

    def torture(self, verb: str, faults: Sequence[str], *, step: int = 1) -> None:
        """Run a verb with each fault at every ``step``-th of its calls, each time on a fresh copy."""
        if verb == "revert":
            self._quietly("apply")
        try:
            site = self._copy()
            calls = calls_below(site, [*self._options(site), verb], self.work / "calls")
            for fault in faults:
                chosen = [call for call in calls if call.is_writing or fault not in OF_WRITING]
                for call in chosen[::step]:
                    self._once(verb, call, fault)
        finally:
            self._quietly("revert")

    def _once(self, verb: str, call: Call, fault: str) -> None:
        site = self._copy()
        outcome = run_with(call, fault, [*self._options(site), verb])
        where = f"{verb}, {fault} at {call.name} {call.number}: {outcome}"
        self.points += 1
        self._judge(outcome, call, fault, where)
        self._judge_tree(site, is_killed=fault == KILL, where=where)
        options = self._options(site)
        for after in ("status", "apply", "check", "revert"):
            assert _silent([*options, after]) == 0, f"{after} after {where}"
        assert snapshot(site) == self.pristine, where

    def _judge(self, outcome: Outcome, call: Call, fault: str, where: str) -> None:
        """Count the outcome; only our own errors may come out.

        A file's time is only set when it would be of the same second as the old one's: another run may not do so.
        """
        assert "Traceback" not in outcome.said, where
        if fault == KILL and not (call.name == "utimensat" and outcome.code == 0):
            assert outcome.code in _KILLED, where
            self.killed += 1
        elif outcome.code == 0:
            self.unharmed += 1
        else:
            assert outcome.code == 1, where
            self.refused += 1

    def _judge_tree(self, site: Path, *, is_killed: bool, where: str) -> None:
        """Each file is pristine or patched; unless the run was killed, all are one or all the other."""
        found, states = _sources(snapshot(site)), [_sources(self.pristine), _sources(self.applied)]
        assert set(found) == set(states[0]), where
        for path, entry in found.items():
            assert entry in (states[0][path], states[1][path]), f"{path} after {where}"
        assert is_killed or found in states, where

    def _copy(self) -> Path:
        site = self.work / "site-packages"
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(self.tree.site, site, symlinks=True)
        return site

    def _options(self, site: Path) -> list[str]:
        return ["--site", str(site), "--catalog", str(self.tree.catalog)]

    def _quietly(self, verb: str) -> None:
        assert _silent([*self._options(self.tree.site), verb]) == 0


def _sources(found: dict[str, tuple[int, int, int, bytes]]) -> dict[str, tuple[int, int, int, bytes]]:
    """Return the files that are not patchkit's own, nor what it was about to put in their place."""
    return {path: entry for path, entry in found.items() if path.endswith(".py") and ".patchkit" not in path}


def _silent(arguments: Sequence[str]) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return run(arguments)
