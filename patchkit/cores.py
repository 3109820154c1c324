"""Work shared out to the cores of the machine, by forked processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_WIDTH = 4
_ROOM = 8192
"""How many places a pipe takes at least while nobody reads: of 64 KiB, half."""
Job = TypeVar("Job")
Result = TypeVar("Result")


def run_apart(work: Callable[[Job], Result], jobs: Mapping[Job, int]) -> dict[Job, Result]:
    """Do jobs, given with their sizes, and return the results that could be had.

    The largest are begun first, and each core takes the next one when it is done with its last. A job that fails is
    left out, and so are those that its core would have taken then: whoever wants such a result does the job again, and
    meets the error. The work must leave nothing behind but its result.
    """
    order = sorted(jobs, key=lambda job: -jobs[job])
    found: dict[Job, Result] = {}
    for start in range(0, len(order), _ROOM):
        found.update(_share_out(work, order[start : start + _ROOM]))
    return found


def _share_out(work: Callable[[Job], Result], order: Sequence[Job]) -> dict[Job, Result]:
    queue, filling = os.pipe()
    os.write(filling, b"".join(place.to_bytes(_WIDTH, "big") for place in range(len(order))))
    os.close(filling)
    try:
        started = [_start(work, order, queue) for _ in range(1, min(count(), len(order)))]
        found = dict(_done(work, _taken(order, queue)))
        for connection, stop in started:
            found.update(received(connection))
            stop()
    finally:
        os.close(queue)
    return found


def _taken(order: Sequence[Job], queue: int) -> Iterator[Job]:
    """Yield the jobs that this process takes: their places stand in a pipe, of which a read is one process's alone."""
    while place := os.read(queue, _WIDTH):
        yield order[int.from_bytes(place, "big")]


def count() -> int:
    """Return how many processes pay: one where a thread of ours could hold a lock that a fork would copy."""
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _done(work: Callable[[Job], Result], share: Iterable[Job]) -> list[tuple[Job, Result]]:
    """Return the results of some jobs up to the first that fails."""
    done = []
    for job in share:
        try:
            done.append((job, work(job)))
        except Exception:
            break
    return done


def _start(work: Callable[[Job], Result], order: Sequence[Job], queue: int) -> tuple[Connection, Callable[[], None]]:
    from multiprocessing import get_context

    context = get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(work, _taken(order, queue), sending), daemon=True)
    process.start()
    sending.close()

    def stop() -> None:
        process.join()
        process.close()

    return receiving, stop


def answer(work: Callable[[Job], Result], share: Iterable[Job], sending: Connection) -> None:
    """Send the results of some jobs; say nothing else, whatever happens."""
    try:
        sending.send(_done(work, share))
    except BaseException:  # an interrupt is the parent's to tell, and one that is gone wants no answer
        os._exit(1)


def received(connection: Connection) -> list[tuple[Job, Result]]:
    """Return the results that a process sent; none where it ended before."""
    try:
        found: list[tuple[Job, Result]] = connection.recv()
    except (EOFError, OSError):
        return []
    finally:
        connection.close()
    return found
