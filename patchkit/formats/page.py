"""The plan as one self-contained page: each patch with its reason, its proofs and its diff side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from patchkit.findings import distinct
from patchkit.formats.results import IN_PLACE, NOT_FOR_THIS
from patchkit.formats.sides import count, draw_diff
from patchkit.header import Header
from patchkit.plan import Change
from patchkit.record import digest
from patchkit.report import Report
from patchkit.screen import printable
from patchkit.survey import PatchState
from patchkit.wording import to_do

_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark">'
    # Whatever the source of a package holds: nothing is loaded from elsewhere and nothing is run.
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)


_NO_STAT = '<span class="stat"></span>'


def draw(report: Report, headers: Mapping[str, Header]) -> str:
    """Return the page of a report of ``diff``; ``headers`` are the catalog's."""
    style = Path(__file__).with_name("page.css").read_text("utf-8")
    title = ", ".join(f"{target.distribution} {target.version}" for target in report.targets) or "nothing installed"
    body = "".join(
        (
            _summary(report, title),
            _findings(report),
            _contents(report, headers),
            "".join(_patch(report, state, headers[state.id]) for state in report.patches),
            "".join(_whole(change) for change in report.changes if _is_whole(change)),
            _digests(report),
        )
    )
    head = f"{_HEAD}<title>{_text(f'patchkit diff: {title}')}</title><style>{style}</style></head>"
    return f"{head}<body>{body}</body></html>\n"


def _text(text: str) -> str:
    return escape(printable(text))


def _summary(report: Report, title: str) -> str:
    added, removed = _counts([count(change.before, change.after) for change in report.changes])
    patches = {name for change in report.changes for name in change.patches | change.undone}
    files = len(report.changes)
    words = (
        f"{len(patches)} patch{_s(len(patches), 'es')} would change {files} file{_s(files)}"
        if files
        else "There is nothing to write."
    )
    places = "".join(
        f"<li><b>{_text(target.target)} {_text(target.version)}</b> ({_text(target.distribution)}"
        f"{'' if target.listed else ', not listed in targets.toml'}) in <code>{_text(target.site)}</code></li>"
        for target in report.targets
    )
    return (
        f"<header><h1>patchkit diff <span>{_text(title)}</span></h1>"
        f'<p class="total">{words} {_stat(added, removed) if files else ""}</p>'
        f'<ul class="places">{places}</ul></header>'
    )


