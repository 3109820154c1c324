"""The command line of ``patchkit``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from patchkit import actions, boundary, diagnosis
from patchkit.catalog import Catalog, Selection, bundled_catalog, load_catalog
from patchkit.environment import Environment, find_environment
from patchkit.errors import LogUnreadable, PatchkitError, UnknownName
from patchkit.findings import from_error
from patchkit.render import Renderer
from patchkit.report import Report

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Options:
    """The options that every verb shares."""

    python: str | None = None
    site: Path | None = None
    root: Path | None = None
    catalog: Path | None = None
    as_json: bool = False


def _store(ctx: click.Context, param: click.Parameter, value: object) -> None:
    options = ctx.ensure_object(Options)
    if value is not None and param.name is not None:
        setattr(options, param.name, value)


def shared(command: Command) -> Command:
    """Add the shared options; they may stand before the verb or after it."""
    folder = click.Path(path_type=Path, readable=False)  # os.access is no answer; reading is
    declarations: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
        (("--python",), {"metavar": "EXE", "help": "The target's interpreter (default: the active environment's)."}),
        (("--site",), {"type": folder, "metavar": "DIR", "help": "A site-packages folder."}),
        (("--root",), {"type": folder, "metavar": "DIR", "help": "Root folder of a mounted image; it is only read."}),
        (("--catalog",), {"type": folder, "metavar": "DIR", "help": "Folder with targets.toml and patches/."}),
        (("--json", "as_json"), {"flag_value": True, "default": None, "help": "Print one JSON object."}),
    )
    for names, attributes in reversed(declarations):
        command = click.option(*names, expose_value=False, callback=_store, **attributes)(command)
    return command


names_argument = click.argument("names", nargs=-1, metavar="[PATCH|SET]...")
allow_unlisted_option = click.option(
    "--allow-unlisted", is_flag=True, help="Go on with a release whose digests targets.toml does not list."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the plan and write nothing.")
exit_code_option = click.option("--exit-code", is_flag=True, help="Exit with 1 instead of 0 when there is a finding.")


_model = click.Path(path_type=Path, readable=False)
_count = click.IntRange(min=1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@shared
@click.version_option(package_name="patchkit", prog_name="patchkit")
def cli() -> None:
    """Patch the installed source of vLLM and speculators, and prove it.

    Names are patches or sets of the catalog; without names the default sets are meant.
    """


@cli.command("list")
@shared
@click.pass_obj
def list_(options: Options) -> int:
    """List the patches of the catalog."""
    return _exit_code(_run(options, "list", actions.list_patches))


@cli.command()
@names_argument
@exit_code_option
@shared
@click.pass_obj
def status(options: Options, names: tuple[str, ...], exit_code: bool) -> int:
    """Show the state of each patch."""
    report = _run(options, "status", lambda catalog: actions.status(*_subject(options, catalog, names)))
    return _exit_code(report, findings_count=exit_code)


@cli.command()
@names_argument
@exit_code_option
@allow_unlisted_option
@click.option("--stat", is_flag=True, help="Show only which files change, and by how much.")
@shared
@click.pass_obj
def diff(options: Options, names: tuple[str, ...], exit_code: bool, allow_unlisted: bool, stat: bool) -> int:
    """Show what apply would write, as one unified diff."""

    def action(catalog: Catalog) -> Report:
        return actions.diff(*_subject(options, catalog, names), allow_unlisted=allow_unlisted)

    report = _run(options, "diff", action, show_diff=not stat)
    return 1 if exit_code and report.changes else _exit_code(report, findings_count=exit_code)


@cli.command()
@names_argument
@allow_unlisted_option
@dry_run_option
@shared
@click.pass_obj
def apply(options: Options, names: tuple[str, ...], allow_unlisted: bool, dry_run: bool) -> int:
    """Make the selected patches applied, all of them or none."""

    def action(catalog: Catalog) -> Report:
        subject = _subject(options, catalog, names)
        return actions.apply(*subject, allow_unlisted=allow_unlisted, dry_run=dry_run)

    return _exit_code(_run(options, "apply", action, show_diff=dry_run))


@cli.command()
@names_argument
@dry_run_option
@shared
@click.pass_obj
def revert(options: Options, names: tuple[str, ...], dry_run: bool) -> int:
    """Take the selected patches back; without names, every patch."""

    def action(catalog: Catalog) -> Report:
        return actions.revert(catalog, _environment(options, catalog), names, dry_run=dry_run)

    return _exit_code(_run(options, "revert", action, show_diff=dry_run))


@cli.command()
@names_argument
@shared
@click.pass_obj
def check(options: Options, names: tuple[str, ...]) -> int:
    """Fail unless every selected patch is in place and is what Python would load; reads only."""
    return _exit_code(_run(options, "check", lambda catalog: actions.check(*_subject(options, catalog, names))))


@cli.command()
@click.argument("log", metavar="LOG|-")
@shared
@click.pass_obj
def explain(options: Options, log: str) -> int:
    """Recognise known errors in a server's log or a traceback, and say what cures them."""

    def action(catalog: Catalog) -> Report:
        with _open_log(log) as file:
            return diagnosis.explain(catalog, lambda: _environment(options, catalog), file)

    return _exit_code(_run(options, "explain", action))


