"""A fleet without Ray: each node is a thread that does the real work on a tree of its own."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from patchkit.errors import Abandoned
from patchkit.fleet.channel import Channel, Message
from patchkit.fleet.cluster import Cluster
from patchkit.fleet.nodes import Lost, Node
from patchkit.fleet.work import Work, serve

Hook = Callable[[], None]


@dataclass
class Threads(Cluster):
    """Stands where a Ray cluster stands; what a test asks for happens before a node is asked for a step."""

    sites: Mapping[Node, Path]
    catalog: Path
    hooks: dict[tuple[str, str], Hook] = field(default_factory=dict)
    """What happens before a node, by name, is sent the message of a step."""
    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    """What a node answers in place of what its thread says."""
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes = tuple(self.sites)
        self._ends: dict[Node, tuple[BinaryIO, BinaryIO]] = {}
        self._threads: list[threading.Thread] = []
        self._progress = unseen

    def start(self, parcel: bytes, order: Message) -> dict[Node, Message | Lost]:
        for node, site in self.sites.items():
            (source, ask), (told, sink) = os.pipe(), os.pipe()
            channel = Channel(os.fdopen(source, "rb"), os.fdopen(sink, "wb"))
            work = Work(channel, self.catalog, {**order, "site": str(site)})
            thread = threading.Thread(target=_serve, args=(channel, work))
            thread.start()
            self._threads.append(thread)
            self._ends[node] = os.fdopen(ask, "wb"), os.fdopen(told, "rb")
        return {node: {} for node in self.nodes}

    def ask(self, what: str, messages: Mapping[Node, Message]) -> dict[Node, Message | Lost]:
        self.asked.append(what)
        self._progress(what, self.nodes, len(self.nodes))
        for node, message in messages.items():
            self.hooks.pop((str(message["do"]), node.name), lambda: None)()
        for node, message in messages.items():
            if node in self._ends:
                with suppress(OSError):
                    self._ends[node][0].write(json.dumps(message).encode() + b"\n")
                    self._ends[node][0].flush()
        return {node: self._answer(node, str(message["do"])) for node, message in messages.items()}

    def _answer(self, node: Node, step: str) -> Message | Lost:
        line = self._ends[node][1].readline().decode() if node in self._ends else ""
        line = self.answers.pop((step, node.name), line)
        answer: Message | Lost = json.loads(line) if line else Lost("the node has died")
        return answer

    def lose(self, node: Node) -> None:
        """Let nobody listen to a node any more, and wait until it has ended."""
        for end in self._ends.pop(node, ()):
            with suppress(OSError):
                end.close()
        for thread in self._threads[self.nodes.index(node) :][:1]:
            thread.join()

    def close(self) -> None:
        for node in self.nodes:
            self.lose(node)


def _serve(channel: Channel, work: Work) -> None:
    with suppress(Abandoned):
        serve(channel, work)
    with suppress(OSError):  # nobody reads what is left to be written
        channel.sink.close()
    channel.source.close()


def unseen(_what: str, _pending: Collection[Node], _total: int) -> None:
    """Show nothing."""
