"""``patchkit new``: a patch to fill in."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from patchkit import authoring
from patchkit.manual import Verb
from patchkit.options import Options, code_of, environment_of, shared, show_report
from patchkit.paths import is_safe
from patchkit.report import Report

_ID = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def _id(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not _ID.fullmatch(value):
        raise click.BadParameter(f"{value!r} must be snake_case, as in kimi_k25_image_token")
    return value


def _file(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not is_safe(value) or not value.endswith(".py"):
        raise click.BadParameter(f"{value!r} is not the path of a .py file below a site folder, as in vllm/x/y.py")
    return value


def _symptom(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and (not value.strip() or not value.isprintable()):
        raise click.BadParameter("must be a part of one line of the error text")
    return value


@click.command(
    "new",
    cls=Verb,
    exits=("the files are written", "something is in the way, and nothing is written"),
    examples=(
        ("patchkit new my_patch --target vllm --file vllm/version.py", "into the catalog of the current folder"),
        ("patchkit new my_patch --target vllm --file vllm/version.py --in team", "into a new one"),
    ),
)
@click.argument("patch_id", metavar="ID", callback=_id)
@click.option("--target", required=True, metavar="TARGET", help="What is patched: a target of targets.toml.")
@click.option("--file", required=True, metavar="PATH", callback=_file, help="The file, below the site folder.")
@click.option("--symptom", metavar="TEXT", callback=_symptom, help="The shortest stable part of the error text.")
@click.option("--versions", metavar="SPEC", help="The releases that it is for.  [default: the installed one]")
@click.option("--in", "folder", type=click.Path(path_type=Path), metavar="DIR", help="The same as --catalog.")
@shared
@click.pass_obj
def command(options: Options, /, patch_id: str, folder: Path | None, **given: str) -> int:
    """Write a new patch and its test, to be filled in, into a catalog.

    The catalog is the current folder where none is named; a folder that is empty, or not there, becomes a new one.
    """
    if folder is not None and options.catalog is not None:
        raise click.UsageError("--in and --catalog exclude each other; give one of them")
    place = folder or options.catalog
    wish = authoring.Wish(patch_id, given["target"], given["file"], given["symptom"], given["versions"])
    again = f"patchkit new {patch_id} --target {wish.target} --file {shlex.quote(wish.file)} --in DIR"

    def action() -> Report:
        catalog = authoring.open_catalog(place or Path(), again, is_named=place is not None)
        return authoring.write_patch(catalog, environment_of(options, catalog), wish)

    return code_of(show_report(options, "new", action))
