"""``patchkit diff``: what apply would write."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import actions
from patchkit.catalog import Catalog
from patchkit.errors import TransactionError
from patchkit.manual import Verb
from patchkit.options import (
    Options,
    allow_unlisted_option,
    code_of,
    exit_code_option,
    names_argument,
    run_verb,
    shared,
    subject,
)
from patchkit.report import Report


@click.command(
    "diff",
    cls=Verb,
    exits=("the plan could be made", "it could not; with --exit-code also: a difference or a finding"),
    examples=(
        ("patchkit diff", "what apply would write, patch by patch"),
        ("patchkit diff --stat", "only which files, and by how much"),
        ("patchkit diff kimi_k25_image_token > my.diff", "one patch, for git apply -p1"),
    ),
)
@names_argument
@exit_code_option
@allow_unlisted_option
@click.option("--stat", is_flag=True, help="Show only which files change, and by how much.")
@click.option(
    "--html", type=click.Path(path_type=Path, readable=False), metavar="FILE", help="Write a page with the diffs there."
)
@shared
@click.pass_obj
def command(
    options: Options, names: tuple[str, ...], exit_code: bool, allow_unlisted: bool, stat: bool, html: Path | None
) -> int:
    """Show what apply would write, as one unified diff."""

    def action(catalog: Catalog) -> Report:
        report = actions.diff(*subject(options, catalog, names), allow_unlisted=allow_unlisted)
        if html is not None:
            _write_page(html, report, catalog)
        return report

    report = run_verb(options, "diff", action, show_diff=not (stat or html))
    return 1 if exit_code and report.changes else code_of(report, findings_count=exit_code)


def _write_page(place: Path, report: Report, catalog: Catalog) -> None:
    """Write the page; the diff is then shown there, and its files here."""
    from patchkit.formats.page import draw

    try:
        place.write_bytes(draw(report, catalog.headers).encode("utf-8", "backslashreplace"))
    except OSError as error:
        hint = "name a file in a folder that is there and that you may write to"
        raise TransactionError(f"{place} cannot be written: {error.strerror}", hint) from error
