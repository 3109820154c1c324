"""The table of releases in README.md; needs no wheel."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from patchkit.targets import Listing
from tests.support import CATALOG
from tests.wheels.table import ROOT, becomes, fill, row, span, to_markdown


@pytest.mark.parametrize(
    ("release", "patch_id", "expected"),
    [
        (("vllm", "0.15.1"), "kimi_k25_bare_language_model", "apply"),
        (("vllm", "0.16.0"), "kimi_k25_bare_language_model", "upstream"),
        (("vllm", "0.17.1"), "eagle3_aux_hidden_states", "apply"),
        (("vllm", "0.33.0"), "eagle3_aux_hidden_states", "upstream"),
        (("speculators", "0.3.0"), "custom_worker_unwrap", "apply"),
        (("speculators", "0.4.0.1"), "custom_worker_unwrap", "upstream"),
    ],
    ids=str,
)
def test_what_becomes(release: tuple[str, str], patch_id: str, expected: str) -> None:
    assert becomes(CATALOG, *release, patch_id) == expected


def test_release_before_the_range() -> None:
    assert becomes(CATALOG, "vllm", "0.14.1", "kimi_k25_image_token") == ""


@pytest.mark.parametrize(("after", "expected"), [("0" * 64, "upstream"), ("1" * 64, "apply")])
def test_digests_decide(after: str, expected: str) -> None:
    name = "custom_worker_unwrap"
    (path,) = CATALOG.headers[name].files
    listed = {("speculators", "0.3.1"): {path: Listing("0" * 64, {frozenset({name}): after})}}
    catalog = replace(CATALOG, targets=CATALOG.targets._replace(releases=listed))
    assert becomes(catalog, "speculators", "0.3.1", name) == expected
    cells = ("0.3.1", "–") if expected == "apply" else ("–", "0.3.1")
    assert row(catalog, name) == (f"`{name}`", "speculators", *cells, "–")


@pytest.mark.parametrize(
    ("versions", "expected"), [(["1.0"], "1.0"), (["1.0", "1.1"], "1.0 to 1.1"), (["1", "1.10", "2"], "1 to 2")]
)
def test_span(versions: list[str], expected: str) -> None:
    assert span(versions) == expected


def test_row_of_a_patch_with_a_condition() -> None:
    assert row(CATALOG, "generator_request_without_eos") == (
        "`generator_request_without_eos`",
        "speculators",
        "0.3.0 to 0.4.0.1",
        "–",
        "vllm >=0.17.0,<0.18.0",
    )


def test_only_what_lies_between_the_markers_is_replaced() -> None:
    text = "a\n<!-- releases -->\nold\n<!-- /releases -->\nb\n"
    assert fill(text, "new\n") == text.replace("old", "new")
    with pytest.raises(AssertionError, match="no markers"):
        fill("a\n<!-- releases -->\n", "new\n")


def test_readme_is_up_to_date() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert text == fill(text, to_markdown(CATALOG)), "run: python -m tests.wheels.table --write"


def test_table_is_printed() -> None:
    command = [sys.executable, "-m", "tests.wheels.table"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True)
    assert (done.stdout, done.stderr) == (to_markdown(CATALOG), "")
