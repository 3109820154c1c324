"""Paths that must stay below a root."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from patchkit.errors import PathEscape

_MAX_LINKS = 40
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER
"""Linux needs no right to list what is only passed through."""
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
def open_regular(place: Path | str, *, follow: bool = True, folder: int | None = None) -> Iterator[BinaryIO]:
    """Open a regular file of any size, with an OSError for anything else; a name may be one of an open folder."""
    # A look first: to open some devices is to do something. What is there by then is looked at again.
    found = os.stat(place, dir_fd=folder, follow_symlinks=follow)
    if not stat.S_ISLNK(found.st_mode):
        _refuse_irregular(found)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(place, flags, dir_fd=folder)
    try:
        _refuse_irregular(os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def open_stream(place: Path) -> BinaryIO:
    """Open a regular file or a pipe, without waiting for who may never write to it; an OSError for anything else."""
    mode = place.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise OSError(errno.EINVAL, "neither a regular file nor a pipe")
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    return open(descriptor, "rb")


def _refuse_irregular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


@contextmanager
def open_folder(place: Path) -> Iterator[int]:
    """Open a folder by its real path and give its descriptor, refusing a path that has a link in it by now.

    What is done by the descriptor is done in this folder, whatever another process makes of the path meanwhile.
    """
    descriptor = _walk(place)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def give(made: int, like: int) -> None:
    """Give what root has made the owner of the folder that it is in, who may then go on with it."""
    new, old = os.fstat(made), os.fstat(like)
    if os.geteuid() == 0 and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(made, old.st_uid, old.st_gid)


def make_folder(name: str, folder: int) -> None:
    """Make a folder in an open one, if it is not there."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=folder)
        made = os.open(name, os.O_RDONLY | _FOLDER, dir_fd=folder)
        try:
            give(made, folder)
        finally:
            os.close(made)


def _walk(place: Path) -> int:
    """Go down a path step by step, through no link, and return the descriptor of the folder at its end."""
    descriptor = os.open(place.anchor, _STEP)
    for name in (*place.parts[1:], "."):
        try:
            following = os.open(name, _STEP if name != "." else os.O_RDONLY | _FOLDER, dir_fd=descriptor)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                hint = "see that nobody else changes the folder, then run the command again"
                raise PathEscape(f"{place} leads through something that is no folder by now", hint) from error
            raise OSError(error.errno, error.strerror, str(place)) from error
        finally:
            os.close(descriptor)
        descriptor = following
    return descriptor


def real(place: Path) -> Path:
    """Return a path without its links; one of which a link is just being swapped stays, and is refused when opened."""
    try:
        return Path(os.path.realpath(place))
    except OSError:
        return Path(os.path.abspath(place))


def resolve_within(root: Path, path: str) -> Path:
    """Return the real folder and name of a file below ``root``, refusing one whose folder lies elsewhere.

    The file itself may be a link (an installer's link into its cache): it is replaced, not followed, when written.
    """
    if not is_safe(path):
        raise PathEscape(f"{path!r} is not a path below {root}", "correct the path in the patch or the journal")
    real_root = real(root)
    parent = real(real_root / PurePosixPath(path).parent)
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
        try:
            link = os.readlink(place / part)
        except OSError:
            place /= part
            continue
        links += 1
        if links > _MAX_LINKS:
            raise PathEscape(f"{path} has too many links below {root}", "remove the circular link")
        pending += [step for step in reversed(link.split("/")) if step not in ("", ".")]
        place = base if link.startswith("/") else place
    return place


def inside(place: Path, root: Path | None) -> Path:
    """Return where a place below a root leads for a process whose root folder that is; without a root, the place."""
    return place if root is None else resolve_in_root(root, below(place, root))


def below(place: Path, root: Path) -> str:
    """Return a place as its root names it, refusing one that is elsewhere: a folder above it may have become a link."""
    if not place.is_relative_to(root):
        raise PathEscape(f"{place} is not below {root}", "see that nobody else changes the image meanwhile")
    return str(place.relative_to(root))
