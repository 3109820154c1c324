"""What was changed in which distribution, as a CycloneDX document for an image's bill of materials."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from importlib.metadata import version
from urllib.parse import quote

from patchkit.catalog import Catalog, Selection
from patchkit.environment import Environment
from patchkit.errors import TargetError
from patchkit.facts import FileFacts
from patchkit.findings import Finding, from_error
from patchkit.header import Header
from patchkit.inspection import inspect_journals, inspect_loading
from patchkit.refusals import foreign_edit, unknown_patch
from patchkit.report import Report, report_targets
from patchkit.survey import Survey

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
VARIABLE = "SOURCE_DATE_EPOCH"
"""Seconds since the epoch for the document's timestamp; without it there is none, and the document is reproducible."""


def state(catalog: Catalog, environment: Environment) -> Report:
    """State every patch that the installed targets carry; reads only.

    Nothing is stated of a tree in which a file is not explained, or in which Python would load something else.
    """
    survey = Survey(catalog, environment)
    ids = sorted({name for target in survey.installed() for facts in survey.files(target) for name in _carried(facts)})
    known = Selection(tuple(name for name in ids if name in catalog.headers), frozenset())
    findings = [*inspect_journals(survey), *_unclear(survey), *_outdated(survey)]
    findings += inspect_loading(survey, known)
    return Report(
        "statement",
        not findings,
        environment,
        report_targets(survey),
        tuple(survey.states(known.ids)),
        tuple(findings),
        statement=None if findings else _document(survey),
    )


def _carried(facts: FileFacts) -> list[str]:
    return sorted(facts.carried or ())


def _unclear(survey: Survey) -> Iterator[Finding]:
    """Find what keeps patchkit from saying what is there."""
    for problem in survey.installations.values():
        if isinstance(problem, TargetError):
            yield from_error(problem)
    if not survey.installed():
        names = ", ".join(survey.catalog.targets.targets)
        hint = "name the environment with --python, --site or --root"
        yield Finding("nothing-applicable", f"none of these is installed: {names}", hint)
    for target in survey.installed():
        for facts in survey.files(target):
            if facts.carried is None:
                yield foreign_edit(facts)


def _outdated(survey: Survey) -> Iterator[Finding]:
    """Find what was not written as this catalog's patches say."""
    for name, files in survey.strays().items():
        yield unknown_patch(files[0], name)
    for target in survey.installed():
        for facts in survey.files(target):
            for name in sorted(facts.outdated & set(survey.catalog.headers)):
                message = f"{facts.path} carries an older revision of {name}"
                yield Finding("stale", message, f"patchkit apply {name}", name, facts.path)


def _document(survey: Survey) -> dict[str, object]:
    components = [_component(survey, target) for target in sorted(survey.installed())]
    metadata: dict[str, object] = {
        "tools": {"components": [{"type": "application", "name": "patchkit", "version": version("patchkit")}]}
    }
    seconds = os.environ.get(VARIABLE, "")
    if seconds.isdecimal():
        metadata["timestamp"] = datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    content = {"metadata": metadata, "components": components}
    # Derived, so that the same tree gives the same document and another tree another serial number.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"$schema": SCHEMA, "bomFormat": "CycloneDX", "specVersion": "1.6"}
    return {**head, "serialNumber": f"urn:uuid:{serial}", "version": 1, **content}


def _component(survey: Survey, target: str) -> dict[str, object]:
    """Return a distribution; one that carries patches descends from itself as its wheel shipped it."""
    installation = survey.installed()[target]
    numbers = str(installation.version), installation.upstream
    own, pristine = (_distribution(installation.distribution, number) for number in numbers)
    component = {**own, "bom-ref": own["purl"]}
    changed = [facts for facts in survey.files(target) if facts.carried]
    if not changed:
        return component
    ids = sorted({name for facts in changed for name in _carried(facts)})
    headers = [survey.catalog.headers[name] for name in ids]
    count = f"{len(changed)} file{'s' if len(changed) != 1 else ''}"
    notes = f"patchkit changed {count} of the installed wheel; the ancestor of each has the digest of before that"
    return {
        **component,
        "pedigree": {"ancestors": [pristine], "patches": [_patch(one) for one in headers], "notes": notes},
        "components": [_file(facts) for facts in changed],
        "properties": _properties((f"patchkit:revision:{one.id}", f"sha256:{one.revision}") for one in headers),
    }


def _distribution(name: str, number: str) -> dict[str, object]:
    purl = f"pkg:pypi/{name}@{quote(number, safe='')}"
    return {"type": "library", "name": name, "version": number, "purl": purl}


def _patch(header: Header) -> dict[str, object]:
    upstream = header.patch.upstream
    where = f"{upstream.status} in {upstream.fixed_in}" if upstream.fixed_in else upstream.status
    links = [link for link in (header.issue_url, header.pull_url) if link]
    resolved: dict[str, object] = {
        "type": "defect",
        "id": header.id,
        "name": header.title,
        "description": f"cures: {header.patch.symptom}; upstream: {where}",
    }
    if links:
        resolved["references"] = links
    return {"type": "unofficial", "resolves": [resolved]}


def _file(facts: FileFacts) -> dict[str, object]:
    assert facts.source is not None and facts.pristine is not None
    before = {"type": "file", "name": facts.path, "hashes": _hashes(facts.pristine)}
    return {
        "type": "file",
        "name": facts.path,
        "hashes": _hashes(facts.source.sha256),
        "pedigree": {"ancestors": [before]},
        "properties": _properties(("patchkit:patch", name) for name in _carried(facts)),
    }


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]


def _properties(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]
