"""The marker of a patched wheel: ``patchkit.json`` beside its RECORD, with what the files were before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from packaging.version import Version

from patchkit.errors import RecordMalformed
from patchkit.journal import Applied, read_files
from patchkit.record import RecordRow, digest

NAME = "patchkit.json"
_HINT = "install the wheel again, or make it anew from the upstream wheel: patchkit wheel"


class Marker(NamedTuple):
    """What a patched wheel says of itself; empty for another wheel."""

    upstream: str = ""
    """The version of the wheel that was patched."""
    files: Mapping[str, Applied] = {}

    def to_bytes(self, distribution: str, version: str) -> bytes:
        """Return the text of patchkit.json; the same patches on the same wheel give the same bytes."""
        files = {
            path: {"pristine": row.pristine, "sha256": row.sha256, "patches": dict(row.patches)}
            for path, row in self.files.items()
        }
        writers = sorted({row.patchkit for row in self.files.values()})
        document = {
            "schema": 1,
            "distribution": distribution,
            "version": version,
            "upstream": self.upstream,
            "patchkit": ", ".join(writers),
            "files": files,
        }
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def read_marker(data: bytes, where: str) -> Marker:
    """Read patchkit.json, taking nothing in it on trust."""
    try:
        document = json.loads(data)
        if document["schema"] != 1:
            raise ValueError(f"its schema is {document['schema']!r}, not 1")
        written = {"patchkit": document["patchkit"], "written": 0, "link": None}
        files = read_files({path: {**written, **row} for path, row in document["files"].items()})
        return Marker(str(Version(document["upstream"])), files)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = str(error) or type(error).__name__
        raise RecordMalformed(f"{where} cannot be used: {problem}", _HINT) from error


def hold_against(marker: Marker, data: bytes, path: str, rows: Mapping[str, RecordRow]) -> None:
    """Refuse a marker that differs from RECORD, or that says of a file what RECORD does not say."""
    if path not in rows or rows[path].sha256 != digest(data):
        raise RecordMalformed(f"{path} is not as RECORD lists it", _HINT)
    for name, row in marker.files.items():
        if name not in rows or rows[name].sha256 != row.sha256:
            raise RecordMalformed(f"{path} and RECORD contradict each other about {name}", _HINT)
