"""The one place where errors end: a command is run, and what it raises becomes an exit code and a line."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Sequence

import click

from patchkit.completion import variable
from patchkit.errors import PatchkitError, UnknownName
from patchkit.findings import from_error
from patchkit.render import Renderer
from patchkit.report import Report
from patchkit.screen import one_line

_COLLECT = 200_000
"""After how many new objects Python looks for cycles: trees of syntax are many objects and hardly a cycle."""


def run(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    gc.set_threshold(_COLLECT, 20, 20)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # no name of a file stops a report
    try:
        code = command.main(arguments, prog_name=name, complete_var=variable(name.split()[0]), standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except UnknownName as error:
        print(one_line(f"{error.message}; {error.hint}"), file=sys.stderr)
        return 2
    except PatchkitError as error:
        Renderer(sys.stdout, sys.stderr).report(Report(name, False, findings=(from_error(error),)))
        return 1
    except (click.Abort, KeyboardInterrupt):
        print("interrupted: the tree is as it was before", file=sys.stderr)
        return 130
    except Exception:
        import traceback

        traceback.print_exc()
        print(f"{name} failed: this is a defect of patchkit, please report it with the lines above", file=sys.stderr)
        return 3
    return code if isinstance(code, int) else 0
