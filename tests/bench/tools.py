"""An environment to measure in, and the measuring."""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_PEAK = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


@dataclass(frozen=True)
class Site:
    """An environment with patchkit and what it patches."""

    python: Path
    folder: Path
    """Its site folder."""

    @property
    def patchkit(self) -> list[str]:
        """The command."""
        return [str(self.python.parent / "patchkit"), "--python", str(self.python)]


def install(work: Path, packages: Sequence[str]) -> Site:
    """Install the wheel of patchkit and some packages, without what these need, in a new environment."""
    venv.create(work / "venv", with_pip=True)
    python = work / "venv/bin/python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(ROOT)], check=True)
    subprocess.run([*pip, "--no-deps", *packages], check=True)
    (folder,) = (work / "venv").glob("lib/python3*/site-packages")
    return Site(python, folder)


def measure(commands: Mapping[str, Sequence[str]], *options: str, rounds: int = 5) -> dict[str, float]:
    """Return the median wall time of some commands, in seconds, measured side by side.

    They take turns: a machine that is busy for a minute is busy for all of them.
    """
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        with tempfile.NamedTemporaryFile() as file:
            command = ["hyperfine", "-N", "--warmup", "1", "--export-json", file.name, *options]
            subprocess.run([*command, *map(shlex.join, commands.values())], check=True, capture_output=True)
            for name, result in zip(commands, json.loads(Path(file.name).read_text())["results"]):
                times[name] += result["times"]
    return {name: statistics.median(found) for name, found in times.items()}


def peak_memory(command: Sequence[str]) -> float:
    """Return the greatest resident set of a command or of a process that it starts, in MiB."""
    found = subprocess.run([sys.executable, "-c", _PEAK, *command], capture_output=True, check=True)
    return int(found.stdout) / 1024


def show(title: str, times: Mapping[str, float]) -> None:
    """Print the times of one group, and each as a ratio to the first."""
    base = next(iter(times.values()))
    print(f"\n{title}")
    for name, seconds in times.items():
        print(f"  {name:36} {seconds * 1000:8.1f} ms   {seconds / base:5.2f} x")
