"""What every format tells of a finding: its words, made harmless, and the places that it is about."""

from __future__ import annotations

import os
from dataclasses import dataclass

from patchkit.findings import Finding, distinct
from patchkit.gates.gate import Gate
from patchkit.report import Report
from patchkit.screen import cut, printable

IN_PLACE = ("applied", "upstream")
NOT_FOR_THIS = ("not-applicable", "not-installed")


@dataclass(frozen=True)
class Place:
    """A file, perhaps with a line."""

    path: str
    """Below the site folder; a file elsewhere has its absolute path."""
    line: int | None = None


@dataclass(frozen=True)
class Result:
    """One finding; its texts have neither control characters nor more than a reader takes in."""

    code: str
    message: str
    hint: str
    patch: str | None
    gate: str | None
    places: tuple[Place, ...]

    @property
    def level(self) -> str:
        """``warning`` for what is not known, else ``error``."""
        return "warning" if self.code == "gate-unknown" else "error"


def results(report: Report) -> tuple[Result, ...]:
    """Return the findings of a report, each once."""
    return tuple(_result(report, finding) for finding in distinct(report.findings))


def clean(text: str) -> str:
    """Return text that is safe in any format: short, and with control characters spelt out."""
    return printable(cut(text))


def _result(report: Report, finding: Finding) -> Result:
    gate = gate_of(report, finding)
    places = _places_of_gate(report, gate) if gate else _places(report, finding)
    name = clean(finding.patch) if finding.patch else None
    return Result(finding.code, clean(finding.message), clean(finding.hint), name, gate.id if gate else None, places)


def gate_of(report: Report, finding: Finding) -> Gate | None:
    """Return the gate that a finding is about."""
    gates = report.verdict.gates if report.verdict else ()
    return next((gate for gate in gates if gate.message == finding.message), None)


def _places_of_gate(report: Report, gate: Gate) -> tuple[Place, ...]:
    assert report.verdict is not None
    of_models = (report.verdict.target, report.verdict.draft)
    return tuple(
        Place(os.path.abspath(one.path) if one.path in of_models else one.path, one.line) for one in gate.evidence
    )


def _places(report: Report, finding: Finding) -> tuple[Place, ...]:
    """Return the finding's file, else the files in which its patch is not in place."""
    if finding.file is not None:
        return (Place(finding.file),)
    states = [state for state in report.patches if state.id == finding.patch]
    return tuple(Place(file.path) for state in states for file in state.files if file.state not in IN_PLACE)
