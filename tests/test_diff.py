from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from patchkit.diff import Hunk, apply_diff, changed_lines, prove, split_lines, unified_diff
from patchkit.errors import RewriteUnsound

NUMBERS = b"".join(b"%d\n" % number for number in range(1, 31))
PAIRS = {
    "one line": (b"a\nb\nc\n", b"a\nB\nc\n"),
    "line added": (b"a\nb\n", b"a\nx\nb\n"),
    "line removed": (b"a\nx\nb\n", b"a\nb\n"),
    "at both ends": (NUMBERS, b"0\n" + NUMBERS + b"31\n"),
    "far apart": (NUMBERS, NUMBERS.replace(b"\n5\n", b"\nfive\n").replace(b"\n25\n", b"\n")),
    "repeated lines": (b"x\n" * 9, b"x\n" * 7),
    "from nothing": (b"", b"a\nb\n"),
    "to nothing": (b"a\nb\n", b""),
    "final newline added": (b"a\nb", b"a\nb\n"),
    "final newline removed": (b"a\nb\n", b"a\nb"),
    "no final newline": (b"a\nb", b"a\nc"),
    "no final newline in the context": (b"a\nb", b"c\nb"),
    "CRLF": (b"a\r\nb\r\n", b"a\r\nc\r\n"),
    "to LF": (b"a\r\nb\r\n", b"a\nb\n"),
    "carriage return alone": (b"a\rb\n\r\nc\r", b"a\rb\n\r\nd\r"),
    "form feed": (b"\x0c\na\x0cb\n", b"\x0c\nx\x0cb\n"),
    "line ends of Unicode": (
        "\x85\u2028\u2029\x1c\x1d\x1e\x0b\na\n".encode(),
        "\x85\u2028\u2029\x1c\n\x0bb\n".encode(),
    ),
    "latin-1": (b"\x85\xe9\n\xa0\n", b"\x85\xff\n\xa0\n"),
    "NUL": (b"\0\n", b"\0\0\n"),
    "lines like headers": (b"-- a/x\n++ b/x\n@@ -1 +1 @@\n", b"-- a/y\n++ b/y\n@@ -1 +1 @@\ndiff --git a/a b/b\n"),
    "lines like the mark": (b"\\ No newline at end of file\nx\n", b"\\ No newline at end of file\ny"),
    "blanks": (b" \n\n\t\n", b"  \n\n\t\n\n"),
}


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a\n"]),
        (b"\n\nb", [b"\n", b"\n", b"b"]),
        (b"a\rb\x0c\x85c\r\n", [b"a\rb\x0c\x85c\r\n"]),
    ],
)
def test_lines_end_at_line_feeds(data: bytes, lines: list[bytes]) -> None:
    assert split_lines(data) == lines


def test_diff_in_full() -> None:
    before = NUMBERS.replace(b"\n30\n", b"\n30")
    after = before.replace(b"\n5\n", b"\nfive\n").replace(b"\n20\n", b"\n20\n20a\n20b\n").replace(b"\n30", b"\nend\n")
    assert unified_diff("engine/core.py", before, after).decode() == (
        "diff --git a/engine/core.py b/engine/core.py\n--- a/engine/core.py\n+++ b/engine/core.py\n"
        "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
        "@@ -18,6 +18,8 @@\n 18\n 19\n 20\n+20a\n+20b\n 21\n 22\n 23\n"
        "@@ -27,4 +29,4 @@\n 27\n 28\n 29\n-30\n\\ No newline at end of file\n+end\n"
    )


@pytest.mark.parametrize(
    ("before", "after", "span"),
    [
        (b"", b"a\n", "@@ -0,0 +1 @@"),
        (b"a\n", b"", "@@ -1 +0,0 @@"),
        (b"a\n", b"b\nc\n", "@@ -1 +1,2 @@"),
    ],
)
def test_spans_of_short_files(before: bytes, after: bytes, span: str) -> None:
    assert unified_diff("a.py", before, after).decode().splitlines()[3] == span


