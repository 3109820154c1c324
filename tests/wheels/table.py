"""The table of releases in README.md: what patchkit does to each listed release, by targets.toml alone.

``python -m tests.wheels.table`` prints it; with ``--write`` it replaces the one in README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from packaging.version import Version

from patchkit.catalog import Catalog, load_catalog

ROOT = Path(__file__).parent.parent.parent
BEGIN, END = "<!-- releases -->\n", "<!-- /releases -->\n"

Row = tuple[str, ...]


def cell(catalog: Catalog, target: str, version: str, patch_id: str) -> str:
    """Return what becomes of one patch in one listed release."""
    header = catalog.headers[patch_id]
    if header.patch.target != target:
        return "–"
    if not header.specifier.contains(version, prereleases=True):
        is_fixed = header.fixed_in is not None and Version(version) >= header.fixed_in
        return "`upstream`" if is_fixed else "–"
    listings = [catalog.targets.releases[target, version][path] for path in header.files]
    is_there = all(listing.patched[frozenset({patch_id})] == listing.pristine for listing in listings)
    return "`upstream`" if is_there else "`apply`"


def rows(catalog: Catalog) -> Iterable[Row]:
    """Yield one row for each run of listed releases of a target that are alike."""
    releases = sorted(catalog.targets.releases, key=lambda release: (release[0] != "vllm", Version(release[1])))
    alike = groupby(
        releases, lambda release: (release[0], [cell(catalog, *release, patch_id) for patch_id in catalog.headers])
    )
    for (target, cells), run in alike:
        yield target, *span([version for _, version in run]), *cells


def span(versions: Sequence[str]) -> tuple[str, str]:
    """Return a run of versions in words, and how many they are."""
    first, last = versions[0], versions[-1]
    return (first if first == last else f"{first} to {last}"), str(len(versions))


def to_markdown(catalog: Catalog) -> str:
    """Return the table."""
    names = [f"`{patch_id}`" for patch_id in catalog.headers]
    lines = [("target", "versions", "listed", *names), ("---",) * (3 + len(names)), *rows(catalog)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill(text: str, table: str) -> str:
    """Return a text with the table between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin and end, "README.md has no markers for the table of releases"
    return f"{before}{BEGIN}{table}{END}{after}"


def main(arguments: Sequence[str]) -> None:
    """Print the table, or write it."""
    table, place = to_markdown(load_catalog(ROOT)), ROOT / "README.md"
    if arguments == ["--write"]:
        place.write_text(fill(place.read_text("utf-8"), table), "utf-8")
    else:
        sys.stdout.write(table)


if __name__ == "__main__":
    main(sys.argv[1:])
