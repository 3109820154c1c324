"""What a report comes to in words: the last line of a run, and what is to be done for each state."""

from __future__ import annotations

from patchkit.findings import distinct
from patchkit.report import Report
from patchkit.survey import PatchState

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


def to_do(state: PatchState) -> str:
    """Return what is to be done for a patch."""
    if state.state == "stale" and state.is_obsolete:
        return f"patchkit apply takes it back: {state.reason}"
    if state.state == "not-applicable":
        return f"nothing, it is {state.reason}"
    return _TO_DO[state.state]


def summarise(report: Report) -> str:
    """Return the last line: what the run comes to."""
    own = _own_words(report)
    if own is not None:
        return own
    count = len(distinct(report.findings))
    if report.verb == "status" and report.patches:
        return f"status: {_in_place(report, f'of {len(report.patches)} patches')}"
    if count:
        is_writer = report.verb in ("apply", "revert", "wheel")
        refused = ", nothing was written" if is_writer and not report.is_written else ""
        return f"{report.verb}: {count} finding{'s' if count != 1 else ''}{refused}"
    if report.verb == "wheel":
        return _built(report)
    if report.verb == "check":
        return f"check: {_in_place(report)}"
    if report.verb in ("apply", "revert"):
        files = len(report.changes)
        done = "written" if report.is_written else "would be written"
        return (
            f"{report.verb}: {files} file{'s' if files != 1 else ''} {done}"
            if files
            else f"{report.verb}: nothing to do"
        )
    return ""


def _own_words(report: Report) -> str | None:
    """Return the last line of a verb that reports something else than patches and changes."""
    if report.verdict is not None:
        from patchkit.gates import view

        return f"preflight: {view.summarise(report.verdict)}"
    if report.recording is not None:
        from patchkit import recording

        return recording.summarise(report.recording, len(distinct(report.findings)))
    if report.verb == "explain" and (report.ok or report.symptoms):
        known = len(report.symptoms) or "no"
        lines = f"{report.lines} line{'s' if report.lines != 1 else ''}"
        return f"explain: {known} known error{'s' if known != 1 else ''} in {lines}"
    if report.created:
        return f"new: {len(report.created)} files written; fill them in, then run pytest {report.created[1].path}"
    return None


def _in_place(report: Report, of: str | None = None) -> str:
    """Return how many patches are in place, and how many are for something else."""
    count = sum(state.state in ("applied", "upstream") for state in report.patches)
    others = sum(state.state in ("not-applicable", "not-installed") for state in report.patches)
    rest = f", {others} {'is' if others == 1 else 'are'} not for what is installed" if others else ""
    return f"{count} {of or ('patch' if count == 1 else 'patches')} in place{rest}"


def _built(report: Report) -> str:
    wheel, files = report.wheel, len(report.changes)
    if wheel is None:
        return "wheel: nothing to do, the wheel has all of it"
    already = "" if report.is_written else "; it was there already"
    return f"wheel: {wheel.path} has {files} patched file{'s' if files != 1 else ''}, SHA-256 {wheel.sha256}{already}"