@pytest.mark.parametrize("data", [b"", b"a", NUMBERS])
def test_nothing_differs(data: bytes) -> None:
    assert unified_diff("a.py", data, data) == b""
    assert changed_lines(data, data) == []
    prove(b"", data, data)


@pytest.mark.parametrize(("before", "after"), PAIRS.values(), ids=PAIRS)
def test_diff_is_exact_both_ways(before: bytes, after: bytes) -> None:
    for old, new in ((before, after), (after, before)):
        diff = unified_diff("engine/core.py", old, new)
        prove(diff, old, new)
        assert apply_diff(diff, old) == new
        assert apply_diff(diff, new, reverse=True) == old


@pytest.mark.parametrize(("before", "after"), PAIRS.values(), ids=PAIRS)
def test_git_takes_the_diff(tmp_path: Path, before: bytes, after: bytes) -> None:
    place = tmp_path / "engine" / "co re.py"
    place.parent.mkdir()
    place.write_bytes(before)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, capture_output=True)
    diff = unified_diff("engine/co re.py", before, after)
    subprocess.run(["git", "apply", "-p1"], input=diff, cwd=tmp_path, check=True, capture_output=True)
    assert place.read_bytes() == after


@pytest.mark.parametrize(
    ("before", "after", "hunks"),
    [
        (b"a\nb\nc\n", b"a\nB\nc\n", [Hunk((2, 3), (2, 3))]),
        (b"a\nb\n", b"a\nx\ny\nb\n", [Hunk((2, 2), (2, 4))]),
        (b"a\nx\nb\n", b"a\nb\n", [Hunk((2, 3), (2, 2))]),
        (b"", b"a\n", [Hunk((1, 1), (1, 2))]),
        (b"a", b"a\n", [Hunk((1, 2), (1, 2))]),
        (
            NUMBERS,
            NUMBERS.replace(b"\n5\n", b"\n5\n5a\n").replace(b"\n25\n", b"\n"),
            [Hunk((6, 6), (6, 7)), Hunk((25, 26), (26, 26))],
        ),
    ],
    ids=["changed", "added", "removed", "from nothing", "final newline", "two places"],
)
def test_changed_lines(before: bytes, after: bytes, hunks: list[Hunk]) -> None:
    assert changed_lines(before, after) == hunks


BEFORE, AFTER = PAIRS["one line"]
DIFF = unified_diff("a.py", BEFORE, AFTER)


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        (b"", "does not lead from the file to its rewrite and back"),
        (b"text\n", "does not lead from the file to its rewrite and back"),
        (DIFF.replace(b"+B", b"+C"), "does not lead from the file to its rewrite"),
        (DIFF.replace(b"-b", b"-x"), "the diff does not fit at line 1"),
        (DIFF.replace(b" a\n", b" x\n"), "the diff does not fit at line 1"),
        (DIFF.replace(b"-1,3 +1,3", b"-2,3 +2,3"), "the diff does not fit at line 2"),
        (DIFF.replace(b"-1,3 +1,3", b"-1,9 +1,9"), "the diff cannot be read back: "),
        (DIFF[DIFF.index(b"@@") :], "the diff cannot be read back: "),
        (DIFF + DIFF[DIFF.index(b"@@") :], "the diff does not fit at line 1"),
        (DIFF.replace(b" c\n", b" c\n\\ No newline at end of file\n"), "the diff does not fit at line 1"),
    ],
    ids=[
        "empty",
        "no diff",
        "other result",
        "other line removed",
        "other context",
        "elsewhere",
        "truncated",
        "no header",
        "one place twice",
        "no final newline",
    ],
)
def test_diff_that_proves_nothing(diff: bytes, words: str) -> None:
    with pytest.raises(RewriteUnsound, match=words):
        prove(diff, BEFORE, AFTER)


def test_diff_that_does_not_lead_back() -> None:
    diff = b"--- a/a.py\n+++ b/a.py\n@@ -1,1 +2,1 @@\n-a\n+b\n"
    assert apply_diff(diff, b"a\n") == b"b\n"
    with pytest.raises(RewriteUnsound, match="does not fit at line 2"):
        prove(diff, b"a\n", b"b\n")
