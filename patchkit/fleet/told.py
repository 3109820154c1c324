"""What a node has told, taken for data that anybody may have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from patchkit.findings import Finding
from patchkit.fleet.channel import Message
from patchkit.proof import set_digest

_IN_PLACE = ("applied", "upstream")
_ELSEWHERE = ("not-installed", "not-applicable")


@dataclass(frozen=True)
class Told:
    """What one node says of itself."""

    python: str | None = None
    releases: Mapping[str, str] = field(default_factory=dict)
    """Distribution and version of each target that a selected patch is for."""
    sites: Mapping[str, str] = field(default_factory=dict)
    """Site folder of each target."""
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file that a selected patch is for, by path."""
    states: Mapping[str, str] = field(default_factory=dict)
    """State of each patch."""
    changes: tuple[str, ...] = ()
    """Files that are written, or would be."""
    plan: Mapping[str, str] = field(default_factory=dict)
    """Digest of what would be written into each site folder."""
    findings: tuple[Finding, ...] = ()

    @property
    def digest(self) -> str | None:
        """Return one digest over the files, as ``patchkit-serve`` gives it; None where there is no file."""
        return set_digest(dict(self.files)) if self.files else None

    @property
    def in_place(self) -> int:
        """Return how many patches are in place."""
        return sum(state in _IN_PLACE for state in self.states.values())

    @property
    def meant(self) -> int:
        """Return how many patches are for what is installed there."""
        return sum(state not in _ELSEWHERE for state in self.states.values())


def read_told(message: Message) -> Told:
    """Return what a message says, or raise a ValueError, KeyError or TypeError where it makes no sense."""
    patches = [_row(row) for row in _rows(message.get("patches", []))]
    meant = {_text(patch["target"]) for patch in patches}
    targets = [row for row in map(_row, _rows(message.get("targets", []))) if row["target"] in meant]
    files = [
        _row(file)
        for patch in patches
        if patch["state"] not in _ELSEWHERE
        for file in _rows(patch["files"])
        if _row(file)["sha256"] is not None
    ]
    python = _row(message.get("environment", {})).get("python")
    return Told(
        python=None if python is None else _text(python),
        releases={_text(row["target"]): f"{_text(row['distribution'])} {_text(row['version'])}" for row in targets},
        sites={_text(row["target"]): _text(row["site"]) for row in targets},
        files={_text(file["path"]): _text(file["sha256"]) for file in files},
        states={_text(patch["id"]): _text(patch["state"]) for patch in patches},
        changes=tuple(_text(_row(change)["path"]) for change in _rows(message.get("changes", []))),
        plan={_text(site): _text(digest) for site, digest in _row(message.get("sites", {})).items()},
        findings=tuple(_finding(_row(row)) for row in _rows(message.get("findings", []))),
    )


def _finding(row: Mapping[str, object]) -> Finding:
    patch, file = row.get("patch"), row.get("file")
    return Finding(
        _text(row["code"]),
        _text(row["message"]),
        _text(row["hint"]),
        None if patch is None else _text(patch),
        None if file is None else _text(file),
    )


def _rows(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:100]!r} is not a list")
    return value


def _row(value: object) -> Message:
    if not isinstance(value, dict):
        raise ValueError(f"{str(value)[:100]!r} is not a table")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:100]!r} is not a string")
    return value
