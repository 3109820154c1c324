"""``patchkit statement``: what was changed, for a bill of materials."""

from __future__ import annotations

import click

from patchkit import statement
from patchkit.catalog import Catalog
from patchkit.options import Options, code_of, environment_of, run_verb, shared
from patchkit.report import Report


@click.command("statement")
@shared
@click.pass_obj
def command(options: Options) -> int:
    """Print as CycloneDX what was changed in which distribution, for an image's bill of materials."""

    def action(catalog: Catalog) -> Report:
        return statement.state(catalog, environment_of(options, catalog))

    return code_of(run_verb(options, "statement", action, show_diff=True))
