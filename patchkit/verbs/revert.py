"""``patchkit revert``: take patches back."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.catalog import Catalog
from patchkit.manual import Verb
from patchkit.options import Options, code_of, dry_run_option, environment_of, names_argument, run_verb, shared
from patchkit.report import Report


@click.command(
    "revert",
    cls=Verb,
    exits=("none of them is applied", "something refused; nothing was written"),
    examples=(
        ("patchkit revert", "everything, to the byte"),
        ("patchkit revert --dry-run", "show what would change"),
        ("patchkit revert kimi_k25_image_token", "one patch; the others stay"),
    ),
)
@names_argument
@dry_run_option
@shared
@click.pass_obj
def command(options: Options, names: tuple[str, ...], dry_run: bool) -> int:
    """Take the selected patches back; without names, every patch."""

    def action(catalog: Catalog) -> Report:
        return actions.revert(catalog, environment_of(options, catalog), names, dry_run=dry_run)

    return code_of(run_verb(options, "revert", action, show_diff=dry_run))
