from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from patchkit.download import brought
from patchkit.environment import Environment
from patchkit.errors import DownloadFailed
from tests.wheelfiles import write_wheel

HERE = Environment(None, sys.version_info[:2], ())


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let pip know one folder of wheels and no index."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return write_wheel(tmp_path / "index").parent


def test_wheel_is_used_as_it_is() -> None:
    with brought("some/where.whl", HERE) as place:
        assert place == Path("some/where.whl")


@pytest.mark.parametrize("requirement", ["engine-cpu==1.5", "engine_cpu >=1,<2"])
def test_requirement_is_downloaded(requirement: str, index: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with brought(requirement, HERE) as place:
        assert place.read_bytes() == (index / place.name).read_bytes()
    assert not place.exists()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("what", ["-r evil.txt", "vllm=1", "", "--help"])
def test_neither_wheel_nor_requirement(what: str) -> None:
    with pytest.raises(DownloadFailed, match=r"is neither a wheel nor a requirement$"), brought(what, HERE):
        pass


def test_pip_does_not_bring_it() -> None:
    with pytest.raises(DownloadFailed, match=r"does not bring engine-cpu==2: ERROR: "), brought("engine-cpu==2", HERE):
        pass


@pytest.mark.parametrize(
    ("script", "words"),
    [("exit 3", "does not bring x: exit 3$"), ("echo no pip >&2; exit 1", "does not bring x: no pip$")],
)
def test_interpreter_without_pip(tmp_path: Path, script: str, words: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(DownloadFailed, match=words), brought("x", Environment(str(python), (3, 10), ())):
        pass


def test_own_pip_helps_where_the_target_has_none(tmp_path: Path, index: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    with brought("engine-cpu==1.5", Environment(str(python), (3, 10), ())) as place:
        assert place.read_bytes() == (index / place.name).read_bytes()


def test_no_interpreter(tmp_path: Path) -> None:
    environment = Environment(str(tmp_path / "python"), (3, 10), ())
    with pytest.raises(DownloadFailed, match="cannot be run: No such file"), brought("x", environment):
        pass
