"""The blanks of a new patch: what its author has still to fill in."""

from __future__ import annotations

import re

_BLANK = re.compile(r"<fill in: ([^<>\n]+)>")


def blank(words: str) -> str:
    """Return a blank; the words say what goes there."""
    return f"<fill in: {words}>"


def find_blanks(source: bytes) -> tuple[tuple[int, str], ...]:
    """Return the blanks that are left in a file, each after its line."""
    if b"<fill in: " not in source:
        return ()
    lines = enumerate(source.decode("utf-8", "replace").splitlines(), start=1)
    return tuple((number, words) for number, line in lines for words in _BLANK.findall(line))
