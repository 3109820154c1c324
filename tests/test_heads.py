"""The heads that the wheel carries: those of its patches, and of no other bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from patchkit import catalog as module
from patchkit.catalog import bundled_catalog, load_catalog
from patchkit.header import read_header
from patchkit.heads import read_heads, recall, to_json
from tests.support import CATALOG
from tests.trees import patch_text, write_catalog

ROOT = Path(__file__).parent.parent


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a bundled catalog with the head of its one Python patch."""
    place = tmp_path / "patchkit/catalog_data"
    write_catalog(place, {"engine_models": {}})
    (place / "heads.json").write_text(to_json([read_header(place / "patches/engine_models.py")]))
    monkeypatch.setattr(module, "__file__", str(tmp_path / "patchkit/catalog.py"))
    assert bundled_catalog() == place
    return place


@pytest.mark.parametrize("name", CATALOG.headers)
def test_head_is_as_it_was_read(name: str) -> None:
    header = CATALOG.headers[name]
    found = recall(json.loads(to_json([header])), header.place)
    assert found == header
    assert found is not None
    assert (type(found.patch.upstream), found.patch.rewritings) == (type(header.patch.upstream), {})


def test_nothing_is_parsed(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = load_catalog(bundled).headers
    monkeypatch.setattr(module, "_READERS", dict.fromkeys((".py", ".diff")))
    assert load_catalog(bundled).headers == read


def test_head_of_other_bytes_does_not_count(bundled: Path) -> None:
    (bundled / "patches/engine_models.py").write_text(patch_text(title="Another title"))
    assert load_catalog(bundled).headers["engine_models"].title == "Another title"


def test_patch_without_a_head(bundled: Path) -> None:
    (bundled / "heads.json").write_text("{}")
    assert list(load_catalog(bundled).headers) == ["engine_models"]


def test_only_the_bundled_catalog_is_believed(bundled: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_catalog(other, {"engine_models": {}})
    heads = json.loads((bundled / "heads.json").read_text())
    heads["engine_models.py"]["title"] = "Not what the file says"
    (other / "heads.json").write_text(json.dumps(heads))
    assert load_catalog(other).headers["engine_models"].title == "The engine takes another model"


def test_checkout_has_none() -> None:
    assert read_heads(ROOT / "heads.json") == {}


@pytest.mark.wheels
def test_wheel_carries_the_head_of_every_patch(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    data = tmp_path / "patchkit/catalog_data"
    heads = read_heads(data / "heads.json")
    places = sorted((data / "patches").glob("*.py"))
    assert [place.stem for place in places] == list(CATALOG.headers)
    assert [recall(heads, place) for place in places] == [read_header(place) for place in places]
