"""The command line of ``patchkit-serve``."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from patchkit import boundary
from patchkit.catalog import bundled_catalog, load_catalog
from patchkit.completion import files, folders, names, variable
from patchkit.environment import find_environment
from patchkit.errors import RunnerUsage
from patchkit.fleet.guard import guard, with_address
from patchkit.fleet.run import Fleet
from patchkit.fleet.view import ProgressLine, show, summarise
from patchkit.manual import Verb
from patchkit.render import Renderer
from patchkit.runner.bench import Load, compare
from patchkit.runner.client import PROMPTS
from patchkit.runner.command import Served
from patchkit.runner.extra import missing
from patchkit.runner.launch import Server, Settings
from patchkit.runner.picture import draw
from patchkit.runner.serve import Run
from patchkit.screen import Screen, printable

_BY_SIGNAL = (130, 137, 143)
"""Exit codes of a server that was ended by the signals that the runner sends."""

_DEFAULT = ("kimi-k25-serve",)
"""The set that is to be in place where none is named."""
Command = TypeVar("Command", bound=Callable[..., Any])


def _complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer folders, and the one word that may stand in a model's place."""
    if incomplete and "bench".startswith(incomplete):
        return [CompletionItem("bench", help="Compare the same prompts without and with speculation.")]
    return folders(ctx, param, incomplete)


def _options(command: Command) -> Command:
    """Add the options that starting and comparing share."""
    for decorate in (
        click.argument("arguments", nargs=-1, metavar="[-- VLLM SERVE ARGUMENTS …]", shell_complete=files),
        click.argument("model", shell_complete=_complete_model),
        click.option("--stop-timeout", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds."),
        click.option(
            "--ready-timeout", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="Seconds."
        ),
        click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="File for the server's output."),
        click.option("--num-speculative-tokens", "tokens", type=click.IntRange(min=1), metavar="K", help="Drafted."),
        click.option("--fleet", metavar="[ADDRESS]", help="Check every node of a Ray cluster before the start."),
        click.option("--draft", metavar="DIR", shell_complete=folders, help="EAGLE-3 drafter."),
        click.option("--gpus", default="all", metavar="all|0,1,…|none", help="GPUs that the server may use."),
        click.option(
            "--set",
            "names",
            multiple=True,
            shell_complete=names,
            help="Set or patch in place.  [default: kimi-k25-serve]",
        ),
        click.option(
            "--catalog",
            type=click.Path(path_type=Path),
            shell_complete=folders,
            help="Folder with targets.toml and patches/.",
        ),
        click.option("--python", shell_complete=files, help="Interpreter of the environment that has vLLM."),
    ):
        command = decorate(command)
    return command


@click.command(
    cls=Verb,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    exits=("the server's own: it ended well", "nothing was started, or the server's own"),
    examples=(
        ("patchkit-serve Kimi-K2.5 -- --trust-remote-code", "the model alone; after -- vLLM's own arguments"),
        ("patchkit-serve --draft kimi-k2.5-eagle3 --num-speculative-tokens 3 Kimi-K2.5", "with a drafter"),
        ("patchkit-serve --gpus 0,1 --set kimi-k25-serve Kimi-K2.5", "on two GPUs, with this set in place"),
    ),
)
@_options
@click.option("--interval", type=click.FloatRange(min=0.5), default=10.0, show_default=True, help="Seconds.")
@click.version_option(package_name="patchkit", prog_name="patchkit-serve")
def serve(interval: float, **given: Any) -> int:
    """Start the patched vLLM for MODEL, and refuse an unpatched one.

    Before: `patchkit check`, `patchkit preflight`, the GPUs and the port. Then every process of the server proves that
    its files are those that were checked. Exit code: the server's own, or 1 where nothing was started.

    `patchkit-serve bench …` compares the same prompts without and with speculation.
    """
    view = _View()
    run = _run(view, interval=interval, **given)
    if not _is_prepared(run, view, given):
        return 1
    code = run.run()
    if code != 0 and not (run.was_asked and code in _BY_SIGNAL):
        view.say(f"the server ended with {code}")
        Renderer(sys.stdout, sys.stderr).report(run.explain())
    return code


