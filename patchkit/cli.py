"""The command line of ``patchkit``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from patchkit import boundary
from patchkit.options import shared

GROUPS = {
    "Look": ("list", "status", "diff", "statement"),
    "Change": ("apply", "revert", "wheel"),
    "Gate": ("check", "preflight"),
    "Many nodes": ("fleet",),
    "Diagnose": ("explain",),
    "For catalog authors": ("new", "record", "digests"),
    "For the shell": ("completion",),
}
"""The verbs as the help shows them; each is a module of ``patchkit.verbs`` with a ``command``."""
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)


class _Verbs(click.Group):
    """A group that loads a verb's module only when the verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"patchkit.verbs.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs by what they are for, each with its first line whole."""
        for title, verbs in GROUPS.items():
            commands = {verb: self.get_command(ctx, verb) for verb in verbs}
            with formatter.section(title):
                formatter.write_dl([(verb, found.get_short_help_str()) for verb, found in commands.items() if found])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@shared
@click.version_option(package_name="patchkit", prog_name="patchkit")
def cli() -> None:
    """Patch the installed source of vLLM and speculators, and prove it.

    PATCH and SET are names of the catalog; without names the default sets are meant. The options may stand before the
    verb or after it. `patchkit VERB --help` has examples.

    Exit codes: 0 as asked, 1 a finding or a refusal, 2 wrong usage, 3 a defect of patchkit, 130 interrupted.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return boundary.run(cli, "patchkit", arguments)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run())
