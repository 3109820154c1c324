"""The tree that most tests work on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.trees import Tree, make_tree

# The same few examples each time for a change to be judged by; new ones, and many, are for `make torture`.
settings.register_profile("short", max_examples=10, derandomize=True, database=None, deadline=None)
settings.register_profile(
    "torture", max_examples=300, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("short")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return two pristine, listed distributions: the engine, by engine-cpu beside an alias, and the worker."""
    return make_tree(tmp_path)
