"""What the runner costs: the real server on a CPU, bare and through ``patchkit-serve``: ``make bench-serve``."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from patchkit.runner.client import ask_all
from patchkit.runner.keeper import descendants
from tests.engine.conftest import Engine
from tests.engine.environment import later_base
from tests.engine.test_serve import VARIABLES
from tests.runner.fake import free_port

TIMES = 3
ROUNDS = 5
PROMPTS = [[10, 11, 12], [100], [33, 34, 35], [7]]


def own_time(runner: int) -> float:
    """Return the CPU seconds that the runner and its keeper have taken; 0 for a bare server."""
    pids = [runner, *(pid for pid in descendants(runner) if b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes())]
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(found[11]) + int(found[12]) for found in fields) / os.sysconf("SC_CLK_TCK") if pids[1:] else 0.0


def once(command: list[str], port: int) -> tuple[float, float, float]:
    """Return the seconds until a server is ready, its tokens a second, and the runner's CPU seconds a second."""
    began = time.monotonic()
    variables = os.environ | VARIABLES
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed patchkit has its bytecode
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        while True:
            assert process.poll() is None and time.monotonic() - began < 300
            try:
                if httpx.get(f"{url}/health", trust_env=False).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(0.1)
        ready = time.monotonic() - began
        ask_all(url, "tiny", PROMPTS, 64, 1)
        taken, began = own_time(process.pid), time.monotonic()
        rate = statistics.median(ask_all(url, "tiny", PROMPTS, 64, 1).throughput for _ in range(ROUNDS))
        return ready, rate, (own_time(process.pid) - taken) / (time.monotonic() - began)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


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
    once(commands["bare vllm serve"], port)  # what only the first start writes into caches
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(TIMES):
        for name, command in commands.items():
            found[name].append(once(command, port))
            print(f"{name}: ready after %.1f s, %.1f tokens/s, %.4f of a core" % found[name][-1], flush=True)
    for what, place, unit in (("ready", 0, "s"), ("tokens a second", 1, "")):
        medians = {name: statistics.median(pair[place] for pair in pairs) for name, pairs in found.items()}
        base = medians["bare vllm serve"]
        print(f"\n{what}")
        for name, value in medians.items():
            values = " ".join(f"{pair[place]:.1f}" for pair in found[name])
            print(f"  {name:16} {value:8.2f} {unit}   {value / base:5.3f} x   ({values})")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
