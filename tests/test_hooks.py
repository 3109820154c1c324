"""The hooks, by the real pre-commit, from a clone of this checkout as a user's would be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trees import WORKER_PATCH, write_catalog

ROOT = Path(__file__).parent.parent

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.xdist_group("hooks"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

Hook = Callable[..., subprocess.CompletedProcess[str]]
CONFIG = """\
repos:
- repo: {repository}
  rev: {revision}
  hooks:
  - id: patchkit-check
    args: [--site={site}]
  - id: patchkit-catalog
"""


def git(place: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    variables |= {"GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-C", str(place), *identity, *words]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of what makes the wheel and the hooks, whatever is committed here."""
    place = tmp_path_factory.mktemp("repository")
    for name in ("patchkit", "patches"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "targets.toml", "README.md", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, place)
    git(place, "init", "--quiet")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "All")
    return place


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return pre-commit's folder, so that the hooks' environment is made once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a user's repository with a catalog."""
    place = write_catalog(tmp_path / "project", {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    git(place, "init", "--quiet")
    return place


@pytest.fixture
def hook(project: Path, repository: Path, home: Path, tmp_path: Path) -> Hook:
    """Return what runs a hook over the whole project."""
    revision = git(repository, "rev-parse", "HEAD")
    site = tmp_path / "site"
    site.mkdir()
    text = CONFIG.format(repository=repository, revision=revision, site=site)
    (project / ".pre-commit-config.yaml").write_text(text)

    def run(name: str) -> subprocess.CompletedProcess[str]:
        git(project, "add", "--all")
        variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        variables["PRE_COMMIT_HOME"] = str(home)
        command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never", name]
        return subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)

    return run


def test_manifest() -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")]
    assert subprocess.run(command, check=False).returncode == 0


def test_catalog(hook: Hook, project: Path) -> None:
    done = hook("patchkit-catalog")
    assert (done.returncode, done.stdout.splitlines()[-1].endswith("Passed")) == (0, True), done.stdout
    patch = project / "patches/engine_models.py"
    patch.write_text(patch.read_text().replace("versions=", "version="))
    done = hook("patchkit-catalog")
    assert done.returncode == 1
    assert "patch-invalid: " in done.stdout


def test_check(hook: Hook) -> None:
    done = hook("patchkit-check")
    assert done.returncode == 1
    assert "nothing-applicable: nothing selected applies here" in done.stdout
