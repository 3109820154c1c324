"""Kill apply and revert at every step and look at what is left; run in a process of its own, since it forks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from patchkit.cli import run
from tests.faults import kill_at_every_step
from tests.trees import snapshot


def main(site: Path, catalog: Path, work: Path) -> None:
    """Check both verbs; the site folder is pristine."""
    options = ["--site", str(site), "--catalog", str(catalog)]
    pristine = snapshot(site)
    points = {}
    for verb in ("apply", "revert"):
        points[verb] = 0
        for at, copy in kill_at_every_step(site, catalog, verb, work / verb):
            points[verb] += 1
            check(verb, at, copy, catalog, pristine)
        if verb == "apply":
            assert run([*options, "apply"]) == 0
    sys.stderr.write(f"points: {points['apply']} {points['revert']}\n")


def check(verb: str, at: int, copy: Path, catalog: Path, pristine: dict[str, object]) -> None:
    """Assert that every file is pristine or patched, and that every verb does the right thing afterwards."""
    where = f"{verb} killed at step {at}"
    options = ["--site", str(copy), "--catalog", str(catalog)]
    assert run([*options, "status"]) == 0, where
    if run([*options, "check"]) == 0:
        assert b"kimi" in (copy / "engine/core.py").read_bytes(), where
        assert b"language_model" in (copy / "worker/capture.py").read_bytes(), where
    assert run([*options, "apply"]) == 0, where
    assert run([*options, "check"]) == 0, where
    assert run([*options, "revert"]) == 0, where
    assert snapshot(copy) == pristine, where


if __name__ == "__main__":
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    main(*(Path(argument) for argument in sys.argv[1:]))
