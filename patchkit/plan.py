"""The plan: what would be written so that the selected patches are applied, or not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from patchkit.catalog import Selection
from patchkit.diff import prove, unified_diff
from patchkit.errors import EditableInstall, PatchkitError, RewriteUnsound, TargetError
from patchkit.facts import FileFacts, came_patched
from patchkit.findings import Finding, from_error
from patchkit.installation import read_link
from patchkit.record import digest
from patchkit.refusals import foreign_edit, refusal, unknown_patch
from patchkit.rewrite import Rewrite, Step
from patchkit.survey import Survey
from patchkit.targets import PatchSet


@dataclass(frozen=True)
class Change:
    """One file to be written, proved."""

    site: Path
    path: str
    place: Path
    """Real folder and name of the file."""
    before: bytes
    before_sha256: str
    before_link: str | None
    """Where the file leads now, when it is a link."""
    after: bytes
    after_sha256: str
    after_link: str | None
    """Where it led before the first patch, when nothing is left applied."""
    pristine: bytes
    pristine_sha256: str
    patches: PatchSet
    """The patches that the file carries afterwards."""
    undone: PatchSet
    """The patches that it carries now and does not afterwards."""
    rewrite: Rewrite
    """What the patches make of the pristine bytes."""
    diff: bytes
    is_listed: bool
    """Whether targets.toml has the digest of the pristine bytes."""
    is_result_listed: bool
    """Whether targets.toml has the digest of this file with these patches, so that the result was held against it."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """What each patch does, in order, from the pristine bytes."""
        return self.rewrite.steps


@dataclass(frozen=True)
class Plan:
    """What would be written, and why it would not be."""

    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    """Any finding refuses the whole plan."""


def plan_apply(survey: Survey, selection: Selection, *, allow_unlisted: bool = False) -> Plan:
    """Plan so that the selected patches are applied beside those that are."""
    states = survey.states(selection.ids)
    findings = [found for state in states if (found := refusal(survey, state, selection))]
    wanted = {state.id for state in states if state.state in ("pristine", "stale", "applied")}
    wanted -= {state.id for state in states if state.is_obsolete}
    changes: list[Change] = []
    goals: list[tuple[FileFacts, PatchSet]] = []
    for facts in _touched(survey, selection.ids):
        goal = (facts.carried or frozenset()) - _obsolete(survey, facts) | (wanted & _known(survey, facts))
        strays = goal - set(survey.catalog.headers)
        if strays and (wanted & _known(survey, facts)) - (facts.carried or frozenset()):
            findings.append(unknown_patch(facts, min(strays)))
        elif not strays and facts.source is not None and facts.carried is not None:
            goals.append((facts, goal))
    _fold_ahead(survey, goals)
    for facts, goal in goals:
        _add(survey, facts, goal, allow_unlisted, changes, findings)
    return Plan(tuple(changes), tuple(findings))


def plan_revert(survey: Survey, ids: Collection[str]) -> Plan:
    """Plan so that some patches are not applied, beside those that stay."""
    findings = _unclear(survey, ids)
    changes: list[Change] = []
    for facts in _touched(survey, ids):
        if facts.carried is None:
            findings.append(foreign_edit(facts))
        elif facts.carried & set(ids):
            _add(survey, facts, facts.carried - set(ids), True, changes, findings)
    return Plan(tuple(changes), tuple(findings))


def _unclear(survey: Survey, ids: Collection[str]) -> list[Finding]:
    """Return the findings for targets that cannot be looked into; nothing was ever applied to a checkout."""
    known = set(ids) & set(survey.catalog.headers)
    problems = [survey.installations[name] for name in sorted({survey.catalog.target_of(one).name for one in known})]
    return [
        from_error(problem)
        for problem in problems
        if isinstance(problem, TargetError) and not isinstance(problem, EditableInstall)
    ]


def _touched(survey: Survey, ids: Collection[str]) -> list[FileFacts]:
    """Return the facts of the files that the patches touch or, as the journal says, have touched."""
    return [
        facts
        for target in survey.installed()
        for facts in survey.files(target)
        if set(ids) & (_known(survey, facts) | (facts.carried or frozenset()))
    ]


def _known(survey: Survey, facts: FileFacts) -> PatchSet:
    """Return the patches of the catalog that touch a file."""
    return frozenset(survey.catalog.files_of(facts.installation.target.name).get(facts.path, ()))


def _obsolete(survey: Survey, facts: FileFacts) -> PatchSet:
    """Return the applied patches that are no longer right for what is installed."""
    states = survey.states(sorted((facts.carried or frozenset()) & set(survey.catalog.headers)))
    return frozenset(state.id for state in states if state.is_obsolete)


def _fold_ahead(survey: Survey, goals: list[tuple[FileFacts, PatchSet]]) -> None:
    """Have the files rewritten at once whose pristine bytes are at hand."""
    survey.examiner.rewriter.fold_ahead(
        (facts.path, facts.source.data, goal)
        for facts, goal in goals
        if facts.source is not None and facts.source.sha256 == facts.pristine
    )


def _add(
    survey: Survey,
    facts: FileFacts,
    goal: PatchSet,
    allow_unlisted: bool,
    changes: list[Change],
    findings: list[Finding],
) -> None:
    """Add the change of one file, or the finding that refuses it."""
    if goal == facts.carried and not facts.outdated:
        return
    if facts.is_shipped:
        findings.append(from_error(came_patched(facts.installation), None, facts.path))
        return
    pristine = survey.examiner.pristine_bytes(facts)
    if pristine is None:
        message = f"{facts.path}: the pristine bytes are lost and cannot be worked out from the patched file"
        findings.append(Finding("pristine-lost", message, facts.installation.reinstall, None, facts.path))
        return
    if facts.listing is None and goal and not allow_unlisted:
        message = (
            f"{facts.path} of {facts.installation.distribution} {facts.installation.version} is not in targets.toml"
        )
        hint = "add --allow-unlisted to apply patches to a release that nobody has proved them on"
        findings.append(Finding("digest-unlisted", message, hint, None, facts.path))
        return
    try:
        changes.extend(_change(survey, facts, pristine, survey.examiner.rewriter.fold(facts.path, pristine, goal)))
    except PatchkitError as error:
        findings.append(from_error(error, None, facts.path))


def _change(survey: Survey, facts: FileFacts, pristine: bytes, rewrite: Rewrite) -> list[Change]:
    source = facts.source
    assert source is not None and facts.pristine is not None
    after_sha256 = _listed(facts, rewrite)
    if after_sha256 == source.sha256:
        return []
    diff = unified_diff(facts.path, source.data, rewrite.after)
    prove(diff, source.data, rewrite.after)
    return [
        Change(
            site=facts.installation.site,
            path=facts.path,
            place=source.place,
            before=source.data,
            before_sha256=source.sha256,
            before_link=source.link,
            after=rewrite.after,
            after_sha256=after_sha256,
            after_link=_former_link(survey, facts) if not rewrite.patches else None,
            pristine=pristine,
            pristine_sha256=facts.pristine,
            patches=rewrite.patches,
            undone=(facts.carried or frozenset()) - rewrite.patches,
            rewrite=rewrite,
            diff=diff,
            is_listed=facts.listing is not None,
            is_result_listed=bool(facts.listing and rewrite.patches in facts.listing.patched),
        )
    ]


def _former_link(survey: Survey, facts: FileFacts) -> str | None:
    """Return where the file led before the first patch, when the pristine bytes are still there."""
    link = facts.entry.link if facts.entry else None
    if link is None or facts.source is None:
        return None
    try:
        data = read_link(facts.source.place, link, survey.environment.root)
    except (OSError, PatchkitError):
        return None
    return link if digest(data) == facts.pristine else None


def _listed(facts: FileFacts, rewrite: Rewrite) -> str:
    """Return the digest of a rewrite, refusing one that differs from the listed digest."""
    found = digest(rewrite.after)
    listed = facts.listing.patched.get(rewrite.patches) if facts.listing else None
    if listed is not None and listed != found:
        names = ", ".join(sorted(rewrite.patches))
        raise RewriteUnsound(
            f"{facts.path} with {names} has the digest {found[:12]}…, and targets.toml lists {listed[:12]}…",
            "a patch was changed without its digests: run `patchkit digests` as CONTRIBUTING.md says",
        )
    return found
