"""``patchkit fleet``: the same patches on every node of a Ray cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from patchkit.catalog import Catalog
from patchkit.errors import PatchkitError, UnknownName
from patchkit.findings import from_error
from patchkit.fleet.report import FleetReport, to_json
from patchkit.fleet.run import Fleet, carry_out, look
from patchkit.fleet.view import ProgressLine, show
from patchkit.manual import Verb
from patchkit.options import (
    Options,
    allow_unlisted_option,
    catalog_of,
    dry_run_option,
    exit_code_option,
    names_argument,
    shared,
    write_out,
)

Command = TypeVar("Command", bound=Callable[..., Any])
Work = Callable[[Fleet, ProgressLine], FleetReport]


class _Group(Verb, click.Group):
    """A verb that has verbs of its own."""


def _options(command: Command) -> Command:
    """Add the options that say which nodes are meant."""
    for decorate in (
        click.option(
            "--timeout", type=click.FloatRange(min=1), default=120.0, show_default=True, help="Seconds a step."
        ),
        click.option("--resource", metavar="NAME", help="Only nodes that have this resource, as GPU."),
        click.option("--node", "nodes", multiple=True, metavar="NAME", help="Only this node; may be given again."),
        click.option("--address", metavar="auto|HOST:PORT|ray://…", envvar="RAY_ADDRESS", help="The Ray cluster."),
    ):
        command = decorate(command)
    return names_argument(shared(command))


def _run(options: Options, verb: str, names: tuple[str, ...], given: dict[str, Any], work: Work) -> FleetReport:
    """Run a verb on the nodes and show its report, or the error that stopped it."""
    if options.root is not None or (options.python and options.site):
        raise click.UsageError("a fleet takes one of --python and --site, and no --root")
    if options.site is not None and not options.site.is_absolute():
        raise click.UsageError(f"--site {options.site} is looked for on each node: give the whole path")
    is_text = options.form != "json"
    line = ProgressLine(sys.stderr, is_shown=is_text and sys.stderr.isatty())
    try:
        catalog = catalog_of(options)
        if verb != "revert":  # which can name a patch that is only on the nodes
            catalog.select(names)
        report = work(_fleet(options, catalog, given), line)
    except UnknownName:
        raise
    except PatchkitError as error:
        report = FleetReport(verb, findings=(from_error(error),))
    finally:
        line.close()
    if is_text:
        write_out(lambda: show(report, sys.stdout, sys.stderr))
    else:
        write_out(lambda: sys.stdout.write(json.dumps(to_json(report), indent=2) + "\n"))
    return report


def _fleet(options: Options, catalog: Catalog, given: dict[str, Any]) -> Fleet:
    return Fleet(
        catalog=catalog.place,
        address=given["address"],
        python=options.python,
        site=options.site,
        nodes=given["nodes"],
        resource=given["resource"],
        timeout=given["timeout"],
    )


@click.group(
    "fleet",
    cls=_Group,
    exits=("as asked on every node", "a finding or a refusal on one or more"),
    examples=(
        ("patchkit fleet check kimi-k25-serve", "on the cluster of this machine"),
        ("patchkit fleet apply --address ray://head:10001", "from anywhere, the default sets"),
    ),
)
@shared
def command() -> None:
    """Do the same on every node of a Ray cluster.

    Nothing needs to be installed there: patchkit travels with the job. The target on each node is what its Ray's own
    interpreter would import, or that of --python or --site.
    """


@command.command(
    "status",
    cls=Verb,
    exits=("every node was asked", "one could not be; with --exit-code also: a finding"),
    examples=(
        ("patchkit fleet status", "the state of every node"),
        ("patchkit fleet status --node worker-7", "of one"),
    ),
)
@exit_code_option
@_options
@click.pass_obj
def status(options: Options, /, names: tuple[str, ...], exit_code: bool, **given: Any) -> int:
    """Show the state of each node."""
    report = _run(options, "status", names, given, lambda fleet, line: look(fleet, "status", names, line))
    is_lost = not report.nodes or any(one.end == "lost" for one in report.nodes)
    return report.exit_code if exit_code or is_lost else 0


@command.command(
    "check",
    cls=Verb,
    exits=("all nodes agree and every selected patch is in place", "they do not, or one is not"),
    examples=(
        ("patchkit fleet check kimi-k25-serve", "before a server over several nodes"),
        ("patchkit fleet check --resource GPU --json", "of the nodes with GPUs, for a program"),
    ),
)
@_options
@click.pass_obj
def check(options: Options, /, names: tuple[str, ...], **given: Any) -> int:
    """Fail unless all nodes have the same files and every selected patch in place; reads only."""
    return _run(options, "check", names, given, lambda fleet, line: look(fleet, "check", names, line)).exit_code


keep_going_option = click.option(
    "--keep-going", is_flag=True, help="Let the other nodes keep what is written where one cannot."
)


@command.command(
    "apply",
    cls=Verb,
    exits=("all selected are applied or upstream on every node", "a node refused or was lost; none has changed"),
    examples=(
        ("patchkit fleet apply kimi-k25-serve", "on every node, or on none"),
        ("patchkit fleet apply --dry-run", "say what each node would do"),
        ("patchkit --python /opt/venv/bin/python fleet apply", "into this environment of each node"),
    ),
)
@allow_unlisted_option
@dry_run_option
@keep_going_option
@_options
@click.pass_obj
def apply(
    options: Options, /, names: tuple[str, ...], allow_unlisted: bool, dry_run: bool, keep_going: bool, **given: Any
) -> int:
    """Make the selected patches applied on every node, or on none."""

    def work(fleet: Fleet, line: ProgressLine) -> FleetReport:
        return carry_out(
            fleet, "apply", names, line, allow_unlisted=allow_unlisted, dry_run=dry_run, keep_going=keep_going
        )

    return _run(options, "apply", names, given, work).exit_code


@command.command(
    "revert",
    cls=Verb,
    exits=("none of them is applied on any node", "a node refused or was lost; none has changed"),
    examples=(
        ("patchkit fleet revert", "everything, to the byte, on every node"),
        ("patchkit fleet revert kimi_k25_image_token", "one patch; the others stay"),
    ),
)
@dry_run_option
@keep_going_option
@_options
@click.pass_obj
def revert(options: Options, /, names: tuple[str, ...], dry_run: bool, keep_going: bool, **given: Any) -> int:
    """Take the selected patches back on every node, or on none; without names, every patch."""

    def work(fleet: Fleet, line: ProgressLine) -> FleetReport:
        return carry_out(fleet, "revert", names, line, dry_run=dry_run, keep_going=keep_going)

    return _run(options, "revert", names, given, work).exit_code
