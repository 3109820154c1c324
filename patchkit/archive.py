"""A wheel's archive: read with mistrust, every member held against RECORD, and copied without recompressing."""

from __future__ import annotations

import hashlib
import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from patchkit.errors import PathEscape, RecordMalformed, RecordMissing, WheelInvalid
from patchkit.paths import is_safe, open_regular
from patchkit.record import RecordRow, read_rows

BLOCK = 2**20
"""How many bytes are held at a time, whatever the size of a member."""
_LARGEST = 32 * 2**20
"""The largest member that is read as a whole: source and metadata are far smaller."""
_ZIP64 = 45
"""The version of the format from which on archives have features that no wheel needs."""
_HEADER = struct.Struct("<26x2H")
_HINT = "download the wheel again: pip download --no-deps NAME==VERSION"
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
)
"""What zipfile and zlib raise for an archive that is none or is broken."""


@dataclass(frozen=True)
class Wheel:
    """An open wheel whose names are known to be safe."""

    place: Path
    name: str
    """Normalised name of the distribution."""
    version: Version
    stem: str
    """What its .dist-info and .data folders begin with."""
    archive: zipfile.ZipFile
    members: Mapping[str, zipfile.ZipInfo]
    """The members in the order of the archive, folders among them."""

    @property
    def metadata(self) -> str:
        """The name of the metadata folder."""
        return f"{self.stem}.dist-info"

    def read(self, name: str) -> bytes:
        """Return a member as a whole; refuse one that is too large for source or metadata."""
        info = self.members[name]
        if info.file_size > _LARGEST:
            raise WheelInvalid(f"{self.place}: {name} has {info.file_size} bytes, too many to be read", _HINT)
        try:
            return read_member(self.archive, info)
        except UNREADABLE as error:
            raise WheelInvalid(f"{self.place}: {name} cannot be read: {error}", _HINT) from error


class _Sparing(io.BufferedReader):
    """A file that nobody reads much of at once: an archive may say of its directory that it has any size."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to so many bytes, and refuse more than any wheel needs."""
        if size is not None and 0 <= size <= _LARGEST:
            return super().read(size)
        data = super().read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise zipfile.BadZipFile("its directory is too large")
        return data


@contextmanager
def open_archive(place: Path) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP archive that is a regular file, of any size, with one of ``UNREADABLE`` for anything else."""
    with (
        open_regular(place) as file,
        _Sparing(io.FileIO(file.fileno(), closefd=False)) as sparing,
        zipfile.ZipFile(sparing) as archive,
    ):
        yield archive


def read_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo) -> bytes:
    """Return a member as a whole, whatever it says of its size; none that is too large for source or metadata."""
    with archive.open(name) as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise zipfile.BadZipFile("it is too large")
    return data


@contextmanager
def open_wheel(place: Path) -> Iterator[Wheel]:
    """Open a wheel, refusing one with names or an arrangement of members that cannot be trusted."""
    with ExitStack() as stack:
        try:
            name, version, _, _ = parse_wheel_filename(place.name)
            archive = stack.enter_context(open_archive(place))
        except (InvalidWheelFilename, InvalidVersion, *UNREADABLE) as error:
            raise WheelInvalid(f"{place} is not a wheel: {error}", _HINT) from error
        members = _members(place, archive)
        yield Wheel(place, name, version, _stem(place, name, version, members), archive, members)


def _members(place: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    end = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        problem = _problem(info)
        # Members that overlap are how a small archive unpacks to petabytes.
        if problem is None and info.header_offset < end:
            problem = "overlaps another member"
        if problem is not None:
            raise WheelInvalid(f"{place}: {info.filename!r} {problem}", _HINT)
        end = info.header_offset + _HEADER.size + len(info.orig_filename.encode()) + info.compress_size
    for info in archive.infolist():
        if not is_safe(info.filename.removesuffix("/")) or "\\" in info.filename:
            raise PathEscape(f"{place}: {info.filename!r} is not a path that a wheel may hold", _HINT)
        if members.setdefault(info.filename, info) is not info:
            raise WheelInvalid(f"{place}: {info.filename} is there twice", _HINT)
    return members


def _problem(info: zipfile.ZipInfo) -> str | None:
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.extract_version >= _ZIP64 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "needs a feature of the ZIP format that wheels do without"
    return None if info.filename == info.orig_filename else "has a name that tools read in different ways"


def _stem(place: Path, name: str, version: Version, members: Mapping[str, zipfile.ZipInfo]) -> str:
    """Return what the metadata folder begins with; its name must say what the file's name says."""
    found = [path for path in members if re.fullmatch(r"[^/]+\.dist-info/RECORD", path)]
    if len(found) != 1:
        raise RecordMissing(f"{place} has {len(found)} RECORD files, not 1", _HINT)
    stem = found[0].removesuffix(".dist-info/RECORD")
    project, _, number = stem.partition("-")
    try:
        agrees = canonicalize_name(project) == name and Version(number) == version
    except InvalidVersion:
        agrees = False
    if not agrees:
        raise WheelInvalid(f"{place} has the metadata of {stem}, and its name says {name} {version}", _HINT)
    signed = [path for path in members if path in (f"{found[0]}.jws", f"{found[0]}.p7s")]
    if signed:
        raise WheelInvalid(
            f"{place} has {signed[0]}: a signature of RECORD, which is not true of a patched wheel",
            "take a wheel without it; patchkit neither keeps a signature that is wrong nor removes one unasked",
        )
    return stem


