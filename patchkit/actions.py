"""One function a verb."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from patchkit.catalog import Catalog, Selection
from patchkit.environment import Environment
from patchkit.findings import Finding
from patchkit.inspection import inspect_journals, inspect_loading, inspect_selection
from patchkit.report import Report, report_of
from patchkit.survey import Survey


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
    from patchkit.orders import plan_selection  # with the rewriter, which a verb that only looks may not need

    survey = Survey(catalog, environment)
    plan = plan_selection(survey, selection, allow_unlisted=allow_unlisted)
    findings = [*inspect_journals(survey), *plan.findings]
    return report_of("diff", survey, selection.ids, findings, plan.changes)


def apply(
    catalog: Catalog, environment: Environment, selection: Selection, *, allow_unlisted: bool, dry_run: bool
) -> Report:
    """Make the selected patches applied, all of them or none."""
    from patchkit.orders import carry_out, order_apply

    return carry_out(order_apply(selection, allow_unlisted=allow_unlisted), catalog, environment, dry_run=dry_run)


def revert(catalog: Catalog, environment: Environment, names: Collection[str], *, dry_run: bool) -> Report:
    """Make the named patches not applied, or all; a file without a patch is as its wheel shipped it."""
    from patchkit.orders import carry_out, order_revert

    return carry_out(order_revert(catalog, environment, names), catalog, environment, dry_run=dry_run)


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


def _inspect(verb: str, catalog: Catalog, environment: Environment, selection: Selection) -> Report:
    survey = Survey(catalog, environment)
    findings = [
        *inspect_journals(survey),
        *inspect_selection(survey, selection),
        *inspect_loading(survey, selection),
    ]
    return report_of(verb, survey, selection.ids, findings, ())
