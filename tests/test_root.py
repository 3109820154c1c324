"""``--root`` on images that mean harm: nothing outside of the root is read, listed, written or run."""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import stat
import sys
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.environment import find_environment
from tests.trees import Tree, snapshot

TAG = sys.implementation.cache_tag


@pytest.fixture
def image(tree: Tree, tmp_path: Path) -> Path:
    """Return the root of an image with both distributions, in a virtual environment."""
    root = tmp_path / "image"
    (root / "opt/venv").mkdir(parents=True)
    (tmp_path / "lib").rename(root / "opt/venv/lib")
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder beside the image."""
    place = tmp_path / "outside"
    place.mkdir()
    return place


def site_of(image: Path) -> Path:
    return image / "opt/venv/lib/python3.11/site-packages"


def patchkit(tree: Tree, image: Path, *words: str) -> int:
    return run(["--root", str(image), "--catalog", str(tree.catalog), *words])


def codes(tree: Tree, image: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the codes that check finds."""
    capsys.readouterr()
    patchkit(tree, image, "check", "--json")
    return [finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]]


def test_session(tree: Tree, image: Path) -> None:
    before = snapshot(image)
    assert patchkit(tree, image, "check") == 1
    assert patchkit(tree, image, "apply") == 0
    assert patchkit(tree, image, "check") == 0
    assert patchkit(tree, image, "revert") == 0
    assert snapshot(image) == before


def test_absolute_links_are_resolved_inside(tree: Tree, image: Path) -> None:
    site = site_of(image)
    (image / "srv").mkdir()
    for path in ("engine/core.py", "engine_cpu-1.5.dist-info"):
        (site / path).rename(image / "srv" / Path(path).name)
        (site / path).symlink_to(f"/srv/{Path(path).name}")
    assert patchkit(tree, image, "apply") == 0
    assert patchkit(tree, image, "check") == 0
    assert (image / "srv/core.py").read_bytes() != (site / "engine/core.py").read_bytes()
    assert patchkit(tree, image, "revert") == 0
    assert os.readlink(site / "engine/core.py") == "/srv/core.py"


