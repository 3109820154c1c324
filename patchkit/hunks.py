"""A patch that is a diff: each hunk at the one place where all of its lines are, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from patchkit.diff import Passage, changed_lines, read_passages, split_lines
from patchkit.diff_header import may_follow, split_head
from patchkit.errors import DEFECT, AnchorAmbiguous, AnchorNotFound, RewriteUnsound, changes_again
from patchkit.header import Header, invalid
from patchkit.text import Text

_HINT = "this release is not one that the diff was made for; record it anew, or exclude the patch"


@dataclass(frozen=True)
class _Place:
    """Where a hunk stands in a text."""

    first: int
    """Index of its first line, from 0."""
    end: int
    """Index of the line after its last."""
    after: tuple[bytes, ...]
    """The lines as they are to be; as they are, where the change is made already."""


class Hunks:
    """A diff patch. No code of it is run."""

    leaves_mark = False

    def __init__(self, header: Header) -> None:
        self._header = header
        _, self._lead, diff = split_head(header.source)
        try:
            passages = read_passages(diff)
        except RewriteUnsound as error:
            raise invalid(header.place, error.message) from error
        self._check(diff, passages)
        self._passages = {path: [one for one in passages if one.path == f"b/{path}"] for path in header.files}

    def rewrite(self, text: Text) -> Text:
        """Return a text with the hunks that it lacks; every hunk must be there, before or after."""
        lines = split_lines(text.data)
        return text.becomes(_splice(lines, self._places(text, lines)))

    def restore(self, text: Text) -> Text:
        """Return a text with every hunk taken back, the text itself unless each is there.

        Of several places the nearest is taken: the result counts only where it has the digest of RECORD.
        """
        lines, places = split_lines(text.data), []
        for passage in self._passages[text.path]:
            found = _find(lines, passage.new)
            if not found:
                return text
            first = min(found, key=lambda place, own=passage.new_start: abs(place - own))  # type: ignore[misc]
            places.append(_Place(first, first + len(passage.new), passage.old))
        return text.becomes(_splice(lines, places)) if _is_in_order(places) else text

    def prove(self, before: Text, after: Text) -> None:
        """Refuse a change outside the hunks, and one that is not found again."""
        old, new, done, shift = split_lines(before.data), split_lines(after.data), 0, 0
        for place in self._places(before, old):
            first, part = place.first + shift, list(place.after)
            if new[done + shift : first] != old[done : place.first] or new[first : first + len(part)] != part:
                break
            done, shift = place.end, shift + len(part) - (place.end - place.first)
        else:
            if new[done + shift :] == old[done:]:
                if self.rewrite(after) is not after:  # pragma: no cover - no diff is known that does
                    raise changes_again(self._header.id, after.path)
                return
        raise RewriteUnsound(f"{self._header.id} changes {before.path} outside its hunks", DEFECT)

    def prove_again(self, result: Text) -> None:
        """Leave it at the proof of the step: the patches after it may have made more places like that of a hunk."""

    def _check(self, diff: bytes, passages: Sequence[Passage]) -> None:
        """Refuse what cannot be placed, and lines that the counts of a hunk leave out."""
        if [*dict.fromkeys(one.path for one in passages)] != [f"b/{path}" for path in self._header.files]:
            raise invalid(self._header.place, "a removed line in it looks like the name of a file; split the hunk")
        lines = split_lines(diff)
        for one in passages:
            number = self._lead + one.end
            if one.old == one.new or any(not part and start for part, start in _sides(one)):
                raise invalid(self._header.place, f"line {number}: the hunk has no line that says where it belongs")
            end = one.end + any(line.startswith(b"\\") for line in lines[one.end : one.end + 1])
            if end < len(lines) and not may_follow(lines[end], self._lead + end + 1 in self._header.lines.values()):
                where = f"line {self._lead + end + 1}"
                raise invalid(self._header.place, f"{where}: the hunk's header counts fewer lines than it has")

    def _places(self, text: Text, lines: list[bytes]) -> list[_Place]:
        places = [self._place(text, lines, passage) for passage in self._passages[text.path]]
        if not _is_in_order(places):
            raise AnchorNotFound(f"{self._header.id}: the hunks of {text.path} are in another order there", _HINT)
        return places

    def _place(self, text: Text, lines: list[bytes], passage: Passage) -> _Place:
        """Return the one place of a hunk: of several the one at its own line, moved as the patches before moved it."""
        undone = [_Place(first, first + len(passage.old), passage.new) for first in _find(lines, passage.old)]
        done = [_Place(first, first + len(passage.new), passage.new) for first in _find(lines, passage.new)]
        # The lines before may be part of the lines after, or these of those: the longer say which it is.
        found = [*_not_within(undone, done), *_not_within(done, undone)]
        if len(found) > 1:
            own = _moved(text, passage.old_start)
            found = [place for place in found if place.first in own] or found
        if len(found) != 1:
            kind, count = (AnchorAmbiguous, f"in {len(found)} places") if found else (AnchorNotFound, "nowhere")
            hunk = f"the hunk of line {passage.old_start + 1}"
            raise kind(f"{self._header.id}: {hunk} of {text.path} fits {count}", _HINT)
        return found[0]


def _sides(passage: Passage) -> tuple[tuple[tuple[bytes, ...], int], ...]:
    return (passage.old, passage.old_start), (passage.new, passage.new_start)


def _not_within(places: list[_Place], others: list[_Place]) -> list[_Place]:
    return [one for one in places if not any(other.first <= one.first and one.end <= other.end for other in others)]


def _is_in_order(places: Sequence[_Place]) -> bool:
    return all(one.end <= other.first for one, other in pairwise(places))


def _splice(lines: list[bytes], places: Sequence[_Place]) -> bytes:
    out, done = [], 0
    for place in places:
        out += [*lines[done : place.first], *place.after]
        done = place.end
    return b"".join([*out, *lines[done:]])


def _find(lines: list[bytes], part: Sequence[bytes]) -> list[int]:
    """Return every place of some lines, as indices from 0; no line at all stands for the whole of an empty file."""
    if not part:
        return [] if lines else [0]
    wanted = list(part)
    return [
        first
        for first in range(len(lines) - len(wanted) + 1)
        if lines[first] == wanted[0] and lines[first : first + len(wanted)] == wanted
    ]


def _moved(text: Text, line: int) -> set[int]:
    """Return where a line of the pristine file is now, from 0: before or after what was added right there."""
    changes = [] if text.pristine is None else changed_lines(text.pristine, text.data)
    before, after = line, line
    for change in changes:
        shift = (change.after[1] - change.after[0]) - (change.before[1] - change.before[0])
        before += shift if change.before[1] <= line else 0
        after += shift if change.before[1] - 1 <= line else 0
    return {before, after}
