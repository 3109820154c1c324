"""patchkit under strace: the system calls that touch a folder, and a signal or an error at one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CALLS = "%file,%desc"
"""Every call that takes a path or a descriptor."""
WRITING = frozenset(
    {
        "write",
        "pwrite64",
        "fsync",
        "rename",
        "renameat",
        "renameat2",
        "unlink",
        "unlinkat",
        "mkdir",
        "mkdirat",
        "rmdir",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "chmod",
        "fchmod",
        "fchmodat",
        "chown",
        "fchown",
        "lchown",
        "fchownat",
        "utimensat",
        "setxattr",
        "fsetxattr",
        "lsetxattr",
        "ftruncate",
        "flock",
        "sendfile",
        "copy_file_range",
    }
)
_PLAIN = frozenset({"ioctl", "lseek", "fcntl"})
"""Of a descriptor alone: no file system refuses them."""
_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)")
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
PYTHON = [sys.executable, "-P", "-m", "patchkit"] if sys.version_info >= (3, 11) else [sys.executable, "-m", "patchkit"]


@dataclass(frozen=True)
class Call:
    """One system call of a run."""

    name: str
    number: int
    """Which of the calls of this name it is, from 1: so strace counts."""
    is_writing: bool


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    code: int
    """Negative for a signal."""
    said: str
    """What it wrote to its standard error."""


def calls_below(folder: Path, arguments: Sequence[str], log: Path) -> list[Call]:
    """Run patchkit and return the calls that name the folder or have a file in it open."""
    outcome = _run(["-y", "-s", "0", "-o", str(log), "-e", f"trace={CALLS}"], arguments)
    assert outcome.code == 0, outcome.said
    seen: Counter[str] = Counter()
    found = []
    for line in log.read_text("utf-8", "replace").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, rest = match.groups()
        seen[name] += 1
        if str(folder) in rest and name not in _PLAIN:
            is_opened = name == "openat" and ("O_WRONLY" in rest or "O_RDWR" in rest)
            found.append(Call(name, seen[name], is_opened or name in WRITING))
    return found


def run_with(call: Call, fault: str, arguments: Sequence[str]) -> Outcome:
    """Run patchkit with a fault at a call: ``signal=SIGKILL``, or ``error=`` and a name."""
    options = ["-o", os.devnull, "-e", f"trace={call.name}", "-e", f"inject={call.name}:{fault}:when={call.number}"]
    return _run(options, arguments)


def _run(options: Sequence[str], arguments: Sequence[str]) -> Outcome:
    command = ["strace", *options, *PYTHON, *arguments]
    done = subprocess.run(
        command, env=os.environ | _ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )
    return Outcome(done.returncode, done.stderr.decode("utf-8", "replace"))
