"""SARIF 2.1.0: one rule a finding code, for code scanning and editors."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from patchkit.findings import CODES
from patchkit.formats.results import Place, Result, results
from patchkit.report import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "patchkitFinding/v1"
_RULES = tuple(CODES)


def write(report: Report) -> str:
    """Return a log with one run."""
    found = results(report)
    bases = {f"SITE{number or ''}": str(site) for number, site in enumerate(_sites(report))}
    run: dict[str, object] = {
        "tool": {"driver": {"name": "patchkit", "version": version("patchkit"), "rules": _rules(found)}},
        "automationDetails": {"id": f"patchkit/{report.verb}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": report.environment is not None, "exitCode": report.exit_code}],
        "results": _results(report, found, bases),
    }
    if bases:
        run["originalUriBaseIds"] = {name: {"uri": f"{_file_uri(site)}/"} for name, site in bases.items()}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _sites(report: Report) -> tuple[Path, ...]:
    return report.environment.sites if report.environment else ()


def _rules(found: Iterable[Result]) -> list[dict[str, object]]:
    """Return a rule for every code, so that its index says the same in every run."""
    hints: dict[str, dict[str, None]] = {code: {} for code in CODES}
    for result in found:
        if result.hint:
            hints[result.code][result.hint] = None
    return [
        {
            "id": code,
            "shortDescription": {"text": meaning},
            "fullDescription": {"text": meaning},
            "help": {"text": "\n".join(hints[code]) or meaning},
            "defaultConfiguration": {"level": "warning" if code == "gate-unknown" else "error"},
        }
        for code, meaning in CODES.items()
    ]


def _results(report: Report, found: Iterable[Result], bases: dict[str, str]) -> list[dict[str, object]]:
    seen: Counter[str] = Counter()
    rows: list[dict[str, object]] = []
    for result in found:
        places = [_location(report, place, bases) for place in result.places]
        row: dict[str, object] = {
            "ruleId": result.code,
            "ruleIndex": _RULES.index(result.code),
            "level": result.level,
            "message": {"text": result.message},
            "partialFingerprints": {FINGERPRINT: _fingerprint(report, result, seen)},
            "properties": {"hint": result.hint, "patch": result.patch, "gate": result.gate},
        }
        if places:
            row["locations"] = places[:1]
        if places[1:]:
            row["relatedLocations"] = places[1:]
        rows.append(row)
    return rows


def _fingerprint(report: Report, result: Result, seen: Counter[str]) -> str:
    """Return what stays the same while the finding does: of the words and lines, which change, nothing."""
    places = [_relative(place.path, map(str, _sites(report))) for place in result.places]
    key = "\0".join([report.verb, result.code, result.patch or "", result.gate or "", *places])
    seen[key] += 1
    return hashlib.sha256(f"{key}\0{seen[key]}".encode("utf-8", "surrogatepass")).hexdigest()


def _relative(path: str, sites: Iterable[str]) -> str:
    """Return a path without the site folder, whose place is another one in the next build."""
    return next((path[len(site) + 1 :] for site in sites if path.startswith(f"{site}/")), path)


def _location(report: Report, place: Place, bases: dict[str, str]) -> dict[str, object]:
    path = _relative(place.path, bases.values())
    artifact = {"uri": _file_uri(path)} if os.path.isabs(path) or not bases else {"uri": _quoted(path)}
    if not os.path.isabs(path) and bases:
        artifact["uriBaseId"] = _base(report, place.path, bases)
    physical: dict[str, object] = {"artifactLocation": artifact}
    if place.line is not None:
        physical["region"] = {"startLine": place.line}
    return {"physicalLocation": physical}


def _base(report: Report, path: str, bases: dict[str, str]) -> str:
    """Return the id of the site folder that a path is in or below: its target's, else the first one."""
    owners = {file.path: state.target for state in report.patches for file in state.files}
    sites = {target.target: target.site for target in report.targets}
    site = sites.get(owners.get(path, ""))
    inside = (name for name, place in bases.items() if place == site or path.startswith(f"{place}/"))
    return next(inside, next(iter(bases)))


def _file_uri(path: str) -> str:
    return f"file://{_quoted(os.path.abspath(path))}"


def _quoted(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe="/")
