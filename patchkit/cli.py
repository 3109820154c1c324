"""The command line of ``patchkit``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from patchkit import boundary
from patchkit.options import shared

VERBS = ("list", "status", "diff", "apply", "revert", "check", "explain", "preflight", "new", "digests")
"""In the order of the help; each is a module of ``patchkit.verbs`` with a ``command``."""


class _Verbs(click.Group):
    """A group that loads a verb's module only when the verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"patchkit.verbs.{cmd_name}").command
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@shared
@click.version_option(package_name="patchkit", prog_name="patchkit")
def cli() -> None:
    """Patch the installed source of vLLM and speculators, and prove it.

    Names are patches or sets of the catalog; without names the default sets are meant.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return boundary.run(cli, "patchkit", arguments)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run())
