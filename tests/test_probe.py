from __future__ import annotations

import ast
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from patchkit import probe


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on the path, with a package, a namespace, a module; none may be run."""
    for name in ("probed", "probed_namespace", "probed_broken"):
        (tmp_path / name).mkdir()
    for name in ("probed/__init__.py", "probed_module.py"):
        (tmp_path / name).write_text("raise SystemExit('run')\n")
    (tmp_path / "probed_broken" / "__init__.py").write_text("def f(:\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield tmp_path
    sys.path_importer_cache.pop(str(tmp_path / "elsewhere"), None)


def survey(*packages: str) -> dict[str, Any]:
    found: dict[str, Any] = probe.survey(packages)
    return found


@pytest.mark.parametrize(
    ("package", "folder"),
    [
        ("probed", "probed"),
        ("probed_broken", "probed_broken"),
        ("probed_namespace", "probed_namespace"),
        ("probed_module", None),
        ("probed_absent", None),
        ("sys", None),
    ],
)
def test_folder_of_a_package(site: Path, package: str, folder: str | None) -> None:
    assert survey(package)["packages"] == {package: str(site / folder) if folder else None}
    assert package == "sys" or package not in sys.modules


@pytest.mark.parametrize("name", ["", ".relative", "__main__"])
def test_name_that_cannot_be_looked_up(site: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert survey(name)["packages"] == {name: None}


def test_working_directory_comes_first(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "flags", type("Flags", (), {"safe_path": False}))
    (site / "elsewhere" / "probed").mkdir()
    (site / "elsewhere" / "probed" / "__init__.py").write_text("")
    answer = survey("probed")
    assert answer["path"][0] == str(site / "elsewhere")
    assert answer["packages"] == {"probed": str(site / "elsewhere" / "probed")}


def test_working_directory_is_left_out_on_a_safe_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "flags", type("Flags", (), {"safe_path": True}))
    (site / "elsewhere" / "probed").mkdir()
    assert str(site / "elsewhere") not in survey("probed")["path"]


def test_working_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    source = Path(probe.__file__).read_text("utf-8")
    code = f"import os, sys; os.rmdir(os.getcwd()); exec(compile({source!r}, 'probe', 'exec'))"
    done = subprocess.run([sys.executable, "-c", code, "json"], cwd=tmp_path / "gone", capture_output=True, check=False)
    assert done.stderr.decode() == ""
    assert done.stdout.decode().startswith(probe.MARK)


def test_working_directory_that_cannot_be_told(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(sys, "flags", type("Flags", (), {"safe_path": False}))
    monkeypatch.setattr(os, "getcwd", gone)
    assert survey()["path"] == [entry for entry in sys.path if entry]


def test_answer(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", "/prefix")
    before = [*sys.path]
    answer = survey()
    assert sys.path == before
    assert (answer["python"], tuple(answer["version"])) == (sys.executable, sys.version_info[:2])
    assert (answer["pycache_prefix"], answer["packages"]) == ("/prefix", {})
    assert "" not in answer["path"]
    assert str(site) in answer["path"]


def test_path_is_put_back_after_an_error(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        """A finder that fails in a way of its own."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            raise LookupError(name)

    monkeypatch.setattr(sys, "meta_path", [Broken()])
    before = sys.path
    with pytest.raises(LookupError):
        survey("probed")
    assert sys.path is before


def test_prints_one_marked_line(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["probe", "probed"])
    runpy.run_path(probe.__file__, run_name="__main__")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("patchkit-probe:{")
    assert json.loads(line.removeprefix(probe.MARK))["packages"] == {"probed": str(site / "probed")}


def test_runs_from_its_text_without_patchkit(site: Path) -> None:
    source = Path(probe.__file__).read_text("utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", source, "probed"]
    done = subprocess.run(command, capture_output=True, check=True, env=environment, cwd=site / "elsewhere")
    answer = json.loads(done.stdout.decode().removeprefix(probe.MARK))
    assert answer["packages"] == {"probed": str(site / "probed")}
    assert answer["path"][0] == str(site / "elsewhere") or getattr(sys.flags, "safe_path", False)


def test_syntax_is_that_of_an_old_python() -> None:
    ast.parse(Path(probe.__file__).read_text("utf-8"), feature_version=(3, 7))
