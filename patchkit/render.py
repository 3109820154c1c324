"""Reports as text: plain where they are piped, coloured where they are read on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from patchkit.diff import changed_lines, split_lines, unified_diff
from patchkit.findings import Finding
from patchkit.plan import Change
from patchkit.report import Report, TargetReport, to_json
from patchkit.screen import Screen, printable
from patchkit.survey import PatchState

if TYPE_CHECKING:
    from patchkit.gates.verdict import Verdict
    from patchkit.symptoms import Symptom

_TO_DO = {
    "applied": "nothing",
    "upstream": "nothing, it is fixed upstream",
    "pristine": "patchkit apply",
    "stale": "patchkit apply",
    "not-installed": "nothing here",
    "foreign": "see below",
    "conflict": "see below",
    "missing": "see below",
}

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

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool = False) -> None:
        self._out, self._err, self._as_json = out, err, as_json
        self._is_terminal = out.isatty() and not as_json
        self._screen = Screen(out, is_terminal=self._is_terminal)

    def report(self, report: Report, *, show_diff: bool = False) -> None:
        """Write a report."""
        if self._as_json:
            self._out.write(json.dumps(to_json(report), indent=2) + "\n")
            return
        self._body(report)
        if show_diff:
            self._diff(report.changes)
        elif report.changes:
            self._stat(report)
            self._record(report)
        self._findings(report)
        summary = _summary(report)
        if show_diff:
            self._err.write(f"{summary}\n" if summary else "")
        elif summary:
            self._screen.line(summary, "bold green" if report.ok else "bold red")

    def _body(self, report: Report) -> None:
        """Write what is particular to a verb."""
        if report.page:
            self._out.write(report.page)
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
        for finding in _distinct(report.findings):
            if finding.code not in _SHOWN_BY.get(report.verb, ()):
                self.finding(finding)

    def finding(self, finding: Finding) -> None:
        """Write a finding: what is wrong, and what to do next."""
        self.problem(finding.code, finding.message, finding.hint)

    def problem(self, code: str, message: str, hint: str) -> None:
        """Write a problem to the error stream."""
        self._err.write(printable(f"{code}: {message}\n"))
        if hint:
            self._err.write(printable(f"    {hint}\n"))

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
        rows = [(state.id, state.target, state.state, _to_do(state)) for state in report.patches]
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


def _cure(symptom: Symptom, state: PatchState | None) -> str:
    """Return what cures an error, and what is to be done here."""
    if symptom.cure is None:
        return "no patch of this catalog cures it"
    if state is None:
        return f"{symptom.cure} cures it; its state here is not known"
    return f"{symptom.cure} cures it; {_CURED.get(state.state) or _to_do(state)}"


def _to_open(state: PatchState) -> str:
    """Return what is to be done here for a patch that opens a gate."""
    if state.state in ("pristine", "stale"):
        return f"patchkit apply {state.id}"
    return _CURED.get(state.state) or _to_do(state)


def _to_do(state: PatchState) -> str:
    if state.state == "stale" and state.is_obsolete:
        return f"patchkit apply takes it back: {state.reason}"
    if state.state == "not-applicable":
        return f"nothing, it is {state.reason}"
    return _TO_DO[state.state]


def _heading(change: Change) -> str:
    back = f"{', '.join(sorted(change.undone))} taken back" if change.undone else ""
    stays = f"{', '.join(sorted(change.patches))}" if change.patches else ""
    return "; ".join(part for part in (back, stays) if part)


def _diff_style(line: str) -> str:
    if line.startswith(("diff ", "--- ", "+++ ")):
        return "dim"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those that say the same of another patch: one file may have many patches."""
    kept: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.code, finding.message, finding.hint), finding)
    return list(kept.values())


def _summary(report: Report) -> str:
    """Return the last line: what the run comes to."""
    if report.verdict is not None:
        from patchkit.gates.view import summarise

        return f"preflight: {summarise(report.verdict)}"
    if report.verb == "explain" and (report.ok or report.symptoms):
        known = len(report.symptoms) or "no"
        lines = f"{report.lines} line{'s' if report.lines != 1 else ''}"
        return f"explain: {known} known error{'s' if known != 1 else ''} in {lines}"
    if report.created:
        return f"new: {len(report.created)} files written; fill them in, then run pytest {report.created[1].path}"
    count = len(_distinct(report.findings))
    in_place = sum(state.state in ("applied", "upstream") for state in report.patches)
    others = sum(state.state in ("not-applicable", "not-installed") for state in report.patches)
    rest = f", {others} {'is' if others == 1 else 'are'} not for what is installed" if others else ""
    if report.verb == "status" and report.patches:
        return f"status: {in_place} of {len(report.patches)} patches in place{rest}"
    if count:
        is_writer = report.verb in ("apply", "revert", "wheel")
        refused = ", nothing was written" if is_writer and not report.is_written else ""
        return f"{report.verb}: {count} finding{'s' if count != 1 else ''}{refused}"
    files = len(report.changes)
    number = f"{files} file{'s' if files != 1 else ''}"
    if report.verb == "wheel":
        return _built(report)
    if report.verb == "check":
        return f"check: {in_place} patch{'es' if in_place != 1 else ''} in place{rest}"
    if report.verb in ("apply", "revert") and not files:
        return f"{report.verb}: nothing to do"
    if report.verb in ("apply", "revert"):
        return f"{report.verb}: {number} {'written' if report.is_written else 'would be written'}"
    return ""


def _built(report: Report) -> str:
    wheel, files = report.wheel, len(report.changes)
    if wheel is None:
        return "wheel: nothing to do, the wheel has all of it"
    already = "" if report.is_written else "; it was there already"
    return f"wheel: {wheel.path} has {files} patched file{'s' if files != 1 else ''}, SHA-256 {wheel.sha256}{already}"
