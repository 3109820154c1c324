"""A wheel by its file, or by a requirement that pip downloads."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from patchkit.environment import Environment
from patchkit.errors import DownloadFailed

_STDERR = 2


@contextmanager
def brought(what: str, environment: Environment) -> Iterator[Path]:
    """Give a wheel for as long as it is needed: a file as it is, a requirement downloaded."""
    if what.endswith(".whl"):
        yield Path(what)
        return
    try:
        requirement = str(Requirement(what))
    except InvalidRequirement as error:
        hint = "name a .whl file, or a requirement as vllm==0.16.0"
        raise DownloadFailed(f"{what!r} is neither a wheel nor a requirement", hint) from error
    with tempfile.TemporaryDirectory(prefix="patchkit-") as folder:
        yield _download(requirement, Path(folder), environment)


def _download(requirement: str, folder: Path, environment: Environment) -> Path:
    """Let pip of the target's interpreter download the wheel that fits it, and nothing that it depends on."""
    python = environment.python or sys.executable
    command = [python, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    hint = "see what pip says, or download the wheel in another way and name its file"
    try:
        # pip shows its progress on our error stream: a wheel can have 500 MB, and the output is the report's.
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=_STDERR, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise DownloadFailed(
            f"{python} cannot be run: {error.strerror}", "name an interpreter with --python"
        ) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit {done.returncode}"]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        raise DownloadFailed(f"pip of {python} does not bring {requirement}: {errors[0]}", hint)
    return wheels[0]
