"""``patchkit record``: edits made by hand become a patch."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.catalog import Catalog
from patchkit.manual import Verb
from patchkit.options import Options, code_of, environment_of, run_verb, shared
from patchkit.report import Report

_PLACE = click.Path(path_type=Path, readable=False)


@click.command(
    "record",
    cls=Verb,
    exits=("every edit is of a Python file, and nothing else differs", "something else differs or is in the way"),
    examples=(
        ("patchkit record", "show what was edited by hand"),
        ("patchkit record -o team --id our_fix", "make a patch of it"),
        ("patchkit record --adopt --catalog team", "take it over into the journal"),
    ),
)
@click.argument("distribution", required=False)
@click.option(
    "--wheel", type=_PLACE, metavar="FILE", help="The wheel of what is installed (default: pip downloads it)."
)
@click.option("-o", "--write", "folder", type=_PLACE, metavar="DIR", help="Write a patch into a catalog folder.")
@click.option("--id", "patch_id", metavar="ID", help="Id of the patch that is written.")
@click.option("--title", default="", metavar="TEXT", help="What becomes true, in one sentence.")
@click.option("--reason", default="", metavar="TEXT", help="Why the code is edited.")
@click.option("--symptom", default="", metavar="TEXT", help="Shortest stable part of the error that the edit cures.")
@click.option("--adopt", is_flag=True, help="Take over into the journal what the catalog's patches would have written.")
@shared
@click.pass_obj
def command(
    options: Options,
    distribution: str | None,
    wheel: Path | None,
    folder: Path | None,
    patch_id: str | None,
    title: str,
    reason: str,
    symptom: str,
    adopt: bool,
) -> int:
    """Make a patch of what was edited by hand.

    Each installed file is compared with RECORD, and what it was is taken from the wheel of that release.
    """
    from patchkit import adoption, recorder
    from patchkit.recording import Words
    from patchkit.subject import find_subject

    if adopt and folder is not None:
        raise click.UsageError(
            "--adopt and --write exclude each other: write the patch, then adopt it from its --catalog"
        )
    if folder is not None and patch_id is None:
        raise click.UsageError("--write needs --id: the name of the patch, in snake_case")
    if patch_id is not None and not (patch_id.isidentifier() and patch_id.islower()):
        raise click.UsageError(f"--id {patch_id!r} must be snake_case")
    words = Words(patch_id, title, reason, symptom) if patch_id else None

    def action(catalog: Catalog) -> Report:
        subject = find_subject(catalog, environment_of(options, catalog), distribution, wheel)
        return adoption.adopt(subject) if adopt else recorder.record(subject, words, folder)

    return code_of(run_verb(options, "record", action, show_diff=not adopt))
