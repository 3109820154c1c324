"""``patchkit status``: the state of each patch."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.options import Options, code_of, exit_code_option, names_argument, run_verb, shared, subject


@click.command("status")
@names_argument
@exit_code_option
@shared
@click.pass_obj
def command(options: Options, names: tuple[str, ...], exit_code: bool) -> int:
    """Show the state of each patch."""
    report = run_verb(options, "status", lambda catalog: actions.status(*subject(options, catalog, names)))
    return code_of(report, findings_count=exit_code)
