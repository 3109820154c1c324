"""The process between the runner and the server: whatever happens to the runner, nothing of the server stays behind.

``python keeper.py LOG FOLDER COMMAND…`` starts the command in a session of its own, with its output in LOG, and removes
FOLDER in the end, unless it is ``-``. It adopts what the command's processes leave behind. On its standard input it
reads ``t``, to ask the server to end, and ``k``, to kill it and all that it started; the end of the input, because the
runner is gone, means ``k``. It exits with the server's own exit code. Standard library only: it must start at once and
hold nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
_SET_DEATH_SIGNAL = 1
_STEP = 0.1
"""How often it looks at what is being ended, in seconds."""
_LONGEST = 60.0
"""How long it waits at most without looking, in seconds."""
GRACE = 10.0
"""How long what the server left behind has to end by itself, in seconds."""


def main(log: str, folder: str, command: list[str]) -> int:
    """Keep a server until it ends, and return its exit code."""
    try:
        return _keep(log, command)
    finally:
        if folder != "-":
            shutil.rmtree(folder, ignore_errors=True)


def _keep(log: str, command: list[str]) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the runner decides, and says so on the input
    keeper, ended = os.getpid(), _ends()
    with open(log, "ab", buffering=0) as output:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: _begin(library, keeper),
        )
    code = _watch(server, ended)
    _clear(GRACE)
    return code


def _begin(library: ctypes.CDLL, keeper: int) -> None:
    """Run in the server before it starts: it dies with the keeper, and takes signals again."""
    library.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os.kill(os.getpid(), signal.SIGKILL)  # the keeper died before it was asked for
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _ends() -> int:
    """Return a descriptor that can be read when a child has ended: nothing wakes up to look, beside a busy server."""
    ended, telling = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(telling, False)
    signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written
    return ended


def _watch(server: subprocess.Popen[bytes], ended: int) -> int:
    """Return the server's exit code, once it has ended."""
    is_open = True
    while True:
        code = server.poll()
        if code is not None:
            return 128 - code if code < 0 else code
        _reap(server.pid)
        ready, _, _ = select.select([0, ended] if is_open else [ended], [], [], _LONGEST)
        if ended in ready:
            os.read(ended, 4096)
        if 0 not in ready:
            continue
        word = os.read(0, 1)
        if word == b"t":
            with contextlib.suppress(ProcessLookupError):
                os.kill(server.pid, signal.SIGTERM)
        elif word in (b"k", b""):
            is_open = word == b"k"
            kill_all(os.getpid())


def _reap(server: int) -> None:
    """Collect orphans that were adopted, but not the server, whose exit code is asked for elsewhere.

    The kernel is asked who has ended; looking through /proc all the time would take from the server's own speed.
    """
    with contextlib.suppress(ChildProcessError):
        ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while (found := os.waitid(os.P_ALL, 0, ended)) and found.si_pid != server:
            os.waitpid(found.si_pid, os.WNOHANG)


def _clear(grace: float) -> None:
    """End what the server left behind: first politely, then not."""
    deadline = time.monotonic() + grace
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while descendants(os.getpid()):
        _reap(0)
        is_over = time.monotonic() > deadline
        if not is_over and select.select([0], [], [], _STEP / 2)[0]:
            is_over = os.read(0, 1) in (b"k", b"")
        if is_over:
            deadline = 0.0
            kill_all(os.getpid())
            time.sleep(_STEP / 10)


def kill_all(root: int) -> None:
    """Kill every descendant of a process, those too that are started meanwhile."""
    for _ in range(100):
        found = [pid for pid in descendants(root) if _state(pid) not in ("Z", "")]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_STEP / 10)


def kill_marked(mark: str) -> None:
    """Kill every process that has a word in its environment; those of other users cannot be seen and are not asked."""
    wanted = mark.encode()
    for _ in range(100):
        found = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit() and _has(place, wanted)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_STEP / 10)


def _has(place: Path, word: bytes) -> bool:
    """Tell whether a process that still runs has a word in its environment."""
    try:
        return word in (place / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def descendants(root: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents: dict[int, list[int]] = {}
    for pid, parent in _parents():
        parents.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _parents() -> list[tuple[int, int]]:
    """Return (process, its parent) of every process."""
    found = []
    for place in Path("/proc").iterdir():
        fields = _fields(place) if place.name.isdigit() else []
        if len(fields) > 1:
            found.append((int(place.name), int(fields[1])))
    return found


def _state(pid: int) -> str:
    """Return the state of a process; empty where it is gone."""
    return next(iter(_fields(Path("/proc", str(pid)))), "")


def _fields(place: Path) -> list[str]:
    """Return what /proc says of a process after its name, which may hold anything."""
    try:
        return (place / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
