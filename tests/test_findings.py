"""The stable words, and where they are documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from patchkit import errors
from patchkit.findings import CODES
from patchkit.fleet.report import ENDS
from patchkit.gates.gate import GATES, WHEN
from patchkit.survey import STATES

ROOT = Path(__file__).parent.parent


def words(marker: str) -> list[str]:
    """Return the first column of a table of the README, between two markers."""
    text = (ROOT / "README.md").read_text("utf-8")
    table = text[text.index(f"<!-- {marker} -->") : text.index(f"<!-- /{marker} -->")]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("marker", "known"),
    [("findings", CODES), ("states", STATES), ("gates", GATES), ("when", WHEN), ("ends", tuple(ENDS))],
)
def test_readme_documents_every_word(marker: str, known: tuple[str, ...]) -> None:
    assert words(marker) == list(known)


def test_every_error_has_a_documented_word() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PatchkitError)
    ]
    assert {kind.code for kind in kinds} - {"error"} <= set(CODES)


def test_every_word_in_the_source_is_documented() -> None:
    source = "".join(path.read_text() for path in (ROOT / "patchkit").rglob("*.py"))
    assert set(re.findall(r'Finding\(\s*"([a-z-]+)"', source)) <= set(CODES)


def test_every_patch_is_in_the_changelog_and_has_a_test() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    patches = {path.stem for path in (ROOT / "patches").glob("*.py")}
    assert all(f"`{name}`" in changelog for name in patches)
    assert {path.stem.removeprefix("test_") for path in (ROOT / "tests/patches").glob("test_*.py")} == patches