def verify(wheel: Wheel) -> dict[str, RecordRow]:
    """Hold every member against RECORD, row by row, and return the rows."""
    record = f"{wheel.metadata}/RECORD"
    where = f"{wheel.place}: {record}"
    files = [name for name, info in wheel.members.items() if not info.is_dir() and name != record]
    rows = read_rows(wheel.read(record), files, where)
    for name in files:
        if name not in rows:
            raise RecordMalformed(f"{where} does not list {name}, which the wheel holds", _HINT)
        _verify(wheel, name, rows[name])
    return rows


def _verify(wheel: Wheel, name: str, row: RecordRow) -> None:
    """Hold one member against its row; no more of it is unpacked than the row gives it."""
    info, sha256 = wheel.members[name], hashlib.sha256()
    if row.size is not None and row.size != info.file_size:
        raise RecordMalformed(f"{name} has {info.file_size} bytes, and RECORD of {wheel.place} says {row.size}", _HINT)
    try:
        with wheel.archive.open(info) as file:
            while block := file.read(BLOCK):
                sha256.update(block)
    except UNREADABLE as error:
        raise WheelInvalid(f"{wheel.place}: {name} cannot be read: {error}", _HINT) from error
    if sha256.hexdigest() != row.sha256:
        raise RecordMalformed(f"{name} differs from the RECORD of {wheel.place}", _HINT)


def copy_member(wheel: Wheel, info: zipfile.ZipInfo, to: zipfile.ZipFile, name: str) -> None:
    """Copy the compressed bytes of a member as they are, under another name if it has one.

    zipfile has no call for this. It keeps the members written so far in ``filelist`` and the place of the next one in
    ``start_dir``; the directory that it writes at the end is made from these.
    """
    source, out = wheel.archive.fp, to.fp
    assert source is not None and out is not None
    source.seek(info.header_offset)
    name_length, extra_length = _HEADER.unpack(source.read(_HEADER.size))
    source.seek(name_length + extra_length, os.SEEK_CUR)
    fresh = copy(info)
    fresh.filename = name
    fresh.flag_bits &= ~0x8  # sizes and checksum stand in the header, not behind the bytes
    out.seek(to.start_dir)
    fresh.header_offset = out.tell()
    out.write(fresh.FileHeader())
    left = info.compress_size
    while left:
        block = source.read(min(left, BLOCK))
        if not block:
            raise EOFError(f"{info.filename} ends too soon")
        out.write(block)
        left -= len(block)
    to.start_dir = out.tell()
    to.filelist.append(fresh)
    to.NameToInfo[name] = fresh


def write_member(like: zipfile.ZipInfo, to: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Write a member with other bytes, and the date, attributes and compression of one that was there."""
    fresh = copy(like)
    fresh.filename = name
    to.writestr(fresh, data)
