"""``patchkit status``: the state of each patch."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.manual import Verb
from patchkit.options import Options, code_of, exit_code_option, names_argument, run_verb, shared, subject


@click.command(
    "status",
    cls=Verb,
    exits=("the tree could be examined", "it could not; with --exit-code also: a finding"),
    examples=(
        ("patchkit status", "the state of every patch here"),
        ("patchkit status kimi-k25-serve", "of the patches of one set"),
        ("patchkit --root /mnt/image status --json", "of a mounted image, for a program"),
    ),
)
@names_argument
@exit_code_option
@shared
@click.pass_obj
def command(options: Options, names: tuple[str, ...], exit_code: bool) -> int:
    """Show the state of each patch."""
    report = run_verb(options, "status", lambda catalog: actions.status(*subject(options, catalog, names)))
    return code_of(report, findings_count=exit_code)
