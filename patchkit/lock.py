"""The lock of a site folder, held by whoever writes there."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from patchkit.errors import Locked, PathEscape
from patchkit.journal import FOLDER

TIMEOUT = 60.0
"""How long to wait for another patchkit, in seconds."""


@contextmanager
def locked(sites: Collection[Path], timeout: float = TIMEOUT) -> Iterator[None]:
    """Hold the locks of some site folders, taken in one order by everyone."""
    with ExitStack() as stack:
        deadline = time.monotonic() + timeout
        for site in sorted(sites):
            stack.callback(_acquire(site, deadline, timeout).release)
        yield


def _acquire(site: Path, deadline: float, timeout: float) -> FileLock:
    """Take the lock of one folder; its holder may remove it with the folder, and a lock that is gone is no lock."""
    place = site / FOLDER / "lock"
    for link in (place.parent, place):
        if link.is_symlink():
            raise PathEscape(f"{link} is a link, and patchkit makes none", f"remove {link}")
    while True:
        place.parent.mkdir(exist_ok=True)
        lock = FileLock(place, timeout=max(0.0, deadline - time.monotonic()), mode=0o644)
        try:
            lock.acquire()
        except FileNotFoundError:
            continue
        except Timeout as error:
            raise Locked(
                f"another patchkit has been writing to {site} for more than {timeout:g} seconds",
                "wait for it to end, then run the same command again",
            ) from error
        if _is_in_place(place, lock):
            return lock
        lock.release()


def _is_in_place(place: Path, lock: FileLock) -> bool:
    # The descriptor is filelock's own; reopening the path is what tells whether both are one file.
    descriptor = lock._context.lock_file_fd
    try:
        return descriptor is not None and os.path.samestat(os.fstat(descriptor), os.stat(place))
    except FileNotFoundError:
        return False
