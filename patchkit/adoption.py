"""Edits made by hand, taken over into the journal where they are what patches of the catalog make."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import combinations

from patchkit.errors import PatchError, PatchkitError
from patchkit.facts import FileFacts
from patchkit.findings import Finding, from_error
from patchkit.installation import Installation
from patchkit.orders import Order, carry_out
from patchkit.plan import Change, Plan
from patchkit.pristine import read_pristine
from patchkit.recording import Edit, Recording
from patchkit.refusals import foreign_edit
from patchkit.report import Report
from patchkit.rewrite import Rewrite
from patchkit.subject import Subject, change_of
from patchkit.survey import Survey

_FEW = 4
"""Up to so many patches on a file, every set is tried; of more only all together."""


def adopt(subject: Subject) -> Report:
    """Take over into the journal what was written by hand and is exactly what patches of the catalog make."""

    def planner(survey: Survey) -> Plan:
        findings: list[Finding] = []
        changes: list[Change] = []
        for one in subject.installations(survey):
            if isinstance(one, Finding):
                findings.append(one)
            else:
                _adoptable(survey, one, subject, changes, findings)
        return Plan(tuple(changes), tuple(findings))

    def verify(survey: Survey) -> Iterable[Finding]:
        for change in planner(survey).changes:
            yield Finding("not-applied", f"{change.path} is not in the journal", "run the command again")

    headers = subject.catalog.headers
    ids = [name for name, header in headers.items() if header.patch.target in subject.targets]
    report = carry_out(Order("record", ids, planner, verify), subject.catalog, subject.environment, dry_run=False)
    edits = tuple(Edit(change.path, "adopted", tuple(sorted(change.patches))) for change in report.changes)
    return report._replace(recording=Recording(edits))


def _adoptable(
    survey: Survey, installation: Installation, subject: Subject, changes: list[Change], findings: list[Finding]
) -> None:
    """Add the files that patches of the catalog explain and the journal does not know, or why one cannot be."""
    for facts in survey.files(installation.target.name):
        if facts.carried == frozenset() or facts.entry is not None:
            continue
        try:
            rewrite = _explained(survey, facts, subject)
        except PatchkitError as error:
            findings.append(from_error(error, None, facts.path))
            continue
        if rewrite is None:
            findings.append(_unexplained(survey, facts))
            continue
        findings += _obsolete(survey, rewrite.patches)
        changes.append(change_of(facts, rewrite.after, rewrite))


def _explained(survey: Survey, facts: FileFacts, subject: Subject) -> Rewrite | None:
    """Return what patches make exactly what a file is, of its pristine bytes; None where none do."""
    pristine, sets = None, [tuple(facts.carried or ())]
    if facts.error is not None or facts.source is None:
        return None
    if facts.carried is not None:
        pristine = survey.examiner.pristine_bytes(facts)
    elif subject.wheel is None:
        return None  # a wheel is not downloaded to find out that somebody else edited the file
    else:
        known = survey.catalog.files_of(facts.installation.target.name).get(facts.path, ())
        sizes = range(len(known), 0, -1) if len(known) <= _FEW else (len(known),)
        sets = [chosen for size in sizes for chosen in combinations(known, size)]
    if pristine is None:
        pristine = read_pristine(facts.installation, [facts.path], subject.wheel, subject.environment)[facts.path]
    for patches in sets:
        with suppress(PatchError):
            rewrite = survey.examiner.rewriter.fold(facts.path, pristine, patches)
            if rewrite.after == facts.source.data and rewrite.patches == set(patches):
                return rewrite
    return None


def _obsolete(survey: Survey, ids: Collection[str]) -> Iterator[Finding]:
    for state in survey.states(sorted(ids)):
        if state.is_obsolete or state.state == "not-applicable":
            message = f"{state.id} is not right here: {state.reason}"
            yield Finding("stale", message, "choose another --catalog, or reinstall the distribution", state.id)


def _unexplained(survey: Survey, facts: FileFacts) -> Finding:
    finding = foreign_edit(facts)
    if facts.error is not None or facts.path in survey.journals[facts.installation.site].files:
        return finding
    return finding._replace(hint="make a patch of the edit first: patchkit record --write DIR --id ID")
