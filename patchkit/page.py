"""The catalog as a page of Markdown, from the heads of the patches and targets.toml alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from packaging.version import Version

from patchkit.catalog import Catalog
from patchkit.header import Header
from patchkit.targets import Listing

_CELLS = {"apply": "applicable", "upstream": "upstream", "": "–", "unlisted": "not listed"}
_LEGEND = (
    "What a pristine install of each release is for each patch: `applicable` (its state is `pristine`), `upstream` "
    "(it has what the patch brings), – (`not-applicable`), or not listed: the patch is for it, and targets.toml has no "
    "digests of it. A star: the version alone says so. What a patch asks of another target is said below."
)


def becomes(catalog: Catalog, target: str, version: str, patch_id: str) -> str:
    """Return what becomes of one patch in one listed release of its target; nothing where it is for another release."""
    header = catalog.headers[patch_id]
    if not header.specifier.contains(version, prereleases=True):
        is_fixed = header.fixed_in is not None and Version(version) >= header.fixed_in
        return "upstream" if is_fixed else ""
    listings = _listings(catalog, target, version, header)
    if not listings:
        return "unlisted"
    is_there = all(listing.patched[frozenset({patch_id})] == listing.pristine for listing in listings)
    return "upstream" if is_there else "apply"


def _listings(catalog: Catalog, target: str, version: str, header: Header) -> list[Listing]:
    """Return the listings of all files of a patch in a release, or none."""
    files = catalog.targets.releases[target, version]
    found = [files[path] for path in header.files if path in files]
    is_listed = len(found) == len(header.files) and all(frozenset({header.id}) in file.patched for file in found)
    return found if is_listed else []


def to_markdown(catalog: Catalog) -> str:
    """Return the page."""
    parts = ["# The catalog", *_sets(catalog), "## Releases", _LEGEND, *_matrices(catalog), "## Patches"]
    for header in catalog.headers.values():
        parts += _patch(catalog, header)
    return "\n\n".join(parts) + "\n"


def _sets(catalog: Catalog) -> Iterator[str]:
    yield "## Sets"
    for named_set in catalog.targets.sets.values():
        is_default = ", meant when no name is given" if named_set.name in catalog.targets.default else ""
        yield f"`{named_set.name}`{is_default}: {escaped(named_set.title)}."
        yield _bullets(map(_link, named_set.patches))


def _matrices(catalog: Catalog) -> Iterator[str]:
    """Yield the table of each target: a row a patch, a column for releases in which the same becomes of all of them."""
    for target in catalog.targets.targets:
        ids = [name for name, header in catalog.headers.items() if header.patch.target == target]
        versions = sorted((version for name, version in catalog.targets.releases if name == target), key=Version)
        if ids and versions:
            yield f"### Releases of {target}"
            yield f"With digests: {', '.join(versions)}."
            yield _matrix(catalog, target, versions, ids)


def _matrix(catalog: Catalog, target: str, versions: list[str], ids: list[str]) -> str:
    def cells(version: str) -> list[str]:
        return [_cell(catalog, target, version, name) for name in ids]

    columns = [[span([*run]), *column] for column, run in groupby(versions, cells)]
    head, *rows = zip(*columns)
    return _table(["patch", *head], [[_link(name), *row] for name, row in zip(ids, rows)])


def span(versions: Sequence[str]) -> str:
    """Return a run of versions in words."""
    first, last = versions[0], versions[-1]
    return first if first == last else f"{first} to {last}"


def _cell(catalog: Catalog, target: str, version: str, patch_id: str) -> str:
    word = becomes(catalog, target, version, patch_id)
    files = catalog.targets.releases[target, version]
    is_known = word != "upstream" or all(path in files for path in catalog.headers[patch_id].files)
    return _CELLS[word] + ("" if is_known else r"\*")


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _patch(catalog: Catalog, header: Header) -> list[str]:
    """Return the part of one patch."""
    patch = header.patch
    needs = "".join(f", only with {name} {_code(versions)}" for name, versions in patch.requires.items())
    sets = [f"`{found.name}`" for found in catalog.targets.sets.values() if header.id in found.patches]
    facts = [
        f"Cures: {_code(patch.symptom)}",
        f"For: {patch.target} {_code(patch.versions)}{needs}",
        f"Files: {', '.join(map(_code, header.files))}",
        f"Upstream: {_upstream(header)}",
        f"Sets: {', '.join(sets) or 'none'}",
    ]
    return [f"### `{header.id}`", f"{escaped(header.title)}.", _bullets(facts), escaped(header.reason)]


def _upstream(header: Header) -> str:
    upstream = header.patch.upstream
    words = f"{upstream.status} in {upstream.fixed_in}" if upstream.fixed_in else upstream.status
    links = (("issue", upstream.issue, header.issue_url), ("pull", upstream.pull, header.pull_url))
    for kind, name, address in links:
        if address:
            words += f", [{kind} {escaped(name)}]({address})"
        elif name:
            words += f", {kind} {escaped(name)}"
    return words


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _link(patch_id: str) -> str:
    return f"[`{patch_id}`](#{patch_id})"


def _code(text: str) -> str:
    """Return text as code, whatever is in it."""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def escaped(text: str) -> str:
    """Return text in which nothing is taken for markup; code between backticks stays code."""
    parts = re.split(r"(`[^`\n]+`)", text)
    return "".join(
        part if number % 2 else re.sub(r"([\\*<>\[\]#|`~]|(?<!\w)_|_(?!\w))", r"\\\1", part)
        for number, part in enumerate(parts)
    )
