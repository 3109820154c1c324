"""The lock of a site folder."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from patchkit import lock
from patchkit.errors import Locked, PathEscape
from patchkit.lock import locked

HOLD = """
import sys, time
from pathlib import Path
from patchkit.lock import locked
with locked([Path(sys.argv[1])]):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(site: Path) -> subprocess.Popen[str]:
    """Return a process that holds the lock until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(site)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_process_is_told_and_waits(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        with pytest.raises(Locked, match="another patchkit has been writing"), locked([tmp_path], timeout=0.2):
            pass
        threading.Timer(0.3, process.stdin.close).start()
        start = time.monotonic()
        with locked([tmp_path], timeout=30):
            waited = time.monotonic() - start
    assert 0.2 < waited < 20


def test_lock_is_free_after_a_kill(tmp_path: Path) -> None:
    with hold(tmp_path) as process:
        process.kill()
        process.wait()
        with locked([tmp_path], timeout=10):
            pass
        process.stdin.close()


def test_lock_that_its_holder_removed_is_taken_anew(tmp_path: Path) -> None:
    taken = []

    def wait() -> None:
        with locked([tmp_path], timeout=30):
            taken.append((tmp_path / ".patchkit/lock").exists())

    with locked([tmp_path]):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        (tmp_path / ".patchkit/lock").unlink()
        (tmp_path / ".patchkit").rmdir()
    waiting.join(timeout=30)
    assert taken == [True]


def test_folder_that_vanishes_while_locking_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Path.mkdir
    calls = []

    def vanishing(self: Path, *args: object, **kwargs: object) -> None:
        calls.append(self)
        if len(calls) > 1:
            made(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", vanishing)
    with locked([tmp_path], timeout=10):
        pass
    assert len(calls) == 2


def test_lock_file_that_vanishes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = FileLock.acquire, []

    def vanishing(self: FileLock) -> object:
        calls.append(self)
        if len(calls) == 1:
            raise FileNotFoundError
        return real(self)

    monkeypatch.setattr(FileLock, "acquire", vanishing)
    with locked([tmp_path], timeout=10):
        assert len(calls) == 2


def test_lock_on_a_file_that_is_not_there_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True])
    real = lock._is_in_place
    monkeypatch.setattr(lock, "_is_in_place", lambda place, held: next(answers) and real(place, held))
    with locked([tmp_path], timeout=10):
        assert next(answers, None) is None


def test_lock_is_in_place_only_while_its_file_is(tmp_path: Path) -> None:
    held = FileLock(tmp_path / "lock")
    with held:
        assert lock._is_in_place(tmp_path / "lock", held)
        (tmp_path / "lock").rename(tmp_path / "aside")
        assert not lock._is_in_place(tmp_path / "lock", held)
        (tmp_path / "lock").touch()
        assert not lock._is_in_place(tmp_path / "lock", held)


@pytest.mark.parametrize("name", [".patchkit", ".patchkit/lock"])
def test_lock_through_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "site" / name).parent.mkdir(parents=True)
    (tmp_path / "site" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathEscape, match=r"is a link, and patchkit makes none$"), locked([tmp_path / "site"]):
        pass
    assert not (tmp_path / "elsewhere").exists()
