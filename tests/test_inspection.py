"""Bytecode and shadows, seen from a survey."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.catalog import load_catalog
from patchkit.cli import run
from patchkit.environment import Environment
from patchkit.inspection import inspect_loading
from patchkit.survey import Survey
from tests.trees import Tree


def findings(tree: Tree, imported: dict[str, Path | None]) -> list[tuple[str, str | None]]:
    catalog = load_catalog(tree.catalog)
    survey = Survey(catalog, Environment("python", (3, 11), (tree.site,), imported=imported))
    return [(finding.code, finding.file) for finding in inspect_loading(survey, catalog.select(["engine_models"]))]


def test_package_imported_from_what_is_checked(tree: Tree, tmp_path: Path) -> None:
    assert findings(tree, {}) == []
    assert findings(tree, {"engine": tree.site / "engine"}) == []
    (tmp_path / "alias").symlink_to(tree.site)
    assert findings(tree, {"engine": tmp_path / "alias" / "engine"}) == []


@pytest.mark.parametrize("imported", [Path("/elsewhere/engine"), None])
def test_package_imported_from_elsewhere(tree: Tree, imported: Path | None) -> None:
    assert findings(tree, {"engine": imported}) == [("shadowed", str(imported) if imported else None)]


def test_bytecode_folder_that_cannot_be_listed(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    (tree.engine.parent / "__pycache__").symlink_to("__pycache__")
    assert [code for code, _ in findings(tree, {})] == ["file-unreadable"]
