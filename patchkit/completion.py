"""What a shell may offer for the word that is being typed, and the script by which it asks."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

from patchkit.catalog import bundled_catalog, load_catalog
from patchkit.errors import PatchkitError

SHELLS = ("bash", "zsh", "fish")


@add_completion_class
class _Bash(BashComplete):
    """Take ``--catalog=DIR``, which bash splits at the sign, for an option and its value."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        return [word for word in args if word != "="], incomplete


def names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the sets and patches of the catalog that is meant; nothing where it cannot be read."""
    given = ctx.params.get("catalog") or getattr(ctx.obj, "catalog", None)
    try:
        # The shell has expanded nothing yet.
        catalog = load_catalog(Path(given).expanduser() if given else bundled_catalog())
    except (PatchkitError, RuntimeError):
        return []
    titles = {one.name: one.title for one in catalog.targets.sets.values()}
    titles.update((one.id, one.title) for one in catalog.headers.values())
    taken = ctx.params.get(param.name or "") or ()
    return [
        CompletionItem(name, help=title)
        for name, title in titles.items()
        if name.startswith(incomplete) and name not in taken
    ]


def files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Leave it to the shell to offer files and folders."""
    return [CompletionItem(incomplete, type="file")]


def folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Leave it to the shell to offer folders."""
    return [CompletionItem(incomplete, type="dir")]


def variable(program: str) -> str:
    """Return the variable by which a shell's script asks a program."""
    return f"_{program.replace('-', '_')}_complete".upper()


def script(program: str, shell: str) -> str:
    """Return the script that a shell reads once, so that it asks a program from then on."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click has no completion for {shell}"
    source = kind(click.Command(program), {}, program, variable(program)).source()
    # Click's scripts let errors through to the prompt, and fish's cuts a description at its first comma.
    source = re.sub(rf"(_complete .*(?:\$1|{re.escape(program)}))\)", r"\1 2>/dev/null)", source)
    return source.replace('string split ","', 'string split --max 1 ","')
