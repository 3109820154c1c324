"""The page of ``patchkit diff --html``, as a parser and as a browser read it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from patchkit.cli import run
from tests.trees import WORKER_PATCH, Tree, list_digests, patch_text, snapshot, write_catalog

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
QUIET = ("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000", "--dump-dom")
VOID = {"meta", "br", "wbr"}


class Page(HTMLParser):
    """Reads a page strictly: every element is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


def page_of(tree: Tree, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the page of a diff, read strictly, with nothing in it that is loaded or run."""
    place = tree.site.parent / "diff.html"
    run([*tree.options(), "diff", "--html", str(place), *words])
    capsys.readouterr()
    text = place.read_text("utf-8")
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "video", "svg"}
    assert not {name for _, name, _ in page.attributes} & {"src", "srcset", "onclick", "onload", "background"}
    assert "url(" not in text and "@import" not in text
    links = page.values("href")
    assert all(link.startswith(("#", "https://github.com/")) for link in links)
    ids = page.values("id")
    assert len(set(ids)) == len(ids)
    assert {link[1:] for link in links if link.startswith("#")} == set(ids)
    return text


def words_of(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", text.partition("<body>")[2]).split())


def test_page_has_each_patch_with_its_reason_proofs_and_diff(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(tree.site)
    text = page_of(tree, capsys)
    words = words_of(text)
    assert "2 patches would change 2 files +4 −2" in words
    assert "The engine takes another model to apply" in words
    assert "Symptommodel is refused" in words
    assert "Upstreamreleased in 2.0" in words
    assert "It does not list it." in words
    for proof in ("pristine by RECORD", "release listed", "changes only Engine.start", "diff exact both ways"):
        assert f'<li class="held">{proof}</li>' in text
    assert '<li class="held">result listed</li>' in text
    assert '<li class="held">parses as Python 3.11</li>' in text
    assert text.count('<del class="line del"') == 2
    assert text.count('<ins class="line ins"') == 4
    assert "<mark>" in text
    assert snapshot(tree.site) == before


def test_files_are_listed_where_the_diff_would_be(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "diff", "--html", str(tree.site.parent / "diff.html")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["engine/core.py  +2 -1  engine_models", "worker/capture.py  +2 -1  worker_unwrap"]
    assert err == ""


def test_source_and_words_are_never_markup(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "</code><script>alert(1)</script>&lt;"
    fields = {
        "title": f"Title {evil}",
        "reason": f"Why {evil}",
        "symptom": f"sym {evil}",
        "new": f"models = ['{evil}']",
    }
    write_catalog(tree.catalog, {"engine_models": fields, "worker_unwrap": WORKER_PATCH})
    text = page_of(tree, capsys, "--allow-unlisted")
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 5
    assert '<li class="open">release not listed</li>' in text
    assert '<li class="open">result not listed</li>' in text


def test_lists_and_links_of_a_patch(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    fields = {"reason": "The first\nline.\n\n- one\n  thing\n- another\n\nAnd a note:\n- last"}
    write_catalog(tree.catalog, {"engine_models": fields})
    place = tree.catalog / "patches/engine_models.py"
    links = 'status="released", issue="a/b.c#12", pull="javascript:x", '
    place.write_text(patch_text(**fields).replace('status="released", ', links))
    list_digests(tree.catalog, tree.site, {"engine": "1.5"})
    text = page_of(tree, capsys)
    assert (
        "<p>The first line.</p><ul><li>one thing</li><li>another</li></ul><p>And a note:</p><ul><li>last</li></ul>"
        in text
    )
    assert 'issue <a href="https://github.com/a/b.c/issues/12" rel="noreferrer">a/b.c#12</a>' in text
    assert "javascript" not in text


def test_patch_that_writes_nothing_says_why(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    words = words_of(page_of(tree, capsys))
    assert "There is nothing to write." in words
    assert "To donothing" in words
    assert "Digests" not in words


def test_file_that_carries_patches_already_has_one_diff(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    second = {"within": "Engine.stop", "old": "return None", "new": "return 0"}
    write_catalog(tree.catalog, {"engine_models": {}, "engine_stop": second})
    list_digests(tree.catalog, tree.site, {"engine": "1.5"})
    assert run([*tree.options(), "apply", "engine_models"]) == 0
    text = page_of(tree, capsys)
    assert '<section class="patch" id="engine/core.py">' in text
    assert "<p>with engine_models, engine_stop</p>" in text


def test_patch_that_is_taken_back_is_said(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    write_catalog(tree.catalog, {"engine_models": {"versions": ">=1.6,<2.0"}, "worker_unwrap": WORKER_PATCH})
    list_digests(tree.catalog, tree.site, {"worker": "1.5"})
    assert "takes back engine_models; pristine again" in words_of(page_of(tree, capsys))


def test_finding_is_shown(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.engine.write_text("edited = 1\n")
    text = page_of(tree, capsys, "engine_models")
    assert "1 finding: nothing would be written" in text
    assert "<code>foreign-edit</code>" in text


def test_nothing_installed_is_a_page_too(tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty/site").mkdir(parents=True)
    text = page_of(Tree(tmp_path / "empty/site", tree.catalog, tree.engine, tree.worker), capsys)
    assert "<title>patchkit diff: nothing installed</title>" in text


def test_page_is_the_same_each_time(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert page_of(tree, capsys) == page_of(tree, capsys)


@pytest.mark.parametrize("name", ["none/diff.html", "engine"])
def test_page_that_cannot_be_written_is_an_error(tree: Tree, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "diff", "--html", str(tree.site / name)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("write-failed: ")
    assert "cannot be written" in err


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_browser_shows_two_columns_or_one_and_never_scrolls_sideways(
    tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "models = ['" + "x" * 400 + "']"
    write_catalog(tree.catalog, {"engine_models": {"new": long}, "worker_unwrap": WORKER_PATCH})
    text = page_of(tree, capsys, "--allow-unlisted")
    # The page itself allows no script; this copy measures itself inside frames of several widths.
    measure = (
        "<script>const line = document.querySelector('ins.line'), other = document.querySelector('del.line');"
        "parent.postMessage([innerWidth, document.documentElement.scrollWidth, "
        "line.getBoundingClientRect().left > other.getBoundingClientRect().left, "
        "getComputedStyle(document.querySelector('.line.new')).display != 'none'].join(' '), '*')</script>"
    )
    copy = re.sub(r"<meta http-equiv=[^>]*>", "", text).replace("</body>", f"{measure}</body>")
    (tmp_path / "copy.html").write_text(copy)
    frames = "".join(f'<iframe src="copy.html" width="{width}" height="800"></iframe>' for width in (320, 390, 1280))
    listen = "<script>onmessage = event => document.body.append('[' + event.data + ']')</script>"
    (tmp_path / "frames.html").write_text(f"<!doctype html><style>iframe {{border: 0}}</style><body>{listen}{frames}")
    command = [
        CHROMIUM,
        *OPTIONS,
        *QUIET,
        f"--user-data-dir={tmp_path / 'profile'}",
        (tmp_path / "frames.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    measured = {tuple(found.split()) for found in re.findall(r"\[(\d+ \d+ \w+ \w+)\]", done.stdout)}
    widths = {int(width): (int(scroll) <= int(width), beside, copy) for width, scroll, beside, copy in measured}
    assert widths == {
        320: (True, "false", "false"),
        390: (True, "false", "false"),
        1280: (True, "true", "true"),
    }
