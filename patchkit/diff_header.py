"""The head of a diff patch: a TOML text above a unified diff, which `git apply` and `patch` skip as leading text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TypeVar

import tomli

from patchkit.errors import PatchInvalid
from patchkit.header import Header, checked, invalid, read_patch_file
from patchkit.patch import Patch, Upstream
from patchkit.paths import is_safe

Value = TypeVar("Value", Patch, Upstream)

_START = re.compile(rb"(?m)^(?:diff -|Index: |--- )")
"""Where the head ends."""
_BODY = (b" ", b"+", b"-", b"\\", b"@@ -")
_BETWEEN = re.compile(rb"diff -|Index: |index [0-9a-f]+\.\.[0-9a-f]+( 100(644|755))?\r?$|=+\r?$|\r?$")
"""What may stand outside the hunks, beside the names of the files."""


def read_diff_header(place: Path) -> Header:
    """Read and check the head of a diff patch; the hunks are left to whoever applies them."""
    return parse_diff_header(place, read_patch_file(place))


def parse_diff_header(place: Path, source: bytes) -> Header:
    """Read and check the head of a diff patch that has, or is to have, its place there."""
    head, lead, diff = split_head(source)
    if not diff:
        raise invalid(place, "there is no diff in it: no line begins with `--- `")
    try:
        document = tomli.loads(head.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise invalid(place, f"the text above the diff is not TOML: {error}") from error
    title, reason = (_text(place, document.pop(name, ""), name) for name in ("title", "reason"))
    upstream = document.pop("upstream", {})
    if not isinstance(upstream, dict):
        raise invalid(place, "upstream must be a table")
    patch = _build(place, Patch, {**document, "upstream": _build(place, Upstream, upstream)})
    lines = _Scan(place).files(diff, lead + 1)
    return checked(place, title, reason, patch, dict.fromkeys(lines, ()), source, lines)


def split_head(source: bytes) -> tuple[bytes, int, bytes]:
    """Return the text above a diff, how many lines it has, and the diff."""
    match = _START.search(source)
    end = match.start() if match else len(source)
    return source[:end], source.count(b"\n", 0, end), source[end:]


def may_follow(line: bytes, is_name: bool) -> bool:
    """Tell whether a line may stand after a hunk that is complete."""
    return is_name or line.startswith(b"@@ -") or _BETWEEN.match(line) is not None


def _text(place: Path, value: object, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid(place, f"{name} must be a string that is not empty")
    return value


def _build(place: Path, kind: type[Value], values: Mapping[str, object]) -> Value:
    known = {*signature(kind).parameters}
    unknown = sorted(set(values) - known)
    if unknown:
        raise invalid(place, f"{unknown[0]} is no field of a {kind.__name__}; there are {', '.join(sorted(known))}")
    try:
        return kind(**values)  # type: ignore[arg-type]
    except TypeError as error:
        raise invalid(place, f"{kind.__name__}: {error}") from error


class _Scan:
    """Finds the names of the files, and whatever else than a change of existing files a diff can do.

    Lines of hunks are told by their first character alone. Where that is wrong (a removed line that looks like the
    name of a file), unidiff reads other names later, and the patch is refused then.
    """

    def __init__(self, place: Path) -> None:
        self._place = place

    def files(self, diff: bytes, first: int) -> dict[str, int]:
        """Return the number of the line that names each file."""
        lines = [*diff.split(b"\n"), b"", b""]
        found: dict[str, int] = {}
        for index, line in enumerate(lines[:-2]):
            number = index + first
            if line.startswith(b"--- ") and lines[index + 1].startswith(b"+++ ") and _begins(lines[index + 2]):
                path = self._path(line, lines[index + 1], number)
                if path in found:
                    raise self._error(number, f"{path} is changed twice; put all its hunks together")
                found[path] = number
            elif not line.startswith(_BODY) and not _BETWEEN.match(line):
                raise self._error(number, f"{_shown(line)} is not part of a change of an existing text file")
        if not found:
            raise self._error(first, "no file is named, by a line `--- a/PATH`, one `+++ b/PATH` and a hunk")
        return found

    def _path(self, old: bytes, new: bytes, number: int) -> str:
        names = [line[4:].partition(b"\t")[0].decode("utf-8", "backslashreplace") for line in (old, new)]
        if "/dev/null" in names:
            raise self._error(number, "a patch cannot create or delete a file")
        if not names[0].startswith("a/") or not names[1].startswith("b/"):
            raise self._error(number, f"{names[0]!r}, {names[1]!r}: the names must begin with a/ and b/")
        before, after = (name[2:] for name in names)
        if before != after:
            raise self._error(number, f"a patch cannot rename {before!r} to {after!r}")
        if not is_safe(after) or "\\" in after or not after.endswith(".py"):
            raise self._error(number, f"{after!r} is not the path of a .py file below a site folder")
        return after

    def _error(self, number: int, problem: str) -> PatchInvalid:
        return invalid(self._place, f"line {number}: {problem}")


def _begins(line: bytes) -> bool:
    return line.startswith(b"@@ -")


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "backslashreplace"))
