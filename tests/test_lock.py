"""The lock of a site folder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from patchkit import lock
from patchkit.errors import Locked, PathEscape, TransactionError
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
    real, calls = lock._open, []

    def vanishing(folder: Path) -> int:
        calls.append(folder)
        if len(calls) == 1:
            folder.rmdir()
        return real(folder)

    monkeypatch.setattr(lock, "_open", vanishing)
    with locked([tmp_path], timeout=10):
        assert len(calls) == 2


def test_lock_on_a_file_that_is_not_there_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True])
    real = lock._is_in_place
    monkeypatch.setattr(lock, "_is_in_place", lambda folder, held: next(answers) and real(folder, held))
    with locked([tmp_path], timeout=10):
        assert next(answers, None) is None


def test_lock_is_in_place_only_while_its_file_is(tmp_path: Path) -> None:
    held = lock._open(tmp_path)
    assert lock._is_in_place(tmp_path, held)
    (tmp_path / "lock").rename(tmp_path / "aside")
    assert not lock._is_in_place(tmp_path, held)
    (tmp_path / "lock").touch()
    assert not lock._is_in_place(tmp_path, held)
    os.close(held)


def test_only_its_owner_may_hold_the_lock_and_anybody_may_see_the_folder(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with locked([tmp_path]):
            assert stat.S_IMODE((tmp_path / ".patchkit/lock").stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / ".patchkit").stat().st_mode) == 0o755
    finally:
        os.umask(before)


def test_file_that_is_linked_to_the_lock_keeps_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "site/.patchkit").mkdir(parents=True)
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "site/.patchkit/lock").hardlink_to(tmp_path / "victim")
    with locked([tmp_path / "site"]):
        assert (tmp_path / "victim").read_text() == "kept"


def test_what_is_no_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".patchkit").mkdir()
    os.mkfifo(tmp_path / ".patchkit/lock")
    with pytest.raises(TransactionError, match="lock is nothing that patchkit made"), locked([tmp_path]):
        pass
    (tmp_path / ".patchkit/lock").unlink()
    (tmp_path / ".patchkit").rmdir()
    (tmp_path / ".patchkit").touch()
    with pytest.raises(TransactionError, match=r"\.patchkit is nothing that patchkit made"), locked([tmp_path]):
        pass


@pytest.mark.parametrize("name", [".patchkit", ".patchkit/lock"])
def test_lock_through_a_link_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "site" / name).parent.mkdir(parents=True)
    (tmp_path / "site" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathEscape, match=r"is a link, and patchkit makes none$"), locked([tmp_path / "site"]):
        pass
    assert not (tmp_path / "elsewhere").exists()
