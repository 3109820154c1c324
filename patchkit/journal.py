"""The journal of a site folder: what was applied there, with the pristine bytes."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from patchkit.errors import JournalCorrupt
from patchkit.paths import is_safe, read_regular
from patchkit.record import digest

FOLDER = ".patchkit"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_IDENTITY = re.compile(r"[0-9a-f]{16}")


class Applied(NamedTuple):
    """One file that was written, as the journal remembers it."""

    pristine: str
    """Digest of the file as RECORD lists it; the object of that name holds its bytes."""
    sha256: str
    """Digest of what was written."""
    patches: Mapping[str, str]
    """Revisions of the patches that the file carries, by id."""
    patchkit: str
    """Version of patchkit that wrote it."""
    written: int
    """When, in seconds since the epoch."""
    link: str | None = None
    """Where the file led while it was a link, before the first write."""


class Move(NamedTuple):
    """One file of an unfinished transaction."""

    before: str
    """Digest before; the object of that name holds the bytes."""
    after: str
    link: str | None
    """Where the file led before, when it was a link."""


class Pending(NamedTuple):
    """An unfinished transaction."""

    id: str
    leader: str
    """Site folder whose journal decides whether the transaction is committed."""
    moves: Mapping[str, Move]
    files: Mapping[str, Applied]
    """What the journal says once the transaction is committed."""


class Journal(NamedTuple):
    """What journal.json says; empty where there is none."""

    files: Mapping[str, Applied] = {}
    pending: Pending | None = None
    last: str = ""
    """Id of the last transaction that was committed."""

    def to_bytes(self) -> bytes:
        """Return the text of journal.json."""
        document: dict[str, object] = {"schema": 1, "files": _rows(self.files), "pending": None, "last": self.last}
        if self.pending is not None:
            moves, files = _rows(self.pending.moves), _rows(self.pending.files)
            document["pending"] = {"id": self.pending.id, "leader": self.pending.leader, "moves": moves, "files": files}
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def _rows(table: Mapping[str, Applied | Move]) -> dict[str, dict[str, object]]:
    return {path: row._asdict() for path, row in table.items()}


@cache
def own_version() -> str:
    """Return the version of this patchkit, as an entry of the journal says who wrote it."""
    from importlib.metadata import version  # slow to load, and slow each time it is asked

    return version("patchkit")


def read_journal(site: Path) -> Journal:
    """Read the journal of a site folder, taking nothing in it on trust."""
    place = site / FOLDER / "journal.json"
    try:
        problem = _why_untrusted(site)
        if problem is not None:
            raise _corrupt(place, problem)
        return _journal(json.loads(read_regular(place, follow=False)))
    except (FileNotFoundError, NotADirectoryError):
        return Journal()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _corrupt(place, str(error) or type(error).__name__) from error


def _why_untrusted(site: Path) -> str | None:
    """Say why a journal does not count: somebody may have written it who cannot write the site folder."""
    owner = os.stat(site)
    for name in ("", "objects", "journal.json"):
        place = site / FOLDER / name
        try:
            found = place.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            return "a folder of it is a link" if name != "journal.json" else "it is a link"
        if found.st_mode & ~owner.st_mode & 0o022:
            return f"{place} can be written by users who cannot write {site}"
        if found.st_uid not in (0, os.geteuid(), owner.st_uid) and not owner.st_mode & 0o022:
            return f"{place} belongs to user {found.st_uid}, who does not own {site}"
    return None


def read_object(site: Path, sha256: str) -> bytes | None:
    """Return the bytes that the journal keeps under a digest, when they still have it."""
    place = site / FOLDER / "objects" / sha256
    try:
        data = read_regular(place, follow=False)
    except OSError:
        return None
    return data if digest(data) == sha256 else None


def _corrupt(place: Path, problem: str) -> JournalCorrupt:
    return JournalCorrupt(
        f"{place} cannot be used: {problem}",
        f"remove {place}; patchkit then tells from digests what is applied, and keeps the pristine bytes it finds",
    )


def _journal(document: dict[str, object]) -> Journal:
    if document["schema"] != 1:
        raise ValueError(f"its schema is {document['schema']!r}, not 1")
    pending = document["pending"]
    return Journal(
        read_files(document["files"]), None if pending is None else _pending(pending), _text(document["last"])
    )


def read_files(table: object) -> dict[str, Applied]:
    """Return the files that a table lists, or say with a ValueError, KeyError or TypeError what is wrong with it."""
    return {_path(path): _applied(row) for path, row in _table(table).items()}


def _applied(table: object) -> Applied:
    row = _table(table)
    written = row["written"]
    if not isinstance(written, int):
        raise ValueError("written is not a number")
    patches = {_text(name): _text(revision) for name, revision in _table(row["patches"]).items()}
    return Applied(
        _sha256(row["pristine"]), _sha256(row["sha256"]), patches, _text(row["patchkit"]), written, _link(row["link"])
    )


def _pending(table: object) -> Pending:
    row = _table(table)
    moves = {_path(path): _move(move) for path, move in _table(row["moves"]).items()}
    if not _IDENTITY.fullmatch(_text(row["id"])):
        raise ValueError(f"{row['id']!r} is not the id of a transaction")
    return Pending(_text(row["id"]), _text(row["leader"]), moves, read_files(row["files"]))


def _move(table: object) -> Move:
    row = _table(table)
    return Move(_sha256(row["before"]), _sha256(row["after"]), _link(row["link"]))


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("a table is missing")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def _link(value: object) -> str | None:
    return None if value is None else _text(value)


def _path(value: object) -> str:
    if not is_safe(_text(value)):
        raise ValueError(f"{value!r} is not a path below the site folder")
    return _text(value)


def _sha256(value: object) -> str:
    if not _SHA256.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is not a digest")
    return _text(value)
