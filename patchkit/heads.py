"""The heads of the patches that come with patchkit, as they were read when its wheel was built.

To parse them all takes a tenth of a look. A head counts only for the very bytes that it was read from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from patchkit.header import Header, read_patch_file
from patchkit.patch import Patch, Upstream
from patchkit.paths import read_regular
from patchkit.record import digest

NAME = "heads.json"


def to_json(headers: Iterable[Header]) -> str:
    """Return the heads of Python patches as the text of their file."""
    return json.dumps({header.place.name: _row(header) for header in headers}, indent=1, sort_keys=True) + "\n"


def read_heads(place: Path) -> Mapping[str, Any]:
    """Return the heads by the name of the patch file; none where patchkit runs from its repository."""
    try:
        heads: dict[str, Any] = json.loads(read_regular(place))
    except FileNotFoundError:
        return {}
    return heads


def recall(heads: Mapping[str, Any], place: Path) -> Header | None:
    """Return the header of a patch file without parsing it; None where its head is not there, or of other bytes."""
    if place.name not in heads:
        return None
    row, source = heads[place.name], read_patch_file(place)
    if row["revision"] != digest(source):
        return None
    patch = Patch(**{**row["patch"], "upstream": Upstream(**row["patch"]["upstream"])})
    files = {path: tuple(names) for path, names in row["files"].items()}
    return Header(place.stem, row["title"], row["reason"], patch, files, source, row["revision"], place, row["lines"])


def _row(header: Header) -> dict[str, object]:
    patch = header.patch
    return {
        "title": header.title,
        "reason": header.reason,
        "patch": {
            "target": patch.target,
            "versions": patch.versions,
            "symptom": patch.symptom,
            "upstream": patch.upstream._asdict(),
            "requires": dict(patch.requires),
        },
        "files": dict(header.files),
        "revision": header.revision,
        "lines": dict(header.lines),
    }
