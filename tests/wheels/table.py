"""The table of releases in README.md: what becomes of each patch in the listed releases, by targets.toml alone.

``python -m tests.wheels.table`` prints it; with ``--write`` it replaces the one in README.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from packaging.version import Version

from patchkit.catalog import Catalog, load_catalog
from patchkit.page import becomes, span

ROOT = Path(__file__).parent.parent.parent
BEGIN, END = "<!-- releases -->\n", "<!-- /releases -->\n"

Row = tuple[str, ...]


def row(catalog: Catalog, patch_id: str) -> Row:
    """Return one row: the patch, its target, where it is applied, where it is upstream, and what else it asks for."""
    patch = catalog.headers[patch_id].patch
    versions = sorted((version for target, version in catalog.targets.releases if target == patch.target), key=Version)
    runs: dict[str, str] = {"apply": "–", "upstream": "–"}
    for word, run in groupby(versions, lambda version: becomes(catalog, patch.target, version, patch_id)):
        if word:
            assert runs[word] == "–", f"{patch_id}: {word} in two runs of releases"
            runs[word] = span([*run])
    needs = ", ".join(f"{name} {specifier}" for name, specifier in patch.requires.items()) or "–"
    return f"`{patch_id}`", patch.target, runs["apply"], runs["upstream"], needs


def to_markdown(catalog: Catalog) -> str:
    """Return the table."""
    head = ("patch", "target", "applied on", "upstream in", "only with")
    lines = [head, ("---",) * len(head), *(row(catalog, patch_id) for patch_id in catalog.headers)]
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
