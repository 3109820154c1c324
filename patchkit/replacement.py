"""One file replaced by another: staged beside it, then renamed over it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from patchkit.paths import inside

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def stage(place: Path, temporary: Path, data: bytes, link: str | None, root: Path | None = None) -> None:
    """Write the new file beside the old one, on disk and with its mode, owner and extended attributes.

    A link that is replaced by a file becomes this user's own file: the owner of the shared copy keeps only that. Below
    a root, no link leads out of it.
    """
    if link is not None:
        os.symlink(link, temporary)
        return
    old = inside(place, root)
    like = os.stat(old)
    with open(os.open(temporary, _CREATE, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        made = os.fstat(file.fileno())
        if not place.is_symlink() and (made.st_uid, made.st_gid) != (like.st_uid, like.st_gid):
            os.fchown(file.fileno(), like.st_uid, like.st_gid)
        _copy_attributes(old, temporary)
        os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
        if int(made.st_mtime) == int(like.st_mtime):
            # Bytecode names the second: one more, or what is compiled from the old file passes for the new.
            os.utime(file.fileno(), ns=(made.st_atime_ns, made.st_mtime_ns + 10**9))
        os.fsync(file.fileno())


def swap(temporary: Path, place: Path) -> None:
    """Put the staged file in place, and see that the folder remembers it."""
    os.replace(temporary, place)
    sync_folder(place.parent)


def write_whole(place: Path, data: bytes) -> None:
    """Write a file of our own so that it is there whole or not at all, also after a crash."""
    # One name: the lock keeps other writers away, and what a killed one left is written over.
    temporary = place.with_name(f".{place.name}.new")
    temporary.unlink(missing_ok=True)
    try:
        with open(os.open(temporary, _CREATE, 0o644), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        swap(temporary, place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where its file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _copy_attributes(source: Path, target: Path) -> None:
    if not hasattr(os, "listxattr"):  # pragma: no cover - Linux only
        return
    try:
        names = os.listxattr(source)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP):
            return
        raise
    for name in names:
        value = os.getxattr(source, name)
        if name not in os.listxattr(target) or os.getxattr(target, name) != value:
            os.setxattr(target, name, value)
