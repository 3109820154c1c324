"""``patchkit list``: what the catalog holds."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.options import Options, code_of, run_verb, shared


@click.command("list")
@click.option("--markdown", is_flag=True, help="Print the catalog as a page of Markdown, with its releases.")
@shared
@click.pass_obj
def command(options: Options, markdown: bool) -> int:
    """List the patches of the catalog."""
    if markdown and options.as_json:
        raise click.UsageError("--markdown and --json exclude each other; give one of them")
    return code_of(run_verb(options, "list", actions.show_catalog if markdown else actions.list_patches))
