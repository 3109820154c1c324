"""One file replaced by another: staged beside it, then renamed over it."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO

from patchkit.paths import give, inside, open_folder, open_regular

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def stage(place: Path, temporary: Path, data: bytes, link: str | None, root: Path | None = None) -> None:
    """Write the new file beside the old one, on disk and with its mode, owner and extended attributes.

    A link that is replaced by a file becomes this user's own file: the owner of the shared copy keeps only that. Below
    a root, no link leads out of it.
    """
    with open_folder(place.parent) as folder:
        if link is not None:
            os.symlink(link, temporary.name, dir_fd=folder)
            return
        is_link = stat.S_ISLNK(os.lstat(place.name, dir_fd=folder).st_mode)
        with _opened(place, folder, root, is_link=is_link) as old:
            descriptor = os.open(temporary.name, _CREATE, 0o600, dir_fd=folder)
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                _liken(descriptor, old.fileno(), is_link=is_link)
                os.fsync(descriptor)


def _opened(place: Path, folder: int, root: Path | None, *, is_link: bool) -> AbstractContextManager[BinaryIO]:
    """Open the file that is replaced, or the one that it leads to."""
    if not is_link:
        return open_regular(place.name, follow=False, folder=folder)
    return open_regular(inside(place, root), follow=root is None)


def _liken(made: int, old: int, *, is_link: bool) -> None:
    """Give a new file what the old one has beside its bytes."""
    new, like = os.fstat(made), os.fstat(old)
    if not is_link and (new.st_uid, new.st_gid) != (like.st_uid, like.st_gid):
        os.fchown(made, like.st_uid, like.st_gid)
    _copy_attributes(old, made)
    # What runs as its owner must not become this user's.
    os.fchmod(made, stat.S_IMODE(like.st_mode) & (0o777 if is_link else 0o7777))
    if int(new.st_mtime) == int(like.st_mtime):
        # Bytecode names the second: one more, or what is compiled from the old file passes for the new.
        os.utime(made, ns=(new.st_atime_ns, new.st_mtime_ns + 10**9))


def swap(temporary: Path, place: Path) -> None:
    """Put the staged file in place; ``sync_folder`` sees that the folder remembers it."""
    with open_folder(place.parent) as folder:
        os.replace(temporary.name, place.name, src_dir_fd=folder, dst_dir_fd=folder)


def write_whole(place: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file of our own so that it is there whole or not at all, also after a crash and ``sync_folder``."""
    # One name: the lock keeps other writers away, and what a killed one left is written over.
    temporary = f".{place.name}.new"
    with open_folder(place.parent) as folder:
        remove(folder, temporary)
        try:
            with open(os.open(temporary, _CREATE, mode, dir_fd=folder), "wb") as file:
                give(file.fileno(), folder)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            remove(folder, temporary)
            raise


def remove(folder: int, name: str) -> None:
    """Remove a file of an open folder, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def sync_folder(place: Path) -> None:
    """Flush a folder's entries to disk, where its file system knows how."""
    with open_folder(place) as folder:
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise


def _copy_attributes(source: int, target: int) -> None:
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
