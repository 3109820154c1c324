"""The nodes of a cluster, under names that tell them apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from patchkit.errors import FleetError


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
    """Return the nodes that are alive and meant: all, or those with a resource, or those that are named."""
    alive = [row for row in rows if row.get("Alive")]
    nodes = [Node(str(row["NodeID"]), name, str(row["NodeManagerAddress"])) for row, name in zip(alive, _names(alive))]
    there = ", ".join(sorted(node.name for node in nodes)) or "none at all"
    for name in named:
        if not any(name in _words(node) for node in nodes):
            raise FleetError(f"no node that is alive is called {name}", f"there is: {there}")
    chosen = [
        node
        for row, node in zip(alive, nodes)
        if _has(row, resource) and (not named or any(name in _words(node) for name in named))
    ]
    if not chosen:
        raise FleetError(f"no node that is alive has the resource {resource}", f"without --resource there is: {there}")
    return tuple(sorted(chosen, key=lambda node: (node.name, node.id)))


def _words(node: Node) -> tuple[str, ...]:
    return node.id, node.name, node.address


def _has(row: Mapping[str, object], resource: str | None) -> bool:
    resources = row.get("Resources")
    return resource is None or (isinstance(resources, Mapping) and resource in resources)


def _names(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return a name for each node: what it was called, its host's, or its address, whatever differs first."""
    for key in ("NodeManagerHostname", "NodeName", "NodeManagerAddress"):
        found = [str(row.get(key)) for row in rows]
        if len(set(found)) == len(found):
            return found
    return [f"{row.get('NodeManagerAddress')}/{str(row['NodeID'])[:8]}" for row in rows]
