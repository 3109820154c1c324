"""A little server in the place of vLLM's, in an environment of its own."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.runner import keeper
from tests.trees import ENGINE, install, list_digests, write_catalog

ROOT = Path(__file__).parent.parent.parent
TARGET = '\n[targets.vllm]\npackage = "vllm"\ndistributions = ["vllm"]\n'
PATCH = {"target": "vllm", "path": "vllm/core.py"}
METRICS = """\
# HELP vllm:generation_tokens_total Tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0"}} {count}
"""
SPECULATION = """\
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total {drafts}
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total {drafted}
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total {accepted}
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {accepted}
vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="1"}} 0
"""
SERVER = f"""
import argparse, http.server, json, os, pathlib, signal, sys, time
from importlib.metadata import entry_points

here = pathlib.Path(os.environ["FAKE_PIDS"])
METRICS = {METRICS!r}
SPECULATION = {SPECULATION!r}


def begin():
    if options.act != "unproved":
        allowed = os.environ.get("VLLM_PLUGINS")
        for point in entry_points(group="vllm.general_plugins"):
            if allowed is None or point.name in allowed.split(","):
                point.load()()
    (here / str(os.getpid())).touch()


def stay():
    begin()
    time.sleep(120)
    os._exit(0)


def child(prepare):
    if os.fork() == 0:
        prepare()
        if os.fork() == 0:
            stay()
        stay()


class Answers(http.server.BaseHTTPRequestHandler):
    count = 0

    drafts = 0

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if options.act == "refuses":
            return self.answer("no", 400)
        Answers.drafts += asked["max_tokens"] // 2
        time.sleep(0.01 if options.speculative_config else 0.02)
        events = [{{"choices": [{{"text": "a"}}]}}] * asked["max_tokens"]
        events.append({{"choices": [], "usage": {{"completion_tokens": asked["max_tokens"]}}}})
        text = "".join("data: " + json.dumps(event) + "\\n\\n" for event in events)
        self.answer(": hello\\n\\ndata: no json\\n\\ndata: []\\n\\n" + text + "data: [DONE]\\n\\n")

    def answer(self, text, code=200):
        data = text.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        Answers.count += 0 if options.act == "idle" else 50
        metrics = METRICS.format(count=Answers.count)
        if options.speculative_config:
            drafts = Answers.drafts
            metrics += SPECULATION.format(drafts=drafts, drafted=2 * drafts, accepted=drafts)
        models = json.dumps({{"data": [] if options.act == "nameless" else [{{"id": "tiny"}}]}})
        text = {{"/health": "", "/metrics": metrics, "/v1/models": models}}.get(self.path)
        if options.act == "sick" and self.path == "/metrics":
            text = None
        data = (text or "").encode()
        self.send_response(200 if text is not None else 500)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


parser = argparse.ArgumentParser()
parser.add_argument("verb")
parser.add_argument("model")
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--act", default="well")
parser.add_argument("--speculative-config")
options = parser.parse_args()
if options.act == "tampers":
    import vllm.core
    pathlib.Path(vllm.core.__file__).write_text("changed\\n")
begin()
print("Starting to load model " + options.model, flush=True)
if options.act == "dies":
    sys.exit("ValueError: model is refused")
if options.act == "loads":
    time.sleep(120)
if options.act == "lies":
    print("patchkit proof: process 1 has 1 patched files, digest " + "0" * 64, flush=True)
child(os.setsid)
child(lambda: options.act == "stubborn" and signal.signal(signal.SIGTERM, signal.SIG_IGN))
while len(list(here.iterdir())) < 5:
    time.sleep(0.05)
server = http.server.ThreadingHTTPServer((options.host, options.port), Answers)
kept = options.act == "hangs"
signal.signal(signal.SIGTERM, signal.SIG_IGN if kept else lambda *_: os._exit(7 if options.act == "seven" else 0))
print("Application startup complete", flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class Fake:
    """An environment with the little server, a catalog for it, and what a test has started of it."""

    python: Path
    site: Path
    catalog: Path
    pids: Path
    log: Path
    port: int

    def words(self, act: str = "well", *more: str, model: str = "some/model") -> list[str]:
        """Return the command line of the runner."""
        known = ["--python", str(self.python), "--catalog", str(self.catalog), "--set", "all", "--gpus", "none"]
        known += ["--log", str(self.log), "--interval", "0.5", *more]
        return [*known, model, "--", "--port", str(self.port), "--act", act]

    def command(self, act: str = "well", *more: str) -> list[str]:
        """Return the runner as a process of its own."""
        return [sys.executable, "-c", "from patchkit.serve_cli import main; main()", *self.words(act, *more)]

    def started(self) -> list[int]:
        """Return the processes of the server, as each has said of itself."""
        return [int(place.name) for place in self.pids.iterdir()]

    def left(self) -> list[int]:
        """Return those of them that still run."""
        return [pid for pid in self.started() if is_running(pid)]


def is_running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int) -> str:
    """Return the state of a process; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def children(root: int) -> list[int]:
    """Return the processes whose parent is a process."""
    return [pid for pid, parent in keeper._parents() if parent == root]


def born(pid: int) -> str:
    """Return when a process began, which tells it from another one of the same number; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until something is true, and fail where that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def end(pid: int) -> None:
    """Kill a process, where it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def make_fake(place: Path, *, patched: bool = True, **files: str) -> Fake:
    """Make an environment with the little server, by default patched."""
    venv.create(place / "venv", symlinks=True, with_pip=False)
    (site,) = (place / "venv/lib").glob("python*/site-packages")
    packages = {f"vllm/{name}__init__.py": "" for name in ("", "entrypoints/", "entrypoints/cli/")}
    install(site, "vllm", "1.5", {**packages, "vllm/core.py": ENGINE, "vllm/entrypoints/cli/main.py": SERVER, **files})
    catalog = write_catalog(place / "catalog", {"vllm_models": PATCH}, TARGET)
    list_digests(catalog, site, {"vllm": "1.5"})
    if patched:
        with contextlib.redirect_stdout(io.StringIO()):
            assert run(["--site", str(site), "--catalog", str(catalog), "apply"]) == 0
    (place / "pids").mkdir()
    return Fake(place / "venv/bin/python", site, catalog, place / "pids", place / "server.log", free_port())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """Return the environment of the little server, patched; what is left at the end, or after a minute, is killed."""
    made = make_fake(tmp_path)
    monkeypatch.setenv("FAKE_PIDS", str(made.pids))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of a runner that is killed, a folder is left
    for name in ("VLLM_PLUGINS", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "PATCHKIT_REQUIRE"):
        monkeypatch.delenv(name, raising=False)

    def give_up() -> None:
        for pid in made.left():
            end(pid)

    bound = threading.Timer(60, give_up)
    bound.start()
    yield made
    bound.cancel()
    give_up()


def spawn(command: list[str], **more: object) -> subprocess.Popen[bytes]:
    """Start a process whose output is kept and whose input is a pipe."""
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, **more
    )  # type: ignore[call-overload,no-any-return]
