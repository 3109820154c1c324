"""A verb on every node of a cluster."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from patchkit.findings import Finding
from patchkit.fleet.agreement import agrees, judge
from patchkit.fleet.channel import Message
from patchkit.fleet.cluster import Cluster, Progress, connected
from patchkit.fleet.nodes import Lost, Node
from patchkit.fleet.report import FleetReport, NodeReport
from patchkit.fleet.rollout import Rollout
from patchkit.fleet.told import Told, read_told

_FINAL = {"started": "as-before", "writing": "unknown", "held": "unknown", "committed": "written"}
"""How a node ends that was left on its way."""


@dataclass(frozen=True)
class Fleet:
    """Which nodes of which cluster, and what their target is."""

    catalog: Path
    address: str | None = None
    python: str | None = None
    """Interpreter of the target on each node; None is that of the node's Ray."""
    site: Path | None = None
    """Site folder of the target on each node."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes that are meant; none stands for all."""
    resource: str | None = None
    """Only the nodes with this resource."""
    timeout: float = 120.0
    """Seconds that each step may take."""


def look(fleet: Fleet, verb: str, names: Collection[str], progress: Progress) -> FleetReport:
    """Look at every node; ``check`` also compares them."""
    with connected(fleet.address, fleet.timeout, progress, fleet.nodes, fleet.resource) as cluster:
        answers = _start(cluster, fleet, _order(fleet, verb, names))
        ready: dict[Node, Message] = {
            node: {"do": "look"} for node, answer in answers.items() if not isinstance(answer, Lost)
        }
        answers.update(cluster.ask("looking", ready))
    reports = [_looked(node, answers[node]) for node in cluster.nodes]
    if verb == "status":
        return FleetReport(verb, tuple(reports))
    return _compared(verb, reports)


def carry_out(
    fleet: Fleet,
    verb: str,
    names: Collection[str],
    progress: Progress,
    *,
    allow_unlisted: bool = False,
    dry_run: bool = False,
    keep_going: bool = False,
) -> FleetReport:
    """Apply or revert on every node, or on none."""
    order = {**_order(fleet, verb, names), "allow_unlisted": allow_unlisted, "dry_run": dry_run}
    is_interrupted, interrupts = False, list[int]()

    def heard(what: str, nodes: Collection[Node], count: int) -> None:
        if interrupts and not is_interrupted:
            raise KeyboardInterrupt  # the first one was raised where Python lets none out, as in a callback of Ray's
        progress(what, nodes, count)

    with (
        _noting(interrupts),
        connected(fleet.address, fleet.timeout, heard, fleet.nodes, fleet.resource) as cluster,
    ):
        rollout = Rollout(cluster, keep_going, dry_run)
        try:
            rollout.start(_start(cluster, fleet, order))
            rollout.run()
        except KeyboardInterrupt:
            is_interrupted = True
            with _undisturbed():
                rollout.settle()
    ends = rollout.ends
    final = {**_FINAL, "planned": "as-before"} if is_interrupted else _FINAL
    reports = tuple(
        replace(ends[node], end=final.get(ends[node].end, ends[node].end))
        if node in ends
        else NodeReport(node, "as-before")
        for node in cluster.nodes
    )
    is_written = any(report.end == "written" for report in reports)
    return FleetReport(verb, reports, is_written=is_written, is_interrupted=is_interrupted)


@contextmanager
def _noting(interrupts: list[int]) -> Iterator[None]:
    """Note each interrupt beside raising it."""
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no second interrupt stop what brings the nodes back; each of its steps has an end in time."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _order(fleet: Fleet, verb: str, names: Collection[str]) -> Message:
    site = None if fleet.site is None else str(fleet.site)
    return {
        "verb": verb,
        "names": list(names),
        "python": fleet.python,
        "site": site,
        "allow_unlisted": False,
        "dry_run": False,
    }


def _start(cluster: Cluster, fleet: Fleet, order: Message) -> dict[Node, Message | Lost]:
    from patchkit.fleet.parcel import pack  # with zipfile and what that loads, which no shell's question needs

    return cluster.start(pack(fleet.catalog), order)


def _looked(node: Node, answer: Message | Lost) -> NodeReport:
    if isinstance(answer, Lost):
        hint = "mend the node, give it more time (--timeout), or name the others with --node"
        return NodeReport(node, "lost", findings=(Finding("node-lost", answer.reason, hint),))
    try:
        told = read_told(answer)
    except (ValueError, KeyError, TypeError) as error:
        return NodeReport(node, "lost", findings=(Finding("node-failed", f"its answer makes no sense: {error!r}", ""),))
    return NodeReport(node, "unpatched" if told.findings else "agrees", told, told.findings)


def _compared(verb: str, reports: list[NodeReport]) -> FleetReport:
    told: dict[Node, Told] = {report.node: report.told for report in reports if report.end != "lost"}
    reference, findings = judge(told)
    is_odd = {node: reference is None or not agrees(one, reference) for node, one in told.items()}
    ends = [replace(report, end="differs") if is_odd.get(report.node) else report for report in reports]
    return FleetReport(verb, tuple(ends), tuple(findings), reference.digest if reference else None)
