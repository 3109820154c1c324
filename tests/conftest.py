"""The tree that most tests work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import ENGINE, WORKER, WORKER_PATCH, Tree, install, list_digests, write_catalog


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return two pristine, listed distributions: the engine, by engine-cpu beside an alias, and the worker."""
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    engine = {"engine/__init__.py": "", "engine/core.py": ENGINE}
    install(site, "engine-cpu", "1.5", engine)
    install(site, "engine", "1.5", {"engine_alias/__init__.py": ""})
    install(site, "worker", "1.5", {"worker/__init__.py": "", "worker/capture.py": WORKER})
    catalog = write_catalog(tmp_path / "catalog", {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    list_digests(catalog, site, {"engine": "1.5", "worker": "1.5"})
    return Tree(site, catalog, site / "engine/core.py", site / "worker/capture.py")
