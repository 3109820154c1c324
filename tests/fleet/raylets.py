"""Real raylets on this machine: each with an interpreter, a site folder and an address of its own.

Every process carries a word in its environment by which it is found and ended; nothing else is ever touched.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from patchkit.fleet.parcel import closure
from patchkit.runner.keeper import kill_marked

MARK = "PATCHKIT_TEST_NODE"
_HEALTH = (
    '{"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_timeout_ms": 3000, '
    '"health_check_failure_threshold": 4}'
)
"""A node that has died is noticed after seconds, not after half a minute."""
_NOTICED = 12
_STARTED = 120
_PORTS = (
    "node-manager",
    "object-manager",
    "runtime-env-agent",
    "dashboard-agent-grpc",
    "dashboard-agent-listen",
    "metrics-export",
)


@dataclass(frozen=True)
class Raylet:
    """One node."""

    name: str
    address: str
    python: Path
    site: Path
    mark: str
    prefix: tuple[str, ...] = ()
    """What its commands begin with: the network namespace, where it has one."""

    def pids(self) -> list[int]:
        """Return every process of the node."""
        return marked(self.mark)

    def pid_of(self, word: str) -> list[int]:
        """Return the processes whose command line has a word."""
        return [pid for pid in self.pids() if word.encode() in Path("/proc", str(pid), "cmdline").read_bytes()]

    def kill(self) -> None:
        """Let the node die at once, with all that runs on it."""
        kill_marked(self.mark)


class Raylets:
    """A cluster that is started node by node."""

    def __init__(self) -> None:
        # A socket's path may have 107 characters, and Ray puts 62 below this folder.
        self.folder = Path(tempfile.mkdtemp(prefix="pkf-", dir="/tmp"))
        self.mark = uuid.uuid4().hex
        self.nodes: list[Raylet] = []
        self._made = 0
        self._removed = float("-inf")
        self.network = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}"
        self.port, self.client_port = free_port(), free_port()
        self._lend_ray()

    @property
    def address(self) -> str:
        """Return the address of the cluster."""
        return f"{self.nodes[0].address}:{self.port}"

    def environment(self, mark: str = "") -> dict[str, str]:
        """Return the environment of a process of this cluster."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "COV_"))}
        ours = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(self.folder), MARK: mark or self.mark}
        ours["RAY_raylet_start_wait_time_s"] = str(_STARTED)
        return {**kept, **ours}

    def make(self, name: str, address: str = "", prefix: tuple[str, ...] = ()) -> Raylet:
        """Make the interpreter of a node, which has Ray and nothing of patchkit's, and return the node."""
        place = self.folder / name
        venv.create(place, symlinks=True)
        (site,) = place.glob("lib/python3*/site-packages")
        (site / "ray.pth").write_text(f"{self.folder / 'lent'}\n")
        self._made += 1
        address = address or f"{self.network}.{self._made}"
        return Raylet(name, address, place / "bin/python", site, f"{MARK}={self.mark}-{uuid.uuid4().hex[:8]}", prefix)

    def start(self, *nodes: Raylet) -> None:
        """Start some nodes; the first of all is the head."""
        if not self.nodes:
            head, nodes = nodes[0], nodes[1:]
            more = ["--head", f"--port={self.port}", f"--ray-client-server-port={self.client_port}"]
            self._wait([self._start(head, *more, "--include-dashboard=false", f"--system-config={_HEALTH}")])
        self._wait([self._start(node, f"--address={self.address}") for node in nodes])

    def _start(self, node: Raylet, *more: str) -> subprocess.Popen[bytes]:
        self.nodes.append(node)
        # Without a CPU: a node on which all are taken runs what is asked of it, too.
        options = ["--num-cpus=0", "--object-store-memory=80000000", "--disable-usage-stats"]
        # Ray looks for free ports and names and takes them later: two nodes that start at once would find the same.
        options += [f"--{name}-port={free_port()}" for name in _PORTS]
        options.append(f"--temp-dir={self.folder}/{len(self.nodes)}")
        options += [f"--node-ip-address={node.address}", f"--node-name={node.name}"]
        command = [*node.prefix, str(node.python), "-m", "ray.scripts.scripts", "start", *options, *more]
        log = (self.folder / f"{node.name}.log").open("wb")
        mark = node.mark.partition("=")[2]
        with log:
            return subprocess.Popen(
                command, env=self.environment(mark), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )

    def _wait(self, started: list[subprocess.Popen[bytes]]) -> None:
        for process in started:
            if process.wait(_STARTED) != 0:
                logs = "\n".join(place.read_text("utf-8", "replace") for place in self.folder.glob("*.log"))
                raise AssertionError(f"a raylet has not started:\n{logs}")

    def remove(self, node: Raylet) -> None:
        """Let a node die, and forget it."""
        node.kill()
        self.nodes.remove(node)
        self._removed = time.monotonic()

    def settle(self) -> None:
        """Wait until the cluster knows of every node that was removed; until then it counts them."""
        time.sleep(max(0.0, self._removed + _NOTICED - time.monotonic()))

    def close(self) -> None:
        """End every process of the cluster, and prove that none is left."""
        for node in reversed(self.nodes):
            node.kill()
        kill_marked(f"{MARK}={self.mark}")
        left = [pid for node in self.nodes for pid in node.pids()]
        shutil.rmtree(self.folder, ignore_errors=True)
        assert left == []

    def _lend_ray(self) -> None:
        """Let the nodes have Ray and what it needs, and nothing else of this environment."""
        lent = self.folder / "lent"
        lent.mkdir()
        for found in (distribution("ray"), distribution("click"), distribution("grpcio"), *closure(["ray", "grpcio"])):
            for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
                with contextlib.suppress(FileExistsError):  # google is a folder of several
                    (lent / top).symlink_to(str(found.locate_file(top)))


def marked(mark: str) -> list[int]:
    """Return every process that has a word in its environment."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit() and mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: object, seconds: float = 60) -> None:
    """Wait until something is true."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.1)


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Let some processes stand still."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def driver(*words: str) -> list[str]:
    """Return the command line of ``patchkit`` in this environment."""
    return [sys.executable, "-m", "patchkit", *words]
