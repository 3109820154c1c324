"""``patchkit check``: the pre-deploy gate."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.options import Options, code_of, names_argument, run_verb, shared, subject


@click.command("check")
@names_argument
@shared
@click.pass_obj
def command(options: Options, names: tuple[str, ...]) -> int:
    """Fail unless every selected patch is in place and is what Python would load; reads only."""
    return code_of(run_verb(options, "check", lambda catalog: actions.check(*subject(options, catalog, names))))
