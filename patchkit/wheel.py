"""A patched wheel: the plan of ``apply`` on what a wheel holds, written as a wheel of its own."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from patchkit.archive import Wheel, copy_member, open_wheel, verify, write_member
from patchkit.catalog import Catalog, Selection
from patchkit.diff import unified_diff
from patchkit.environment import Environment
from patchkit.errors import TargetError, TransactionError, WheelExists
from patchkit.findings import Finding
from patchkit.inspection import nothing_applies
from patchkit.journal import Applied, own_version
from patchkit.marker import NAME, Marker
from patchkit.plan import Change, plan_apply
from patchkit.record import digest_file
from patchkit.relabel import (
    LABEL,
    patched_metadata,
    patched_name,
    patched_record,
    patched_stem,
    patched_version,
    renamed,
)
from patchkit.report import BuiltWheel, Report, report_targets
from patchkit.stage import stage, stage_beside
from patchkit.survey import PatchState, Survey
from patchkit.targets import Target


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    place: Path
    """The wheel to patch."""
    folder: Path
    """Where the patched one is written."""
    beside: tuple[str, ...] = ()
    """NAME==VERSION of the other targets that it will be installed beside."""
    allow_unlisted: bool = False


def build(catalog: Catalog, environment: Environment, selection: Selection, order: Order) -> Report:
    """Write a wheel with the selected patches, all of them or none, and a version that says so."""
    with open_wheel(order.place) as wheel, tempfile.TemporaryDirectory(prefix="patchkit-") as name:
        target = _target(catalog, wheel)
        verify(wheel)
        stage(wheel, catalog.files_of(target.name), Path(name))
        stage_beside(catalog, order.beside, Path(name))
        # Nothing of the environment counts but its Python, for which the patched files must compile.
        survey = Survey(catalog, Environment(environment.python, environment.version, (Path(name),)))
        report = _planned(survey, selection, wheel, target, order)._replace(environment=environment)
        if not report.ok or not report.changes:
            return report
        built, is_written = _written(catalog, wheel, report.changes, order.folder)
        return report._replace(is_written=is_written, wheel=built)


def _target(catalog: Catalog, wheel: Wheel) -> Target:
    for target in catalog.targets.targets.values():
        if wheel.name in target.distributions:
            return target
    names = ", ".join(name for target in catalog.targets.targets.values() for name in target.distributions)
    raise TargetError(f"{wheel.place} is of {wheel.name}, which is no target's", f"name a wheel of one of: {names}")


def _planned(survey: Survey, selection: Selection, wheel: Wheel, target: Target, order: Order) -> Report:
    """Return what apply would do if the wheel were installed."""
    chosen = _restricted(survey.catalog, selection, target)
    states = survey.states(chosen.ids)
    plan = plan_apply(survey, chosen, allow_unlisted=order.allow_unlisted)
    findings = [*_astray(survey.catalog, selection, target, wheel), *plan.findings, *_unsaid(survey, states, wheel)]
    if not findings:
        findings = [*nothing_applies(states), *_already_patched(wheel, plan.changes)]
    changes = () if findings else plan.changes
    targets = [found for found in report_targets(survey) if found.target == target.name]
    return Report(
        verb="wheel",
        ok=not findings,
        targets=tuple(found._replace(site=wheel.place.name) for found in targets),
        patches=tuple(states),
        findings=tuple(findings),
        changes=tuple(replace(change, site=Path(wheel.place.name)) for change in changes),
    )


def _restricted(catalog: Catalog, selection: Selection, target: Target) -> Selection:
    """Return the patches that are for a target."""
    ids = tuple(name for name in selection.ids if catalog.target_of(name) == target)
    return Selection(ids, selection.named & set(ids))


def _astray(catalog: Catalog, selection: Selection, target: Target, wheel: Wheel) -> Iterator[Finding]:
    """Find patches named by their id that are for another target, and that nothing is for this one."""
    hint = f"leave it out: what is for {target.name} is taken from the sets"
    for name in sorted(selection.named):
        other = catalog.target_of(name).name
        if other != target.name:
            yield Finding("not-applicable", f"{name} is for {other}, and the wheel is of {wheel.name}", hint, name)
    if not _restricted(catalog, selection, target).ids and not selection.named:
        yield Finding("nothing-applicable", f"nothing that was selected is for {target.name}", "name another set")


def _unsaid(survey: Survey, states: Sequence[PatchState], wheel: Wheel) -> Iterator[Finding]:
    """Find patches that depend on what the wheel will be installed beside, where that was not said."""
    waiting: dict[str, list[str]] = {}
    for state in states:
        if state.state == "not-applicable":
            for other in survey.catalog.headers[state.id].patch.requires:
                if other not in survey.installed():
                    waiting.setdefault(other, []).append(state.id)
    for other, ids in waiting.items():
        message = f"whether {', '.join(ids)} will be right depends on the {other} beside {wheel.name} {wheel.version}"
        yield Finding("not-applicable", message, f"say which it will be: --beside {other}==VERSION")


def _already_patched(wheel: Wheel, changes: Sequence[Change]) -> Iterator[Finding]:
    """Find that a wheel was patched already; its marker and its version would have to tell of two runs."""
    local = (wheel.version.local or "").split(".")
    if changes and (f"{wheel.metadata}/{NAME}" in wheel.members or LABEL in local):
        message = f"{wheel.place.name} is a patched wheel, and it lacks some of what was selected"
        yield Finding("patched-wheel", message, "begin with the upstream wheel, and name all patches at once")


def _written(catalog: Catalog, wheel: Wheel, changes: Sequence[Change], folder: Path) -> tuple[BuiltWheel, bool]:
    """Write the patched wheel beside its place, prove it and put it there; say whether it was not there before."""
    version = patched_version(wheel.version, {change.path: change.after_sha256 for change in changes})
    place = folder / patched_name(wheel, version)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".patchkit-") as name:
            fresh = Path(name, place.name)
            record_diff = _write(catalog, wheel, version, changes, fresh)
            with open_wheel(fresh) as built:
                verify(built)
            sha256 = _sha256(fresh)
            is_new = not place.exists()
            if is_new:
                os.replace(fresh, place)
            elif _sha256(place) != sha256:
                raise WheelExists(
                    f"{place} is there already, and is another wheel", "remove it, or name another folder with -o"
                )
    except OSError as error:
        raise TransactionError(f"{place} cannot be written: {error.strerror}", "name another folder with -o") from error
    return BuiltWheel(str(place), str(version), sha256, record_diff), is_new


def _write(catalog: Catalog, wheel: Wheel, version: Version, changes: Sequence[Change], place: Path) -> str:
    """Write the members in their order, and return the diff of RECORD."""
    stem, record = patched_stem(wheel, version), f"{wheel.metadata}/RECORD"
    changed = {change.path: change.after for change in changes}
    changed[f"{wheel.metadata}/METADATA"] = patched_metadata(wheel, version)
    marker = Marker(str(wheel.version), {change.path: _applied(catalog, change) for change in changes})
    added = {f"{stem}.dist-info/{NAME}": marker.to_bytes(wheel.name, str(version))}
    changed[record] = patched_record(wheel, stem, changed, added)
    with place.open("xb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = wheel.archive.comment
        for name, info in wheel.members.items():
            for path, data in added.items() if name == record else ():
                write_member(info, archive, path, data)
            if name in changed:
                write_member(info, archive, renamed(wheel, name, stem), changed[name])
            else:
                copy_member(wheel, info, archive, renamed(wheel, name, stem))
    return unified_diff(record, wheel.read(record), changed[record]).decode("utf-8", "backslashreplace")


def _applied(catalog: Catalog, change: Change) -> Applied:
    revisions = {name: catalog.headers[name].revision for name in sorted(change.patches)}
    return Applied(change.pristine_sha256, change.after_sha256, revisions, own_version(), 0)


def _sha256(place: Path) -> str:
    with place.open("rb") as file:
        return digest_file(file)
