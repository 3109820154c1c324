"""Apply or revert on every node: all plan before one writes, all have written before one commits, or none has."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from patchkit.findings import Finding
from patchkit.fleet.channel import Message
from patchkit.fleet.cluster import Cluster
from patchkit.fleet.nodes import Lost, Node
from patchkit.fleet.report import NodeReport
from patchkit.fleet.sharing import Shares, find_shares
from patchkit.fleet.told import Told, read_told

Answers = dict[Node, "Message | Lost"]
_AGAIN = "mend the node, give it more time (--timeout), or name the others with --node"
_BACK = "when it is back: patchkit fleet check, then the same command again; it takes an unfinished run back first"


@dataclass
class Rollout:
    """One run over a fleet; at any moment it knows how each node would end."""

    cluster: Cluster
    keep_going: bool
    dry_run: bool
    ends: dict[Node, NodeReport] = field(default_factory=dict)
    shares: Shares = field(default_factory=Shares)
    is_decided: bool = False
    """Whether what is committed is to be kept."""

    def start(self, answers: Answers) -> None:
        """Take the nodes on which a worker was started, and those on which it was not."""
        for node, answer in answers.items():
            if self._read(node, answer, "lost") is not None:
                self._end(node, "started")

    def run(self) -> None:
        """Plan on every node, write on every node, commit on every node; go no further than all can."""
        if not self._may_go_on() or not self._plan() or self.dry_run or not self._share():
            return
        writers = [node for node in self._at("planned") if self.shares.written_by(node, self.ends[node].told.plan)]
        if not self._write(writers):
            return self.take_back()
        if not self._finish() or not self._verify():
            return self.take_back()
        self.keep()
        return None

    def _plan(self) -> bool:
        for node, answer in self.cluster.ask(
            "planning", {node: {"do": "plan"} for node in self._at("started")}
        ).items():
            told = self._read(node, answer, "lost")
            if told is not None:
                self._end(node, "planned" if told.plan else "nothing-to-do", told)
        return self._may_go_on()

    def _share(self) -> bool:
        """Find out who writes what; a folder that nobody can write is a refusal before anything is written."""
        plans = {node: self.ends[node].told.plan for node in self._at("planned")}
        self.shares, answers = find_shares(self.cluster, plans, secrets.token_hex(8))
        for node, answer in answers.items():
            self._read(node, answer, "lost")
        for node, (site, reason) in self.shares.deaf.items():
            message = f"{site} cannot be written: {reason}"
            hint = "run Ray there as the owner of the folder, on a file system that can be written, or patch its image"
            self._refuse(node, Finding("write-failed", message, hint))
        return self._may_go_on()

    def _write(self, writers: list[Node]) -> bool:
        messages: dict[Node, Message] = {
            node: {
                "do": "write",
                "sites": dict(self.ends[node].told.plan),
                "others": self.shares.written_by_others(node, self.ends[node].told.plan),
            }
            for node in writers
        }
        for node in writers:
            self._end(node, "writing")
        for node, answer in self.cluster.ask("writing", messages).items():
            told = self._read(node, answer, "unknown")
            if told is not None:
                self._end(node, "held")
        return self._may_go_on()

    def _finish(self) -> bool:
        answers = self.cluster.ask("committing", {node: {"do": "finish"} for node in self._at("held")})
        for node, answer in answers.items():
            told = self._read(node, answer, "unknown")
            if told is not None:
                self._end(node, "committed", told)
        # What it committed is not as asked, or it took it back itself; in both cases nothing is to stay.
        self._undo([node for node in self._at("refused") if node in answers])
        return self._may_go_on()

    def _verify(self) -> bool:
        """Let the nodes whose folders others have written see what is there now."""
        for node, answer in self.cluster.ask(
            "proving", {node: {"do": "verify"} for node in self._at("planned")}
        ).items():
            told = self._read(node, answer, "lost")
            if told is not None:
                self._end(node, "shared", told, self.shares.writer_of(node))
        return self._may_go_on()

    def keep(self) -> None:
        """Let every node keep what it has committed."""
        self.is_decided = True
        for node, answer in self.cluster.ask(
            "keeping", {node: {"do": "keep"} for node in self._at("committed")}
        ).items():
            self._end(node, "written")
            if isinstance(answer, Lost):  # it had committed
                self._blame(node, Finding("node-lost", f"after it was written: {answer.reason}", _BACK))

    def settle(self) -> None:
        """Bring to its end what was interrupted: what is decided is kept, all else is taken back."""
        if self.is_decided:
            self.keep()
        else:
            self.take_back()

    def take_back(self) -> None:
        """Take back on every node what this run has written there, and nothing else."""
        self._undo(self._at("writing", "held", "committed"))
        for node in self._at("shared"):
            self._end(node, "as-before")

    def _undo(self, nodes: Iterable[Node]) -> None:
        for node, answer in self.cluster.ask("taking back", {node: {"do": "undo"} for node in nodes}).items():
            if isinstance(answer, Lost):
                self._end(node, "unknown")
                self._blame(node, Finding("node-lost", f"while it was to take back: {answer.reason}", _BACK))
            elif answer.get("findings"):
                self._read(node, answer, "unknown")
                self._end(node, "unknown")
            else:
                self._end(node, "written" if answer.get("state") == "kept" else "as-before")

    def _read(self, node: Node, answer: Message | Lost, end: str) -> Told | None:
        """Return what a node has told; None where it refuses, or is lost and ends so."""
        if isinstance(answer, Lost):
            self._end(node, end)
            hint = _AGAIN if end == "lost" else _BACK
            self._blame(node, Finding("node-lost", answer.reason, hint))
            return None
        try:
            told = read_told(answer)
        except (ValueError, KeyError, TypeError) as error:
            self._refuse(node, Finding("node-failed", f"its answer makes no sense: {error!r}", _AGAIN))
            return None
        if told.findings:
            is_broken = any(finding.code == "rollback-failed" for finding in told.findings)
            self._end(node, "unknown" if is_broken else "refused", told)
            self._blame(node, *told.findings)
            return None
        return told

    def _refuse(self, node: Node, *findings: Finding) -> None:
        self._end(node, "refused")
        self._blame(node, *findings)

    def _blame(self, node: Node, *findings: Finding) -> None:
        report = self.ends[node]
        self.ends[node] = replace(report, findings=(*report.findings, *findings))

    def _end(self, node: Node, end: str, told: Told | None = None, shares_with: str | None = None) -> None:
        report = self.ends.get(node, NodeReport(node, end))
        self.ends[node] = replace(report, end=end, told=told or report.told, shares_with=shares_with)

    def _at(self, *ends: str) -> list[Node]:
        return [node for node, report in self.ends.items() if report.end in ends]

    def _may_go_on(self) -> bool:
        return self.keep_going or not any(report.findings for report in self.ends.values())
