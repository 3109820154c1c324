"""Edits made by hand, and the patch file that they become."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from patchkit.blanks import blank
from patchkit.catalog import Catalog
from patchkit.diff_header import parse_diff_header
from patchkit.environment import Environment
from patchkit.errors import ConfigError, PatchkitError, RewriteUnsound, TransactionError
from patchkit.installation import Installation
from patchkit.listing import to_toml
from patchkit.paths import real
from patchkit.plan import Change
from patchkit.record import digest
from patchkit.replacement import sync_folder, write_whole
from patchkit.rewrite import Rewriter
from patchkit.targets import Listing, NamedSet, Targets, read_targets
from patchkit.template import targets_text

SET = "recorded"
"""The set of a catalog that is made for a recorded patch."""


@dataclass(frozen=True)
class Edit:
    """One file that differs from what was shipped, by no write of patchkit."""

    path: str
    state: str
    """``edited``, ``adoptable`` or ``adopted``."""
    patches: tuple[str, ...] = ()
    """The patches of the catalog that make exactly this of the file."""

    @property
    def as_line(self) -> str:
        """The edit in a report."""
        return "  ".join((self.path, self.state, *filter(None, [", ".join(self.patches)])))


@dataclass(frozen=True)
class Recording:
    """What ``record`` found, and what it wrote."""

    edits: tuple[Edit, ...]
    written: tuple[str, ...] = ()
    """The files of a catalog that were written."""
    to_fill_in: tuple[str, ...] = ()
    """The values of the patch that somebody has still to write."""

    def to_json(self) -> dict[str, object]:
        """Return the fields that ``--json`` adds."""
        return {
            "edits": [asdict(edit) for edit in self.edits],
            "recorded": list(self.written),
            "to_fill_in": list(self.to_fill_in),
        }


@dataclass(frozen=True)
class Words:
    """What a patch says of itself, as far as it was given."""

    id: str
    title: str = ""
    reason: str = ""
    symptom: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """The values that were not given."""
        return tuple(name for name in _ASKED if not getattr(self, name))


_ASKED = {
    "title": "one sentence in the present: what becomes true",
    "reason": "what the installed code does, why that is wrong here, what the edit does instead",
    "symptom": "the shortest stable part of the error that the edit cures",
}


def write_patch(
    folder: Path, words: Words, installation: Installation, changes: Collection[Change], environment: Environment
) -> Recording:
    """Write a diff patch into a catalog, and the catalog's targets.toml where there is none; refuse to replace any."""
    place, targets = folder / "patches" / f"{words.id}.diff", folder / "targets.toml"
    for other in (place, place.with_suffix(".py")):
        if other.exists():
            raise ConfigError(f"{other} is there already", "give another --id, or remove the file")
    catalog_text = b""
    if targets.exists():
        known = read_targets(targets).targets
        if installation.target.name not in known:
            raise ConfigError(f"{targets} has no target {installation.target.name}", "add it to [targets]")
    else:
        catalog_text = _catalog(words, installation, changes).encode()
    text = patch_text(words, installation, changes)
    _prove(place, words, installation, changes, environment)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _write(place, text)
        if catalog_text:
            _write_beside(targets, catalog_text, place)
    except OSError as error:
        message = f"{error.filename or folder}: {error.strerror}, nothing was written"
        raise TransactionError(message, "name a folder that can be written with --write") from error
    written = (place, targets) if catalog_text else (place,)
    return Recording((), tuple(map(str, written)), words.missing)


def _write_beside(place: Path, text: bytes, other: Path) -> None:
    """Write a file, or take away the other that was written before it."""
    try:
        _write(place, text)
    except OSError:
        with suppress(OSError):
            other.unlink()
        raise


def _write(place: Path, text: bytes) -> None:
    """Write a file where a path leads that somebody named, links included."""
    folder = real(place.parent)
    write_whole(folder / place.name, text)
    sync_folder(folder)


def patch_text(words: Words, installation: Installation, changes: Collection[Change]) -> bytes:
    """Return the text of a patch file; what was not given is a blank, so that it is not used yet."""
    lines = [f"# Recorded from {installation.distribution} {installation.version} as it was edited by hand."]
    lines += [f"{name} = {_quoted(getattr(words, name) or blank(_ASKED[name]))}" for name in ("title", "reason")]
    lines += [f"target = {_quoted(installation.target.name)}", f'versions = "=={installation.version}"']
    lines += [f"symptom = {_quoted(words.symptom or blank(_ASKED['symptom']))}"]
    lines += ["", "[upstream]", 'status = "unreported"', "", ""]
    return "\n".join(lines).encode("utf-8", "replace") + b"".join(change.diff for change in changes)


def _quoted(text: str) -> str:
    """Return a text as TOML has it; JSON's escapes are those of TOML but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _prove(
    place: Path, words: Words, installation: Installation, changes: Collection[Change], environment: Environment
) -> None:
    """Refuse an edit that the patch would not make of the pristine files: one that does not compile, for example."""
    given = Words(words.id, *(getattr(words, name) or "given later" for name in ("title", "reason", "symptom")))
    header = parse_diff_header(place, patch_text(given, installation, changes))
    targets = Targets({installation.target.name: installation.target}, {}, (), {})
    rewriter = Rewriter(Catalog(place.parent.parent, targets, {words.id: header}), environment)
    for change in changes:
        try:
            made = rewriter.fold(change.path, change.pristine, {words.id}).after
        except PatchkitError as error:
            raise RewriteUnsound(f"the edit makes no patch: {error.message}", "correct the edit") from error
        assert made == change.after


def _catalog(words: Words, installation: Installation, changes: Collection[Change]) -> str:
    """Return a targets.toml for one patch, with its digests."""
    target, named = installation.target, NamedSet(SET, "Recorded from edits by hand", (words.id,))
    listed = {
        change.path: Listing(change.pristine_sha256, {frozenset({words.id}): digest(change.after)})
        for change in changes
    }
    releases = {(target.name, str(installation.version)): listed}
    return f"{targets_text(named, (target,))}\n{to_toml(Targets({}, {}, (), releases))}"


def summarise(recording: Recording, findings: int) -> str:
    """Return the last lines of a report: how many edits there are, and what to do next."""
    count = {
        state: sum(edit.state == state for edit in recording.edits) for state in ("edited", "adoptable", "adopted")
    }
    parts = [
        f"{_files(count['edited'])} edited by hand" if count["edited"] else "",
        f"{_files(count['adoptable'])} as patches make {_them(count['adoptable'])}" if count["adoptable"] else "",
        f"{_files(count['adopted'])} adopted" if count["adopted"] else "",
        f"{findings} finding{'s' if findings != 1 else ''}" if findings else "",
    ]
    said = ", ".join(part for part in parts if part)
    lines = [edit.as_line for edit in recording.edits if edit.state == "adoptable"]
    lines += [f"record: {said or 'nothing was edited'}"]
    lines += [f"record: {place} written" for place in recording.written]
    if count["adoptable"]:
        lines.append("record: patchkit record --adopt takes it over into the journal")
    if recording.to_fill_in:
        lines.append(f"record: fill in {', '.join(recording.to_fill_in)} in {recording.written[0]}")
    return "\n".join(lines)


def _files(count: int) -> str:
    return f"{count} file{'s' if count != 1 else ''}"


def _them(count: int) -> str:
    return "them" if count != 1 else "it"
