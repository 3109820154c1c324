"""``patchkit explain``: what a log says."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from patchkit import diagnosis
from patchkit.catalog import Catalog
from patchkit.completion import files
from patchkit.errors import LogUnreadable
from patchkit.manual import Verb
from patchkit.options import Options, code_of, environment_of, run_verb, shared
from patchkit.paths import open_stream
from patchkit.report import Report

_HINT = "name a file, or - for the input"


@click.command(
    "explain",
    cls=Verb,
    exits=("no known error in the log", "known errors, or a log that cannot be read"),
    examples=(
        ("patchkit explain server.log", "what a log of any size says"),
        ("vllm serve MODEL 2>&1 | patchkit explain -", "as the server writes it"),
        ("patchkit explain --json server.log", "for a program"),
    ),
)
@click.argument("log", metavar="LOG|-", shell_complete=files)
@shared
@click.pass_obj
def command(options: Options, log: str) -> int:
    """Recognise known errors in a server's log, and say what cures them."""

    def action(catalog: Catalog) -> Report:
        with _open_log(log) as file:
            report = diagnosis.explain(catalog, lambda: environment_of(options, catalog), file)
            if log != "-" and not report.lines and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise LogUnreadable(f"{log} is a pipe, and nobody writes to it", _HINT)
            return report

    return code_of(run_verb(options, "explain", action))


def _open_log(name: str) -> AbstractContextManager[BinaryIO]:
    """Open a log, or the input for ``-``, which is left open."""
    if name == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open_stream(Path(name))
    except (OSError, ValueError) as error:
        raise LogUnreadable(f"{name} cannot be read: {getattr(error, 'strerror', error)}", _HINT) from error
