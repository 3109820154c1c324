"""``patchkit check``: the pre-deploy gate."""

from __future__ import annotations

import click

from patchkit import actions
from patchkit.manual import Verb
from patchkit.options import Options, code_of, format_option, names_argument, run_verb, shared, subject


@click.command(
    "check",
    cls=Verb,
    exits=("every selected patch is in place", "one is not, or Python would load something else"),
    examples=(
        ("patchkit check", "the default sets"),
        ("patchkit check kimi-k25-serve && exec vllm serve MODEL", "in an entrypoint"),
        ("patchkit --site /opt/venv/lib/python3.12/site-packages check --json", "of a folder, for a program"),
    ),
)
@names_argument
@format_option
@shared
@click.pass_obj
def command(options: Options, names: tuple[str, ...]) -> int:
    """Fail unless every selected patch is in place; reads only.

    In place is applied or upstream, nothing foreign, no stale bytecode, and what Python would load is what was checked.
    """
    return code_of(run_verb(options, "check", lambda catalog: actions.check(*subject(options, catalog, names))))
