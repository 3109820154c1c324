"""RECORD rows and digests: what a distribution says its files are."""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
from collections.abc import Collection
from typing import BinaryIO, NamedTuple

from patchkit.errors import RecordMalformed

_HINT = "reinstall the distribution; its RECORD cannot be trusted"


class RecordRow(NamedTuple):
    """One row of RECORD that carries a digest."""

    path: str
    """Path relative to the site folder, as RECORD spells it."""
    sha256: str
    """Hexadecimal digest of the file as the wheel shipped it."""
    size: int | None
    """Length in bytes, where RECORD gives one."""


def digest(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_file(file: BinaryIO) -> str:
    """Return the hexadecimal SHA-256 of a file of any size."""
    sha256 = hashlib.sha256()
    while block := file.read(2**20):
        sha256.update(block)
    return sha256.hexdigest()


def format_row(path: str, data: bytes) -> bytes:
    """Return RECORD's row of a file, without a line end."""
    value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    name = '"{}"'.format(path.replace('"', '""')) if '"' in path or "," in path else path
    return f"{name},sha256={value},{len(data)}".encode()


def list_paths(data: bytes, where: str) -> dict[str, bool]:
    """Return every path of a RECORD, and whether it has a digest there."""
    return {elements[0]: bool(elements[1:] and elements[1]) for elements in _elements(data, where) if elements}


def read_rows(data: bytes, wanted: Collection[str], where: str) -> dict[str, RecordRow]:
    """Return the rows of the wanted paths, refusing a RECORD that cannot be trusted for them.

    Other rows are read past: ``../../bin/…`` and hashless bytecode rows are normal there. Format:
    https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    rows: dict[str, RecordRow] = {}
    for elements in _elements(data, where):
        if not elements or elements[0] not in wanted:
            continue
        row = _row(elements, where)
        if rows.setdefault(row.path, row) != row:
            raise RecordMalformed(f"{where} lists {row.path} twice, with different digests", _HINT)
    return rows


def _elements(data: bytes, where: str) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordMalformed(f"{where} is not a RECORD file: {error}", _HINT) from error


def _row(elements: list[str], where: str) -> RecordRow:
    path = elements[0]
    if len(elements) != 3:
        raise RecordMalformed(f"{where} has a row for {path} with {len(elements)} fields, not 3", _HINT)
    algorithm, _, value = elements[1].partition("=")
    if algorithm != "sha256":
        found = f"a {algorithm} digest" if algorithm else "no digest"
        raise RecordMalformed(f"{where} has {found} for {path}; patchkit needs sha256", _HINT)
    try:
        raw = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
        size = int(elements[2]) if elements[2] else None
    except (binascii.Error, ValueError) as error:
        raise RecordMalformed(f"{where} has a malformed row for {path}: {error}", _HINT) from error
    if len(raw) != 32:
        raise RecordMalformed(f"{where} has a digest of {len(raw)} bytes for {path}, not 32", _HINT)
    return RecordRow(path, raw.hex(), size)
