"""Edits made by hand, found and made a patch of; the tree is only read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from patchkit.environment import Environment
from patchkit.errors import PatchkitError, SeveralTargets, TargetError
from patchkit.facts import FileFacts
from patchkit.findings import Finding, from_error
from patchkit.inspection import inspect_journals
from patchkit.installation import Installation
from patchkit.inventory import UNTAKEN, take_inventory
from patchkit.plan import Change
from patchkit.pristine import read_pristine
from patchkit.recording import Edit, Recording, Words, write_patch
from patchkit.refusals import foreign_edit
from patchkit.report import Report, report_of
from patchkit.rewrite import Rewrite, Step
from patchkit.subject import Subject, change_of
from patchkit.survey import Survey
from patchkit.text import Text


@dataclass(frozen=True)
class _Edited:
    """The edits of one distribution."""

    installation: Installation
    facts: tuple[FileFacts, ...]
    """Files that nothing explains: to be recorded."""
    known: tuple[FileFacts, ...]
    """Files that are exactly what patches of the catalog make."""


def record(subject: Subject, words: Words | None = None, folder: Path | None = None) -> Report:
    """Return what was edited by hand, and write it as a patch where a folder is named; the tree is only read."""
    survey = Survey(subject.catalog, subject.environment)
    findings: list[Finding] = [*inspect_journals(survey)]
    edited = [found for one in subject.installations(survey) if (found := _examine(survey, one, findings))]
    changes: dict[str, list[Change]] = {}
    edits = [Edit(facts.path, "adoptable", tuple(sorted(facts.carried or ()))) for one in edited for facts in one.known]
    for one in edited:
        try:
            changes[one.installation.target.name] = _changes(one, subject, words)
            edits += [Edit(facts.path, "edited") for facts in one.facts]
        except PatchkitError as error:
            findings.append(from_error(error))
    recording = Recording(tuple(edits))
    of_edits = [one for one in edited if changes.get(one.installation.target.name)]
    is_clear = all(finding.code in UNTAKEN for finding in findings)
    if folder is not None and words is not None and of_edits and is_clear:
        try:
            recording = replace(_write(folder, words, of_edits, changes, subject.environment), edits=tuple(edits))
        except PatchkitError as error:
            findings.append(from_error(error))
    report = report_of("record", survey, (), findings, [change for found in changes.values() for change in found])
    return report._replace(recording=recording)


def _examine(survey: Survey, installation: Installation | Finding, findings: list[Finding]) -> _Edited | None:
    """Return the edits of a distribution, adding to the findings whatever cannot be recorded."""
    if isinstance(installation, Finding):
        findings.append(installation)
        return None
    try:
        inventory = take_inventory(installation, survey.environment.root)
    except TargetError as error:
        findings.append(from_error(error))
        return None
    findings += inventory.findings
    journal = survey.journals[installation.site]
    edited, known = [], []
    for path in inventory.edited:
        facts = survey.examiner.examine(inventory.installation, path, journal)
        entry = journal.files.get(path)
        if facts.carried is not None:
            known += [] if facts.entry else [facts]
        elif facts.error is not None or (entry is not None and entry.pristine == facts.pristine):
            findings.append(foreign_edit(facts))
        else:
            edited.append(facts)
    return _Edited(inventory.installation, tuple(edited), tuple(known))


def _changes(edited: _Edited, subject: Subject, words: Words | None) -> list[Change]:
    """Return the edits as changes of the pristine files, which come out of the wheel."""
    paths = [facts.path for facts in edited.facts]
    pristine = read_pristine(edited.installation, paths, subject.wheel, subject.environment)
    ids = frozenset([words.id] if words else ())
    changes = []
    for facts in edited.facts:
        assert facts.source is not None
        before = pristine[facts.path]
        texts = [Text(facts.path, data) for data in (before, facts.source.data)]
        step = Step(words.id if words else "edited by hand", *texts)
        rewrite = Rewrite(before, facts.source.data, ids, partial(tuple, [step]))
        changes.append(change_of(facts, before, rewrite))
    return changes


def _write(
    folder: Path, words: Words, edited: list[_Edited], changes: dict[str, list[Change]], environment: Environment
) -> Recording:
    if len(edited) > 1:
        names = " and ".join(one.installation.distribution for one in edited)
        raise SeveralTargets(f"{names} are edited, and a patch is for one of them", "name the one to record")
    installation = edited[0].installation
    return write_patch(folder, words, installation, changes[installation.target.name], environment)
