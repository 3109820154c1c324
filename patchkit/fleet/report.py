"""The outcome of a run over a fleet, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from patchkit.findings import Finding
from patchkit.fleet.nodes import Node
from patchkit.fleet.told import Told
from patchkit.report import SCHEMA

ENDS = {
    "agrees": "it has what most nodes have, and all of it is in place",
    "differs": "it has other files or another release than most nodes",
    "unpatched": "it has what most nodes have, and something is not in place",
    "planned": "it could do it; nothing was written there",
    "nothing-to-do": "it has it already",
    "written": "it was written, proved and kept",
    "shared": "another node wrote the folder that both see",
    "as-before": "nothing is written there, or all of it was taken back",
    "refused": "it refuses; nothing was written there",
    "unknown": "it was lost while it wrote: it takes back what it did not finish, at the latest with its next run",
    "lost": "it died or did not answer before anything was written there",
}
"""How a node can end, with its meaning. Words are added, never renamed."""


@dataclass(frozen=True)
class NodeReport:
    """What became of one node."""

    node: Node
    end: str
    """One of ``ENDS``."""
    told: Told = field(default_factory=Told)
    findings: tuple[Finding, ...] = ()
    shares_with: str | None = None
    """Name of the node that writes the folder which both see."""


@dataclass(frozen=True)
class FleetReport:
    """What a verb found and did on the nodes of a cluster."""

    verb: str
    nodes: tuple[NodeReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Of the fleet as a whole; each node has its own beside them."""
    digest: str | None = None
    """The digest that most nodes have; None where none has a majority."""
    is_written: bool = False
    is_interrupted: bool = False

    @property
    def ok(self) -> bool:
        """Tell whether all is as asked on every node."""
        return not self.findings and not any(report.findings for report in self.nodes) and not self.is_interrupted

    @property
    def exit_code(self) -> int:
        """0 as asked, 1 for a finding, 130 where somebody interrupted it."""
        return 130 if self.is_interrupted else 0 if self.ok else 1


def to_json(report: FleetReport) -> dict[str, object]:
    """Return the object that ``--json`` prints. Fields are added, never renamed."""
    return {
        "schema": SCHEMA,
        "verb": f"fleet {report.verb}",
        "ok": report.ok,
        "digest": report.digest,
        "written": report.is_written,
        "interrupted": report.is_interrupted,
        "nodes": [_node(node) for node in report.nodes],
        "findings": [
            *({**finding._asdict(), "node": None} for finding in report.findings),
            *({**finding._asdict(), "node": one.node.name} for one in report.nodes for finding in one.findings),
        ],
    }


def _node(report: NodeReport) -> Mapping[str, object]:
    node, told = report.node, report.told
    return {
        "node": node.name,
        "id": node.id,
        "address": node.address,
        "end": report.end,
        "shares_with": report.shares_with,
        "digest": told.digest,
        "python": told.python,
        "releases": dict(told.releases),
        "sites": dict(told.sites),
        "patches": dict(told.states),
        "files": dict(told.files),
        "changes": list(told.changes),
    }
