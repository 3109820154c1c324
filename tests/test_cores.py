"""Work in several processes: the results, and what happens to those that cannot be had."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import active_children, get_context
from pathlib import Path

import pytest

from patchkit import cores
from patchkit.cores import run_apart
from tests.runner.fake import wait_for

HERE = os.getpid()
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def place(job: int) -> tuple[int, int]:
    """Return the job and the process that did it."""
    return job, os.getpid()


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 3)  # also where the tests themselves run beside a thread


@pytest.mark.usefixtures("three")
def test_core_that_is_done_takes_the_next_job(tmp_path: Path) -> None:
    def work(job: int) -> tuple[int, int]:
        if job == 2:  # is done when all others are, so it keeps its core from them
            wait_for(lambda: len(list(tmp_path.iterdir())) == 4)
        else:
            (tmp_path / f"{time.monotonic_ns()}-{job}").touch()
        return place(job)

    found = run_apart(work, {1: 10, 2: 60, 3: 50, 4: 30, 5: 15})
    assert {job: number for job, (number, _) in found.items()} == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    of_largest = found[2][1]
    assert of_largest not in {process for job, (_, process) in found.items() if job != 2}
    assert not active_children()


def test_largest_job_is_begun_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 1)
    assert list(run_apart(place, {1: 10, 2: 60, 3: 50})) == [2, 3, 1]


def test_more_jobs_than_a_pipe_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "count", lambda: 2)
    jobs = dict.fromkeys(range(20_000), 1)  # their places are 80 KB
    assert {job: number for job, (number, _) in run_apart(place, jobs).items()} == {job: job for job in jobs}


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_started_for_one_job(count: int) -> None:
    jobs = dict.fromkeys(range(count), 1)
    assert run_apart(place, jobs) == {job: (job, HERE) for job in jobs}


def fail(job: int) -> int:
    """Fail at one job."""
    if job == 2:
        raise ValueError("no")
    return job


@pytest.mark.usefixtures("three")
def test_job_that_fails_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_apart(fail, {2: 9, 1: 8, 4: 1}) == {1: 1, 4: 4}
    assert capfd.readouterr() == ("", "")
    assert not active_children()


@pytest.mark.usefixtures("three")
def test_process_that_dies_takes_no_other_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work(job: int) -> int:
        if job != 3:
            wait_for((tmp_path / "begun").exists)  # so that no process does both
            return job
        (tmp_path / "begun").touch()
        if os.getpid() == HERE:
            raise ValueError("no")
        os.kill(os.getpid(), signal.SIGKILL)
        return job

    assert run_apart(work, {1: 9, 3: 8}) == {1: 1}
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
