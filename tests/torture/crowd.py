"""Many processes of two users that apply, revert and check one tree at once, and readers that import it meanwhile."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchkit.cli import run
from tests.torture.calls import PYTHON
from tests.trees import ENGINE, Tree, snapshot
from tests.users import IS_ROOT, NOBODY, command_of_nobody

VERBS = ("apply", "revert", "check", "status", "diff", "apply engine_models", "revert worker_unwrap")
# It writes bytecode: a .pyc of the file that is just being replaced, perhaps.
READER = """
import importlib, sys, time
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = False
seen, end = {}, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for name in ("engine.core", "engine"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    import engine.core
    found = repr(engine.core.Engine().start())
    seen[found] = seen.get(found, 0) + 1
print(seen)
"""
OLD, NEW = "['llama', 'qwen']", "['llama', 'qwen', 'kimi']"
READERS = 2
ROOT = Path(__file__).parent.parent.parent


def crowd(tree: Tree, processes: int, seconds: float, seed: int = 0) -> Counter[str]:
    """Keep so many processes at work on a tree; return how often each ended how, and what the readers saw."""
    chosen = random.Random(seed)
    _share(tree)
    before = snapshot(tree.site)
    found: Counter[str] = Counter()
    running: list[tuple[str, subprocess.Popen[str]]] = []
    deadline = time.monotonic() + seconds
    with _readers(tree, seconds, found):
        while time.monotonic() < deadline or running:
            running = [pair for pair in running if not _has_ended(*pair, found)]
            while time.monotonic() < deadline and len(running) < processes:
                words = chosen.choice(VERBS)
                running.append((words, _start(tree, words, is_other=IS_ROOT and chosen.random() < 0.3)))
            time.sleep(0.01)
    for verb in ("apply", "check", "revert"):
        assert run([*tree.options(), verb]) == 0, verb
    assert snapshot(tree.site) == before
    assert tree.engine.read_text() == ENGINE
    return found


def _share(tree: Tree) -> None:
    """Give a tree to the other user where there is one, so that both may write."""
    for place in tree.site.parents:
        if place != tree.site and os.stat(place).st_uid == os.geteuid():
            place.chmod(place.stat().st_mode | 0o055)
    for place in (tree.site, *tree.site.rglob("*")) if IS_ROOT else ():
        os.lchown(place, NOBODY, NOBODY)


@contextmanager
def _readers(tree: Tree, seconds: float, found: Counter[str]) -> Iterator[None]:
    """Import the module again and again meanwhile; whoever does so sees the old or the new file."""
    command = [sys.executable, "-c", READER, str(tree.site), str(seconds)]
    readers = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE) for _ in range(READERS)]
    yield
    for reader in readers:
        out, _ = reader.communicate(timeout=60)
        assert reader.returncode == 0
        for saw, times in eval(out).items():
            assert saw in (OLD, NEW), saw
            found["read old" if saw == OLD else "read new"] += times


def _start(tree: Tree, words: str, *, is_other: bool) -> subprocess.Popen[str]:
    arguments = [*tree.options(), *words.split()]
    command = command_of_nobody(arguments) if is_other else [*PYTHON, *arguments]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _has_ended(words: str, process: subprocess.Popen[str], found: Counter[str]) -> bool:
    """Judge a process that has ended: only our own errors came out."""
    if process.poll() is None:
        return False
    _, errors = process.communicate()
    assert process.returncode in (0, 1), errors
    assert "Traceback" not in errors and "rollback-failed" not in errors, errors
    found[f"{words.split()[0]}: exit {process.returncode}"] += 1
    if process.returncode and words.split()[0] in ("apply", "revert"):
        found[f"refused: {errors.split(':')[0]}"] += 1
    return True
