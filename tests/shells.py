"""Interactive shells on a terminal of their own: keys go in, and what stands on the screen is looked at."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from types import TracebackType

import pytest

BIN = Path(sys.executable).parent
_PATIENCE = 60.0
_START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}


def need(shell: str) -> None:
    """Skip the test where a shell is not installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


class Terminal:
    """A shell that a person types into."""

    def __init__(self, shell: str, home: Path) -> None:
        need(shell)
        variables = {
            "HOME": str(home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "TERM": "dumb",
            "COLUMNS": "200",
            "LANG": "C.UTF-8",
        }
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:  # pragma: no cover - the child becomes the shell
            os.chdir(home)
            os.execvpe(shell, _START[shell], variables)
        self._screen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def type(self, keys: str, *expected: str) -> str:
        """Type, wait until all that is expected stands on the screen, and return what has come since."""
        self._screen = ""
        os.write(self._terminal, keys.encode())
        end = time.monotonic() + _PATIENCE
        while not all(text in self._screen for text in expected):
            assert time.monotonic() < end, f"{expected} did not come, but:\n{self._screen}"
            self._read(0.1)
        return self._screen

    def settle(self, seconds: float = 1.0) -> str:
        """Wait until nothing comes any more, and return all that has come since the last keys."""
        while self._read(seconds):
            pass
        return self._screen

    def _read(self, seconds: float) -> bool:
        if not select.select([self._terminal], [], [], seconds)[0]:
            return False
        self._screen += os.read(self._terminal, 65536).decode("utf-8", "replace")
        return True
