"""Diffs side by side."""

from __future__ import annotations

import re

import pytest

from patchkit.formats.sides import count, draw_diff


def rows(page: str) -> list[tuple[str, int, int]]:
    """Return the lines of a diff: kind, row and number."""
    found = re.findall(r'class="line ([a-z ]+)" style="--r:(\d+)" data-n="(\d+)"', page)
    return [(kind, int(row), int(number)) for kind, row, number in found]


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_changed_line_stands_beside_what_it_becomes() -> None:
    page = draw_diff(text("a = 1", "b = 2", "c = 3"), text("a = 1", "b = 4", "c = 3"))
    assert rows(page) == [
        ("ctx", 1, 1),
        ("ctx new", 1, 1),
        ("del", 2, 2),
        ("ins", 2, 2),
        ("ctx", 3, 3),
        ("ctx new", 3, 3),
    ]
    assert page.count("<mark>") == 2
    assert page.count('aria-hidden="true"') == 2


def test_lines_alike_are_paired_wherever_they_stand_in_the_run() -> None:
    page = draw_diff(text("x", "call(one, two)", "y"), text("x", "# why", "when = ready()", "call(one, three)", "y"))
    changed = [row for row in rows(page) if row[0] in ("del", "ins")]
    assert changed == [("del", 4, 2), ("ins", 2, 2), ("ins", 3, 3), ("ins", 4, 4)]


def test_lines_unlike_stand_side_by_side_without_marks() -> None:
    page = draw_diff(text("alpha()", "beta()"), text("while True: pass"))
    assert rows(page) == [("del", 1, 1), ("del", 2, 2), ("ins", 1, 1)]
    assert "<mark>" not in page


def test_long_run_is_paired_by_position() -> None:
    page = draw_diff(text(*(f"a{n} = 0" for n in range(60))), text(*(f"a{n} = 1" for n in range(60))))
    assert rows(page)[0] == ("del", 1, 1)
    assert rows(page)[60] == ("ins", 1, 1)
    assert " open>" in page


def test_huge_diff_is_folded() -> None:
    page = draw_diff(b"", text(*(f"a{n} = 0" for n in range(1000))))
    assert page.startswith('<details class="diff"><summary>1 place: line 1</summary>')
    assert len(rows(page)) == 1000


def test_summary_names_the_first_places() -> None:
    before = [str(n) for n in range(200)]
    after = [line + "x" if int(line) % 30 == 10 else line for line in before]
    assert "<summary>7 places: line 8, line 38, line 68, line 98 and 3 more</summary>" in draw_diff(
        text(*before), text(*after)
    )


@pytest.mark.parametrize(
    ("before", "after", "counts"), [(b"", b"a\n", (1, 0)), (b"a\n", b"b\nc\n", (2, 1)), (b"a", b"a", (0, 0))]
)
def test_count(before: bytes, after: bytes, counts: tuple[int, int]) -> None:
    assert count(before, after) == counts
