"""``patchkit completion``: the script for a shell."""

from __future__ import annotations

import click

from patchkit.completion import SHELLS, script
from patchkit.manual import Verb
from patchkit.runner.extra import missing


@click.command(
    "completion",
    cls=Verb,
    exits=("always",),
    examples=(
        ("patchkit completion bash > ~/.patchkit.bash", "with the line `. ~/.patchkit.bash` in ~/.bashrc"),
        ("patchkit completion zsh > ~/.patchkit.zsh", "with the line `. ~/.patchkit.zsh` in ~/.zshrc, after compinit"),
        ("patchkit completion fish > ~/.config/fish/conf.d/patchkit.fish", "fish finds it by itself"),
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script by which a shell completes the words.

    It completes verbs, options, names of the catalog (of --catalog, where that stands before them) and files; for
    `patchkit` and, where its extra is installed, for `patchkit-serve`. The next shell that is started reads it.
    """
    programs = ("patchkit",) if missing() else ("patchkit", "patchkit-serve")
    for program in programs:
        click.echo(script(program, shell))
