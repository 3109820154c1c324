"""``patchkit list``: what the catalog holds."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.options import Options, code_of, run_verb, shared


@click.command("list")
@shared
@click.pass_obj
def command(options: Options) -> int:
    """List the patches of the catalog."""
    return code_of(run_verb(options, "list", actions.list_patches))
