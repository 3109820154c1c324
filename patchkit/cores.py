"""Work shared out to the cores of the machine, by forked processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_apart(work: Callable[[Job], Result], jobs: Mapping[Job, int]) -> dict[Job, Result]:
    """Do jobs, given with their sizes, one share of them a core, and return the results that could be had.

    A job that fails is left out, and so are those behind it: whoever wants its result does it again, and meets the
    error. The work must leave nothing behind but its result.
    """
    first, *others = _shares(jobs, count())
    started = [_start(work, share) for share in others]
    found = dict(_done(work, first))
    for connection, stop in started:
        found.update(received(connection))
        stop()
    return found


def count() -> int:
    """Return how many processes pay: one where a thread of ours could hold a lock that a fork would copy."""
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _shares(jobs: Mapping[Job, int], count: int) -> list[list[Job]]:
    """Return the jobs in shares of about the same size, none of them empty but the first."""
    shares: list[list[Job]] = [[] for _ in range(max(1, min(count, len(jobs))))]
    sizes = [0] * len(shares)
    for job in sorted(jobs, key=lambda job: -jobs[job]):
        least = sizes.index(min(sizes))
        shares[least].append(job)
        sizes[least] += jobs[job]
    return shares


def _done(work: Callable[[Job], Result], share: Sequence[Job]) -> list[tuple[Job, Result]]:
    """Return the results of a share up to the first job that fails."""
    done = []
    for job in share:
        try:
            done.append((job, work(job)))
        except Exception:
            break
    return done


def _start(work: Callable[[Job], Result], share: Sequence[Job]) -> tuple[Connection, Callable[[], None]]:
    from multiprocessing import get_context

    context = get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(work, share, sending), daemon=True)
    process.start()
    sending.close()

    def stop() -> None:
        process.join()
        process.close()

    return receiving, stop


def answer(work: Callable[[Job], Result], share: Sequence[Job], sending: Connection) -> None:
    """Send the results of a share; say nothing else, whatever happens."""
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
