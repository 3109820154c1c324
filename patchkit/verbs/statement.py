"""``patchkit statement``: what was changed, for a bill of materials."""

from __future__ import annotations

import click

from patchkit import statement
from patchkit.catalog import Catalog
from patchkit.manual import Verb
from patchkit.options import Options, code_of, environment_of, run_verb, shared
from patchkit.report import Report


@click.command(
    "statement",
    cls=Verb,
    exits=("all of it is explained", "something is not, and nothing is stated"),
    examples=(
        ("patchkit statement > patches.cdx.json", "in an image's build"),
        ("patchkit --root /mnt/image statement", "of an image that is not run"),
    ),
)
@shared
@click.pass_obj
def command(options: Options) -> int:
    """Print what was changed in which distribution, as CycloneDX.

    It is for an image's bill of materials. SOURCE_DATE_EPOCH gives it a time.
    """

    def action(catalog: Catalog) -> Report:
        return statement.state(catalog, environment_of(options, catalog))

    return code_of(run_verb(options, "statement", action, show_diff=True))
