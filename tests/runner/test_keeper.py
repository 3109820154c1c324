from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchkit.runner import keeper
from tests.runner.fake import born, children, end, is_running, spawn, state, wait_for

FAMILY = """
import os, signal, sys, time

def stay():
    os.write(1, b"pid %d\\n" % os.getpid())
    time.sleep(60)
    os._exit(0)

def child(prepare):
    if os.fork() == 0:
        prepare()
        if os.fork() == 0:
            stay()
        stay()

child(os.setsid)
child(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
stay()
"""
ORPHAN = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        os.write(1, b"pid %d\\n" % os.getpid())
        time.sleep(float(sys.argv[1]))
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[2]))
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


class Kept:
    """A keeper as a process of its own, with a server."""

    def __init__(self, log: Path, command: list[str]) -> None:
        self.log = log
        self.process = spawn([sys.executable, "-I", keeper.__file__, str(log), "-", *command])

    def pids(self, count: int) -> dict[int, str]:
        """Return the processes that have said who they are, with the time of their start."""
        wait_for(lambda: self.log.exists() and self.log.read_bytes().count(b"\n") >= count)
        return {int(line.split()[1]): born(int(line.split()[1])) for line in self.log.read_text().splitlines()}

    def send(self, word: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word)
        self.process.stdin.flush()

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """Return a keeper of a server with a session leader, one that ignores SIGTERM, and a child of each."""
    found = Kept(tmp_path / "log", python(FAMILY))
    pids = found.pids(5)
    yield found
    for pid, when in pids.items():
        if born(pid) == when:
            end(pid)
    found.leave()
    end(found.process.pid)
    found.process.wait()
    assert found.process.stdout is not None
    found.process.stdout.close()


def left(pids: dict[int, str]) -> list[int]:
    """Return those that still run."""
    return [pid for pid, when in pids.items() if is_running(pid) and born(pid) == when]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
        ("import os; os.kill(os.getpid(), 2)", 130),
    ],
)
def test_exit_code_of_the_server_is_passed_on(tmp_path: Path, code: str, expected: int) -> None:
    with spawn([sys.executable, "-I", keeper.__file__, str(tmp_path / "log"), "-", *python(code)]) as process:
        assert process.wait(timeout=30) == expected


def test_whole_output_goes_to_the_log_after_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"before\n")
    code = "import os; os.write(1, b'out\\xff\\n'); os.write(2, b'err\\n'); print(repr(os.read(0, 1)))"
    with spawn([sys.executable, "-I", keeper.__file__, str(tmp_path / "log"), "-", *python(code)]) as process:
        assert process.wait(timeout=30) == 0
        assert process.stdout is not None and process.stdout.read() == b""
    assert (tmp_path / "log").read_bytes() == b"before\nout\xff\nerr\nb''\n"


def test_server_leads_a_session_of_its_own_and_takes_signals(tmp_path: Path) -> None:
    code = "import os, signal; print(os.getsid(0) == os.getpid(), signal.getsignal(15) is signal.SIG_DFL)"
    with spawn([sys.executable, "-I", keeper.__file__, str(tmp_path / "log"), "-", *python(code)]) as process:
        process.wait(timeout=30)
    assert (tmp_path / "log").read_text() == "True True\n"


def test_asking_ends_the_server_and_after_a_while_what_it_left(kept: Kept) -> None:
    pids = kept.pids(5)
    kept.send(b"t")
    assert kept.process.wait(timeout=keeper.GRACE + 20) == 5
    assert left(pids) == []


def test_kill_ends_everything_at_once(kept: Kept) -> None:
    pids = kept.pids(5)
    kept.send(b"k")
    assert kept.process.wait(timeout=5) == 137
    assert left(pids) == []
    assert [pid for pid in pids if state(pid)] == []


def test_kill_is_heard_after_the_server_has_ended(kept: Kept) -> None:
    pids = kept.pids(5)
    kept.send(b"t")
    wait_for(lambda: len(left(pids)) < 4)
    kept.send(b"k")
    with contextlib.suppress(subprocess.TimeoutExpired):
        kept.process.wait(timeout=3)
    assert left(pids) == []


def test_nothing_is_left_when_the_runner_is_gone(kept: Kept) -> None:
    pids = kept.pids(5)
    kept.leave()
    assert kept.process.wait(timeout=5) == 137
    assert left(pids) == []


def test_signals_to_the_keeper_leave_the_decision_to_the_runner(kept: Kept) -> None:
    for number in SIGNALS:
        kept.process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        kept.process.wait(timeout=0.5)
    assert len(left(kept.pids(5))) == 5


def test_server_dies_with_its_keeper(kept: Kept) -> None:
    kept.pids(5)
    (server,) = children(kept.process.pid)
    kept.process.kill()
    wait_for(lambda: not is_running(server), 5)


def test_orphan_is_adopted_and_leaves_no_zombie(tmp_path: Path) -> None:
    found = Kept(tmp_path / "log", python(ORPHAN, "1", "60"))
    with found.process as process:
        (orphan,) = found.pids(1)
        wait_for(lambda: orphan in children(process.pid))
        wait_for(lambda: state(orphan) == "")
        assert len(children(process.pid)) == 1
        found.send(b"k")
        assert process.wait(timeout=5) == 137


def test_orphan_that_obeys_is_ended_at_once(tmp_path: Path) -> None:
    found = Kept(tmp_path / "log", python(ORPHAN, "60", "0"))
    with found.process as process:
        assert process.wait(timeout=5) == 0
    (orphan,) = found.pids(1)
    assert not is_running(orphan)


# In this process, so that each of its lines is seen to run.


