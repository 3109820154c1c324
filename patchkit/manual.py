"""The help of a verb: what it does, what its exit codes mean, and lines to copy."""

from __future__ import annotations

from typing import Any

import click


class Verb(click.Command):
    """A command whose help ends with exit codes and examples."""

    def __init__(self, *args: Any, exits: tuple[str, ...], examples: tuple[tuple[str, str], ...], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.exits = exits
        """What the exit codes 0, 1, … mean."""
        self.examples = examples
        """Command lines, and what each is for."""

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first line of the help whole, however long a list would like it."""
        return (self.help or "").partition("\n")[0]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes and the examples, each on lines of its own."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in enumerate(self.exits)])
        with formatter.section("Examples"):
            for line, purpose in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")  # never wrapped: it is to be copied
                with formatter.indentation():
                    formatter.write_text(purpose)
