"""The site and the man pages: they build without a warning, their links hold, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.filling import ROOT, files_of, fill, section
from patchkit.cli import VERBS

FLEET = ("fleet apply", "fleet check", "fleet revert", "fleet status")
TEXT = "# Title\n\nbefore\n\n## One\n\n1\n\n### Inner\n\n## Two\n\n2\n"


def build(kind: str, out: Path) -> Path:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", kind, "-d", str(out / "trees"), "docs"]
    done = subprocess.run([*command, str(out / kind)], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return out / kind


LOADS = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""The attribute that names what an element loads."""


class Page(HTMLParser):
    """What a page loads, where it leads, and what can be linked to in it."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(place.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADS and LOADS[tag] in values:
            self.loads.append(values[LOADS[tag]])


def test_site(tmp_path: Path) -> None:
    site = build("html", tmp_path)
    check_links(site)
    check_loads(site)


def check_links(site: Path) -> None:
    """Assert that every link within the site holds."""
    pages = {place: Page(place) for place in site.rglob("*.html")}
    assert len(pages) >= 14
    broken = []
    for place, page in pages.items():
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (place.parent / unquote(parts.path)).resolve() if parts.path else place
            is_there = target.is_file() and (target not in pages or unquote(parts.fragment) in pages[target].anchors)
            if not is_there:
                broken.append(f"{place.name}: {link}")
    assert broken == []


def check_loads(site: Path) -> None:
    """Assert that no page loads anything from elsewhere."""
    loaded = [load for place in site.rglob("*.html") for load in Page(place).loads]
    assert loaded
    assert [load for load in loaded if urlsplit(load).scheme or load.startswith("//")] == []
    for place in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?\s*(?:https?:)?//", place.read_text("utf-8")) == []


def test_every_section_of_the_readme_has_its_page_or_is_the_tables() -> None:
    pages = "".join(place.read_text("utf-8") for place in (ROOT / "docs").glob("*.md"))
    headings = re.findall(r"^## (.*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    left = {heading for heading in headings if not re.search(rf"README\.md, (# )?{re.escape(heading)} -->", pages)}
    # The catalog's page says the first; the second is of the checkout.
    assert left == {"Releases", "Where things are"}, "name the new section in a page of docs/"


def test_manual(tmp_path: Path) -> None:
    manual = build("man", tmp_path)
    text = (manual / "patchkit.1").read_text("utf-8")
    assert re.findall(r'^\.SH "?([^"\n]+)"?$', text, re.MULTILINE) == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "VERBS",
        "EXIT STATUS",
    ]
    verbs = [name for verb in VERBS for name in (verb, *(FLEET if verb == "fleet" else ()))]
    assert re.findall(r"^\.SS (.*)$", text, re.MULTILINE) == verbs
    for option in ("python EXE", "json", "allow-unlisted", "dry-run", "exit-code", "num-speculative-tokens K"):
        assert rf"\fB--{option}\fP" in text.replace(r"\-", "-")
    assert (manual / "patchkit-serve.1").read_text("utf-8").count("gpus") >= 1
    assert not re.search(r"^\.S[HS] .*\n\.sp$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        (None, "# Title\n\nbefore\n\n"),
        ("*", TEXT),
        ("One", "## One\n\n1\n\n### Inner\n\n"),
        ("# Two", "# Two\n\n2\n"),
    ],
)
def test_section(heading: str | None, expected: str) -> None:
    assert section(TEXT, heading) == expected


def test_section_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        section(TEXT, "Three")


def test_filled_from() -> None:
    assert files_of("<!-- fill: README.md, JSON -->\n<!-- fill: catalog -->\n<!-- fill: README.md -->\n") == {
        ROOT / "README.md"
    }
    assert fill("a <!-- fill: catalog -->\n") == "a <!-- fill: catalog -->\n"
