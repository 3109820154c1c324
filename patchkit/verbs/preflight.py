"""``patchkit preflight``: whether a model and a drafter will pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchkit import diagnosis
from patchkit.catalog import Catalog
from patchkit.manual import Verb
from patchkit.options import Options, code_of, environment_of, format_option, run_verb, shared
from patchkit.report import Report

_model = click.Path(path_type=Path, readable=False)
_count = click.IntRange(min=1)


@click.command(
    "preflight",
    cls=Verb,
    exits=("no gate fails", "a gate fails; with --strict also: one is unknown"),
    examples=(
        ("patchkit preflight --model Kimi-K2.5", "a model alone"),
        ("patchkit preflight --model Kimi-K2.5 --draft kimi-k2.5-eagle3 --tp 8", "with a drafter, on 8 GPUs"),
        ("patchkit preflight --all-models", "which models take EAGLE-3 at all"),
    ),
)
@click.option("--model", metavar="DIR|FILE", type=_model, help="The model's folder, or its config.json.")
@click.option("--draft", metavar="DIR|FILE", type=_model, help="The drafter's folder, or its config.json.")
@click.option("--method", type=click.Choice(["eagle3"]), default="eagle3", help="How is speculated: EAGLE-3.")
@click.option("--num-speculative-tokens", "tokens", type=_count, metavar="K", help="Tokens that are drafted at once.")
@click.option("--tp", type=_count, default=1, metavar="N", help="Tensor parallel size.")
@click.option("--pp", type=_count, default=1, metavar="N", help="Pipeline parallel size.")
@click.option("--all-models", is_flag=True, help="Judge the image token of every multimodal class instead.")
@click.option("--strict", is_flag=True, help="Exit with 1 also where nothing can be said of a gate.")
@format_option
@shared
@click.pass_obj
def command(options: Options, /, model: Path | None, draft: Path | None, all_models: bool, **given: Any) -> int:
    """Say whether a model and a drafter will pass vLLM's gates.

    It takes a second: source and configurations are read, nothing is loaded.
    """
    if (model is None) != all_models or (draft is not None and all_models):
        raise click.UsageError("give --model, with --draft for the drafter, or --all-models alone")
    if all_models and options.form not in (None, "text", "json"):
        raise click.UsageError("--all-models is a table without a verdict; print it with --format text or json")

    def action(catalog: Catalog) -> Report:
        environment = environment_of(options, catalog)
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

    return code_of(run_verb(options, "preflight", action))
