"""The outcome of a verb, and its JSON form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from patchkit.environment import Environment
from patchkit.findings import Finding
from patchkit.header import Header
from patchkit.survey import PatchState, Survey

if TYPE_CHECKING:
    from patchkit.gates.verdict import Verdict
    from patchkit.plan import Change
    from patchkit.recording import Recording
    from patchkit.symptoms import Symptom

SCHEMA = 1


class TargetReport(NamedTuple):
    """One installed target."""

    target: str
    distribution: str
    version: str
    site: str
    listed: bool
    """Whether targets.toml has the digests of its files."""


class Created(NamedTuple):
    """One file of a new patch."""

    path: str
    """Below the catalog's folder."""
    blanks: int
    """How many places its author has to fill in."""


class BuiltWheel(NamedTuple):
    """A patched wheel."""

    path: str
    version: str
    sha256: str
    record_diff: str
    """What differs from the upstream RECORD, as a unified diff."""


class Report(NamedTuple):
    """What a verb found and did."""

    verb: str
    ok: bool
    environment: Environment | None = None
    targets: tuple[TargetReport, ...] = ()
    patches: tuple[PatchState, ...] = ()
    findings: tuple[Finding, ...] = ()
    changes: tuple[Change, ...] = ()
    """What was written, or would be."""
    is_written: bool = False
    headers: tuple[Header, ...] = ()
    """The catalog's patches, for ``list``."""
    symptoms: tuple[Symptom, ...] = ()
    """The known errors of a log, for ``explain``; ``patches`` then has the state of each patch that cures one."""
    lines: int = 0
    """How many lines were looked at, for ``explain``."""
    created: tuple[Created, ...] = ()
    """The files that were written, for ``new``."""
    page: str = ""
    """The catalog as Markdown, for ``list --markdown``."""
    verdict: Verdict | None = None
    """What vLLM's gates will say, for ``preflight``; ``patches`` then has the state of each patch that opens one."""
    wheel: BuiltWheel | None = None
    """The patched wheel, for ``wheel``; None where there was nothing to patch."""
    statement: Mapping[str, object] | None = None
    """The CycloneDX document, for ``statement``."""
    recording: Recording | None = None
    """The edits that were made by hand, for ``record``."""

    @property
    def exit_code(self) -> int:
        """0 as asked, 1 for a finding."""
        return 0 if self.ok else 1


def report_targets(survey: Survey) -> tuple[TargetReport, ...]:
    """Return what is installed, by target."""
    return tuple(
        TargetReport(name, found.distribution, str(found.version), str(found.site), survey.is_listed(name))
        for name, found in survey.installed().items()
    )


def to_json(report: Report) -> dict[str, object]:
    """Return the object that ``--json`` prints. Fields are added, never renamed."""
    environment = report.environment
    patches: Sequence[object] = [_patch(state) for state in report.patches]
    if report.headers:
        patches = [_header(header) for header in report.headers]
    explained: dict[str, object] = {}
    if report.verb == "explain":
        explained = {"lines": report.lines, "symptoms": [asdict(symptom) for symptom in report.symptoms]}
    if report.verb == "new":
        explained = {"created": [file._asdict() for file in report.created]}
    if report.verb == "wheel":
        explained = _wheel(report.wheel)
    if report.verdict is not None:
        explained = _verdict(report.verdict)
    if report.verb == "statement":
        explained = {"statement": report.statement}
    if report.recording is not None:
        explained = report.recording.to_json()
    return {
        "schema": SCHEMA,
        "verb": report.verb,
        "ok": report.ok,
        "environment": {
            "python": environment.python if environment else None,
            "site": [str(site) for site in environment.sites] if environment else [],
        },
        "targets": [target._asdict() for target in report.targets],
        "patches": patches,
        "changes": [_change(change) for change in report.changes],
        "written": report.is_written,
        "findings": [finding._asdict() for finding in report.findings],
        **explained,
    }


def _wheel(wheel: BuiltWheel | None) -> dict[str, object]:
    if wheel is None:
        return {"wheel": None, "version": None, "sha256": None, "record_diff": ""}
    row = wheel._asdict()
    return {"wheel": row.pop("path"), **row}


def _verdict(verdict: Verdict) -> dict[str, object]:
    if verdict.models:
        return {"models": [asdict(row) | {"would_die": row.would_die} for row in verdict.models]}
    return {
        "model": verdict.target,
        "draft": verdict.draft,
        "gates": [asdict(gate) for gate in verdict.gates],
        "path": [asdict(step) for step in verdict.steps],
        "weights": {"model_bytes": verdict.target_bytes, "draft_bytes": verdict.draft_bytes},
    }


def _patch(state: PatchState) -> dict[str, object]:
    files = [file._asdict() for file in state.files]
    return {"id": state.id, "target": state.target, "state": state.state, "reason": state.reason, "files": files}


def _change(change: Change) -> dict[str, object]:
    return {
        "path": change.path,
        "site": str(change.site),
        "sha256_before": change.before_sha256,
        "sha256_after": change.after_sha256,
        "patches": sorted(change.patches),
        "diff": change.diff.decode("utf-8", "backslashreplace"),
    }


def _header(header: Header) -> dict[str, object]:
    patch = header.patch
    return {
        "id": header.id,
        "title": header.title,
        "target": patch.target,
        "versions": patch.versions,
        "requires": dict(patch.requires),
        "symptom": patch.symptom,
        "upstream": patch.upstream._asdict(),
        "files": list(header.files),
        "revision": header.revision,
    }


def report_of(
    verb: str,
    survey: Survey,
    ids: Collection[str],
    findings: Iterable[Finding],
    changes: Collection[Change],
    *,
    is_written: bool = False,
) -> Report:
    """Return the report of a verb on what was surveyed."""
    found = tuple(findings)
    states = survey.states(name for name in sorted(ids) if name in survey.catalog.headers)
    return Report(
        verb=verb,
        ok=not found,
        environment=survey.environment,
        targets=report_targets(survey),
        patches=tuple(states),
        findings=found,
        changes=tuple(changes),
        is_written=is_written,
    )
