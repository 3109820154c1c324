from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.catalog import load_catalog
from patchkit.cli import run
from patchkit.environment import Environment
from patchkit.listing import list_wheel, merge, write
from patchkit.proof import set_digest
from patchkit.record import digest
from tests.trees import ENGINE, WORKER, WORKER_PATCH, write_catalog
from tests.wheelfiles import FILES, contents, write_wheel

Patchkit = Callable[..., tuple[int, str, str]]

TWO = {"old": "return None", "new": "return 2", "within": "Engine.stop"}
PATCHED = ENGINE.replace(
    '        models = ["llama"', "        # patchkit: engine_models\n        models = ['llama'"
).replace('"qwen"]', "'qwen', 'kimi']")
NAME = "engine_cpu-1.5+patchkit.{label}-py3-none-any.whl"


def label(text: str = PATCHED) -> str:
    return set_digest({"engine/core.py": digest(text.encode())})[:12]


BUILT = NAME.format(label=label())


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """Return a catalog that lists engine 1.5."""
    place = write_catalog(tmp_path / "catalog", {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    list_release(place, write_wheel(tmp_path / "listed"))
    return place


def list_release(place: Path, wheel: Path) -> None:
    loaded = load_catalog(place)
    write(loaded, merge(loaded.targets, [list_wheel(loaded, wheel, Environment(None, (3, 11), ()))]))


@pytest.fixture
def patchkit(tmp_path: Path, catalog: Path, capsys: pytest.CaptureFixture[str]) -> Patchkit:
    """Return what runs the command line in our own interpreter."""

    def call(*arguments: object, at: Path | None = None) -> tuple[int, str, str]:
        where = ["--site", str(at)] if at else ["--python", sys.executable]
        code = run([*where, "--catalog", str(catalog), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    return tmp_path / "dist"


def install(wheel: Path, site: Path) -> Path:
    """Unpack a wheel, as installers do."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# What cannot be patched.


@pytest.mark.parametrize("name", ["engine_models-1.5.tar.gz", "vllm=1", "-e ."])
def test_neither_wheel_nor_requirement(patchkit: Patchkit, name: str) -> None:
    code, _, err = patchkit("wheel", "--", name)
    assert (code, err.split(":")[0]) == (1, "download-failed")


def test_unknown_name_is_a_usage_error(patchkit: Patchkit, tmp_path: Path) -> None:
    assert patchkit("wheel", write_wheel(tmp_path), "engine_model")[0] == 2


def test_wheel_of_another_project(patchkit: Patchkit, tmp_path: Path) -> None:
    code, _, err = patchkit("wheel", write_wheel(tmp_path, name="other"))
    assert (code, err.splitlines()[1]) == (1, "    name a wheel of one of: engine, engine-cpu, worker")


def test_unlisted_release(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    wheel = write_wheel(tmp_path, {**FILES, "engine/core.py": b"import os\n" + ENGINE.encode()}, version="1.7")
    code, out, err = patchkit("wheel", wheel, "-o", dist)
    assert (code, out) == (1, "wheel: 1 finding, nothing was written\n")
    assert err.startswith("digest-unlisted: engine/core.py of engine-cpu 1.7 is not in targets.toml\n")
    assert not dist.exists()
    assert patchkit("wheel", wheel, "-o", dist, "--allow-unlisted")[0] == 0


def test_patch_that_does_not_land(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    wheel = write_wheel(tmp_path, {**FILES, "engine/core.py": b"x = 1\n"})
    code, _, err = patchkit("wheel", wheel, "-o", dist, "--allow-unlisted")
    assert (code, err.split(":")[0], names(dist)) == (1, "anchor-not-found", [])


def test_file_that_is_not_in_the_wheel(patchkit: Patchkit, tmp_path: Path) -> None:
    code, _, err = patchkit("wheel", write_wheel(tmp_path, {"engine/__init__.py": b""}))
    assert (code, err.split(":")[0]) == (1, "missing-file")


def test_wheel_without_the_package(patchkit: Patchkit, tmp_path: Path) -> None:
    code, _, err = patchkit("wheel", write_wheel(tmp_path, {"engine_alias/__init__.py": b""}))
    assert (code, err.split(":")[0]) == (1, "owner-unclear")


def test_release_outside_the_range(patchkit: Patchkit, tmp_path: Path) -> None:
    files = {**FILES, "engine/core.py": b"y = 1\n"}
    code, _, err = patchkit("wheel", write_wheel(tmp_path, files, version="0.5"))
    assert (code, err.split(":")[0]) == (1, "nothing-applicable")


def test_patch_for_another_target(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    code, _, err = patchkit("wheel", write_wheel(tmp_path), "engine_models", "worker_unwrap", "-o", dist)
    assert (code, names(dist)) == (1, [])
    assert err.startswith("not-applicable: worker_unwrap is for worker, and the wheel is of engine-cpu\n")


def test_set_for_another_target(patchkit: Patchkit, catalog: Path, tmp_path: Path) -> None:
    text = (catalog / "targets.toml").read_text()
    only = '[sets.workers]\ntitle = "Workers"\npatches = ["worker_unwrap"]\n\n[sets.all]'
    (catalog / "targets.toml").write_text(text.replace("[sets.all]", only))
    code, _, err = patchkit("wheel", write_wheel(tmp_path), "workers")
    assert (code, err.splitlines()[0]) == (1, "nothing-applicable: nothing that was selected is for engine")


def test_hostile_wheel(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    wheel = write_wheel(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("../../outside.py", b"")
    code, _, err = patchkit("wheel", wheel, "-o", dist)
    assert (code, err.split(":")[0], dist.exists()) == (1, "path-escape", False)


def test_another_wheel_of_that_name(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    dist.mkdir()
    (dist / BUILT).write_bytes(b"other")
    code, _, err = patchkit("wheel", write_wheel(tmp_path), "-o", dist)
    assert (code, err.splitlines()[0]) == (1, f"wheel-exists: {dist / BUILT} is there already, and is another wheel")
    assert (names(dist), (dist / BUILT).read_bytes()) == ([BUILT], b"other")


def test_folder_that_cannot_be_written(patchkit: Patchkit, tmp_path: Path) -> None:
    code, _, err = patchkit("wheel", wheel := write_wheel(tmp_path), "-o", wheel / "dist")
    assert (code, err.split(":")[0]) == (1, "write-failed")


def test_patched_wheel_that_lacks_something(patchkit: Patchkit, catalog: Path, tmp_path: Path, dist: Path) -> None:
    assert patchkit("wheel", write_wheel(tmp_path), "-o", dist)[0] == 0
    other = {**WORKER_PATCH, "target": "engine", "path": "engine/capture.py"}
    write_catalog(catalog, {"engine_models": {}, "engine_unwrap": other})
    (catalog / "patches" / "worker_unwrap.py").unlink()
    wheel = write_wheel(tmp_path, {**FILES, "engine/capture.py": WORKER.encode()})
    assert patchkit("wheel", wheel, "engine_models", "-o", dist / "new", "--allow-unlisted")[0] == 0
    code, _, err = patchkit("wheel", dist / "new" / BUILT, "-o", dist / "new", "--allow-unlisted")
    assert (code, names(dist / "new")) == (1, [BUILT])
    assert err.startswith(f"patched-wheel: {BUILT} is a patched wheel, and it lacks some of what was selected\n")


def test_what_it_is_installed_beside_decides(patchkit: Patchkit, catalog: Path, tmp_path: Path, dist: Path) -> None:
    fields = {**WORKER_PATCH, "requires": '{"engine": ">=1.0,<2.0"}'}
    write_catalog(catalog, {"engine_models": {}, "worker_unwrap": fields})
    wheel = write_wheel(tmp_path, {"worker/__init__.py": b"", "worker/capture.py": WORKER.encode()}, name="worker")
    code, out, err = patchkit("wheel", wheel, "--allow-unlisted", "-o", dist)
    assert (code, out, names(dist)) == (1, "wheel: 1 finding, nothing was written\n", [])
    assert err == (
        "not-applicable: whether worker_unwrap will be right depends on the engine beside worker 1.5\n"
        "    say which it will be: --beside engine==VERSION\n"
    )
    code, _, err = patchkit("wheel", wheel, "--allow-unlisted", "-o", dist, "--beside", "engine==2.5")
    assert (code, err.split(":")[0]) == (1, "nothing-applicable")
    code, _, err = patchkit("wheel", wheel, "--allow-unlisted", "-o", dist, "--beside", "engine>2.5")
    assert (code, err.split(":")[0]) == (1, "owner-unclear")
    assert patchkit("wheel", wheel, "--allow-unlisted", "-o", dist, "--beside", "engine-cpu==1.5")[0] == 0


# What is written.


def test_report(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    code, out, err = patchkit("wheel", write_wheel(tmp_path), "-o", dist)
    lines = out.splitlines()
    assert (code, err, names(dist)) == (0, "", [BUILT])
    assert lines[0] == "engine/core.py  +2 -1  engine_models"
    assert [line.split(",")[0] for line in lines[1:3]] == ["-engine/core.py", "+engine/core.py"]
    assert f"+{BUILT.removesuffix('-py3-none-any.whl')}.dist-info/RECORD,," in lines
    sha256 = digest((dist / BUILT).read_bytes())
    assert lines[-1] == f"wheel: {dist / BUILT} has 1 patched file, SHA-256 {sha256}"


def test_report_in_json(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    wheel = write_wheel(tmp_path)
    code, out, _ = patchkit("--json", "wheel", wheel, "-o", dist)
    report = json.loads(out)
    assert (code, report["ok"], report["written"], report["verb"]) == (0, True, True, "wheel")
    assert (report["wheel"], report["version"]) == (str(dist / BUILT), f"1.5+patchkit.{label()}")
    assert report["sha256"] == digest((dist / BUILT).read_bytes())
    assert report["record_diff"].startswith("diff --git a/engine_cpu-1.5.dist-info/RECORD")
    assert [(row["distribution"], row["version"], row["site"]) for row in report["targets"]] == [
        ("engine-cpu", "1.5", wheel.name)
    ]
    assert [(row["path"], row["site"]) for row in report["changes"]] == [("engine/core.py", wheel.name)]


def test_what_differs(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    wheel = write_wheel(tmp_path, {**FILES, "engine_cpu-1.5.data/scripts/tool": b"#!python\n"})
    patchkit("wheel", wheel, "-o", dist)
    before, after = contents(wheel), contents(dist / BUILT)
    stem = f"engine_cpu-1.5+patchkit.{label()}"
    moved = {name.replace("engine_cpu-1.5", stem): data for name, data in before.items()}
    marker, record = f"{stem}.dist-info/patchkit.json", f"{stem}.dist-info/RECORD"
    assert list(after) == [*list(moved)[:-1], marker, record]
    different = {name for name in moved if after[name] != moved[name]}
    assert different == {"engine/core.py", f"{stem}.dist-info/METADATA", record}
    assert after["engine/core.py"].decode() == PATCHED
    rows = list(csv.reader(io.StringIO(after[record].decode())))
    assert [row[0] for row in rows] == list(after)
    for path, value, size in rows[:-1]:
        expected = base64.urlsafe_b64encode(hashlib.sha256(after[path]).digest()).rstrip(b"=").decode()
        assert (value, size) == (f"sha256={expected}", str(len(after[path])))


def test_same_again(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    wheel = write_wheel(tmp_path)
    patchkit("wheel", wheel, "-o", dist)
    first = (dist / BUILT).read_bytes()
    code, out, _ = patchkit("wheel", wheel, "-o", dist)
    assert (code, out.splitlines()[-1].rpartition("; ")[2]) == (0, "it was there already")
    (dist / BUILT).unlink()
    patchkit("wheel", wheel, "-o", dist)
    assert (dist / BUILT).read_bytes() == first


def test_label_that_is_there_is_kept(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    assert patchkit("wheel", write_wheel(tmp_path, version="1.5+cu129"), "-o", dist)[0] == 0
    assert names(dist) == [f"engine_cpu-1.5+cu129.patchkit.{label()}-py3-none-any.whl"]


def test_nothing_to_patch(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    wheel = write_wheel(tmp_path, {**FILES, "engine/core.py": b"x = 1\n"}, version="2.0")
    code, out, _ = patchkit("wheel", wheel, "-o", dist)
    assert (code, out, names(dist)) == (0, "wheel: nothing to do, the wheel has all of it\n", [])
    report = json.loads(patchkit("--json", "wheel", wheel, "-o", dist)[1])
    assert (report["ok"], report["wheel"], report["sha256"]) == (True, None, None)


def test_patched_wheel_has_all_of_it(patchkit: Patchkit, tmp_path: Path, dist: Path) -> None:
    patchkit("wheel", write_wheel(tmp_path), "-o", dist)
    assert patchkit("wheel", dist / BUILT, "-o", dist)[:2] == (0, "wheel: nothing to do, the wheel has all of it\n")


# What an environment with the patched wheel is.


@pytest.fixture
def site(patchkit: Patchkit, tmp_path: Path, dist: Path) -> Path:
    """Return a site folder with the patched wheel."""
    patchkit("wheel", write_wheel(tmp_path), "-o", dist)
    return install(dist / BUILT, tmp_path / "lib" / "python3.11" / "site-packages")


def marker_of(site: Path) -> Path:
    (place,) = site.glob("*.dist-info/patchkit.json")
    return place


def state(patchkit: Patchkit, site: Path, name: str = "engine_models") -> str:
    report = json.loads(patchkit("--json", "status", name, at=site)[1])
    return str(report["patches"][0]["state"])


def without_marker(site: Path) -> None:
    """Take the marker away, and its row: what a tool does that knows only of RECORD."""
    record = marker_of(site).with_name("RECORD")
    marker_of(site).unlink()
    record.write_bytes(b"".join(line for line in record.read_bytes().splitlines(True) if b"patchkit.json" not in line))


def test_check_and_apply(patchkit: Patchkit, site: Path) -> None:
    assert patchkit("check", at=site)[0] == 0
    assert state(patchkit, site) == "applied"
    assert patchkit("apply", at=site)[:2] == (0, "apply: nothing to do\n")
    assert not (site / ".patchkit").exists()


@pytest.mark.parametrize("has_marker", [True, False])
def test_statement_says_which_wheel_it_descends_from(patchkit: Patchkit, site: Path, has_marker: bool) -> None:
    if not has_marker:
        without_marker(site)
    (stated,) = json.loads(patchkit("statement", at=site)[1])["components"]
    (ancestor,) = stated["pedigree"]["ancestors"]
    assert (stated["version"], ancestor["version"]) == (f"1.5+patchkit.{label()}", "1.5")
    assert ancestor["purl"] == "pkg:pypi/engine-cpu@1.5"
    (file,) = stated["components"]
    before = hashlib.sha256(ENGINE.encode()).hexdigest()
    assert file["pedigree"]["ancestors"][0]["hashes"] == [{"alg": "SHA-256", "content": before}]


def test_check_loads_no_parser(site: Path, catalog: Path) -> None:
    code = (
        "import sys; from patchkit.cli import run; code = run(sys.argv[1:]); "
        'sys.exit(f\'{code} {sorted({"libcst", "zipfile", "subprocess"} & set(sys.modules))}\')'
    )
    command = [sys.executable, "-c", code, "--site", str(site), "--catalog", str(catalog), "check"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == "0 []\n"


def test_revert(patchkit: Patchkit, site: Path) -> None:
    code, out, err = patchkit("revert", at=site)
    assert (code, out) == (1, "revert: 1 finding, nothing was written\n")
    assert err == (
        f"patched-wheel: engine-cpu 1.5+patchkit.{label()} came patched in its wheel, "
        "and the pristine bytes are not here\n"
        "    bring the upstream wheel back: pip install --force-reinstall --no-deps engine-cpu==1.5\n"
    )
    assert (site / "engine/core.py").read_text() == PATCHED


@pytest.mark.parametrize("version", ["1.5", "1.5+cu129"])
def test_listed_digests_are_enough(patchkit: Patchkit, tmp_path: Path, dist: Path, version: str) -> None:
    patchkit("wheel", write_wheel(tmp_path, version=version), "-o", dist)
    site = install(next(dist.iterdir()), tmp_path / "site")
    without_marker(site)
    assert patchkit("check", at=site)[0] == 0
    code, _, err = patchkit("revert", at=site)
    assert (code, err.splitlines()[1].rpartition(" ")[2]) == (1, f"engine-cpu=={version}")


def test_unlisted_release_is_told_by_the_marker(patchkit: Patchkit, catalog: Path, tmp_path: Path, dist: Path) -> None:
    files = {**FILES, "engine/core.py": b"import os\n" + ENGINE.encode()}
    assert patchkit("wheel", write_wheel(tmp_path, files), "-o", dist, "--allow-unlisted")[0] == 0
    site = install(next(dist.iterdir()), tmp_path / "site")
    assert patchkit("check", at=site)[0] == 0
    assert patchkit("revert", at=site)[0] == 1
    patch = catalog / "patches" / "engine_models.py"
    patch.write_text(patch.read_text().replace("'kimi'", "'other'"))
    assert state(patchkit, site) == "stale"
    assert patchkit("apply", at=site)[2].startswith("patched-wheel: ")


@pytest.mark.parametrize("versions", [">=1.0,<=1.5", "==1.5", ">=1.5,<1.6", "==1.*"])
def test_range_does_not_look_at_the_label(
    patchkit: Patchkit, catalog: Path, tmp_path: Path, dist: Path, versions: str
) -> None:
    write_catalog(catalog, {"engine_models": {"versions": versions}, "worker_unwrap": WORKER_PATCH})
    assert patchkit("wheel", write_wheel(tmp_path), "-o", dist, "--allow-unlisted")[0] == 0
    site = install(dist / BUILT, tmp_path / "site")
    assert patchkit("check", at=site)[0] == 0
    (site / "engine/core.py").write_text(ENGINE)
    assert state(patchkit, site) == "pristine"


def test_foreign_edit(patchkit: Patchkit, site: Path) -> None:
    (site / "engine/core.py").write_text(PATCHED + "\n")
    assert state(patchkit, site) == "foreign"
    assert patchkit("apply", at=site)[2].startswith("foreign-edit: ")


def test_pristine_file_of_the_upstream_wheel(patchkit: Patchkit, site: Path) -> None:
    (site / "engine/core.py").write_text(ENGINE)
    assert state(patchkit, site) == "pristine"
    assert patchkit("check", at=site)[0] == 1
    assert patchkit("apply", at=site)[0] == 0
    assert state(patchkit, site) == "applied"
    assert patchkit("revert", at=site)[0] == 0
    assert (site / "engine/core.py").read_text() == ENGINE


@pytest.mark.parametrize("data", [b"", b"{}"])
def test_marker_that_was_edited(patchkit: Patchkit, site: Path, data: bytes) -> None:
    marker_of(site).write_bytes(data)
    code, _, err = patchkit("check", at=site)
    assert (code, err.split(":")[0]) == (1, "record-malformed")


def test_marker_that_cannot_be_read(patchkit: Patchkit, site: Path) -> None:
    marker_of(site).unlink()
    (marker_of_folder := next(site.glob("*.dist-info")) / "patchkit.json").mkdir()
    code, _, err = patchkit("check", at=site)
    assert (code, err.split(":")[0]) == (1, "record-malformed")
    assert "patchkit.json cannot be read: " in err
    assert marker_of_folder.is_dir()


def test_patch_of_another_catalog(patchkit: Patchkit, catalog: Path, site: Path) -> None:
    write_catalog(catalog, {"two": TWO, "worker_unwrap": WORKER_PATCH})
    (catalog / "patches" / "engine_models.py").unlink()
    code, _, err = patchkit("apply", "two", "--allow-unlisted", at=site)
    assert (code, err.split(":")[0]) == (1, "patched-wheel")
    assert patchkit("revert", at=site)[2].startswith("patched-wheel: ")


def test_file_of_another_catalog(patchkit: Patchkit, catalog: Path, site: Path) -> None:
    write_catalog(catalog, {"worker_unwrap": WORKER_PATCH})
    (catalog / "patches" / "engine_models.py").unlink()
    assert patchkit("revert", at=site)[2].startswith("patched-wheel: ")
