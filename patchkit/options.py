"""The options that the verbs share, and what they have in common: the subject, the report, the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from patchkit import completion
from patchkit.catalog import Catalog, Selection, bundled_catalog, load_catalog
from patchkit.environment import Environment, find_environment
from patchkit.errors import PatchkitError, UnknownName
from patchkit.findings import from_error
from patchkit.render import FORMATS, Renderer
from patchkit.report import Report
from patchkit.screen import one_line

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Options:
    """The options that every verb shares."""

    python: str | None = None
    site: Path | None = None
    root: Path | None = None
    catalog: Path | None = None
    no_code: bool = False
    """Whether a catalog with patches in Python is refused."""
    form: str | None = None
    """One of ``FORMATS``; None where nothing was asked for, which is text."""


def _store(ctx: click.Context, param: click.Parameter, value: object) -> None:
    options = ctx.ensure_object(Options)
    if value is None or value is False or param.name is None:
        return
    if param.name == "form" and options.form not in (None, value):
        raise click.UsageError(f"--format {options.form} and --format {value} exclude each other; --json is one, too")
    setattr(options, param.name, value)


def shared(command: Command) -> Command:
    """Add the shared options; they may stand before the verb or after it."""
    place = click.Path(path_type=Path, readable=False)  # os.access is no answer; reading is
    folder = {"type": place, "metavar": "DIR", "shell_complete": completion.folders}
    exe = {"metavar": "EXE", "shell_complete": completion.files}
    declarations: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
        (("--python",), {**exe, "help": "The target's interpreter (default: the active environment's)."}),
        (("--site",), {**folder, "help": "A site-packages folder."}),
        (("--root",), {**folder, "help": "Root folder of a mounted image; it is only read."}),
        (("--catalog",), {**folder, "help": "Folder with targets.toml and patches/."}),
        (("--no-code",), {"is_flag": True, "help": "Refuse a catalog with patches in Python; run nothing of it."}),
        (("--json", "form"), {"flag_value": "json", "default": None, "help": "Print one JSON object."}),
    )
    for names, attributes in reversed(declarations):
        command = click.option(*names, expose_value=False, callback=_store, **attributes)(command)
    return command


def format_option(command: Command) -> Command:
    """Add the choice of a format, for the verbs whose findings other programs read."""
    choice, words = click.Choice(FORMATS), "How to print the report; --json is --format json."
    return click.option("--format", "form", type=choice, expose_value=False, callback=_store, help=words)(command)


names_argument = click.argument("names", nargs=-1, metavar="[PATCH|SET]...", shell_complete=completion.names)
allow_unlisted_option = click.option(
    "--allow-unlisted", is_flag=True, help="Go on with a release whose digests targets.toml does not list."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the plan and write nothing.")
exit_code_option = click.option("--exit-code", is_flag=True, help="Exit with 1 instead of 0 when there is a finding.")


def run_verb(options: Options, verb: str, action: Callable[[Catalog], Report], *, show_diff: bool = False) -> Report:
    """Run a verb on the catalog and show its report, or the error that stopped it."""
    return show_report(options, verb, lambda: action(catalog_of(options)), show_diff=show_diff)


def catalog_of(options: Options) -> Catalog:
    """Return the catalog that was named, or that of patchkit."""
    return load_catalog(options.catalog or bundled_catalog(), allow_code=not options.no_code)


def show_report(options: Options, verb: str, action: Callable[[], Report], *, show_diff: bool = False) -> Report:
    """Run a verb and show its report, or the error that stopped it."""
    renderer = Renderer(sys.stdout, sys.stderr, form=options.form or "text")
    try:
        report = action()
    except UnknownName as error:
        raise click.UsageError(one_line(f"{error.message}; {error.hint}")) from error
    except PatchkitError as error:
        report = Report(verb, False, findings=(from_error(error),))
    write_out(lambda: renderer.report(report, show_diff=show_diff))
    return report


def write_out(write: Callable[[], object]) -> None:
    """Write to the standard output, also where its reader has gone: the exit code still tells what was found."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python must not fail again at exit


def code_of(report: Report, *, findings_count: bool = True) -> int:
    """Return the exit code; a verb that could not go on counts even where findings do not."""
    return report.exit_code if findings_count or report.environment is None else 0


def subject(options: Options, catalog: Catalog, names: tuple[str, ...]) -> tuple[Catalog, Environment, Selection]:
    """Return what a verb is about: the catalog, the environment and the patches."""
    selection = catalog.select(names)
    return catalog, environment_of(options, catalog), selection


def environment_of(options: Options, catalog: Catalog) -> Environment:
    """Return the environment that the options name."""
    given = [f"--{name}" for name in ("python", "site", "root") if getattr(options, name) is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other; give one of them")
    packages = [target.package for target in catalog.targets.targets.values()]
    return find_environment(options.python, options.site, options.root, packages)
