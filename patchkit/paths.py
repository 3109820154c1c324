"""Paths that must stay below a root."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from patchkit.errors import PathEscape

_MAX_LINKS = 40
MAX_SIZE = 32 * 2**20
"""Of a file that is read whole, in bytes; no source is larger."""


def is_safe(path: str) -> bool:
    """Tell whether a relative path can only name something below its root."""
    pure = PurePosixPath(path)
    return (
        path not in ("", ".")
        and str(pure) == path
        and not pure.is_absolute()
        and ".." not in pure.parts
        and path.isprintable()
    )


def read_regular(place: Path, *, follow: bool = True) -> bytes:
    """Return the bytes of a regular file, with an OSError for anything else.

    A pipe or a device in its place neither blocks nor answers, and a giant file is not read.
    """
    with open_regular(place, follow=follow) as file:
        if os.fstat(file.fileno()).st_size > MAX_SIZE:
            raise OSError(errno.EFBIG, f"larger than {MAX_SIZE} bytes")
        return file.read()


@contextmanager
def open_regular(place: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file of any size, with an OSError for anything else."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def resolve_within(root: Path, path: str) -> Path:
    """Return the real folder and name of a file below ``root``, refusing one whose folder lies elsewhere.

    The file itself may be a link (an installer's link into its cache): it is replaced, not followed, when written.
    """
    if not is_safe(path):
        raise PathEscape(f"{path!r} is not a path below {root}", "correct the path in the patch or the journal")
    real_root = Path(os.path.realpath(root))
    parent = Path(os.path.realpath(real_root / PurePosixPath(path).parent))
    if not parent.is_relative_to(real_root):
        raise PathEscape(
            f"{path} leads out of {root} through a link, to {parent}",
            "patch the environment that owns the files, or install a copy of them here",
        )
    return parent / PurePosixPath(path).name


def resolve_in_root(root: Path, path: str) -> Path:
    """Return where ``path`` leads for a process whose root folder is ``root``, links resolved as there.

    An absolute link starts again at ``root`` and ``..`` stops there, so nothing outside is ever named.
    """
    pending = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    place, links = Path(os.path.realpath(root)), 0
    base = place
    while pending:
        part = pending.pop()
        if part == "..":
            place = place.parent if place != base else place
            continue
        if not (place / part).is_symlink():
            place /= part
            continue
        links += 1
        if links > _MAX_LINKS:
            raise PathEscape(f"{path} has too many links below {root}", "remove the circular link")
        link = os.readlink(place / part)
        pending += [step for step in reversed(link.split("/")) if step not in ("", ".")]
        place = base if link.startswith("/") else place
    return place


def inside(place: Path, root: Path | None) -> Path:
    """Return where a place below a root leads for a process whose root folder that is; without a root, the place."""
    return place if root is None else resolve_in_root(root, str(place.relative_to(root)))