@cli.command()
@click.option("--model", metavar="DIR|FILE", type=_model, help="The model's folder, or its config.json.")
@click.option("--draft", metavar="DIR|FILE", type=_model, help="The drafter's folder, or its config.json.")
@click.option("--method", type=click.Choice(["eagle3"]), default="eagle3", help="How is speculated: EAGLE-3.")
@click.option("--num-speculative-tokens", "tokens", type=_count, metavar="K", help="Tokens that are drafted at once.")
@click.option("--tp", type=_count, default=1, metavar="N", help="Tensor parallel size.")
@click.option("--pp", type=_count, default=1, metavar="N", help="Pipeline parallel size.")
@click.option("--all-models", is_flag=True, help="Judge the image token of every multimodal class instead.")
@click.option("--strict", is_flag=True, help="Exit with 1 also where nothing can be said of a gate.")
@shared
@click.pass_obj
def preflight(options: Options, /, model: Path | None, draft: Path | None, all_models: bool, **given: Any) -> int:
    """Say in a second whether a model and a drafter will pass the gates of the installed vLLM."""
    if (model is None) != all_models or (draft is not None and all_models):
        raise click.UsageError("give --model, with --draft for the drafter, or --all-models alone")

    def action(catalog: Catalog) -> Report:
        environment = _environment(options, catalog)
        if model is None:
            return diagnosis.preflight_models(catalog, environment)
        return diagnosis.preflight(
            catalog,
            environment,
            model,
            draft,
            tokens=given["tokens"],
            tensor_parallel=given["tp"],
            pipeline_parallel=given["pp"],
            is_strict=given["strict"],
        )

    return _exit_code(_run(options, "preflight", action))


@cli.command(hidden=True)
@click.argument("wheels", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@click.option("--write", is_flag=True, help="Write the digests to targets.toml instead of comparing them.")
@shared
@click.pass_obj
def digests(options: Options, wheels: tuple[Path, ...], write: bool) -> int:
    """Compare the digests of targets.toml with wheels, or write them; for maintainers of a catalog."""

    def action(catalog: Catalog) -> Report:
        return actions.digests(catalog, _environment(options, catalog), wheels, write=write)

    return _exit_code(_run(options, "digests", action))


def _open_log(name: str) -> AbstractContextManager[BinaryIO]:
    """Open a log, or the input for ``-``, which is left open."""
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open(name, "rb")
    except (OSError, ValueError) as error:
        hint = "name a file, or - for the input"
        raise LogUnreadable(f"{name} cannot be read: {getattr(error, 'strerror', error)}", hint) from error


def _run(options: Options, verb: str, action: Callable[[Catalog], Report], *, show_diff: bool = False) -> Report:
    """Run a verb and show its report, or the error that stopped it."""
    renderer = Renderer(sys.stdout, sys.stderr, as_json=options.as_json)
    try:
        report = action(load_catalog(options.catalog or bundled_catalog()))
    except UnknownName as error:
        raise click.UsageError(f"{error.message}; {error.hint}") from error
    except PatchkitError as error:
        report = Report(verb, False, findings=(from_error(error),))
    try:
        renderer.report(report, show_diff=show_diff)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone; the exit code still tells what was found. Python must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return report


def _exit_code(report: Report, *, findings_count: bool = True) -> int:
    """Return the exit code; a verb that could not go on counts even where findings do not."""
    return report.exit_code if findings_count or report.environment is None else 0


def _subject(options: Options, catalog: Catalog, names: tuple[str, ...]) -> tuple[Catalog, Environment, Selection]:
    """Return what a verb is about: the catalog, the environment and the patches."""
    selection = catalog.select(names)
    return catalog, _environment(options, catalog), selection


def _environment(options: Options, catalog: Catalog) -> Environment:
    given = [f"--{name}" for name in ("python", "site", "root") if getattr(options, name) is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other; give one of them")
    packages = [target.package for target in catalog.targets.targets.values()]
    return find_environment(options.python, options.site, options.root, packages)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return boundary.run(cli, "patchkit", arguments)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run())
