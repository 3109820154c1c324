"""Prove ``patchkit-serve`` on GPUs: ``python gpu_serve.py SITE WORK [--gpus N] [--overhead TIMES]``.

SITE is a site-packages folder with a pristine vLLM, on PYTHONPATH, and patchkit with its extra ``serve`` beside it;
WORK takes the models, the logs and ``result.json``. It is refused before ``apply``, nothing started; then the patched
server runs on one GPU and on N, with as many ranks: every process must prove its files, the drafter must be accepted
in the first position, the greedy tokens must be those of one GPU, and after SIGTERM, or SIGKILL of the runner, no
process may hold a GPU. ``--overhead`` starts one GPU's server so many times bare and through the runner, by turns.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pynvml

from patchkit.runner.client import ask_all
from patchkit.runner.metrics import read_metrics

URL = "http://127.0.0.1:8011"
PROMPTS = [[10, 11, 12], [100], [33, 34], [200, 201, 202, 203]]
ARGUMENTS = "--port 8011 --host 127.0.0.1 --served-model-name m --enforce-eager --max-model-len 512 --max-num-seqs 8 "
ARGUMENTS += "--trust-remote-code --dtype bfloat16 --gpu-memory-utilization 0.1 --kv-cache-memory-bytes 1073741824"
READY = 280
WARM, ROUNDS = 1, 4
"""How often the prompts are asked to warm up, and to be timed."""
RUNNER = [sys.executable, "-c", "from patchkit.serve_cli import main; main()", "--python", sys.executable]
BARE = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]


def runner(work: Path, gpus: str) -> list[str]:
    """Return the command of the runner on some GPUs."""
    models = work / "models"
    command = [*RUNNER, "--gpus", gpus, "--log", str(work / "server.log"), "--interval", "2"]
    command += ["--draft", str(models / "draft"), "--num-speculative-tokens", "2", str(models / "target")]
    return [*command, "--", *ARGUMENTS.split()]


def bare(work: Path) -> list[str]:
    """Return the server's own command."""
    models = work / "models"
    draft = {"method": "eagle3", "model": str(models / "draft"), "num_speculative_tokens": 2}
    return [*BARE, str(models / "target"), "--speculative-config", json.dumps(draft), *ARGUMENTS.split()]


def start(command: list[str], said: Path) -> tuple[subprocess.Popen[bytes], float | None]:
    """Start a server; return it and the seconds until it is ready, None when it ended instead."""
    began = time.monotonic()
    with said.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    while process.poll() is None and time.monotonic() - began < READY:
        try:
            if httpx.get(f"{URL}/health", trust_env=False).is_success:
                return process, time.monotonic() - began
        except httpx.HTTPError:
            time.sleep(0.1)
    return process, None


def holders() -> dict[int, list[int]]:
    """Return the processes that hold memory of each GPU."""
    found = {}
    for number in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        found[number] = [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    return found


def used() -> list[int]:
    """Return the MiB that are in use of each GPU."""
    handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
    return [pynvml.nvmlDeviceGetMemoryInfo(handle).used >> 20 for handle in handles]


def of_vllm() -> list[str]:
    """Return the processes of a server that are left."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "VLLM::" in line or "vllm.entrypoints" in line]


def complete() -> list[str]:
    """Return the greedy continuation of the prompts."""
    body = {"model": "m", "prompt": PROMPTS, "max_tokens": 64, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(f"{URL}/v1/completions", json=body, timeout=120, trust_env=False)
    return [choice["text"] for choice in answer.raise_for_status().json()["choices"]]


def serve(work: Path, gpus: str, *, end: int) -> dict[str, Any]:
    """Run the server on some GPUs, and end it by a signal to its runner."""
    said = work / f"runner-{gpus}-{end}.txt"
    process, ready = start(runner(work, gpus), said)
    row: dict[str, Any] = {"ready": ready}
    if ready is not None:
        row["texts"] = complete()
        row["held"] = {number: len(pids) for number, pids in holders().items()}
        counted = read_metrics(httpx.get(f"{URL}/metrics", trust_env=False).text)
        row["acceptance"] = counted.rates
        time.sleep(3)
    began = time.monotonic()
    process.send_signal(end)
    row["exit"] = process.wait(90)
    while any(holders().values()) and time.monotonic() - began < 30:
        time.sleep(0.1)
    row["seconds to end"] = round(time.monotonic() - began, 1)
    time.sleep(2)
    row["left"] = {"holders": holders(), "MiB": used(), "processes": of_vllm()}
    row["said"] = said.read_text("utf-8", "replace").splitlines()[-14:]
    return row


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server, and let the GPU come to rest."""
    process.send_signal(signal.SIGTERM)
    process.wait(90)
    time.sleep(2)


def overhead(work: Path, times: int) -> dict[str, Any]:
    """Run the server bare and through the runner by turns; return the seconds until ready and the tokens a second."""
    commands = {"bare": bare(work), "runner": runner(work, "0")}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    process, _ = start(commands["bare"], work / "overhead-first.txt")  # what only the first start reads from the disk
    stop(process)
    for _ in range(times):
        for name, command in commands.items():
            process, ready = start(command, work / f"overhead-{name}.txt")
            assert ready is not None
            for _ in range(WARM):
                ask_all(URL, "m", PROMPTS, 128, 1)
            rates = [ask_all(URL, "m", PROMPTS, 128, 1).throughput for _ in range(ROUNDS)]
            found[name].append((round(ready, 2), round(statistics.median(rates), 2)))
            print(name, found[name][-1], [round(rate, 1) for rate in rates], flush=True)
            stop(process)
    medians = {name: [statistics.median(pair[k] for pair in pairs) for k in (0, 1)] for name, pairs in found.items()}
    ratios = [medians["runner"][k] / medians["bare"][k] for k in (0, 1)]
    return {"runs": found, "medians": medians, "ready ratio": ratios[0], "tokens/s ratio": ratios[1]}


def main() -> None:
    """Run what is asked for and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("site", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--overhead", type=int, default=0)
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    pynvml.nvmlInit()
    checkpoint = Path(__file__).with_name("checkpoint.py")
    subprocess.run([sys.executable, str(checkpoint), str(asked.work / "models")], check=True)
    everything = ",".join(map(str, range(asked.gpus)))
    result: dict[str, Any] = {}
    refused, ready = start(runner(asked.work, everything), asked.work / "refused.txt")
    said = (asked.work / "refused.txt").read_text().splitlines()[-3:]
    result["before apply"] = {"ready": ready, "exit": refused.wait(), "said": said, "left": of_vllm()}
    applied = [sys.executable, "-m", "patchkit", "--site", str(asked.site), "apply", "kimi-k25-serve"]
    result["apply"] = subprocess.run(applied, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    if not asked.overhead:
        result["one"] = serve(asked.work, "0", end=signal.SIGTERM)
        if asked.gpus > 1:
            result["all"] = serve(asked.work, everything, end=signal.SIGTERM)
            result["same tokens"] = result["all"].get("texts") == result["one"].get("texts")
        result["killed"] = serve(asked.work, everything, end=signal.SIGKILL)
    else:
        result["overhead"] = overhead(asked.work, asked.overhead)
    (asked.work / "result.json").write_text(json.dumps(result, indent=1))
    for row in result.values():
        if isinstance(row, dict):
            row.pop("texts", None)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
