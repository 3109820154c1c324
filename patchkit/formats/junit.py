"""JUnit XML: a test case for each patch and file of ``check``, and for each gate of ``preflight``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from patchkit.findings import Finding
from patchkit.formats.results import IN_PLACE, NOT_FOR_THIS, clean, gate_of
from patchkit.gates.gate import FAIL, UNKNOWN, WHEN, Gate
from patchkit.report import Report
from patchkit.survey import FileState, PatchState

_REFUSALS = frozenset(
    {
        "anchor-ambiguous",
        "anchor-not-found",
        "conflict",
        "foreign-edit",
        "gate-closed",
        "gate-unknown",
        "missing-file",
        "not-applicable",
        "not-applied",
        "not-installed",
        "nothing-applicable",
        "shadowed",
        "stale",
        "stale-bytecode",
        "unexpected-shape",
    }
)
"""Findings that answer the question: failures. With another one it could not be asked, which is an error."""


@dataclass(frozen=True)
class Case:
    """One test case."""

    suite: str
    cls: str
    name: str
    outcome: str = ""
    """``failure``, ``error`` or ``skipped``; empty where it passes."""
    kind: str = ""
    message: str = ""
    text: str = ""


def write(report: Report) -> str:
    """Return the document, in ASCII: other characters are references, whatever the stream's encoding is."""
    cases = _gates(report) if report.verdict else _patches(report)
    root = ElementTree.Element("testsuites", {"name": f"patchkit {report.verb}", **_counts(cases, skipped=False)})
    for name in dict.fromkeys(case.suite for case in cases):
        members = [case for case in cases if case.suite == name]
        suite = ElementTree.SubElement(root, "testsuite", {"name": clean(name), **_counts(members)})
        for case in members:
            _add(suite, case)
    ElementTree.indent(root)
    data: bytes = ElementTree.tostring(root, "us-ascii", xml_declaration=True)
    return data.decode("ascii") + "\n"


def _add(suite: ElementTree.Element, case: Case) -> None:
    element = ElementTree.SubElement(suite, "testcase", {"classname": clean(case.cls), "name": clean(case.name)})
    if not case.outcome:
        return
    attributes = {"type": case.kind, "message": clean(case.message)}
    child = ElementTree.SubElement(element, case.outcome, {key: value for key, value in attributes.items() if value})
    child.text = "\n".join(clean(line) for line in case.text.splitlines()) or None


def _counts(cases: Sequence[Case], *, skipped: bool = True) -> dict[str, str]:
    words = {"failures": "failure", "errors": "error"} | ({"skipped": "skipped"} if skipped else {})
    counts = {name: str(sum(case.outcome == word for case in cases)) for name, word in words.items()}
    return {"tests": str(len(cases)), **counts}


def _patches(report: Report) -> list[Case]:
    """Return a case a patch and file; what belongs to none has a case of its own, so that nothing is lost."""
    names = {target.target: f"{target.distribution} {target.version}" for target in report.targets}
    left, cases = list(report.findings), []
    for state in report.patches:
        for file in state.files:
            found = [finding for finding in report.findings if _is_about(finding, state, file)]
            left = [finding for finding in left if finding not in found]
            suite = names.get(state.target, state.target)
            cases.append(_with(Case(suite, state.id, file.path), found) if found else _quiet(suite, state, file))
    return cases + _others(left)


def _is_about(finding: Finding, state: PatchState, file: FileState) -> bool:
    if finding.patch is not None and finding.patch != state.id:
        return False
    if finding.file is not None:
        return finding.file == file.path
    return finding.patch is not None and file.state not in IN_PLACE


def _quiet(suite: str, state: PatchState, file: FileState) -> Case:
    """Return the case of a file that no finding is about."""
    if file.state in IN_PLACE:
        return Case(suite, state.id, file.path)
    if file.state in NOT_FOR_THIS:
        return Case(suite, state.id, file.path, "skipped", "", f"{file.state}: {state.reason}")
    return Case(suite, state.id, file.path, "failure", file.state, f"{file.path} is {file.state}")


def _others(findings: Iterable[Finding]) -> list[Case]:
    seen: Counter[str] = Counter()
    cases = []
    for finding in findings:
        seen[finding.code] += 1
        number = f" {seen[finding.code]}" if seen[finding.code] > 1 else ""
        cases.append(_with(Case("environment", "environment", f"{finding.code}{number}"), [finding]))
    return cases


def _with(case: Case, found: Sequence[Finding]) -> Case:
    outcome = "failure" if all(finding.code in _REFUSALS for finding in found) else "error"
    text = "\n".join(f"{finding.code}: {finding.message}\n    {finding.hint}" for finding in found)
    return Case(case.suite, case.cls, case.name, outcome, found[0].code, found[0].message, text)


def _gates(report: Report) -> list[Case]:
    assert report.verdict is not None
    found = {gate.id: finding for finding in report.findings if (gate := gate_of(report, finding))}
    return [_gate(gate, found.get(gate.id)) for gate in report.verdict.gates]


def _gate(gate: Gate, finding: Finding | None) -> Case:
    case = Case("preflight", "preflight", gate.id)
    if gate.verdict not in (FAIL, UNKNOWN):
        return case
    lines = [f"met {WHEN[gate.when]}", *(f"{one.path}:{one.line}: {one.text}" for one in gate.evidence)]
    lines += [f"vLLM says: {gate.error}"] if gate.error else []
    lines += [finding.hint if finding else gate.hint]
    outcome, kind = ("failure", finding.code) if finding else ("skipped", "")
    return Case(case.suite, case.cls, case.name, outcome, kind, gate.message, "\n".join(lines))
