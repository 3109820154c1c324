"""What fills the pages: sections of README.md and the other files at the top, and what is made from the code.

A line of a page stands for what it names:

- ``<!-- fill: README.md, JSON -->``: that section; with ``# JSON``, its heading is that of the page;
- ``<!-- fill: README.md -->``: what stands before the first section; with ``*`` everything;
- ``<!-- fill: catalog -->``: what a function makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from docs.commands import reference_of_patchkit, reference_of_serve
from patchkit.catalog import load_catalog
from patchkit.page import to_markdown

ROOT = Path(__file__).parent.parent
_LINE = re.compile(r"^<!-- fill: (?P<source>[^,\n]+?)(?:, (?P<heading>.+?))? -->$", re.MULTILINE)
MADE: dict[str, Callable[[], str]] = {
    "catalog": lambda: to_markdown(load_catalog(ROOT)),
    "patchkit": reference_of_patchkit,
    "patchkit-serve": reference_of_serve,
}


def fill(text: str) -> str:
    """Return a page with every such line replaced by what it stands for."""
    return _LINE.sub(lambda found: _content(found["source"], found["heading"]), text)


def files_of(text: str) -> set[Path]:
    """Return the files at the top that a page is filled from."""
    return {ROOT / found["source"] for found in _LINE.finditer(text) if found["source"] not in MADE}


def _content(source: str, heading: str | None) -> str:
    if source in MADE:
        return MADE[source]()
    return section((ROOT / source).read_text("utf-8"), heading)


def section(text: str, heading: str | None) -> str:
    """Return a section with its heading; without one, what stands before the first; ``*``: everything."""
    if heading == "*":
        return text
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    if heading is None:
        return parts[0]
    is_page = heading.startswith("# ")
    (found,) = [part for part in parts if part.partition("\n")[0] == f"## {heading.removeprefix('# ')}"]
    return found.removeprefix("#") if is_page else found
