"""The lock of a site folder, held by whoever writes there."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from patchkit.errors import Locked, PathEscape, TransactionError
from patchkit.journal import FOLDER
from patchkit.paths import give, make_folder, open_folder

TIMEOUT = 60.0
"""How long to wait for another patchkit, in seconds."""
_AGAIN = 0.05
"""How long until it is tried again, in seconds."""
# What lies there is neither followed nor emptied, whoever put it there; nobody but its owner may open it, since whoever
# can do so can hold it.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o600


@contextmanager
def locked(sites: Collection[Path], timeout: float = TIMEOUT) -> Iterator[None]:
    """Hold the locks of some site folders, named by their real paths, taken in one order by everyone."""
    with ExitStack() as stack:
        deadline = time.monotonic() + timeout
        for site in sorted(sites):
            stack.callback(os.close, _acquire(site, deadline, timeout))
        yield


def _acquire(site: Path, deadline: float, timeout: float) -> int:
    """Take the lock of one folder; it is free again when the descriptor is closed, also by the end of the process."""
    folder = site / FOLDER
    while True:
        with suppress(FileNotFoundError):  # its holder has just removed it with the folder
            _make(folder)
            lock = _open(folder)
            if _holds(lock) and _is_in_place(folder, lock):
                return lock
            os.close(lock)
        if time.monotonic() >= deadline:
            raise Locked(
                f"another patchkit has been writing to {site} for more than {timeout:g} seconds",
                "wait for it to end, then run the same command again",
            )
        time.sleep(_AGAIN)


def _make(folder: Path) -> None:
    """Make patchkit's folder, and refuse what is in the place of it or of the lock."""
    with open_folder(folder.parent) as site:
        make_folder(folder.name, site)
    for place, is_right in ((folder, stat.S_ISDIR), (folder / "lock", stat.S_ISREG)):
        with suppress(FileNotFoundError):
            mode = place.lstat().st_mode
            if stat.S_ISLNK(mode):
                raise PathEscape(f"{place} is a link, and patchkit makes none", f"remove {place}")
            if not is_right(mode):
                raise TransactionError(f"{place} is nothing that patchkit made", f"remove {place}")


def _open(folder: Path) -> int:
    with open_folder(folder) as held:
        lock = os.open("lock", _FLAGS, _MODE, dir_fd=held)
        give(lock, held)
        return lock


def _holds(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_in_place(folder: Path, lock: int) -> bool:
    """Tell whether a lock is the one that others find: a lock that is gone is no lock."""
    try:
        return os.path.samestat(os.fstat(lock), (folder / "lock").lstat())
    except FileNotFoundError:
        return False
