"""Unified diffs over bytes, and the proof that one is exact in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchkit.errors import RewriteUnsound

if TYPE_CHECKING:
    from unidiff.patch import Hunk as ParsedHunk

_CONTEXT = 3
_NO_NEWLINE = b"\\ No newline at end of file\n"

LineRange = tuple[int, int]
"""First line, counted from 1, and the line after the last."""

Opcode = tuple[str, int, int, int, int]
"""What happens to a run of lines, as difflib says it: the word, and the lines before and after, counted from 0."""


@dataclass(frozen=True)
class Hunk:
    """A run of changed lines, without context."""

    before: LineRange
    after: LineRange


@dataclass(frozen=True)
class Passage:
    """A hunk of a diff, with its context: what is there before and what is there after."""

    path: str
    """The file as the diff names it after the change, prefix included."""
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    old_start: int
    """Index of the first line, from 0, in the file before."""
    new_start: int
    end: int
    """Number of its last line in the diff, from 1."""

    @property
    def reverse(self) -> Passage:
        """The way back."""
        return replace(self, old=self.new, new=self.old, old_start=self.new_start, new_start=self.old_start)


def split_lines(data: bytes) -> list[bytes]:
    """Split after each line feed only: a carriage return or a form feed ends no line of a diff."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def changed_lines(before: bytes, after: bytes) -> list[Hunk]:
    """Return the runs of lines in which two texts differ."""
    return [
        Hunk((low1 + 1, high1 + 1), (low2 + 1, high2 + 1))
        for tag, low1, high1, low2, high2 in _opcodes(split_lines(before), split_lines(after))
        if tag != "equal"
    ]


def unified_diff(path: str, before: bytes, after: bytes) -> bytes:
    """Return the diff of one file as ``git apply -p1`` takes it; empty when nothing differs."""
    if before == after:
        return b""
    old, new = split_lines(before), split_lines(after)
    name = path.encode()
    out = [b"diff --git a/%b b/%b\n--- a/%b\n+++ b/%b\n" % (name, name, name, name)]
    for group in grouped_opcodes(old, new):
        low1, high1, low2, high2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        out.append(b"@@ -%b +%b @@\n" % (_span(low1, high1), _span(low2, high2)))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out += _body(b" ", old[i1:i2])
            else:
                out += _body(b"-", old[i1:i2]) + _body(b"+", new[j1:j2])
    return b"".join(out)


def prove(diff: bytes, before: bytes, after: bytes) -> None:
    """Refuse a diff that, as unidiff reads it, does not give ``after`` from ``before`` and back, exactly."""
    if apply_diff(diff, before) != after or apply_diff(diff, after, reverse=True) != before:
        raise RewriteUnsound("the diff does not lead from the file to its rewrite and back", "report this to patchkit")


def apply_diff(diff: bytes, data: bytes, *, reverse: bool = False) -> bytes:
    """Apply a unified diff of one file with exact context: no fuzz and no offset."""
    lines, out, done = split_lines(data), [], 0
    for passage in read_passages(diff):
        part = passage.reverse if reverse else passage
        first = part.old_start
        if first < done or lines[first : first + len(part.old)] != list(part.old):
            raise RewriteUnsound(f"the diff does not fit at line {first + 1}", "report this to patchkit")
        out += [*lines[done:first], *part.new]
        done = first + len(part.old)
    return b"".join(out + lines[done:])


def read_passages(diff: bytes) -> list[Passage]:
    """Return the hunks of a unified diff, as unidiff reads them."""
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    try:
        # Latin-1 maps every byte to one character and back, whatever the encoding of the file.
        files = PatchSet.from_string(diff.decode("latin-1"))
    except UnidiffParseError as error:
        raise RewriteUnsound(f"the diff cannot be read back: {error}", "report this to patchkit") from error
    return [
        _passage(file.target_file.encode("latin-1").decode("utf-8", "replace"), hunk) for file in files for hunk in file
    ]


def _passage(path: str, hunk: ParsedHunk) -> Passage:
    old, new = _sides(hunk)
    return Passage(
        path,
        tuple(old),
        tuple(new),
        _index(hunk.source_start, old),
        _index(hunk.target_start, new),
        max((line.diff_line_no or 0 for line in hunk), default=0),
    )


def _index(start: int, lines: list[bytes]) -> int:
    """Return where a side of a hunk begins, from 0: at the line that it names, an empty one after that line."""
    return start - 1 if lines else start


def _sides(hunk: ParsedHunk) -> tuple[list[bytes], list[bytes]]:
    """Return the lines of a hunk before and after; its last line may lack the line feed."""
    old: list[bytes] = []
    new: list[bytes] = []
    last: list[list[bytes]] = []
    for line in hunk:
        if line.line_type == "\\":
            for side in last:
                side[-1] = side[-1].removesuffix(b"\n")
            continue
        last = [side for side, absent in ((old, "+"), (new, "-")) if line.line_type != absent]
        for side in last:
            side.append(line.value.encode("latin-1"))
    return old, new


def _opcodes(old: list[bytes], new: list[bytes]) -> list[Opcode]:
    """Compare only the middle that differs: the rewrites are small and the files are long."""
    import difflib

    start, limit = 0, min(len(old), len(new))
    while start < limit and old[start] == new[start]:
        start += 1
    end = 0
    while end < limit - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle1, middle2 = old[start : len(old) - end], new[start : len(new) - end]
    codes: list[Opcode] = [("equal", 0, start, 0, start)] if start else []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, middle1, middle2, autojunk=False).get_opcodes():
        codes.append((tag, i1 + start, i2 + start, j1 + start, j2 + start))
    if end:
        codes.append(("equal", len(old) - end, len(old), len(new) - end, len(new)))
    return codes


def grouped_opcodes(old: list[bytes], new: list[bytes]) -> list[list[Opcode]]:
    """Return the changes with their context, grouped into the hunks of a diff."""
    import difflib

    matcher: difflib.SequenceMatcher[str] = difflib.SequenceMatcher()
    matcher.opcodes = _opcodes(old, new)  # type: ignore[attr-defined]
    return list(matcher.get_grouped_opcodes(_CONTEXT))


def _span(low: int, high: int) -> bytes:
    length = high - low
    start = low + 1 if length else low
    return b"%d" % start if length == 1 else b"%d,%d" % (start, length)


def _body(sign: bytes, lines: Sequence[bytes]) -> list[bytes]:
    return [sign + line if line.endswith(b"\n") else sign + line + b"\n" + _NO_NEWLINE for line in lines]
