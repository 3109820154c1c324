"""Text on a stream: plain where it is piped, coloured where it is read on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {
    "applied": "green",
    "upstream": "green",
    "pass": "green",
    "agrees": "green",
    "written": "green",
    "nothing-to-do": "green",
    "pristine": "yellow",
    "stale": "yellow",
    "unknown": "yellow",
    "unpatched": "yellow",
    "planned": "yellow",
    "as-before": "yellow",
    "not-installed": "dim",
    "not-applicable": "dim",
    "foreign": "red",
    "conflict": "red",
    "missing": "red",
    "fail": "red",
    "differs": "red",
    "refused": "red",
    "lost": "red",
}
"""Colours of the words that stand alone in a cell."""


_SHOWN = 1000
"""How much of a text is shown, in characters."""


def printable(text: str) -> str:
    """Return text with control characters spelt out, so that none reaches a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """Return text spelt out on one line, so that no name of a file passes for a line of a report."""
    return printable(text).replace("\n", "\\n")


def problem(code: str, message: str, hint: str) -> str:
    """Return the lines of a problem; whatever it names, no other line begins like one of ours."""
    texts = (f"{code}: {message}", f"    {hint}" if hint else "")
    return "".join(printable(text).replace("\n", "\n    ") + "\n" for text in texts if text)


def cut(text: str) -> str:
    """Return a text short enough to be read; a hostile model can make it of any length."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class Screen:
    """Writes lines, tables and trees; no text is ever taken for markup."""

    def __init__(self, out: TextIO, *, is_terminal: bool) -> None:
        self.out, self.is_terminal = out, is_terminal

    def line(self, text: str, style: str = "") -> None:
        """Write a line."""
        if not self.is_terminal:
            self.out.write(f"{one_line(text)}\n")
            return
        from rich.text import Text  # which takes neither markup nor :emoji: names for anything but text

        self._console().print(Text(one_line(text), style=style), soft_wrap=True)

    def table(self, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        """Write a table."""
        if self.is_terminal:
            self._console().print(_rich_table(head, rows))
            return
        head, *rows = (tuple(map(one_line, row)) for row in (head, *rows))
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        for row in (head, *rows):
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())

    def chain(self, labels: Sequence[str]) -> None:
        """Write a way from the first label to the last: as a tree on a terminal, else in one line."""
        if not self.is_terminal:
            self.line(" → ".join(labels))
            return
        from rich.text import Text
        from rich.tree import Tree

        tree = branch = Tree(Text(one_line(labels[0]), style="bold"))
        for label in labels[1:]:
            branch = branch.add(Text(one_line(label)))
        self._console().print(tree)

    def _console(self) -> Console:
        from rich.console import Console

        return Console(file=self.out)


def _rich_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell), style=_STYLES.get(cell, "")) for cell in row))
    return table
