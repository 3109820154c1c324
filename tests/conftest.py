"""The tree that most tests work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import Tree, make_tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return two pristine, listed distributions: the engine, by engine-cpu beside an alias, and the worker."""
    return make_tree(tmp_path)
