"""Work in several processes: the results, and what happens to those that cannot be had."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import active_children, get_context

import pytest

from patchkit import cores
from patchkit.cores import run_apart

HERE = os.getpid()
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def place(job: int) -> tuple[int, int]:
    """Return the job and the process that did it."""
    return job, os.getpid()


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 3)  # also where the tests themselves run beside a thread


@pytest.mark.usefixtures("three")
def test_jobs_are_shared_out_by_size() -> None:
    found = run_apart(place, {1: 10, 2: 60, 3: 50, 4: 30, 5: 15})
    assert {job: number for job, (number, _) in found.items()} == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    shares = {process: {job for job, (_, own) in found.items() if own == process} for _, process in found.values()}
    assert shares[HERE] == {2}  # the largest is done here
    assert sorted(map(sorted, shares.values())) == [[1, 4, 5], [2], [3]]
    assert not active_children()


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_started_for_one_job(count: int) -> None:
    jobs = dict.fromkeys(range(count), 1)
    assert run_apart(place, jobs) == {job: (job, HERE) for job in jobs}


def fail(job: int) -> int:
    """Fail in some way, each in a process of its own."""
    if job == 2:
        raise ValueError("no")
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


@pytest.mark.usefixtures("three")
def test_job_that_fails_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_apart(fail, {1: 9, 2: 8, 3: 7}) == {1: 1}
    assert run_apart(fail, {2: 9, 1: 8, 4: 1}) == {1: 1, 4: 4}
    assert capfd.readouterr() == ("", "")
    assert not active_children()


def test_one_process_where_a_thread_could_hold_a_lock() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert cores.count() == 1
    finally:
        done.set()
        thread.join()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.mark.usefixtures("alone")
def test_one_process_where_nothing_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    assert cores.count() == 1


@pytest.mark.usefixtures("alone")
def test_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5, 7}, raising=False)
    assert cores.count() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert cores.count() == 5


def test_answer_of_a_process() -> None:
    """What runs in the forked process, here."""
    receiving, sending = get_context("fork").Pipe(duplex=False)
    cores.answer(fail, [1, 2, 4], sending)
    assert cores.received(receiving) == [(1, 1)]


def test_answer_that_nobody_waits_for_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    receiving, sending = get_context("fork").Pipe(duplex=False)
    receiving.close()
    cores.answer(place, [1], sending)
    sending.close()
    assert codes == [1]
