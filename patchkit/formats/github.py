"""Annotations of a GitHub workflow, and the summary of its step."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence

from patchkit.formats.results import Place, Result, clean, results
from patchkit.report import Report
from patchkit.wording import summarise, to_do

VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file that GitHub shows as the step's summary."""


def write(report: Report) -> str:
    """Return one workflow command a finding and one for the outcome, and append the summary where GitHub wants it."""
    found = results(report)
    lines = [_annotation(report, result) for result in found]
    level = "notice" if report.ok else "error"
    lines.append(_command(level, {"title": f"patchkit {report.verb}"}, outcome(report)))
    problem = _append(summary(report, found))
    if problem:
        lines.append(_command("warning", {"title": "patchkit"}, problem))
    return "".join(f"{line}\n" for line in lines)


def outcome(report: Report) -> str:
    """Return the last line of a run."""
    return clean(summarise(report))


def summary(report: Report, found: tuple[Result, ...]) -> str:
    """Return the summary as Markdown in which no text of a report is taken for markup."""
    parts = [f"### {'✅' if report.ok else '❌'} {_text(outcome(report))}"]
    for target in report.targets:
        name = f"{target.distribution} {target.version}"
        parts.append(f"{_code(name)} in {_code(target.site)}{'' if target.listed else ', not listed in targets.toml'}")
    if report.verdict is not None:
        rows = [(gate.verdict, _code(gate.id), _text(gate.message)) for gate in report.verdict.gates]
        parts.append(_table(("verdict", "gate", "what is there"), rows))
    elif report.patches:
        states = [(_code(one.id), _text(one.target), _text(one.state), _text(to_do(one))) for one in report.patches]
        parts.append(_table(("patch", "target", "state", "to do"), states))
    if found:
        findings = [(_code(one.code), _text(one.message), _text(one.hint)) for one in found]
        parts.append(_table(("finding", "what is wrong", "what to do next"), findings))
    return "\n\n".join(parts) + "\n\n"


def _annotation(report: Report, result: Result) -> str:
    place = result.places[0] if result.places else Place("")
    properties = {"file": clean(place.path), "line": str(place.line or ""), "title": f"patchkit {report.verb}: "}
    properties["title"] += result.code
    return _command(result.level, properties, "\n".join(filter(None, (result.message, result.hint))))


def _command(name: str, properties: dict[str, str], message: str) -> str:
    """Return a workflow command; what would end it or begin another one is escaped as GitHub reads it."""
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{name} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _append(text: str) -> str:
    """Append to the step's summary; return what went wrong, which changes no outcome."""
    place = os.environ.get(VARIABLE)
    if not place:
        return ""
    try:
        with open(place, "a", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        return f"the step's summary cannot be written: {getattr(error, 'strerror', error)}"
    return ""


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    """Return text with all that Markdown or HTML would take for markup written as character references."""
    escaped = html.escape(clean(text))
    return "".join(f"&#{ord(char)};" if char in _MARKUP else char for char in escaped).replace("\n", "<br>")


def _code(text: str) -> str:
    return f"<code>{_text(text)}</code>"


_MARKUP = "\\`*_{}[]()#+!|~@:"
