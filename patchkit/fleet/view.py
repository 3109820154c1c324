"""What a person sees of a fleet: a line while it is waited for, a table of nodes, and what is wrong where."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import TextIO

from patchkit.findings import Finding
from patchkit.fleet.agreement import names
from patchkit.fleet.nodes import Node
from patchkit.fleet.report import FleetReport, NodeReport
from patchkit.screen import Screen, one_line, problem

_DIGITS = 12
_PLURAL = {"agrees": "agree", "differs": "differ"}
_SHOWN = ("not-applied", "stale")
"""Findings that the table of ``status`` shows already."""


class ProgressLine:
    """A line that is written again while nodes are waited for; nothing where nobody looks."""

    def __init__(self, out: TextIO, *, is_shown: bool) -> None:
        self._out, self._is_shown = out, is_shown
        self._last = ""

    def __call__(self, what: str, pending: Collection[Node], total: int) -> None:
        """Show what is being done, and which nodes it is waited for."""
        waiting = f", waiting for {names(list(pending))}" if pending else ""
        text = one_line(f"{what}: {total - len(pending)} of {total} nodes{waiting}")
        if self._is_shown and total and text != self._last:
            width = os.get_terminal_size(self._out.fileno()).columns or 80  # some terminals do not know yet
            self._out.write(f"\r\x1b[K{text[: width - 1]}")
            self._out.flush()
            self._last = text

    def close(self) -> None:
        """Take the line away."""
        if self._last:
            self._out.write("\r\x1b[K")
            self._out.flush()


def show(report: FleetReport, out: TextIO, err: TextIO) -> None:
    """Write a report."""
    screen = Screen(out, is_terminal=out.isatty())
    if report.nodes:
        screen.table(("NODE", "RELEASE", "IN PLACE", "DIGEST", "END"), [_row(one) for one in report.nodes])
    for finding, nodes in _grouped(report):
        if report.verb == "status" and finding.code in _SHOWN:
            continue
        where = (
            f"all {len(nodes)} nodes: " if 1 < len(nodes) == len(report.nodes) else f"{names(nodes)}: " if nodes else ""
        )
        err.write(problem(finding.code, f"{where}{finding.message}", _for_fleet(finding.hint)))
    screen.line(summarise(report), "bold green" if report.ok else "bold red")


def _row(report: NodeReport) -> tuple[str, ...]:
    told = report.told
    releases = ", ".join(told.releases[target] for target in sorted(told.releases)) or "-"
    place = f"{told.in_place} of {told.meant}" if told.states else "-"
    end = f"shared ({report.shares_with} writes it)" if report.shares_with else report.end
    return report.node.name, releases, place, (told.digest or "-")[:_DIGITS], end


def _grouped(report: FleetReport) -> list[tuple[Finding, list[Node]]]:
    """Return each finding once, with the nodes that it is of."""
    found: dict[tuple[str, str, str], tuple[Finding, list[Node]]] = {}
    for one in report.nodes:
        for finding in one.findings:
            _, nodes = found.setdefault((finding.code, finding.message, finding.hint), (finding, []))
            if one.node not in nodes:
                nodes.append(one.node)
    return [*((finding, []) for finding in report.findings), *found.values()]


def _for_fleet(hint: str) -> str:
    """Return a hint with the verbs that go to every node."""
    return re.sub(r"\bpatchkit (apply|revert|check|status)\b", r"patchkit fleet \1", hint)


def summarise(report: FleetReport) -> str:
    """Return the last line: what the run comes to."""
    count = len(report.nodes)
    ends = [one.end for one in report.nodes]
    if report.is_interrupted:
        return f"{report.verb}: interrupted; {_counted(ends)}"
    if report.verb == "status":
        full = sum(one.told.meant == one.told.in_place > 0 for one in report.nodes)
        return f"status: every patch that is for what is installed is in place on {full} of {_nodes(count)}"
    if report.verb == "check":
        digest = f", digest {report.digest[:16]}" if report.digest else ""
        if report.ok:
            return f"check: {_nodes(count)} agree, all in place{digest}"
        return f"check: {_counted(ends)}{digest}"
    return f"{report.verb}: {_counted(ends)}"


def _counted(ends: list[str]) -> str:
    counts = {end: ends.count(end) for end in dict.fromkeys(ends)}
    words = (f"{count} {end if count == 1 else _PLURAL.get(end, end)}" for end, count in counts.items())
    return ", ".join(words) or "no node was asked"


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"
