"""Tell which nodes see the same site folder: each leaves a file of its own there, and looks for those of the others.

Neither a path nor an inode's number says it: nodes mount the same folder under other names, and images on local disks
number their files alike. The names are new, so no cache of a network file system can know them as absent.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from patchkit.errors import PathEscape, TransactionError
from patchkit.journal import FOLDER
from patchkit.paths import make_folder, open_folder, real
from patchkit.replacement import remove

_NAME = re.compile(r"[0-9a-f]{16}-[0-9]{1,6}")
_STALE = 3600
"""After how many seconds a file that a killed run left is removed."""


def _place(site: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise TransactionError(f"{name!r} is no name of a beacon", "report it: this is a defect of patchkit")
    return site / FOLDER / f".beacon-{name}"


def light(site: Path, name: str) -> str | None:
    """Leave a file in a site folder; return why it cannot be written there, or None."""
    place = _place(site, name)
    try:
        with open_folder(real(site)) as held:
            make_folder(FOLDER, held)
        with open_folder(real(site) / FOLDER) as folder:
            with suppress(OSError):
                _sweep(folder)
            os.close(os.open(place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder))
    except OSError as error:
        return error.strerror or str(error)
    except PathEscape as error:
        return error.message
    return None


def seen(site: Path, names: Iterable[str]) -> list[str]:
    """Return those of the files that are in a site folder."""
    return [name for name in names if os.path.lexists(_place(site, name))]


def douse(site: Path, name: str) -> None:
    """Remove a file that was left, and the folder where nothing else is in it."""
    place = _place(site, name)
    with suppress(OSError, PathEscape), open_folder(real(site)) as held:
        with open_folder(real(site) / FOLDER) as folder:
            remove(folder, place.name)
        os.rmdir(FOLDER, dir_fd=held)


def _sweep(folder: int) -> None:
    for name in os.listdir(folder):
        if name.startswith(".beacon-") and time.time() - os.lstat(name, dir_fd=folder).st_mtime > _STALE:
            remove(folder, name)
