"""A wheel by its file, or by a requirement that pip downloads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.environment import Environment
from patchkit.errors import DownloadFailed

_STDERR = 2


@contextmanager
def brought(what: str, environment: Environment) -> Iterator[Path]:
    """Give a wheel for as long as it is needed: a file as it is, a requirement downloaded."""
    if what.endswith(".whl"):
        yield Path(what)
        return
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = str(Requirement(what))
    except InvalidRequirement as error:
        hint = "name a .whl file, or a requirement as vllm==0.16.0"
        raise DownloadFailed(f"{what!r} is neither a wheel nor a requirement", hint) from error
    import tempfile

    with tempfile.TemporaryDirectory(prefix="patchkit-") as folder:
        yield _download(requirement, Path(folder), environment)


def _download(requirement: str, folder: Path, environment: Environment) -> Path:
    """Let pip, the target's or else our own, download the wheel that fits the target, and nothing else."""
    problems = []
    for python in dict.fromkeys((environment.python or sys.executable, sys.executable)):
        problems.append(_pip(python, requirement, folder, environment))
        wheels = list(folder.glob("*.whl"))
        if len(wheels) == 1:
            return wheels[0]
    hint = f"download it in another way (pip download --no-deps {requirement}), and name the file of the wheel"
    raise DownloadFailed(f"pip does not bring {requirement}: {problems[0]}", hint)


def _pip(python: str, requirement: str, folder: Path, environment: Environment) -> str:
    """Run pip, and return what it says went wrong; nothing of a wheel is run."""
    import subprocess

    version = ".".join(map(str, environment.version))
    command = [python, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", version, "--dest", str(folder), requirement]
    try:
        # In the empty folder: `-m` would take a module of the working directory for pip. Its progress goes to our
        # error stream: a wheel can have 500 MB, and the output is the report's.
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=_STDERR, stderr=subprocess.PIPE, check=False
        )
    except OSError as error:
        return f"{python} cannot be run: {error.strerror}"
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit {done.returncode}"]
    return next((line for line in lines if line.startswith("ERROR:")), lines[-1])
