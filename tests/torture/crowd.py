"""Many processes that apply, revert and check one tree at once, and readers that import it all the while."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from patchkit.cli import run
from tests.torture.calls import PYTHON
from tests.trees import ENGINE, Tree, snapshot

VERBS = ("apply", "revert", "check", "status", "apply engine_models", "revert worker_unwrap")
READER = """
import sys
sys.path.insert(0, sys.argv[1])
import engine.core
print(engine.core.Engine().start())
"""
OLD, NEW = "['llama', 'qwen']", "['llama', 'qwen', 'kimi']"


def crowd(tree: Tree, processes: int, seconds: float, seed: int = 0) -> Counter[str]:
    """Keep so many processes at work on a tree; return how often each ended how, and what the readers saw."""
    chosen, before = random.Random(seed), snapshot(tree.site)
    found: Counter[str] = Counter()
    running: list[tuple[str, subprocess.Popen[str]]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or running:
        running = [pair for pair in running if not _has_ended(*pair, found)]
        while time.monotonic() < deadline and len(running) < processes:
            # One of four reads, with bytecode: it may write a .pyc of the file that is just being replaced.
            words = "read" if chosen.random() < 0.25 else chosen.choice(VERBS)
            running.append((words, _start(tree, words)))
        time.sleep(0.01)
    for verb in ("apply", "check", "revert"):
        assert run([*tree.options(), verb]) == 0, verb
    assert snapshot(tree.site) == before
    assert tree.engine.read_text() == ENGINE
    return found


def _start(tree: Tree, words: str) -> subprocess.Popen[str]:
    command = [*PYTHON, *tree.options(), *words.split()]
    environment = dict(os.environ)
    if words == "read":
        command = [sys.executable, "-c", READER, str(tree.site)]
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(
        command,
        env=environment,
        cwd=Path(__file__).parent.parent.parent,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _has_ended(words: str, process: subprocess.Popen[str], found: Counter[str]) -> bool:
    """Judge a process that has ended: a reader saw the old or the new file, and only our own errors came out."""
    if process.poll() is None:
        return False
    out, errors = process.communicate()
    if words == "read":
        assert out.strip() in (OLD, NEW), errors
        found["read old" if out.strip() == OLD else "read new"] += 1
    else:
        assert process.returncode in (0, 1), errors
        assert "Traceback" not in errors, errors
        found[f"{words.split()[0]}: exit {process.returncode}"] += 1
    return True
