"""What the runner costs: the real server on a CPU, bare and through ``patchkit-serve``: ``make bench-serve``."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from patchkit.runner.client import ask_all
from patchkit.runner.keeper import descendants
from tests.engine.conftest import Engine
from tests.engine.environment import later_base
from tests.engine.test_serve import VARIABLES
from tests.runner.fake import free_port

TIMES = 6
"""Pairs; each second one runs the other way round, so that no drift of the machine counts for one side."""
ROUNDS = 50
"""Of each side, in the order of ABBA, too."""
PROMPTS = [[10, 11, 12], [100], [33, 34, 35], [7]]


def own(runner: int) -> list[int]:
    """Return the runner's process and its keeper's."""
    return [runner, *(pid for pid in descendants(runner) if b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes())]


def own_time(pids: list[int]) -> float:
    """Return the CPU seconds that some processes have taken."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(found[11]) + int(found[12]) for found in fields) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(command: list[str], port: int) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Run a server, bare or not; give its process and the seconds until it was ready."""
    began = time.monotonic()
    variables = os.environ | VARIABLES
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed patchkit has its bytecode
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None and time.monotonic() - began < 300
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield process, time.monotonic() - began
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def tokens(port: int) -> float:
    """Return the tokens a second of one short round."""
    return ask_all(f"http://127.0.0.1:{port}", "tiny", PROMPTS, 32, 1).throughput


def beside(command: list[str], port: int) -> tuple[list[float], list[float], float]:
    """Return the tokens a second of one server while the runner runs and while it is stopped, and the runner's load.

    Two servers differ by more than the runner could cost. A stopped runner costs nothing, so one server tells.
    """
    running: list[float] = []
    alone: list[float] = []
    with serving(command, port) as (process, _):
        pids, load = own(process.pid), 0.0
        tokens(port)
        for number in range(2 * ROUNDS):
            if is_stopped := number % 4 in (1, 2):
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP)
            taken, began = own_time(pids), time.monotonic()
            (alone if is_stopped else running).append(tokens(port))
            if is_stopped:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
            else:
                load += (own_time(pids) - taken) / (time.monotonic() - began) / ROUNDS
    return running, alone, load


def main(work: Path) -> None:
    """Run both, one after the other, a few times; print the ratios of the medians."""
    engine, port = Engine(work), free_port()
    python = str(later_base())
    speculation = f'{{"method": "eagle3", "model": "{engine.models}/draft", "num_speculative_tokens": 2}}'
    arguments = ["--port", str(port), "--served-model-name", "tiny", "--max-model-len", "256", "--enforce-eager"]
    arguments += ["--dtype", "bfloat16", "--block-size", "16", "--max-num-seqs", "4", "--trust-remote-code"]
    target = str(engine.models / "target")
    bare = [python, "-m", "vllm.entrypoints.cli.main", "serve", target, "--speculative-config", speculation]
    runner = [sys.executable, "-c", "from patchkit.serve_cli import main; main()", "--python", python, "--gpus", "none"]
    runner += ["--log", str(work / "log"), "--draft", f"{engine.models}/draft", "--num-speculative-tokens", "2", target]
    commands = {"bare vllm serve": [*bare, *arguments], "patchkit-serve": [*runner, "--", *arguments]}
    with serving(commands["bare vllm serve"], port):
        pass  # what only the first start writes into caches
    found: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(TIMES):
        for name in sorted(commands, reverse=bool(number % 2)):
            with serving(commands[name], port) as (_, ready):
                found[name].append(ready)
    print("seconds until ready")
    compare(found)
    running, alone, load = beside(commands["patchkit-serve"], port)
    print("\ntokens a second of one server, its runner stopped and running by turns")
    compare({"runner stopped": alone, "runner running": running})
    print(f"  runner and keeper take {load:.2%} of a core")


def compare(found: dict[str, list[float]]) -> None:
    """Print the medians, their ratio, and that of each pair."""
    base, ours = found.values()
    for name, values in found.items():
        each = " ".join(f"{value:.1f}" for value in values)
        ratio = statistics.median(values) / statistics.median(base)
        print(f"  {name:16} {statistics.median(values):6.1f}   {ratio:5.3f} x   ({each})")
    ratios = sorted(our / bare for our, bare in zip(ours, base))
    print(f"  median of the pairs {statistics.median(ratios):.3f} x ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
