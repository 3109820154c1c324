"""What keeps an environment from being as selected: states, leftovers, bytecode and shadows."""

from __future__ import annotations

import os
from collections.abc import Iterator

from patchkit.bytecode import find_bytecode, is_stale
from patchkit.catalog import Selection
from patchkit.findings import Finding, from_error
from patchkit.installation import Installation
from patchkit.paths import inside
from patchkit.refusals import refusal
from patchkit.survey import PatchState, Survey


def inspect_journals(survey: Survey) -> Iterator[Finding]:
    """Find journals that cannot be read and runs that did not finish."""
    for problem in survey.problems:
        yield from_error(problem)
    for site, journal in survey.journals.items():
        if journal.pending is not None:
            yield Finding(
                "interrupted",
                f"a run in {site} did not finish, or is at work now",
                "run patchkit apply or patchkit revert: it takes the unfinished run back first",
            )


def inspect_selection(survey: Survey, selection: Selection) -> Iterator[Finding]:
    """Find the selected patches that are neither applied nor upstream."""
    states = survey.states(selection.ids)
    for state in states:
        finding = refusal(survey, state, selection) or _not_in_place(state)
        if finding is not None:
            yield finding
    yield from nothing_applies(states)


def nothing_applies(states: list[PatchState]) -> Iterator[Finding]:
    """Find that a run would be over nothing at all."""
    if all(state.state in ("not-installed", "not-applicable") for state in states):
        reasons = sorted({state.reason for state in states})
        hint = "name the environment with --python, --site or --root"
        yield Finding("nothing-applicable", f"nothing selected applies here: {'; '.join(reasons)}", hint)


def inspect_loading(survey: Survey, selection: Selection) -> Iterator[Finding]:
    """Find bytecode and shadows that would make Python run something other than the files checked."""
    installed = survey.installed()
    for target in sorted({survey.catalog.target_of(patch_id).name for patch_id in selection.ids}):
        if target in installed:
            yield from _shadow(survey, installed[target])
    for state in survey.states(selection.ids):
        for file in state.files:
            if file.state == "applied":
                yield from _stale_bytecode(survey, installed[state.target], file.path, state.id)


def _not_in_place(state: PatchState) -> Finding | None:
    if state.state == "pristine":
        return Finding("not-applied", f"{state.id} is not applied", f"patchkit apply {state.id}", state.id)
    if state.state == "stale":
        reason = state.reason or "it was applied by an older revision of the patch"
        return Finding("stale", f"{state.id} is stale: {reason}", f"patchkit apply {state.id}", state.id)
    return None


def _shadow(survey: Survey, installation: Installation) -> Iterator[Finding]:
    """Find that an import of the package would lead elsewhere: a second copy, PYTHONPATH, a checkout."""
    package = installation.target.package
    checked = installation.site / package
    if package not in survey.environment.imported:
        return
    imported = survey.environment.imported[package]
    if imported is None or os.path.realpath(imported) != os.path.realpath(checked):
        yield Finding(
            "shadowed",
            f"Python would import {package} from {imported or 'nowhere'}, and {checked} is what was checked",
            "remove the other copy, or the entry of PYTHONPATH or the working directory that leads to it",
            None,
            str(imported) if imported else None,
        )


def _stale_bytecode(survey: Survey, installation: Installation, path: str, patch_id: str) -> Iterator[Finding]:
    facts = survey.facts(installation, path)
    assert facts.source is not None
    written = facts.entry.written if facts.entry else None
    root = survey.environment.root
    spellings = (facts.source.place, installation.site / path)
    try:
        found = find_bytecode(spellings, survey.environment.pycache_prefix, root)
    except OSError as error:
        yield Finding("file-unreadable", f"{error.filename}: {error.strerror}", "run as a user who can read it")
        return
    for bytecode in found:
        if is_stale(inside(bytecode, root), facts.source.data, written):
            message = f"Python would load {bytecode}, which was not compiled from {path}"
            yield Finding("stale-bytecode", message, f"remove {bytecode}", patch_id, path)
