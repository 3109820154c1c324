"""Faults at every file-system step of a run: an error, or the death of the process.

Steps are counted by Python's audit events (PEP 578) for paths below a folder, and by fsync, which has none.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.cli import run

_EVENTS = frozenset(
    {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.listdir", "os.chmod", "os.utime"}
)


class Fault:
    """Counts the steps below a folder and acts at one of them."""

    def __init__(self) -> None:
        self.folder = ""
        self.steps = 0
        self.at: int | None = None
        self.action: Callable[[], None] = lambda: None

    def step(self) -> None:
        """Count a step, and act when it is the one."""
        number, self.steps = self.steps, self.steps + 1
        if number == self.at:
            self.action()


_FAULT = Fault()
_real_fsync = os.fsync


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _FAULT.folder or event not in _EVENTS:
        return
    first = arguments[0]
    if isinstance(first, int):
        is_ours = event in ("os.chmod", "os.utime")
    else:
        # A bare name is one in a folder that is held open: what is written is written so.
        is_ours = isinstance(first, (str, bytes, os.PathLike)) and (
            os.fsdecode(first).startswith(_FAULT.folder) or "/" not in os.fsdecode(first)
        )
    if is_ours:
        _FAULT.step()


def _fsync(descriptor: int) -> None:
    if _FAULT.folder:
        _FAULT.step()
    _real_fsync(descriptor)


sys.addaudithook(_hook)


@contextmanager
def armed(folder: Path, at: int | None, action: Callable[[], None]) -> Iterator[Fault]:
    """Count the steps below a folder in the block, and act at one of them."""
    _FAULT.folder, _FAULT.at, _FAULT.action, _FAULT.steps = str(folder), at, action, 0
    os.fsync = _fsync
    try:
        yield _FAULT
    finally:
        _FAULT.folder = ""
        os.fsync = _real_fsync


def fail(code: int = errno.ENOSPC) -> Callable[[], None]:
    """Return an action that raises an OSError."""

    def action() -> None:
        raise OSError(code, os.strerror(code))

    return action


def die() -> None:
    """End the process without any clean-up, as SIGKILL does."""
    os._exit(137)


def kill_at_every_step(site: Path, catalog: Path, verb: str, work: Path) -> Iterator[tuple[int, Path]]:
    """Yield a copy of the site folder after a run in it was killed at each of its steps in turn."""
    for at in range(10_000):
        copy = work / str(at) / "site-packages"
        shutil.copytree(site, copy, symlinks=True)
        child = os.fork()
        if child == 0:
            with armed(copy, at, die):
                os._exit(run(["--site", str(copy), "--catalog", str(catalog), verb]))
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != 137:
            return
        yield at, copy
