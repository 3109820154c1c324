"""What a verb that writes is to do, and how it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from patchkit.catalog import Catalog, Selection
from patchkit.environment import Environment
from patchkit.errors import Locked, TargetError
from patchkit.findings import Finding
from patchkit.inspection import inspect_journals, inspect_selection, nothing_applies
from patchkit.journal import FOLDER, read_journal
from patchkit.paths import inside, read_regular
from patchkit.plan import Change, Plan, plan_apply, plan_revert
from patchkit.record import digest
from patchkit.report import Report, report_of
from patchkit.survey import Survey
from patchkit.transaction import Gate, Transaction

Planner = Callable[[Survey], Plan]
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


def order_apply(selection: Selection, *, allow_unlisted: bool) -> Order:
    """Return what it is to make the selected patches applied."""

    def planner(survey: Survey) -> Plan:
        return plan_selection(survey, selection, allow_unlisted=allow_unlisted)

    def verify(survey: Survey) -> Iterable[Finding]:
        yield from inspect_selection(survey, selection)

    return Order("apply", selection.ids, planner, verify)


def order_revert(catalog: Catalog, environment: Environment, names: Collection[str]) -> Order:
    """Return what it is to make the named patches not applied, or all."""
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


def _revertible(survey: Survey, names: Collection[str]) -> tuple[str, ...]:
    """Return the ids that names stand for, patches of other catalogs that files carry included."""
    strays = set(survey.strays())
    if not names:
        return tuple(sorted(strays | set(survey.catalog.headers)))
    known = [name for name in names if name not in strays]
    selected = survey.catalog.select(known).ids if known else ()
    return tuple(sorted({*selected, *(strays & set(names))}))


def plan_selection(survey: Survey, selection: Selection, *, allow_unlisted: bool) -> Plan:
    """Plan so that the selected patches are applied; a selection of which none applies is a finding."""
    plan = plan_apply(survey, selection, allow_unlisted=allow_unlisted)
    return Plan(plan.changes, (*plan.findings, *nothing_applies(survey.states(selection.ids))))


def carry_out(order: Order, catalog: Catalog, environment: Environment, *, dry_run: bool) -> Report:
    """Plan, write under the lock if there is something to write, and look again at what is there then."""
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
