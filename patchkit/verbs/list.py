"""``patchkit list``: what the catalog holds."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.manual import Verb
from patchkit.options import Options, code_of, run_verb, shared


@click.command(
    "list",
    cls=Verb,
    exits=("always, where the catalog can be read", "it cannot be read"),
    examples=(
        ("patchkit list", "every patch, what it cures, where it stands upstream"),
        ("patchkit list --catalog ./catalog", "the patches of another catalog"),
        ("patchkit list --markdown > catalog.md", "a page with what becomes of each patch in each release"),
    ),
)
@click.option("--markdown", is_flag=True, help="Print the catalog as a page of Markdown, with its releases.")
@shared
@click.pass_obj
def command(options: Options, markdown: bool) -> int:
    """Show what the catalog holds."""
    if markdown and options.form:
        raise click.UsageError("--markdown and --json exclude each other; give one of them")
    return code_of(run_verb(options, "list", actions.show_catalog if markdown else actions.list_patches))
