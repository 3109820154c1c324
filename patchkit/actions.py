"""One function a verb."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patchkit.catalog import Catalog, Selection
from patchkit.environment import Environment
from patchkit.errors import Locked, TargetError
from patchkit.findings import Finding
from patchkit.inspection import inspect_journals, inspect_loading, inspect_selection, nothing_applies
from patchkit.journal import FOLDER, read_journal
from patchkit.paths import inside, read_regular
from patchkit.record import digest
from patchkit.report import Report, report_targets
from patchkit.survey import Survey

if TYPE_CHECKING:
    from patchkit.plan import Change, Plan
    from patchkit.transaction import Gate, Transaction

Planner = Callable[[Survey], "Plan"]
Verifier = Callable[[Survey], Iterable[Finding]]

_ROUNDS = 20
"""How often to plan again when other runs change the tree meanwhile."""


@dataclass(frozen=True)
class Order:
    """What a verb that writes is to do."""

    verb: str
    ids: Collection[str]
    planner: Planner
    verify: Verifier
    """Says afterwards what is not as asked."""


@dataclass(frozen=True)
class Draft:
    """A plan, with all that carrying it out needs."""

    survey: Survey
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]
    """Any of them refuses it."""
    obsolete: Mapping[Path, Collection[str]]
    """Journal entries to drop."""
    sites: frozenset[Path]
    """Folders in which there is something to do."""

    def is_current(self) -> bool:
        """Tell whether what the plan was made from is still so."""
        return _is_current(self.survey, self.changes, self.sites)

    def write(self, transaction: Transaction, gate: Gate | None = None) -> None:
        """Carry the plan out in a transaction over its folders."""
        obsolete = {site: self.obsolete.get(site, ()) for site in self.sites}
        transaction.commit(self.changes, obsolete, self.survey.catalog, gate)


def list_patches(catalog: Catalog) -> Report:
    """Return the catalog."""
    return Report("list", True, headers=tuple(catalog.headers.values()))


def show_catalog(catalog: Catalog) -> Report:
    """Return the catalog as a page."""
    from patchkit.page import to_markdown

    return Report("list", True, page=to_markdown(catalog))


def status(catalog: Catalog, environment: Environment, selection: Selection) -> Report:
    """Return the state of each patch; reads only."""
    return _inspect("status", catalog, environment, selection)


def check(catalog: Catalog, environment: Environment, selection: Selection) -> Report:
    """Say whether every selected patch is in place and is what Python would load; reads only."""
    return _inspect("check", catalog, environment, selection)


def diff(catalog: Catalog, environment: Environment, selection: Selection, *, allow_unlisted: bool) -> Report:
    """Return the plan for applying, without carrying it out; reads only."""
    survey = Survey(catalog, environment)
    plan = _plan_apply(survey, selection, allow_unlisted)
    findings = [*inspect_journals(survey), *plan.findings]
    return report_of("diff", survey, selection.ids, findings, plan.changes)


def apply(
    catalog: Catalog, environment: Environment, selection: Selection, *, allow_unlisted: bool, dry_run: bool
) -> Report:
    """Make the selected patches applied, all of them or none."""
    order = order_apply(selection, allow_unlisted=allow_unlisted)
    return _carry_out(order, catalog, environment, dry_run)


def revert(catalog: Catalog, environment: Environment, names: Collection[str], *, dry_run: bool) -> Report:
    """Make the named patches not applied, or all; a file without a patch is as its wheel shipped it."""
    return _carry_out(order_revert(catalog, environment, names), catalog, environment, dry_run)


def order_apply(selection: Selection, *, allow_unlisted: bool) -> Order:
    """Return what it is to make the selected patches applied."""

    def planner(survey: Survey) -> Plan:
        return _plan_apply(survey, selection, allow_unlisted)

    def verify(survey: Survey) -> Iterable[Finding]:
        yield from inspect_selection(survey, selection)

    return Order("apply", selection.ids, planner, verify)


def order_revert(catalog: Catalog, environment: Environment, names: Collection[str]) -> Order:
    """Return what it is to make the named patches not applied, or all."""
    from patchkit.plan import Plan, plan_revert

    ids = _revertible(Survey(catalog, environment), names)

    def planner(survey: Survey) -> Plan:
        plan = plan_revert(survey, ids)
        is_over_nothing = not plan.changes and not any(journal.files for journal in survey.journals.values())
        known = survey.states(name for name in ids if name in catalog.headers)
        return Plan(plan.changes, (*plan.findings, *(nothing_applies(known) if is_over_nothing else ())))

    def verify(survey: Survey) -> Iterable[Finding]:
        for change in plan_revert(survey, ids).changes:
            message = f"{change.path} still carries {', '.join(sorted(change.undone))}"
            yield Finding("still-applied", message, "run the command again", None, change.path)

    return Order("revert", ids, planner, verify)


def digests(catalog: Catalog, environment: Environment, wheels: Collection[Path], *, write: bool) -> Report:
    """Compare the listed digests with those made from wheels, or list these instead."""
    from patchkit import listing

    found = [listing.list_wheel(catalog, wheel, environment) for wheel in wheels]
    merged = listing.merge(catalog.targets, found)
    if write:
        listing.write(catalog, merged)
        return Report("digests", True)
    findings = [
        Finding(
            "digest-unlisted", f"{target} {version} is not listed as its wheel is", "patchkit digests --write WHEEL"
        )
        for (target, version), files in found
        if catalog.targets.releases.get((target, version)) != files
    ]
    return Report("digests", not findings, findings=tuple(findings))


def _revertible(survey: Survey, names: Collection[str]) -> tuple[str, ...]:
    """Return the ids that names stand for, patches of other catalogs that files carry included."""
    strays = set(survey.strays())
    if not names:
        return tuple(sorted(strays | set(survey.catalog.headers)))
    known = [name for name in names if name not in strays]
    selected = survey.catalog.select(known).ids if known else ()
    return tuple(sorted({*selected, *(strays & set(names))}))


def _plan_apply(survey: Survey, selection: Selection, allow_unlisted: bool) -> Plan:
    from patchkit.plan import Plan, plan_apply  # with the rewriter, which a verb that only looks may not need

    plan = plan_apply(survey, selection, allow_unlisted=allow_unlisted)
    return Plan(plan.changes, (*plan.findings, *nothing_applies(survey.states(selection.ids))))


def _inspect(verb: str, catalog: Catalog, environment: Environment, selection: Selection) -> Report:
    survey = Survey(catalog, environment)
    findings = [
        *inspect_journals(survey),
        *inspect_selection(survey, selection),
        *inspect_loading(survey, selection),
    ]
    return report_of(verb, survey, selection.ids, findings, ())


def carry_out(
    verb: str,
    catalog: Catalog,
    environment: Environment,
    ids: Collection[str],
    planner: Planner,
    verify: Verifier,
    dry_run: bool,
) -> Report:
    """Plan, write under the lock if there is something to write, and look again at what is there then."""
    return _carry_out(Order(verb, ids, planner, verify), catalog, environment, dry_run)


def _carry_out(order: Order, catalog: Catalog, environment: Environment, dry_run: bool) -> Report:
    survey = recovered(catalog, environment, dry_run)
    for _ in range(_ROUNDS):
        draft = draft_of(order, survey)
        if draft.findings or dry_run or not draft.sites:
            return report_of(order.verb, survey, order.ids, draft.findings, draft.changes if dry_run else ())
        with _transaction(draft.sites, environment) as transaction:
            if draft.is_current():
                draft.write(transaction)
                break
        # Another patchkit wrote while this one planned or waited: plan again from what is there now.
        survey = Survey(catalog, environment)
    else:
        raise Locked("other runs keep changing the tree", "wait for them to end, then run the same command again")
    return verified(order, Survey(catalog, environment), draft.changes)


def draft_of(order: Order, survey: Survey) -> Draft:
    """Plan an order; writes nothing."""
    plan = order.planner(survey)
    findings = (*inspect_journals(survey), *plan.findings)
    obsolete = {} if findings else _obsolete(survey)
    sites = {change.site for change in plan.changes}
    sites |= _leftovers(survey, obsolete) if order.verb == "revert" else set()
    return Draft(survey, plan.changes, findings, obsolete, frozenset(sites))


def verified(order: Order, survey: Survey, changes: Collection[Change]) -> Report:
    """Return the report of an order that was carried out, from what is there now."""
    findings = [*inspect_journals(survey), *order.verify(survey)]
    return report_of(order.verb, survey, order.ids, findings, changes, is_written=True)


def recovered(catalog: Catalog, environment: Environment, dry_run: bool) -> Survey:
    """Return a survey, made after an unfinished run is taken back."""
    survey = Survey(catalog, environment)
    unfinished = [site for site, journal in survey.journals.items() if journal.pending is not None]
    if dry_run or survey.problems or not unfinished:
        return survey
    with _transaction(unfinished, environment):
        pass
    return Survey(catalog, environment)


def _transaction(sites: Collection[Path], environment: Environment) -> AbstractContextManager[Transaction]:
    from patchkit.transaction import Transaction  # which only a writer needs

    return Transaction(sites, environment.pycache_prefix, environment.root).held()


def _obsolete(survey: Survey) -> dict[Path, set[str]]:
    """Return the journal entries that describe no file any more: their distribution was replaced or removed."""
    described = {
        (facts.installation.site, facts.path)
        for target in survey.installed()
        for facts in survey.files(target)
        if facts.entry is not None or facts.carried is None
    }
    unclear = any(isinstance(found, TargetError) for found in survey.installations.values())
    return {
        site: obsolete
        for site, journal in survey.journals.items()
        if not unclear and (obsolete := {path for path in journal.files if (site, path) not in described})
    }


def _leftovers(survey: Survey, obsolete: Collection[Path]) -> set[Path]:
    """Return the site folders with a journal that says nothing: what a killed run left before it wrote anything."""
    bare = {site for site, journal in survey.journals.items() if not journal.files and (site / FOLDER).is_dir()}
    return bare | set(obsolete)


def _is_current(survey: Survey, changes: Collection[Change], sites: Collection[Path]) -> bool:
    """Tell whether what a plan was made from is still so."""
    return all(read_journal(site) == survey.journals[site] for site in sites) and all(
        digest(read_regular(inside(change.place, survey.environment.root))) == change.before_sha256
        for change in changes
    )


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
