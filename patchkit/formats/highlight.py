"""Source as HTML, line by line: coloured, with the words that changed, and never taken for markup."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from html import escape

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from patchkit.screen import printable

Span = tuple[int, int]
"""First character, counted from 0, and the one after the last."""

_CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "d"),
    (Name.Builtin, "b"),
)
_MOST = 1_000_000
"""Length of a file, in characters, up to which it is coloured."""
_LONGEST = 400
"""Length of a line, in characters, up to which its words are compared."""
_ALIKE = 0.4
"""How much of two lines must be the same before single words are marked."""


def highlight(data: bytes) -> list[list[tuple[str, str]]]:
    """Return the lines of a file as pieces of text, each with a class of the style sheet or none."""
    text = data.decode("utf-8", "backslashreplace")
    lines: list[list[tuple[str, str]]] = [[]]
    for style, value in _tokens(text):
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append((style, printable(part)))
    return lines


def to_html(pieces: list[tuple[str, str]], marks: list[Span]) -> str:
    """Return a line; ``marks`` are the characters that changed."""
    out, start = [], 0
    for style, text in pieces:
        for part, is_marked in _cut_at(text, start, marks):
            inner = f"<mark>{escape(part)}</mark>" if is_marked else escape(part)
            out.append(f'<i class="{style}">{inner}</i>' if style else inner)
        start += len(text)
    return "".join(out)


def changed_words(before: str, after: str) -> tuple[list[Span], list[Span]]:
    """Return the characters of two lines that differ, by whole words; none where hardly anything is the same."""
    if max(len(before), len(after)) > _LONGEST:
        return [], []
    old, new = _words(before), _words(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same = sum(len("".join(old[block.a : block.a + block.size]).strip()) for block in matcher.get_matching_blocks())
    if same < _ALIKE * max(len(before.strip()), len(after.strip())):
        return [], []
    spans: tuple[list[Span], list[Span]] = ([], [])
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            for side, words, low, high in ((0, old, i1, i2), (1, new, j1, j2)):
                start = len("".join(words[:low]))
                if low < high:
                    spans[side].append((start, start + len("".join(words[low:high]))))
    return spans


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    if len(text) > _MOST:
        yield "", text
        return
    # Unprocessed, since the lexer would make line feeds of carriage returns and lose count of the lines.
    for _, kind, value in PythonLexer().get_tokens_unprocessed(text):
        yield next((style for parent, style in _CLASSES if kind in parent), ""), value


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", text)


def _cut_at(text: str, start: int, marks: list[Span]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a piece of text that begins at a character of its line."""
    done = 0
    for low, high in marks:
        first, last = max(low - start, done), min(high - start, len(text))
        if first < last:
            if done < first:
                yield text[done:first], False
            yield text[first:last], True
            done = last
    if done < len(text):
        yield text[done:], False
