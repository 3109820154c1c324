"""Start the server, wait until it is ready, watch it, and end it."""

from __future__ import annotations

import contextlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from patchkit import proof
from patchkit.errors import RunnerUsage
from patchkit.runner.command import Served, environment
from patchkit.runner.gpus import Gpu
from patchkit.runner.keeper import kill_marked
from patchkit.runner.log import ServerLog
from patchkit.runner.metrics import Speculation, describe, read_metrics

if TYPE_CHECKING:
    from httpx import Client

MARK = "PATCHKIT_RUN"
"""The variable by which every process of one run can be told."""
_STEP = 0.2
"""How often a server that starts is looked at, in seconds."""
_CALM = 1.0
"""How often one that is ready is looked at, in seconds; that it has ended is heard at once."""
ENTRY_POINT = "[vllm.general_plugins]\npatchkit = patchkit_proof:verify\n"
METADATA = "Metadata-Version: 2.1\nName: patchkit-proof\nVersion: 0\n"


@dataclass(frozen=True)
class Settings:
    """How a server is run."""

    python: str
    """The target's interpreter."""
    log: Path
    files: Mapping[str, str]
    """SHA-256 of the patched files that each process must have, by path."""
    has_plugin: bool = False
    """Whether the target's environment has patchkit, and so the plugin that proves each process."""
    gpus: Sequence[Gpu] = ()
    wanted_gpus: str = "all"
    hides_gpus: bool = False
    """Whether there are GPUs that the server must not see."""
    ready_timeout: float = 3600
    """Seconds."""
    stop_timeout: float = 60
    """Seconds from the first signal until the server is killed."""
    interval: float = 10
    """Seconds between two looks at /metrics."""


@dataclass
class Server:
    """A server that was started, with the keeper that ends it."""

    served: Served
    settings: Settings
    keeper: subprocess.Popen[bytes]
    log: ServerLog
    began: float = field(default_factory=time.monotonic)
    asked: list[int] = field(default_factory=list)
    """Signals that asked the runner to end."""
    asked_at: float | None = None
    _client: Client | None = None

    @property
    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began

    @property
    def code(self) -> int | None:
        """Return the server's exit code; None while it runs."""
        return self.keeper.poll()

    def wait_ready(self, show: Callable[[Server], None]) -> bool:
        """Wait until /health answers; False when the server ended, was asked to, or took too long."""
        while self.code is None and not self.asked:
            self.log.read()
            show(self)
            if self._ask("/health") is not None:
                self.log.read()
                return True
            if self.elapsed > self.settings.ready_timeout:
                return False
            time.sleep(_STEP)
        return False

    def watch(self, say: Callable[[str], None]) -> int:
        """Say what /metrics tell at every interval, until the server has ended; return its exit code."""
        seen, at = Speculation(), time.monotonic()
        while self.code is None:
            self.log.read()
            self._end_late()
            self._wait(_CALM)
            now = time.monotonic()
            if self.asked or now - at < self.settings.interval:
                continue
            found = self.metrics()
            if found is not None:
                if found.generated > seen.generated:
                    say(describe(found.since(seen), now - at))
                seen = found
            at = now
        self.log.read()
        return _exit_code(self.keeper.wait())

    def _wait(self, seconds: float) -> None:
        """Wait, but not longer than the keeper lives: its output, on which it says nothing, ends with it."""
        assert self.keeper.stdout is not None
        select.select([self.keeper.stdout], [], [], seconds)

    def stop(self, *, at_once: bool = False) -> None:
        """Ask the server to end, or kill it and all that it started."""
        assert self.keeper.stdin is not None
        if self.asked_at is None:
            self.asked_at = time.monotonic()
        with contextlib.suppress(OSError):
            self.keeper.stdin.write(b"k" if at_once else b"t")

    def close(self) -> None:
        """Let the log and the connection go."""
        self.log.close()
        if self._client is not None:
            self._client.close()

    def _end_late(self) -> None:
        if self.asked_at is not None and time.monotonic() - self.asked_at > self.settings.stop_timeout:
            self.stop(at_once=True)

    def metrics(self) -> Speculation | None:
        """Return what /metrics say; None where they say nothing that can be read."""
        text = self._ask("/metrics")
        try:
            return read_metrics(text) if text is not None else None
        except ValueError:
            return None

    def _ask(self, path: str) -> str | None:
        """Return what the server answers; None while it does not."""
        import httpx

        if self._client is None:
            # A certificate for another name is no matter here: it is the server that was started, on this machine.
            self._client = httpx.Client(timeout=5, trust_env=False, verify=False)  # noqa: S501
        try:
            answer = self._client.get(f"{self.served.url}{path}")
        except (httpx.HTTPError, httpx.InvalidURL):
            return None
        return answer.text if answer.is_success else None


@contextlib.contextmanager
def started(served: Served, settings: Settings) -> Iterator[Server]:
    """Start a server; at the end of the block nothing of it is left."""
    with contextlib.ExitStack() as stack:
        plugin = None if settings.has_plugin else stack.enter_context(_plugin())
        variables = environment(settings.files, settings.gpus, settings.hides_gpus, plugin)
        command = served.command(settings.python, settings.gpus)
        mark = f"{MARK}={uuid.uuid4().hex}"
        variables[MARK] = mark.partition("=")[2]
        begin = _open_log(settings.log)
        # By its path and isolated: the target's PYTHONPATH is for the server alone.
        keeper = subprocess.Popen(
            [
                sys.executable,
                "-I",
                str(Path(__file__).with_name("keeper.py")),
                str(settings.log),
                str(plugin or "-"),
                *command,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=variables,
            start_new_session=True,
        )
        server = Server(served, settings, keeper, ServerLog(settings.log, begin))
        try:
            with _signals(server):
                yield server
        finally:
            server.stop(at_once=True)
            assert keeper.stdin is not None and keeper.stdout is not None
            keeper.stdin.close()
            keeper.stdout.close()
            keeper.wait()
            kill_marked(mark)  # if it was the keeper that was killed
            server.close()


def _open_log(place: Path) -> int:
    """Make the log where it is not there, and return its size."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            return file.tell()
    except OSError as error:
        raise RunnerUsage(f"the log {place} cannot be written: {error.strerror}", "name another one: --log") from error


def _exit_code(code: int) -> int:
    """Return what a shell would say of a process that was killed."""
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _plugin() -> Iterator[Path]:
    """Give a folder with a copy of the plugin, as a distribution of its own, for a target that has no patchkit."""
    with tempfile.TemporaryDirectory(prefix="patchkit-proof-") as name:
        folder = Path(name)
        shutil.copyfile(str(proof.__file__), folder / "patchkit_proof.py")
        metadata = folder / "patchkit_proof-0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(METADATA, "utf-8")
        (metadata / "entry_points.txt").write_text(ENTRY_POINT, "utf-8")
        yield folder


@contextlib.contextmanager
def _signals(server: Server) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask the server to end, and kill it the second time."""

    def handle(number: int, _frame: FrameType | None) -> None:
        server.asked.append(number)
        server.stop(at_once=len(server.asked) > 1)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
