"""What follows from a new version: the names, METADATA and RECORD of a wheel."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from packaging.version import InvalidVersion, Version

from patchkit.archive import Wheel
from patchkit.diff import split_lines
from patchkit.errors import RecordMalformed, RecordMissing, WheelInvalid
from patchkit.proof import set_digest
from patchkit.record import format_row

LABEL = "patchkit"
_DIGITS = 12
_HINT = "download the wheel again: pip download --no-deps NAME==VERSION"


def patched_version(version: Version, digests: Mapping[str, str]) -> Version:
    """Return a version with the digest of the patched files in its local label, after a label that is there."""
    label = f"{LABEL}.{set_digest(dict(digests))[:_DIGITS]}"
    return Version(f"{version.public}+{version.local}.{label}" if version.local else f"{version.public}+{label}")


def patched_stem(wheel: Wheel, version: Version) -> str:
    """Return what the metadata folder begins with under another version."""
    return f"{wheel.stem.partition('-')[0]}-{version}"


def patched_name(wheel: Wheel, version: Version) -> str:
    """Return the file name under another version; build and tags stay."""
    project, _, rest = wheel.place.name.partition("-")
    return f"{project}-{version}-{rest.partition('-')[2]}"


def renamed(wheel: Wheel, path: str, stem: str) -> str:
    """Return the path of a member under another version: two folders are named by it."""
    for suffix in (".dist-info/", ".data/"):
        if path.startswith(wheel.stem + suffix):
            return stem + path[len(wheel.stem) :]
    return path


def patched_metadata(wheel: Wheel, version: Version) -> bytes:
    """Return METADATA with another version; only the head counts, for the description may quote such a line."""
    name = f"{wheel.metadata}/METADATA"
    if name not in wheel.members:
        raise RecordMissing(f"{wheel.place} has no METADATA", _HINT)
    data = wheel.read(name)
    head = re.split(rb"(?m)^\r?\n", data, maxsplit=1)[0]
    found = re.findall(rb"(?mi)^Version:[ \t]*(.*?)[ \t]*\r?$", head)
    if len(found) != 1 or not _is(found[0], wheel.version):
        said = b", ".join(found).decode("utf-8", "backslashreplace") or "none"
        raise WheelInvalid(f"{wheel.place} is of {wheel.version}, and its METADATA gives the version {said}", _HINT)
    line = rb"\g<1>%b\g<2>" % str(version).encode()
    return re.sub(rb"(?mi)^(Version:[ \t]*).*?([ \t]*\r?)$", line, head, count=1) + data[len(head) :]


def _is(text: bytes, version: Version) -> bool:
    try:
        return Version(text.decode("ascii")) == version
    except (InvalidVersion, UnicodeDecodeError):
        return False


def patched_record(wheel: Wheel, stem: str, changed: Mapping[str, bytes], added: Mapping[str, bytes]) -> bytes:
    """Return RECORD under another version; a row changes only where its file or its name does, and the order stays.

    ``changed`` has the new bytes by the old path, ``added`` those of new files by their path: their rows stand before
    RECORD's own, which is the last one in most wheels.
    """
    record = f"{wheel.metadata}/RECORD"
    rows = [(_path(wheel, line), line) for line in split_lines(wheel.read(record))]
    if [path for path, _ in rows].count(record) != 1:
        raise RecordMalformed(f"RECORD of {wheel.place} does not list itself once", _HINT)
    lines = []
    for path, line in rows:
        end = b"\r\n" if line.endswith(b"\r\n") else b"\n"
        if path == record:
            lines += [format_row(new, data) + end for new, data in added.items()]
        name = renamed(wheel, path, stem)
        if path in changed:
            lines.append(format_row(name, changed[path]) + end)
        else:
            lines.append(line if name == path else line.replace(wheel.stem.encode(), stem.encode(), 1))
    return b"".join(lines)


def _path(wheel: Wheel, line: bytes) -> str:
    """Return the path of a row; each must be of a member, and RECORD lists itself."""
    where = f"RECORD of {wheel.place}"
    try:
        (elements,) = csv.reader([line.decode("utf-8").rstrip("\r\n")], strict=True)
        path = elements[0]
    except (UnicodeDecodeError, csv.Error, ValueError, IndexError) as error:
        raise RecordMalformed(f"{where} has a row that is none: {line!r}", _HINT) from error
    if path not in wheel.members:
        raise RecordMalformed(f"{where} lists {path!r}, which the wheel does not hold", _HINT)
    return path