def _counts(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    pairs = [*counts]
    return sum(added for added, _ in pairs), sum(removed for _, removed in pairs)


def _s(number: int, ending: str = "s") -> str:
    return "" if number == 1 else ending


def _stat(added: int, removed: int) -> str:
    return f'<span class="stat"><ins>+{added}</ins> <del>−{removed}</del></span>'


def _findings(report: Report) -> str:
    rows = [
        f"<li><code>{_text(one.code)}</code> {_text(one.message)}<br><small>{_text(one.hint)}</small></li>"
        for one in distinct(report.findings)
    ]
    head = f"<h2>{len(rows)} finding{_s(len(rows))}: nothing would be written</h2>"
    return f'<section class="findings">{head}<ul>{"".join(rows)}</ul></section>' if rows else ""


def _contents(report: Report, headers: Mapping[str, Header]) -> str:
    rows = []
    for state in report.patches:
        stat = _counts(count(before, after) for _, before, after in _steps(report, state.id))
        rows.append(
            f'<li><a href="#{_text(state.id)}">{_text(headers[state.id].title)}</a>'
            f"<span>{_state(state)} {_stat(*stat) if any(stat) else _NO_STAT}</span></li>"
        )
    for change in report.changes:
        if _is_whole(change):
            name = _text(change.path)
            rows.append(f'<li><a href="#{name}">{name}</a>{_stat(*count(change.before, change.after))}</li>')
    listed = "".join(rows)
    return f'<nav aria-label="Contents"><h2>Contents</h2><ul>{listed}</ul></nav>' if rows else ""


def _state(state: PatchState) -> str:
    kind = "good" if state.state in IN_PLACE else "quiet" if state.state in NOT_FOR_THIS else ""
    word = "to apply" if state.state == "pristine" else state.state
    return f'<span class="state {kind}">{_text(word)}</span>'


def _is_whole(change: Change) -> bool:
    """Tell whether a file's diff is not that of its patches from pristine: it carries some already."""
    return bool(change.undone) or change.before != change.pristine


def _steps(report: Report, patch_id: str) -> list[tuple[Change, bytes, bytes]]:
    """Return what a patch does to each file that is pristine before."""
    return [
        (change, step.before, step.after)
        for change in report.changes
        if not _is_whole(change)
        for step in change.steps
        if step.patch_id == patch_id
    ]


def _patch(report: Report, state: PatchState, header: Header) -> str:
    patch, steps = header.patch, _steps(report, state.id)
    diffs = "".join(_file(report, header, *step) for step in steps)
    facts = [
        ("Patch", f"<code>{_text(header.id)}</code>"),
        ("For", _text(" ".join((patch.target, patch.versions.replace(",", ", "))))),
        ("Symptom", f"<code>{_text(patch.symptom)}</code>"),
        ("Upstream", _upstream(header)),
    ]
    if not steps:
        facts.append(("To do", _text(to_do(state))))
    rows = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return (
        f'<section class="patch" id="{_text(state.id)}"><h2>{_text(header.title)} {_state(state)}</h2>'
        f"<dl>{rows}</dl>{_reason(header.reason)}{diffs}</section>"
    )


def _upstream(header: Header) -> str:
    upstream = header.patch.upstream
    words = f"{upstream.status} in {upstream.fixed_in}" if upstream.fixed_in else upstream.status
    links = (("issue", upstream.issue, header.issue_url), ("fix", upstream.pull, header.pull_url))
    shown = [f'{word} <a href="{_text(url)}" rel="noreferrer">{_text(name)}</a>' for word, name, url in links if url]
    return ", ".join([_text(words), *shown])


def _reason(reason: str) -> str:
    """Return the paragraphs of a docstring; its line ends mean nothing, except before an item of a list."""
    parts = []
    for paragraph in reason.split("\n\n"):
        items = f"\n{paragraph}".split("\n- ")
        text = " ".join(items[0].split())
        parts.append(f"<p>{_text(text)}</p>" if text else "")
        listed = "".join(f"<li>{_text(' '.join(item.split()))}</li>" for item in items[1:])
        parts.append(f"<ul>{listed}</ul>" if listed else "")
    return f'<div class="reason">{"".join(parts)}</div>'


def _file(report: Report, header: Header, change: Change, before: bytes, after: bytes) -> str:
    names = header.files[change.path]
    return (
        f"<article><h3><code>{_path(change.path)}</code> {_stat(*count(before, after))}</h3>"
        f'<ul class="proofs" aria-label="Proofs">{_proofs(report, change, names)}</ul>'
        f'{draw_diff(before, after)}<p class="sha">SHA-256 before <code>{digest(before)}</code> '
        f"after <code>{digest(after)}</code></p></article>"
    )


def _path(path: str) -> str:
    """Return a path that may be broken after each of its parts."""
    return _text(path).replace("/", "/<wbr>")


def _proofs(report: Report, change: Change, names: tuple[str, ...]) -> str:
    """Return what was proved: a change is planned only if all of this holds, except what is listed."""
    environment = report.environment
    python = ".".join(map(str, environment.version)) if environment else ""
    compiled = f"compiles for Python {python}" if environment and environment.python else f"parses as Python {python}"
    held = [
        ("pristine by RECORD", True),
        ("release listed" if change.is_listed else "release not listed", change.is_listed),
        ("same result twice", True),
        ("nothing left to rewrite", True),
        (f"changes only {', '.join(names)}", True),
        (compiled, True),
        ("diff exact both ways", True),
        ("result listed" if change.is_result_listed else "result not listed", change.is_result_listed),
    ]
    return "".join(f'<li class="{"held" if holds else "open"}">{_text(words)}</li>' for words, holds in held)


def _whole(change: Change) -> str:
    """Return the diff of a file that carries patches already: from what is there to what would be."""
    back = f"takes back {', '.join(sorted(change.undone))}" if change.undone else ""
    stays = f"with {', '.join(sorted(change.patches))}" if change.patches else "pristine again"
    words = "; ".join(part for part in (back, stays) if part)
    return (
        f'<section class="patch" id="{_text(change.path)}"><h2><code>{_path(change.path)}</code> '
        f"{_stat(*count(change.before, change.after))}</h2><p>{_text(words)}</p>"
        f"{draw_diff(change.before, change.after)}</section>"
    )


def _digests(report: Report) -> str:
    rows = "".join(
        f"<tr><td><code>{_path(change.path)}</code></td><td><code>{change.before_sha256}</code></td>"
        f"<td><code>{change.after_sha256}</code></td></tr>"
        for change in report.changes
    )
    head = "<thead><tr><th>File</th><th>SHA-256 before</th><th>SHA-256 after all patches</th></tr></thead>"
    table = f"<table>{head}<tbody>{rows}</tbody></table>"
    return f'<section class="digests"><h2>Digests</h2>{table}</section>' if rows else ""