class Input:
    """The other end of this process's standard input."""

    def __init__(self, end: int) -> None:
        self.end = end

    def leave(self) -> None:
        os.close(self.end)
        self.end = -1


@pytest.fixture
def talk() -> Iterator[Input]:
    """Give this process an input to be asked on; signals, input and adoption are put back."""
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGCHLD)}
    kept = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    found = Input(writing)
    yield found
    os.dup2(kept, 0)
    os.close(kept)
    if found.end >= 0:
        found.leave()
    ctypes.CDLL(None).prctl(keeper._SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


here = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@here
@pytest.mark.parametrize(("words", "code"), [(b"t", 143), (b"k", 137), (b"xk", 137), (b"kt", 137), (b"", 137)])
def test_word_on_the_input(tmp_path: Path, talk: Input, words: bytes, code: int) -> None:
    os.write(talk.end, words)
    if not words:
        talk.leave()
    assert keeper.main(str(tmp_path / "log"), "-", ["sleep", "60"]) == code


@here
def test_run_as_a_script(tmp_path: Path, talk: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["keeper", str(tmp_path / "log"), "-", *python("raise SystemExit(3)")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(keeper.__file__, run_name="__main__")
    assert ended.value.code == 3


@here
def test_what_does_not_obey_is_killed_after_the_grace(
    tmp_path: Path, talk: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "GRACE", 0.3)
    log = tmp_path / "log"

    def ask() -> None:
        wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= 5)
        os.write(talk.end, b"t")

    asking = threading.Thread(target=ask)
    asking.start()
    assert keeper.main(str(log), "-", python(FAMILY)) == 5
    asking.join()
    assert keeper.descendants(os.getpid()) == []


@here
def test_server_that_cannot_be_killed_at_once_is_waited_for(
    tmp_path: Path, talk: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "kill_all", lambda root: None)
    talk.leave()
    assert keeper.main(str(tmp_path / "log"), "-", ["sleep", "0.3"]) == 0


def test_server_that_is_just_gone_can_be_asked(talk: Input) -> None:
    with subprocess.Popen(["true"]) as server:
        server.wait()
        server.poll = iter([None, 0]).__next__  # type: ignore[method-assign]
        os.write(talk.end, b"t")
        assert keeper._watch(server, keeper._ends()) == 0


def test_keeper_sleeps_while_the_server_runs(kept: Kept) -> None:
    def switches() -> int:
        status = Path(f"/proc/{kept.process.pid}/status").read_text()
        return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])

    wait_for(lambda: state(kept.process.pid) == "S")
    before = switches()
    time.sleep(1)
    assert switches() == before


def test_killing_gives_up_on_what_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_state", lambda pid: "D")
    monkeypatch.setattr(keeper, "_STEP", 0.001)
    with subprocess.Popen(["sleep", "60"]) as process:
        keeper.kill_all(os.getpid())
        assert process.wait(timeout=5) == -signal.SIGKILL


def test_server_begins_with_signals_and_a_tie_to_its_keeper(talk: Input) -> None:
    calls = []
    library = type("Library", (), {"prctl": staticmethod(lambda *words: calls.append(words))})
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    keeper._begin(library, os.getppid())  # type: ignore[arg-type]
    assert calls == [(keeper._SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)]
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_DFL}


def test_process_that_is_gone_has_no_state() -> None:
    with subprocess.Popen(["true"]) as process:
        wait_for(lambda: keeper._state(process.pid) == "Z")
    assert keeper._state(process.pid) == ""
    assert children(process.pid) == []


def test_server_whose_keeper_died_before_it_began_does_not_begin() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import keeper; "
        "keeper._begin(type('Library', (), {'prctl': lambda *words: 0}), 1); print('began')"
    )
    folder = str(Path(keeper.__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def test_server_kills_itself_where_its_keeper_is_not_its_parent(talk: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    library = type("Library", (), {"prctl": staticmethod(lambda *words: 0)})
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    keeper._begin(library, -1)  # type: ignore[arg-type]
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_processes_are_killed_by_a_word_in_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        subprocess.Popen(["sleep", "60"], env={"PATCHKIT_RUN": "a1"}, start_new_session=True) as ours,
        subprocess.Popen(["sleep", "60"], env={"PATCHKIT_RUN": "a12"}) as other,
    ):
        wait_for(lambda: all(Path(f"/proc/{pid}/environ").read_bytes() for pid in (ours.pid, other.pid)))
        keeper.kill_marked("PATCHKIT_RUN=a1")
        assert ours.wait(timeout=5) == -signal.SIGKILL
        assert other.poll() is None
        monkeypatch.setattr(keeper, "_STEP", 0.001)
        monkeypatch.setattr(keeper, "_has", lambda place, word: place.name == str(other.pid))
        keeper.kill_marked("anything")
        assert other.wait(timeout=5) == -signal.SIGKILL


@here
def test_kill_is_heard_while_what_was_left_has_time_to_end(tmp_path: Path, talk: Input) -> None:
    os.write(talk.end, b"")
    began = time.monotonic()
    started = "subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)"
    stubborn = f"import subprocess, sys; {started}.stdout.readline()"  # it is deaf before this one ends
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    timer = threading.Timer(1.0, os.write, (talk.end, b"k"))
    timer.start()
    assert keeper.main(str(tmp_path / "log"), "-", [sys.executable, "-c", stubborn, deaf]) == 0
    timer.join()
    assert time.monotonic() - began < 8


@here
def test_folder_is_removed_in_the_end(tmp_path: Path, talk: Input) -> None:
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "file").touch()
    assert keeper.main(str(tmp_path / "log"), str(folder), ["true"]) == 0
    assert not folder.exists()
