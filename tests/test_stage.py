from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.archive import open_wheel
from patchkit.catalog import Catalog, load_catalog
from patchkit.environment import Environment
from patchkit.errors import TargetError
from patchkit.stage import stage, stage_beside
from patchkit.survey import Survey
from tests.trees import WORKER_PATCH, write_catalog
from tests.wheelfiles import FILES, write_wheel


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return load_catalog(write_catalog(tmp_path / "catalog", {"engine_models": {}, "worker_unwrap": WORKER_PATCH}))


def survey(catalog: Catalog, site: Path) -> Survey:
    return Survey(catalog, Environment(None, (3, 11), (site,)))


def test_only_what_a_plan_looks_at(tmp_path: Path, catalog: Catalog) -> None:
    site = tmp_path / "site"
    with open_wheel(write_wheel(tmp_path, {**FILES, "engine/folder/": b""})) as wheel:
        stage(wheel, ["engine/core.py", "engine/gone.py", "engine/folder/"], site)
    found = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert found == {"engine/core.py", *(f"engine_cpu-1.5.dist-info/{name}" for name in ("METADATA", "RECORD"))}
    assert survey(catalog, site).state("engine_models").state == "pristine"


def test_target_beside(tmp_path: Path, catalog: Catalog) -> None:
    stage_beside(catalog, ["Engine_CPU == 1.5+local", "worker==2"], tmp_path)
    found = survey(catalog, tmp_path).installed()
    assert [(one.distribution, str(one.version)) for one in found.values()] == [
        ("engine-cpu", "1.5+local"),
        ("worker", "2"),
    ]


@pytest.mark.parametrize("text", ["engine", "engine>=1", "engine==1.*", "engine==1,>0", "pip==1", "==", "a b"])
def test_no_version_of_a_target(tmp_path: Path, catalog: Catalog, text: str) -> None:
    with pytest.raises(TargetError) as caught:
        stage_beside(catalog, [text], tmp_path)
    assert caught.value.hint.startswith("write it as NAME==VERSION")
