"""Lines of source as HTML."""

from __future__ import annotations

import pytest

from patchkit.formats.highlight import changed_words, highlight, to_html
from tests.trees import ENGINE


def texts(data: bytes) -> list[str]:
    return ["".join(text for _, text in line) for line in highlight(data)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", [""]),
        (b"a = 1\n", ["a = 1", ""]),
        (b"\n\na = 1", ["", "", "a = 1"]),
        (b"a = 1\r\nb = 2\r\n", ["a = 1\\r", "b = 2\\r", ""]),
        (b"a\rb\n", ["a\\rb", ""]),
        (b"'''x\n\n y'''\n", ["'''x", "", " y'''", ""]),
        (b"\xef\xbb\xbfa\n", ["\\ufeffa", ""]),
        (b"# \xff \x1b[2J\n", ["# \\xff \\x1b[2J", ""]),
        (b"no python ?? $$ '\n", ["no python ?? $$ '", ""]),
        (b"a" * 1_000_001 + b"\nif 1", ["a" * 1_000_001, "if 1"]),
    ],
)
def test_lines_are_those_of_the_diff(data: bytes, lines: list[str]) -> None:
    assert texts(data) == lines


def test_words_of_the_language_are_coloured() -> None:
    styles = {text: style for line in highlight(ENGINE.encode()) for style, text in line}
    assert (styles["class"], styles["Engine"], styles["start"], styles["None"]) == ("k", "f", "f", "k")
    assert [style for style, _ in highlight(b"x" * 1_000_001)[0]] == [""]


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("return a(b)", "return c(b)", ["a"], ["c"]),
        ("if not x:", "if x:", [" not"], []),
        ("call(a)", "call(a, b=1)", [], [", b=1"]),
        ("return None", "models = [1, 2]", [], []),
        ("a" * 1001, "a" * 1000 + "b", [], []),
        ("", "", [], []),
    ],
)
def test_changed_words(before: str, after: str, old: list[str], new: list[str]) -> None:
    marks = changed_words(before, after)
    found = [
        ["".join(line[low:high] for low, high in [span]) for span in spans]
        for line, spans in zip((before, after), marks)
    ]
    assert ["".join(one) for one in found] == ["".join(old), "".join(new)]


def test_marks_lie_inside_and_across_pieces_and_nothing_is_markup() -> None:
    pieces = [("k", "if"), ("", " <b>&"), ("s", '"x"')]
    assert to_html(pieces, []) == '<i class="k">if</i> &lt;b&gt;&amp;<i class="s">&quot;x&quot;</i>'
    assert to_html(pieces, [(1, 4), (8, 9)]) == (
        '<i class="k">i</i><i class="k"><mark>f</mark></i><mark> &lt;</mark>b&gt;&amp;'
        '<i class="s">&quot;</i><i class="s"><mark>x</mark></i><i class="s">&quot;</i>'
    )
