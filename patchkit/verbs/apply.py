"""``patchkit apply``: make patches applied."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.catalog import Catalog
from patchkit.manual import Verb
from patchkit.options import (
    Options,
    allow_unlisted_option,
    code_of,
    dry_run_option,
    names_argument,
    run_verb,
    shared,
    subject,
)
from patchkit.report import Report


@click.command(
    "apply",
    cls=Verb,
    exits=("all selected are applied or upstream", "something refused; nothing was written"),
    examples=(
        ("patchkit apply", "the default sets"),
        ("patchkit apply --dry-run kimi-k25-serve", "show what one set would change"),
        ("patchkit --python /opt/venv/bin/python apply", "into another environment"),
    ),
)
@names_argument
@allow_unlisted_option
@dry_run_option
@shared
@click.pass_obj
def command(options: Options, names: tuple[str, ...], allow_unlisted: bool, dry_run: bool) -> int:
    """Make the selected patches applied, all of them or none."""

    def action(catalog: Catalog) -> Report:
        return actions.apply(*subject(options, catalog, names), allow_unlisted=allow_unlisted, dry_run=dry_run)

    return code_of(run_verb(options, "apply", action, show_diff=dry_run))
