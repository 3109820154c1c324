"""The command line of ``patchkit-serve``."""

from __future__ import annotations

import datetime
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from patchkit.catalog import bundled_catalog, load_catalog
from patchkit.environment import find_environment
from patchkit.errors import PatchkitError, RunnerUsage, UnknownName
from patchkit.findings import from_error
from patchkit.render import Renderer
from patchkit.report import Report
from patchkit.runner.command import Served
from patchkit.runner.launch import Server, Settings
from patchkit.runner.serve import Run
from patchkit.screen import Screen, printable

_BY_SIGNAL = (130, 137, 143)
"""Exit codes of a server that was ended by the signals that the runner sends."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--python", help="Interpreter of the environment that has vLLM.")
@click.option("--catalog", type=click.Path(path_type=Path), help="Folder with targets.toml and patches/.")
@click.option("--set", "names", multiple=True, help="Set or patch that must be in place.  [default: kimi-k25-serve]")
@click.option("--gpus", default="all", metavar="all|0,1,…|none", help="GPUs that the server may use.")
@click.option("--draft", metavar="DIR", help="EAGLE-3 drafter.")
@click.option("--num-speculative-tokens", "tokens", type=click.IntRange(min=1), metavar="K", help="Tokens drafted.")
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="File for the server's whole output.")
@click.option("--ready-timeout", type=click.FloatRange(min=1), default=3600.0, show_default=True, help="Seconds.")
@click.option("--stop-timeout", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds.")
@click.option("--interval", type=click.FloatRange(min=0.5), default=10.0, show_default=True, help="Seconds.")
@click.version_option(package_name="patchkit", prog_name="patchkit-serve")
@click.argument("model")
@click.argument("arguments", nargs=-1, metavar="[-- VLLM SERVE ARGUMENTS …]")
def serve(
    python: str | None,
    catalog: Path | None,
    names: tuple[str, ...],
    gpus: str,
    draft: str | None,
    tokens: int | None,
    log: Path | None,
    ready_timeout: float,
    stop_timeout: float,
    interval: float,
    model: str,
    arguments: tuple[str, ...],
) -> int:
    """Start the patched vLLM for MODEL, and refuse an unpatched one.

    Before: `patchkit check`, `patchkit preflight`, the GPUs and the port. Then every process of the server proves that
    its files are those that were checked. Exit code: the server's own, or 1 where nothing was started.
    """
    if (draft is None) != (tokens is None):
        raise click.UsageError("--draft and --num-speculative-tokens belong together")
    _require("httpx", "prometheus_client", "pynvml")
    loaded = load_catalog(catalog or bundled_catalog())
    selection = loaded.select(names or ("kimi-k25-serve",))
    environment = find_environment(python, None, None, [target.package for target in loaded.targets.targets.values()])
    settings = Settings(
        python=environment.python or sys.executable,
        log=log or _log_place(),
        files={},
        wanted_gpus=gpus,
        ready_timeout=ready_timeout,
        stop_timeout=stop_timeout,
        interval=interval,
    )
    view = _View()
    run = Run(loaded, environment, selection, Served(model, draft, tokens, arguments), settings, view.say, view.show)
    refusal = run.prepare()
    if refusal is not None:
        Renderer(sys.stdout, sys.stderr).report(refusal)
        view.say("nothing was started")
        return 1
    code = run.run()
    if code != 0 and not (run.was_asked and code in _BY_SIGNAL):
        view.say(f"the server ended with {code}")
        Renderer(sys.stdout, sys.stderr).report(run.explain())
    return code


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


def _require(*packages: str) -> None:
    """Refuse to go on without what the extra brings."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise RunnerUsage(f"patchkit-serve needs {', '.join(missing)}", "pip install 'patchkit[serve]'")


def _log_place() -> Path:
    """Return a file for the log: in the user's state folder, named after the time and this process."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path(base, "patchkit", f"serve-{now}-{os.getpid()}.log")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        code = serve.main(arguments, prog_name="patchkit-serve", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except UnknownName as error:
        sys.stderr.write(f"{error.message}; {error.hint}\n")
        return 2
    except PatchkitError as error:
        Renderer(sys.stdout, sys.stderr).report(Report("serve", False, findings=(from_error(error),)))
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run())
