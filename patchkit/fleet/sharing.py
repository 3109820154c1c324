"""Which nodes see the same site folder, so that one of them writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from patchkit.fleet.channel import Message
from patchkit.fleet.cluster import Cluster
from patchkit.fleet.nodes import Lost, Node

Plans = Mapping[Node, Mapping[str, str]]
"""Digest of what each node would write into each site folder."""


@dataclass(frozen=True)
class Shares:
    """Who writes which folder."""

    writers: Mapping[tuple[Node, str], Node] = field(default_factory=dict)
    """The node that writes a folder, for each node that sees it and each of its names for it."""
    deaf: Mapping[Node, tuple[str, str]] = field(default_factory=dict)
    """The nodes with a folder that no node can write: the folder, and why."""

    def written_by(self, node: Node, sites: Mapping[str, str]) -> list[str]:
        """Return the folders that a node writes itself."""
        return [site for site in sites if self.writers.get((node, site)) == node]

    def written_by_others(self, node: Node, sites: Mapping[str, str]) -> list[str]:
        """Return the folders of a node that others write."""
        return [site for site in sites if self.writers.get((node, site)) != node]

    def writer_of(self, node: Node) -> str | None:
        """Return the name of a node that writes for another."""
        return next((writer.name for (seer, _), writer in self.writers.items() if seer == node != writer), None)


def find_shares(cluster: Cluster, plans: Plans, run: str) -> tuple[Shares, dict[Node, Message | Lost]]:
    """Let each node leave a file in its folders and look for those of the others; return what did not answer, too.

    A folder that cannot be written here but has the file of a node that can is written there: a network file system
    that most nodes mount read-only.
    """
    nodes = list(plans)
    names = {node: f"{run}-{number}" for number, node in enumerate(nodes)}
    lit = cluster.ask("asking who shares a folder", {node: {"do": "light", "name": names[node]} for node in nodes})
    same: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        for digest in plans[node].values():
            same[digest].append(node)
    # Only nodes that would write the same can see the same folder.
    asked = {
        node: {site: [names[other] for other in same[digest]] for site, digest in plans[node].items()} for node in nodes
    }
    told = cluster.ask("asking who shares a folder", {node: {"do": "seek", "names": asked[node]} for node in nodes})
    doused = cluster.ask("asking who shares a folder", {node: {"do": "douse"} for node in nodes})
    bad: dict[Node, Message | Lost] = {}
    for answers in (doused, told, lit):
        bad.update({node: one for node, one in answers.items() if isinstance(one, Lost) or one.get("findings")})
    return _decide(plans, names, lit, told, bad), bad


def _decide(
    plans: Plans,
    names: Mapping[Node, str],
    lit: Mapping[Node, Message | Lost],
    told: Mapping[Node, Message | Lost],
    bad: Mapping[Node, Message | Lost],
) -> Shares:
    nodes = {name: node for node, name in names.items()}
    rank = {node: number for number, node in enumerate(names)}
    writers: dict[tuple[Node, str], Node] = {}
    deaf: dict[Node, tuple[str, str]] = {}
    for node in (node for node in plans if node not in bad):
        refused, seen = _table(lit[node], "refused"), _table(told[node], "seen")
        for site in plans[node]:
            found = seen.get(site)
            able = [nodes[name] for name in (found if isinstance(found, list) else []) if name in nodes]
            able = [other for other in able if other not in bad]
            if able:
                writers[node, site] = min(able, key=rank.__getitem__)
            else:
                deaf[node] = (site, str(refused.get(site, "the file that was left there is gone")))
    return Shares(writers, deaf)


def _table(answer: Message | Lost, key: str) -> Message:
    found = {} if isinstance(answer, Lost) else answer.get(key)
    return found if isinstance(found, dict) else {}
