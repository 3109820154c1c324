"""Whether nodes agree: the same files and releases on each, and which differ from what most have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from patchkit.findings import Finding
from patchkit.fleet.nodes import Node
from patchkit.fleet.told import Told

_SHOWN = 8
"""How many nodes are named in a line."""
_HINT = "patchkit fleet apply makes them equal; where it refuses, install the same wheel on each"
Kind = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


def judge(told: Mapping[Node, Told]) -> tuple[Told | None, list[Finding]]:
    """Return what most nodes have, None at a tie, and the findings that name those that differ."""
    groups: dict[Kind, list[Node]] = defaultdict(list)
    for node, one in told.items():
        groups[_kind(one)].append(node)
    # The largest first, and of equal ones that of the first node: a report must not depend on who answered first.
    ordered = sorted(groups.values(), key=lambda nodes: (-len(nodes), nodes[0].name))
    if not ordered:
        return None, []
    first, others = ordered[0], ordered[1:]
    reference = told[first[0]]
    if not others:
        return reference, []
    is_tie = len(others[0]) == len(first)
    most = f"{names(first)} ({len(first)} of {len(told)} nodes)"
    findings = [
        Finding("nodes-differ", f"{names(nodes)}: {_difference(told[nodes[0]], reference)} than {most}", _HINT)
        for nodes in others
    ]
    if is_tie:
        sizes = " and ".join(str(len(nodes)) for nodes in ordered if len(nodes) == len(first))
        message = f"no majority says what is right: groups of {sizes} nodes have different files"
        return None, [Finding("nodes-differ", message, _HINT), *findings]
    return reference, findings


def agrees(one: Told, other: Told) -> bool:
    """Tell whether two nodes have the same files and releases."""
    return _kind(one) == _kind(other)


def names(nodes: Sequence[Node]) -> str:
    """Return the names of some nodes, not too many."""
    rest = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    return ", ".join(node.name for node in nodes[:_SHOWN]) + rest


def _kind(told: Told) -> Kind:
    return tuple(sorted(told.files.items())), tuple(sorted(told.releases.items()))


def _difference(one: Told, other: Told) -> str:
    """Say in words what the first has that the second has not: the release first, for it explains the files."""
    for target in sorted({*one.releases, *other.releases}):
        if one.releases.get(target) != other.releases.get(target):
            mine = one.releases.get(target, f"no {target}")
            theirs = other.releases.get(target, f"no {target}")
            return f"{mine} and not {theirs}: another release"
    paths = sorted(path for path in {*one.files, *other.files} if one.files.get(path) != other.files.get(path))
    more = f" and {len(paths) - 3} more files" if len(paths) > 3 else ""
    return f"another {', '.join(paths[:3])}{more}"
