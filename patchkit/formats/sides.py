"""A diff as HTML: before and after side by side, one below the other where the page is narrow."""

from __future__ import annotations

import difflib
from itertools import zip_longest

from patchkit.diff import Opcode, changed_lines, grouped_opcodes, split_lines
from patchkit.formats.highlight import Span, changed_words, highlight, to_html

_PAIRED = 40
"""How many lines a changed run may have for its lines to be paired by likeness and not by position."""
_ALIKE = 0.5
_FOLDED = 400
"""How many lines a diff may have that is shown unfolded."""

Line = list[tuple[str, str]]
Pair = tuple[int | None, int | None]
"""A row: the number of the line before and after, counted from 0; None where a side has none."""


def count(before: bytes, after: bytes) -> tuple[int, int]:
    """Return how many lines were added and removed."""
    hunks = changed_lines(before, after)
    added = sum(hunk.after[1] - hunk.after[0] for hunk in hunks)
    return added, sum(hunk.before[1] - hunk.before[0] for hunk in hunks)


def draw_diff(before: bytes, after: bytes) -> str:
    """Return the hunks; many of them are folded, so that a page with a huge diff opens at once."""
    old, new = split_lines(before), split_lines(after)
    sides = highlight(before), highlight(after)
    groups = grouped_opcodes(old, new)
    body = "".join(_hunk(group, *sides) for group in groups)
    lines = sum(group[-1][4] - group[0][3] + group[-1][2] - group[0][1] for group in groups)
    is_open = "" if lines > 2 * _FOLDED else " open"
    return f'<details class="diff"{is_open}><summary>{_span(groups)}</summary>{body}</details>'


def _span(groups: list[list[Opcode]]) -> str:
    places = [f"line {group[0][3] + 1}" for group in groups[:4]]
    more = f" and {len(groups) - 4} more" if len(groups) > 4 else ""
    return f"{len(groups)} place{'s' if len(groups) != 1 else ''}: {', '.join(places)}{more}"


def _hunk(group: list[Opcode], old: list[Line], new: list[Line]) -> str:
    out, row = [], 1
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            pairs: list[Pair] = [*zip(range(i1, i2), range(j1, j2))]
            out += [_line("ctx", row + n, i, old[i], []) for n, (i, _) in enumerate(pairs) if i is not None]
            out += [_line("ctx new", row + n, j, new[j], []) for n, (_, j) in enumerate(pairs) if j is not None]
        else:
            pairs = _pairs(old, new, (i1, i2), (j1, j2))
            marks = [_marks(old, new, pair) for pair in pairs]
            for n, (i, _) in enumerate(pairs):
                if i is not None:
                    out.append(_line("del", row + n, i, old[i], marks[n][0]))
            for n, (_, j) in enumerate(pairs):
                if j is not None:
                    out.append(_line("ins", row + n, j, new[j], marks[n][1]))
        row += len(pairs)
    return f'<div class="hunk">{"".join(out)}</div>'


def _line(kind: str, row: int, number: int, pieces: Line, marks: list[Span]) -> str:
    tag = kind if kind in ("del", "ins") else "div"
    # A second copy of an unchanged line is for the eye only.
    hidden = ' aria-hidden="true"' if kind == "ctx new" else ""
    code = to_html(pieces, marks)
    return f'<{tag} class="line {kind}" style="--r:{row}" data-n="{number + 1}"{hidden}><code>{code}</code></{tag}>'


def _marks(old: list[Line], new: list[Line], pair: Pair) -> tuple[list[Span], list[Span]]:
    i, j = pair
    if i is None or j is None:
        return [], []
    return changed_words(_text(old[i]), _text(new[j]))


def _text(pieces: Line) -> str:
    return "".join(text for _, text in pieces)


def _pairs(old: list[Line], new: list[Line], before: Span, after: Span) -> list[Pair]:
    """Return the rows of a changed run: like beside like, in order."""
    if before[1] - before[0] > _PAIRED or after[1] - after[0] > _PAIRED:
        return [*zip_longest(range(*before), range(*after))]
    rows: list[Pair] = []
    i, j = before[0], after[0]
    for one, other in _alike(old, new, before, after):
        rows += [*zip_longest(range(i, one), range(j, other)), (one, other)]
        i, j = one + 1, other + 1
    return [*rows, *zip_longest(range(i, before[1]), range(j, after[1]))]


def _alike(old: list[Line], new: list[Line], before: Span, after: Span) -> list[tuple[int, int]]:
    """Return the pairs of lines, in order, that are most alike together."""
    best: list[list[tuple[float, list[tuple[int, int]]]]] = [[(0.0, [])] * (after[1] - after[0] + 1)]
    for i in range(*before):
        row: list[tuple[float, list[tuple[int, int]]]] = [(0.0, [])]
        for column, j in enumerate(range(*after)):
            ratio = _likeness(_text(old[i]).strip(), _text(new[j]).strip())
            choices = [best[-1][column + 1], row[column]]
            if ratio >= _ALIKE:
                score, pairs = best[-1][column]
                choices.append((score + ratio, [*pairs, (i, j)]))
            row.append(max(choices, key=lambda choice: choice[0]))
        best.append(row)
    return best[-1][-1][1]


def _likeness(before: str, after: str) -> float:
    matcher = difflib.SequenceMatcher(None, before[:200], after[:200], autojunk=False)
    return 0.0 if matcher.quick_ratio() < _ALIKE else matcher.ratio()
