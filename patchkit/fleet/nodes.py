"""The nodes of a cluster, under names that tell them apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """One node of a cluster that was alive when it was asked."""

    id: str
    """The cluster's own."""
    name: str
    address: str


@dataclass(frozen=True)
class Lost:
    """Stands in place of an answer that does not come."""

    reason: str


def choose(rows: Sequence[Mapping[str, object]], named: Collection[str], resource: str | None) -> tuple[Node, ...]:
    """Return the nodes that are alive and meant, by name: all, or those with a resource, or those that are named."""
    alive = [row for row in rows if row.get("Alive")]
    names = _names(alive)
    nodes = []
    for row, name in zip(alive, names):
        node = Node(str(row["NodeID"]), name, str(row["NodeManagerAddress"]))
        resources = row.get("Resources")
        has_it = resource is None or (isinstance(resources, Mapping) and resource in resources)
        if has_it and (not named or {node.id, node.name, node.address} & set(named)):
            nodes.append(node)
    return tuple(sorted(nodes, key=lambda node: (node.name, node.id)))


def _names(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return a name for each node: what it was called, its host's, or its address, whatever differs first."""
    for key in ("NodeManagerHostname", "NodeName", "NodeManagerAddress"):
        found = [str(row.get(key)) for row in rows]
        if len(set(found)) == len(found):
            return found
    return [f"{row.get('NodeManagerAddress')}/{str(row['NodeID'])[:8]}" for row in rows]