@click.command(
    cls=Verb,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    exits=("both were measured", "nothing was started, or a server did not answer"),
    examples=(
        ("patchkit-serve bench --draft DIR --num-speculative-tokens 3 MODEL", "with prompts that come with it"),
        ("patchkit-serve bench --draft DIR --num-speculative-tokens 3 --html a.html M", "with a page to show"),
    ),
)
@_options
@click.option("--prompts", type=click.File("r", encoding="utf-8"), help="File with a prompt a line.")
@click.option("--output-tokens", type=click.IntRange(min=1), default=128, show_default=True, help="Of each answer.")
@click.option("--concurrency", type=click.IntRange(min=1), default=1, show_default=True, help="Prompts at a time.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Times that all are asked.")
@click.option("--json", "as_json", type=click.Path(path_type=Path, dir_okay=False), help="File for the figures.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="File for a page with bars.")
def bench(
    prompts: IO[str] | None,
    output_tokens: int,
    concurrency: int,
    rounds: int,
    as_json: Path | None,
    html: Path | None,
    **given: Any,
) -> int:
    """Run the server twice, without speculation and with it, on the same prompts, and say whether it pays."""
    if given["draft"] is None:
        raise click.UsageError("bench compares with and without a drafter: give --draft")
    lines = [line.rstrip("\n") for line in prompts] if prompts is not None else list(PROMPTS)
    asked = [line for line in lines if line.strip()]
    if not asked:
        raise click.UsageError("--prompts has no prompt")
    for place in filter(None, (as_json, html)):
        _write(place, "")  # before two servers have run for nothing
    view = _View()
    run = _run(view, interval=3600.0, **given)
    if not _is_prepared(run, view, given):
        return 1
    found = compare(run, Load(asked, output_tokens, concurrency, rounds))
    Screen(sys.stdout, is_terminal=sys.stdout.isatty()).table(("", "WITHOUT", "WITH SPECULATION"), found.rows())
    sys.stdout.write(f"{printable(found.verdict)}\n")
    if as_json is not None:
        _write(as_json, json.dumps(found.to_json(), indent=1) + "\n")
    if html is not None:
        _write(html, draw(found, f"{Path(given['model']).name}: {given['tokens']} speculative tokens"))
    return 0


def _run(view: _View, *, draft: str | None, tokens: int | None, model: str, **given: Any) -> Run:
    """Return the run that the options describe."""
    if (draft is None) != (tokens is None):
        raise click.UsageError("--draft and --num-speculative-tokens belong together")
    _require_extra()
    catalog = load_catalog(given["catalog"] or bundled_catalog())
    selection = catalog.select(given["names"] or _DEFAULT)
    packages = [target.package for target in catalog.targets.targets.values()]
    environment = find_environment(given["python"], None, None, packages)
    settings = Settings(
        python=environment.python or sys.executable,
        log=given["log"] or _log_place(),
        files={},
        wanted_gpus=given["gpus"],
        ready_timeout=given["ready_timeout"],
        stop_timeout=given["stop_timeout"],
        interval=given["interval"],
    )
    served = Served(model, draft, tokens, given["arguments"])
    return Run(catalog, environment, selection, served, settings, view.say, view.show)


def _is_prepared(run: Run, view: _View, given: Mapping[str, Any]) -> bool:
    """Ask everything before the start, and show the report that refuses it."""
    refusal = run.prepare()
    if refusal is not None:
        Renderer(sys.stdout, sys.stderr).report(refusal)
    is_refused = refusal is not None or (given["fleet"] is not None and not _nodes_agree(run, view, given))
    if is_refused:
        view.say("nothing was started")
    return not is_refused


def _nodes_agree(run: Run, view: _View, given: Mapping[str, Any]) -> bool:
    """Compare the nodes of a cluster with each other and with this machine, and show what refuses the start."""
    resource = None if given["gpus"] == "none" else "GPU"  # where vLLM puts its workers
    line = ProgressLine(sys.stderr, is_shown=sys.stderr.isatty())
    try:
        fleet = Fleet(run.catalog.place, given["fleet"], resource=resource)
        report = guard(fleet, given["names"] or _DEFAULT, run.settings.files, line)
    finally:
        line.close()
    if report.ok:
        view.say(f"fleet: {summarise(report)}")
    else:
        show(report, sys.stdout, sys.stderr)
    return report.ok


def _write(place: Path, text: str) -> None:
    try:
        place.write_text(text, "utf-8")
    except OSError as error:
        raise RunnerUsage(f"{place} cannot be written: {error.strerror}", "name another file") from error


class _View:
    """What a person sees: a line that is written again while the server starts, plain lines otherwise."""

    def __init__(self) -> None:
        self._screen = Screen(sys.stderr, is_terminal=sys.stderr.isatty())
        self._stage = ""
        self._is_open = False

    def say(self, text: str) -> None:
        """Write a line."""
        if self._is_open:
            sys.stderr.write("\r\x1b[K")
            self._is_open = False
        self._screen.line(f"patchkit-serve: {text}")

    def show(self, server: Server) -> None:
        """Show how far the start has come."""
        log = server.log
        if self._screen.is_terminal:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            text = printable(f"{server.elapsed:6.0f} s  {log.stage}  {log.last}")
            sys.stderr.write(f"\r\x1b[K{text[: width - 1]}")
            sys.stderr.flush()
            self._is_open = True
        elif log.stage != self._stage:
            self._stage = log.stage
            self.say(f"{server.elapsed:.0f} s: {log.stage}")


def _require_extra() -> None:
    absent = missing()
    if absent:
        raise RunnerUsage(f"patchkit-serve needs {', '.join(absent)}", "pip install 'patchkit[serve]'")


def _log_place() -> Path:
    """Return a file for the log: in the user's state folder, named after the time and this process."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path(base, "patchkit", f"serve-{now}-{os.getpid()}.log")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    is_asked = variable("patchkit-serve") in os.environ
    is_bench = (os.environ.get("COMP_WORDS", "").split()[1:] if is_asked else words)[:1] == ["bench"]
    command, name = (bench, "patchkit-serve bench") if is_bench else (serve, "patchkit-serve")
    return boundary.run(command, name, with_address(words[is_bench:]))


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run())
