"""A Ray cluster: its nodes, a worker pinned to each, and messages to them with an end in time."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

from patchkit.errors import FleetError, RayMissing
from patchkit.fleet.channel import Message
from patchkit.fleet.nodes import Lost, Node, choose

Progress = Callable[[str, Collection[Node], int], None]
"""Takes what is being done, the nodes that it is waited for, and how many there are in all."""
_CONNECT = 10.0
_ATTEMPTS = 3
_STEP = 0.2


class Cluster:
    """The nodes of a cluster that are meant, with a worker on each."""

    def __init__(self, ray: Any, nodes: tuple[Node, ...], timeout: float, progress: Progress) -> None:
        self.nodes = nodes
        self._ray, self._timeout, self._progress = ray, timeout, progress
        self._workers: dict[Node, Any] = {}

    def start(self, parcel: bytes, order: Message) -> dict[Node, Message | Lost]:
        """Start a worker on each node with what is shipped; a busy node takes it, for it asks for no resource."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from patchkit.fleet import post

        # By value: the nodes have no patchkit to take it from.
        self._ray.cloudpickle.register_pickle_by_value(post)
        try:
            kind = self._ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(post.Post)
            shipped, text = self._ray.put(parcel), json.dumps(order)
            refs = {}
            for node in self.nodes:
                pinned = NodeAffinitySchedulingStrategy(node.id, soft=False)
                self._workers[node] = kind.options(scheduling_strategy=pinned).remote()
                refs[self._workers[node].start.remote(shipped, text)] = node
        finally:
            self._ray.cloudpickle.unregister_pickle_by_value(post)
        return self._collect("starting", refs)

    def ask(self, what: str, messages: Mapping[Node, Message]) -> dict[Node, Message | Lost]:
        """Send a message to some nodes and return what each answers, or why it does not."""
        refs = {
            self._workers[node].ask.remote(json.dumps(message)): node
            for node, message in messages.items()
            if node in self._workers
        }
        gone: dict[Node, Message | Lost] = {
            node: Lost("it was lost before") for node in messages if node not in self._workers
        }
        return {**gone, **self._collect(what, refs)}

    def _collect(self, what: str, refs: dict[Any, Node]) -> dict[Node, Message | Lost]:
        pending, total = dict(refs), len(refs)
        found: dict[Node, Message | Lost] = {}
        end = time.monotonic() + self._timeout
        while pending:
            self._progress(what, pending.values(), total)
            rest = end - time.monotonic()
            # All are wanted, so it is looked at them once a step, and not once for each that has answered.
            wait = max(0.0, min(_STEP, rest))
            done, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=wait)
            for ref in done:
                node = pending.pop(ref)
                found[node] = self._take(node, ref)
            if not done and rest <= 0:
                for node in pending.values():
                    found[node] = self._lose(node, f"it has not answered for {self._timeout:g} seconds ({what})")
                break
        self._progress(what, (), total)
        return {node: found[node] for node in refs.values()}  # whoever answers first, the report is the same

    def _take(self, node: Node, ref: Any) -> Message | Lost:
        try:
            answer = json.loads(self._ray.get(ref))
        except self._ray.exceptions.RayError as error:
            return self._lose(node, _why(error))
        except (ValueError, TypeError) as error:
            return self._lose(node, f"its answer makes no sense: {error}")
        if not isinstance(answer, dict):
            return self._lose(node, "its answer makes no sense")
        if "died" in answer:
            return self._lose(node, f"the process that worked there has died: {answer['died']}")
        return answer

    def _lose(self, node: Node, reason: str) -> Lost:
        """Give a node up; what its process has not committed it takes back when its worker is gone."""
        worker = self._workers.pop(node, None)
        if worker is not None:
            with suppress(Exception):  # it may be gone already, and Ray says so in many ways
                self._ray.kill(worker, no_restart=True)
        return Lost(reason)


@contextmanager
def connected(
    address: str | None, timeout: float, progress: Progress, named: Collection[str] = (), resource: str | None = None
) -> Iterator[Cluster]:
    """Connect to a cluster and choose its nodes; at the end nothing of this run is left there."""
    try:
        import ray
    except ImportError as error:
        raise RayMissing(f"Ray is not installed here ({error})", "pip install 'patchkit[fleet]'") from error
    _refuse_deaf(address)
    # Under `uv run`, Ray would ship the working directory to every node.
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    # Ray's threads print what they hear of the cluster, also where only a report may stand; it is said in our words.
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        _join(ray, address)
        try:
            yield Cluster(ray, choose(ray.nodes(), named, resource), timeout, progress)
        finally:
            ray.shutdown()


def _join(ray: Any, address: str | None) -> None:
    """Join a cluster; the process that a ``ray://`` server forks for a client dies at random, so that is tried again.

    Source: github.com/ray-project/ray/issues/63202.
    """
    left = _ATTEMPTS
    while True:
        try:
            ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
            return
        except Exception as error:  # Ray raises errors of many kinds here
            ray.shutdown()
            left -= 1
            if not left or not isinstance(error, ConnectionAbortedError):
                raise _unreachable(address, error) from error


def _refuse_deaf(address: str | None) -> None:
    """Refuse an address at which nothing listens: Ray would try for minutes."""
    if address is None or address == "auto" or address == "local":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FleetError(f"nothing answers at {address}: {reason}", _HINT) from error


_HINT = "name a cluster: --address HOST:6379 on one of its machines, or --address ray://HOST:10001 from anywhere"


def _unreachable(address: str | None, error: Exception) -> FleetError:
    words = " ".join(str(error).split())
    where = f"at {address}" if address else "on this machine"
    if "ersion mismatch" in words:
        return FleetError(
            f"the cluster {where} has another Ray or Python: {words}", "run patchkit with those of the cluster"
        )
    return FleetError(f"no cluster can be had {where}: {words}", _HINT)


def _why(error: Exception) -> str:
    """Return in a few words why a worker does not answer."""
    text = str(error)
    if "node has died" in text or "node is dead" in text or "NodeDied" in type(error).__name__:
        return "the node has died"
    if "Unschedulable" in type(error).__name__ or "doesn't exist any more" in text:
        return "the node has left the cluster"
    if type(error).__name__.startswith("RayTaskError"):
        return f"its worker failed: {text.strip().splitlines()[-1]}"
    return "its worker has died"
