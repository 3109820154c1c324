"""Reports as text: plain where they are piped, coloured where they are read on a terminal."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from patchkit.findings import Finding, distinct
from patchkit.report import Report, TargetReport, to_json
from patchkit.screen import Screen, printable, problem
from patchkit.survey import PatchState
from patchkit.wording import summarise, to_do

if TYPE_CHECKING:
    from patchkit.gates.verdict import Verdict
    from patchkit.plan import Change
    from patchkit.symptoms import Symptom

FORMATS = ("text", "json", "junit", "sarif", "github")
"""How a report can be printed: for people, and for programs that read it."""

_SHOWN_BY = {"status": ("not-applied", "stale"), "preflight": ("gate-closed", "gate-unknown")}
"""Findings that a verb's own table shows already."""
_CURED = {
    "applied": "it is applied here: the log is from before that, or from another environment",
    "upstream": "it is upstream here: the log is from another environment",
    "not-installed": "what it is for is not installed here: name the environment with --python",
    "foreign": "see patchkit status",
    "conflict": "see patchkit status",
    "missing": "see patchkit status",
}


class Renderer:
    """Writes reports to one stream and problems to another."""

    def __init__(self, out: TextIO, err: TextIO, *, form: str = "text") -> None:
        self._out, self._err, self._form = out, err, form
        self._is_terminal = out.isatty() and form == "text"
        self._screen = Screen(out, is_terminal=self._is_terminal)

    def report(self, report: Report, *, show_diff: bool = False) -> None:
        """Write a report."""
        if self._form != "text":
            self._out.write(_written(report, self._form))
            return
        self._body(report)
        if show_diff:
            self._diff(report.changes)
        elif report.changes:
            self._stat(report)
            self._record(report)
        self._findings(report)
        summary = summarise(report)
        if show_diff:
            self._err.write(printable(f"{summary}\n" if summary else ""))
        else:
            for line in summary.splitlines():
                self._screen.line(line, "bold green" if report.ok else "bold red")

    def _body(self, report: Report) -> None:
        """Write what is particular to a verb."""
        if report.page:
            self._out.write(printable(report.page))
        elif report.statement is not None:
            self._out.write(json.dumps(report.statement, indent=2) + "\n")
        elif report.verb == "list":
            self._list(report)
        elif report.patches and report.verb in ("status", "check"):
            self._states(report)
        elif report.verb == "explain":
            self._symptoms(report)
        elif report.verdict is not None:
            self._verdict(report, report.verdict)
        for file in report.created:
            rest = f"{file.blanks} places to fill in" if file.blanks else "a new catalog"
            self._screen.line(f"{file.path}: {rest}")

    def _findings(self, report: Report) -> None:
        for finding in distinct(report.findings):
            if finding.code not in _SHOWN_BY.get(report.verb, ()):
                self.finding(finding)

    def finding(self, finding: Finding) -> None:
        """Write a finding: what is wrong, and what to do next."""
        self.problem(finding.code, finding.message, finding.hint)

    def problem(self, code: str, message: str, hint: str) -> None:
        """Write a problem to the error stream."""
        self._err.write(problem(code, message, hint))

    def _list(self, report: Report) -> None:
        rows = []
        for header in report.headers:
            upstream = header.patch.upstream
            where = f"{upstream.status} in {upstream.fixed_in}" if upstream.fixed_in else upstream.status
            rows.append((header.id, f"{header.patch.target} {header.patch.versions}", where))
        self._screen.table(("PATCH", "FOR", "UPSTREAM"), rows)
        for header in report.headers:
            self._screen.line("")
            self._screen.line(header.id, "bold")
            self._screen.line(f"  {header.title}")
            self._screen.line(f"  cures: {header.patch.symptom}", "dim")

    def _states(self, report: Report) -> None:
        for target in report.targets:
            self._target(target)
        rows = [(state.id, state.target, state.state, to_do(state)) for state in report.patches]
        self._screen.table(("PATCH", "TARGET", "STATE", "TO DO"), rows)

    def _target(self, target: TargetReport) -> None:
        listed = "" if target.listed else ", not listed in targets.toml"
        name = "" if target.distribution == target.target else f" ({target.distribution})"
        self._screen.line(f"{target.target} {target.version}{name} in {target.site}{listed}", "dim")

    def _symptoms(self, report: Report) -> None:
        for target in report.targets:
            self._target(target)
        states = {state.id: state for state in report.patches}
        for symptom in report.symptoms:
            times = f", {symptom.count} times" if symptom.count > 1 else ""
            self._screen.line(f"line {symptom.line}{times}: {symptom.text}", "bold")
            self._screen.line(f"    {symptom.meaning}")
            self._screen.line(f"    {_cure(symptom, states.get(symptom.cure or ''))}")

    def _verdict(self, report: Report, verdict: Verdict) -> None:
        from patchkit.gates.view import show_models, show_verdict

        for target in report.targets:
            self._target(target)
        if verdict.models:
            show_models(self._screen, verdict)
        else:
            show_verdict(self._screen, verdict, {state.id: _to_open(state) for state in report.patches})

    def _stat(self, report: Report) -> None:
        if report.recording is not None:
            for edit in report.recording.edits:
                self._screen.line(edit.as_line)
            return
        from patchkit.diff import changed_lines

        for change in report.changes:
            hunks = changed_lines(change.before, change.after)
            added = sum(hunk.after[1] - hunk.after[0] for hunk in hunks)
            removed = sum(hunk.before[1] - hunk.before[0] for hunk in hunks)
            names = ", ".join(sorted(change.patches)) or "pristine again"
            self._screen.line(f"{change.path}  +{added} -{removed}  {names}")

    def _diff(self, changes: Sequence[Change]) -> None:
        """Write the plan as one diff; on a terminal patch by patch, else the bytes that git apply takes."""
        if not self._is_terminal:
            self._out.flush()
            for change in changes:
                self._out.buffer.write(change.diff)
            self._out.buffer.flush()
            return
        from patchkit.diff import split_lines, unified_diff

        for change in changes:
            steps = [(step.patch_id, step.before, step.after) for step in change.steps]
            if change.undone or change.before != change.pristine:
                steps = [(_heading(change), change.before, change.after)]
            for heading, before, after in steps:
                self._screen.line(f"── {heading}", "bold")
                for line in split_lines(unified_diff(change.path, before, after)):
                    text = line.decode("utf-8", "backslashreplace").rstrip("\n")
                    self._screen.line(text, _diff_style(text))
                self._screen.line("")

    def _record(self, report: Report) -> None:
        """Write the rows of RECORD that a patched wheel has instead of others."""
        for line in report.wheel.record_diff.splitlines()[3:] if report.wheel else ():
            if line.startswith(("+", "-")):
                self._screen.line(line, _diff_style(line))


def _written(report: Report, form: str) -> str:
    """Return a report as a program reads it; only the format that is asked for is loaded."""
    if form == "json":
        return json.dumps(to_json(report), indent=2) + "\n"
    text: str = importlib.import_module(f"patchkit.formats.{form}").write(report)
    return text


def _cure(symptom: Symptom, state: PatchState | None) -> str:
    """Return what cures an error, and what is to be done here."""
    if symptom.cure is None:
        return "no patch of this catalog cures it"
    if state is None:
        return f"{symptom.cure} cures it; its state here is not known"
    return f"{symptom.cure} cures it; {_CURED.get(state.state) or to_do(state)}"


def _to_open(state: PatchState) -> str:
    """Return what is to be done here for a patch that opens a gate."""
    if state.state in ("pristine", "stale"):
        return f"patchkit apply {state.id}"
    return _CURED.get(state.state) or to_do(state)


def _heading(change: Change) -> str:
    back = f"{', '.join(sorted(change.undone))} taken back" if change.undone else ""
    stays = f"{', '.join(sorted(change.patches))}" if change.patches else ""
    return "; ".join(part for part in (back, stays) if part)


def _diff_style(line: str) -> str:
    if line.startswith(("diff ", "--- ", "+++ ")):
        return "dim"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
