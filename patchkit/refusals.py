"""Why a patch or a file is left as it is, as findings."""

from __future__ import annotations

from patchkit.catalog import Selection
from patchkit.facts import FileFacts
from patchkit.findings import Finding, from_error
from patchkit.survey import PatchState, Survey


def refusal(survey: Survey, state: PatchState, selection: Selection) -> Finding | None:
    """Return the finding for a patch that cannot be applied."""
    if state.state in ("not-installed", "not-applicable"):
        hint = "name the set instead of the patch if it may be absent, or install what it is for"
        return (
            Finding(state.state, f"{state.id}: {state.reason}", hint, state.id) if state.id in selection.named else None
        )
    if state.error is not None:
        return from_error(state.error, state.id, _urgent_file(state))
    if state.state == "foreign":
        installation = survey.installed()[state.target]
        foreign = [survey.facts(installation, file.path) for file in state.files if file.state == "foreign"]
        return foreign_edit(foreign[0], state.id)
    if state.state == "missing":
        path = _urgent_file(state)
        hint = survey.installed()[state.target].reinstall
        return Finding("missing-file", f"{path} is not there, and {state.id} is to rewrite it", hint, state.id, path)
    return None


def foreign_edit(facts: FileFacts, patch_id: str | None = None) -> Finding:
    """Return the finding for a file whose bytes nothing explains."""
    if facts.error is not None:
        return from_error(facts.error, patch_id, facts.path)
    message = f"{facts.path} is neither as {facts.installation.distribution} shipped it nor as patchkit wrote it"
    hint = f"make a patch of the edit (patchkit record), then bring the file back: {facts.installation.reinstall}"
    return Finding("foreign-edit", message, hint, patch_id, facts.path)


def unknown_patch(facts: FileFacts, name: str) -> Finding:
    """Return the finding for a file that carries a patch of another catalog."""
    message = f"{facts.path} carries {name}, which this catalog does not hold"
    return Finding("unknown-patch", message, f"patchkit revert {name}, or name its --catalog", name, facts.path)


def _urgent_file(state: PatchState) -> str | None:
    return next((file.path for file in state.files if file.state == state.state), None)