@pytest.mark.parametrize("up", ["", "../../../../../../../.."], ids=["absolute", "upwards"])
def test_a_file_that_is_linked_out_is_not_there(
    tree: Tree, image: Path, outside: Path, up: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = site_of(image) / "engine/core.py"
    place.rename(outside / "core.py")
    place.symlink_to(f"{up}{outside}/core.py")
    before = snapshot(outside)
    assert "missing-file" in codes(tree, image, capsys)
    assert patchkit(tree, image, "apply") == 1
    assert snapshot(outside) == before


def test_a_package_that_is_linked_out_is_refused(
    tree: Tree, image: Path, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = site_of(image) / "engine"
    package.rename(outside / "engine")
    package.symlink_to(outside / "engine")
    before = snapshot(outside)
    assert "path-escape" in codes(tree, image, capsys)
    assert patchkit(tree, image, "apply") == 1
    assert snapshot(outside) == before


@pytest.mark.parametrize("name", ["RECORD", "METADATA"])
def test_metadata_that_is_linked_out_is_not_read(tree: Tree, image: Path, outside: Path, name: str) -> None:
    metadata = site_of(image) / "engine_cpu-1.5.dist-info"
    (metadata / name).rename(outside / name)
    (metadata / name).symlink_to(outside / name)
    assert patchkit(tree, image, "check") == 1


def stale_bytecode(folder: Path) -> Path:
    """Write bytecode that Python would load without a look at the source."""
    source, made = folder / "other.py", folder / f"core.{TAG}.pyc"
    source.write_bytes(b"x = 1\n")
    py_compile.compile(str(source), str(made), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return made


def test_bytecode_outside_is_neither_listed_nor_dropped(tree: Tree, image: Path, outside: Path) -> None:
    made = stale_bytecode(outside)
    (site_of(image) / "engine/__pycache__").symlink_to(outside)
    assert patchkit(tree, image, "apply") == 0
    assert patchkit(tree, image, "check") == 0
    assert made.exists()


def test_bytecode_inside_is_found_through_an_absolute_link(
    tree: Tree, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = image / "var/cache"
    cache.mkdir(parents=True)
    made = stale_bytecode(cache)
    (site_of(image) / "engine/__pycache__").symlink_to("/var/cache")
    assert patchkit(tree, image, "apply") == 0
    assert not made.exists()
    stale_bytecode(cache)
    assert codes(tree, image, capsys) == ["stale-bytecode"]


def test_bytecode_that_is_itself_a_link_is_read_inside(
    tree: Tree, image: Path, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert patchkit(tree, image, "apply") == 0
    cache = site_of(image) / "engine/__pycache__"
    cache.mkdir()
    (cache / f"core.{TAG}.pyc").symlink_to(stale_bytecode(outside))
    assert codes(tree, image, capsys) == []
    stale_bytecode(image).rename(image / "made.pyc")
    (cache / f"core.{TAG}.opt-1.pyc").symlink_to("/made.pyc")
    assert codes(tree, image, capsys) == ["stale-bytecode"]


@pytest.mark.parametrize("name", [".patchkit", ".patchkit/lock", ".patchkit/journal.json", ".patchkit/objects"])
def test_a_journal_that_is_linked_out_is_not_written(tree: Tree, image: Path, outside: Path, name: str) -> None:
    place = site_of(image) / name
    place.parent.mkdir(exist_ok=True)
    if name.endswith(("lock", "json")):
        (outside / "file").write_bytes(b"keep me")
        place.symlink_to(outside / "file")
    else:
        place.symlink_to(outside)
    before = snapshot(outside)
    for verb in ("check", "apply", "revert"):
        assert patchkit(tree, image, verb) == 1
    assert snapshot(outside) == before


def test_what_python_would_run_or_follow_at_its_start_is_not_looked_at(tree: Tree, image: Path, outside: Path) -> None:
    site = site_of(image)
    (image / "opt/venv/pyvenv.cfg").write_text(f"home = ../../..{outside}\nversion_info = 9.9\n")
    (site / "evil.pth").write_text(f"{outside}\nimport pathlib; pathlib.Path({str(outside)!r}, 'run').touch()\n")
    (site / "sitecustomize.py").write_text(f"open({str(outside / 'run')!r}, 'w')\n")
    (image / "opt/venv/bin").mkdir()
    (image / "opt/venv/bin/python").symlink_to("/bin/false")
    for verb in ("status", "diff", "apply", "check"):
        assert patchkit(tree, image, verb) == 0
    assert list(outside.iterdir()) == []
    assert importlib.util.find_spec("engine") is None


def test_rows_of_record_that_lead_out_are_never_followed(tree: Tree, image: Path, outside: Path) -> None:
    record = site_of(image) / "engine_cpu-1.5.dist-info/RECORD"
    with record.open("a") as file:
        file.write(f"../../../../../..{outside}/file,sha256=AAAA,1\r\n{outside}/file,sha256=AAAA,1\r\n")
    (outside / "file").write_bytes(b"keep me")
    before = snapshot(outside)
    assert (patchkit(tree, image, "apply"), patchkit(tree, image, "check"), patchkit(tree, image, "revert")) == (
        0,
        0,
        0,
    )
    assert snapshot(outside) == before


def test_whiteouts_of_a_layer_are_no_distribution(tree: Tree, image: Path) -> None:
    site = site_of(image)
    for name in (".wh.engine_cpu-1.5.dist-info", ".wh..wh..opq", ".wh.engine"):
        (site / name).write_bytes(b"")
    assert patchkit(tree, image, "apply") == 0
    assert patchkit(tree, image, "check") == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_whiteout_in_place_of_a_file_is_no_file(tree: Tree, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = site_of(image) / "engine/core.py"
    place.unlink()
    try:
        os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("no device may be made here")
    assert "file-unreadable" in codes(tree, image, capsys)


def test_version_is_that_of_the_packages_site(tree: Tree, image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("lib/python2.7/site-packages", "lib/python3/dist-packages"):
        (image / name).mkdir(parents=True)
    assert find_environment(None, None, image, ["engine"]).version == (3, 11)
    assert find_environment(None, None, image, ["absent"]).version == (2, 7)
    (image / "lib/python2.7/site-packages").rmdir()
    assert find_environment(None, None, image, ["absent"]).version == (3, 11)


def test_condas_store_of_packages_is_no_environment(tree: Tree, image: Path) -> None:
    store = image / "opt/venv/pkgs/engine-1.5"
    (image / "opt/venv/conda-meta").mkdir()
    store.mkdir(parents=True)
    (store / "site-packages").mkdir()
    (store / "site-packages/engine-1.5.dist-info").mkdir()
    (store / "site-packages/engine_cpu-1.5.dist-info").mkdir()
    assert patchkit(tree, image, "apply") == 0
