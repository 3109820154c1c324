"""Prove the patched server on a GPU: ``python gpu.py SITE WORK [--upstream]``.

SITE is a site-packages folder with a pristine vLLM, and patchkit beside it; WORK takes the models, the logs and
``result.json``. It starts ``vllm serve`` of the unpatched release (which must die on the first gate), then, on a copy
of SITE that ``patchkit apply`` has patched, servers without a drafter, with the right one and with wrong ones, and
compares what they answer. With ``--upstream`` the release has the support itself and nothing is patched. Standard
library only, beside what vLLM itself needs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

READY = 400
PROMPTS = [[10, 11, 12], [100], [33, 34], [200, 201, 202, 203]]
DRAFTS = ("draft", "draft-off-by-one-1", "draft-own-embeddings", "draft-last-state", "draft-no-such-layer")
TOKENS = 64
ROUNDS = 30


class Server:
    """One ``vllm serve``, in a process group of its own, its log in a file."""

    def __init__(self, site: Path, work: Path, name: str, port: int, draft: str | None, target: str = "target") -> None:
        self.name, self.port, self.log = name, port, work / f"{name}.log"
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(work / "models" / target)]
        command += ["--port", str(port), "--host", "127.0.0.1", "--served-model-name", "m", "--enforce-eager"]
        command += ["--max-model-len", "512", "--max-num-seqs", "8", "--trust-remote-code", "--dtype", "bfloat16"]
        command += ["--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", str(2**30)]
        if draft is not None:
            model = {"method": "eagle3", "model": str(work / "models" / draft), "num_speculative_tokens": 2}
            command += ["--speculative-config", json.dumps(model)]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command, env=environment, stdout=self.log.open("wb"), stderr=subprocess.STDOUT, start_new_session=True
        )

    def wait(self) -> float | None:
        """Return the seconds until the server answers, or None when it ends instead."""
        while time.monotonic() - self.started < READY:
            if self.process.poll() is not None:
                return None
            try:
                self.get("/health")
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(1)
            else:
                return time.monotonic() - self.started
        return None

    def get(self, path: str, body: object = None) -> str:
        """Return what the server answers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return str(answer.read().decode())

    def complete(self, prompts: list[list[int]], tokens: int) -> list[str]:
        """Return the greedy continuation of some prompts."""
        body = {"model": "m", "prompt": prompts, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        return [choice["text"] for choice in json.loads(self.get("/v1/completions", body))["choices"]]

    def speed(self) -> float:
        """Return tokens per second of one request at a time, the median of some."""
        self.complete(PROMPTS[:1], TOKENS)
        times = []
        for _ in range(ROUNDS):
            start = time.monotonic()
            self.complete(PROMPTS[:1], TOKENS)
            times.append(time.monotonic() - start)
        return TOKENS / sorted(times)[len(times) // 2]

    def drafts(self) -> dict[str, float]:
        """Return the counters of speculation."""
        metrics = self.get("/metrics")
        found = {"drafts": 0.0, "first": 0.0, "second": 0.0}
        for line in metrics.splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("vllm:spec_decode_num_drafts_total"):
                found["drafts"] += float(value)
            elif name.startswith("vllm:spec_decode_num_accepted_tokens_per_pos_total"):
                found["first" if 'position="0"' in name else "second"] += float(value)
        return found

    def errors(self) -> list[str]:
        """Return the last lines of the log that name an error."""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return [re.sub(r"\x1b\[[0-9;]*m", "", line)[-400:] for line in lines if "Error" in line][-6:]

    def stop(self) -> None:
        """End the server and what it started."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, 9)


def patchkit(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "patchkit", "--site", str(site), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main(site: Path, work: Path, is_upstream: bool) -> dict[str, object]:
    result: dict[str, object] = {}
    subprocess.run([sys.executable, str(Path(__file__).with_name("checkpoint.py")), str(work / "models")], check=True)
    patched, servers = site, {}
    if not is_upstream:
        patched = work / "site-patched"
        shutil.copytree(site, patched, copy_function=os.link, symlinks=True)
        done = patchkit(patched, "apply", "kimi-k25-serve")
        result["apply"] = [done.returncode, done.stdout, done.stderr]
        check = patchkit(patched, "check", "kimi-k25-serve")
        result["check"] = [check.returncode, check.stdout.splitlines()[-1:], check.stderr]
        servers["unpatched"] = Server(site, work, "unpatched", 8100, "draft")
    servers["plain"] = Server(patched, work, "plain", 8101, None)
    servers["text-only"] = Server(patched, work, "text-only", 8101 + 1 + len(DRAFTS), "draft", "target-text")
    for number, draft in enumerate(DRAFTS):
        servers[draft] = Server(patched, work, draft, 8102 + number, draft)
    try:
        for name, server in servers.items():
            result[name] = examine(server)
        for name in ("unpatched", "text-only", *DRAFTS[1:]):
            if name in servers:
                servers[name].stop()
        for name in ("plain", "draft"):  # once nothing else runs
            if servers[name].process.poll() is None:
                result[f"{name} tokens per second"] = servers[name].speed()
    finally:
        for server in servers.values():
            server.stop()
    return result


def examine(server: Server) -> dict[str, object]:
    """Return whether a server starts, what it answers and what it counted, or its errors."""
    ready = server.wait()
    row: dict[str, object] = {"ready": ready, "exit": server.process.poll()}
    try:
        if ready is not None:
            row["texts"] = server.complete(PROMPTS, TOKENS)
            row["counters"] = server.drafts()
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        row["failure"] = str(error)
    if "counters" not in row:
        row["errors"] = server.errors()
    return row


if __name__ == "__main__":
    place = Path(sys.argv[2])
    place.mkdir(parents=True, exist_ok=True)
    outcome = main(Path(sys.argv[1]), place, "--upstream" in sys.argv)
    (place / "result.json").write_text(json.dumps(outcome, indent=1))
    plain = outcome.get("plain", {})
    for label, found in outcome.items():
        if not isinstance(found, dict):
            print(label, found)
            continue
        counts = found.get("counters") or {}
        rate = counts["first"] / counts["drafts"] if counts.get("drafts") else None
        same = found.get("texts") == plain.get("texts") if "texts" in found else None
        print(
            label, "ready", found["ready"], "exit", found["exit"], "first-position acceptance", rate, "same text", same
        )
        print("   ", "counters", counts, *found.get("errors", []), sep="\n    ")
