"""Diff patches: placed exactly, or refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.catalog import load_catalog
from patchkit.cli import run
from patchkit.diff import unified_diff
from patchkit.environment import Environment
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, PatchInvalid, RewriteUnsound
from patchkit.hunks import Hunks
from patchkit.record import digest
from patchkit.rewrite import Rewrite, Rewriter, Step
from patchkit.text import Text
from tests.trees import DIFF, ENGINE, WORKER_PATCH, Tree, list_digests, snapshot, write_catalog, write_diff

PATH = "engine/core.py"
OWN = Environment(None, sys.version_info[:2], ())
KIMI = ENGINE.replace('"qwen"]', '"qwen", "kimi"]')
SAME = "def f():\n    return 1\n"


def rewriter(folder: Path, **diffs: str | bytes) -> Rewriter:
    """Return a rewriter for a catalog of diffs alone."""
    write_catalog(folder, {})
    text = (folder / "targets.toml").read_text().replace("patches = []", f"patches = {json.dumps([*diffs])}")
    (folder / "targets.toml").write_text(text)
    for name, diff in diffs.items():
        write_diff(folder, name, diff)
    return Rewriter(load_catalog(folder), OWN)


def hunk(*lines: str, at: int = 1) -> str:
    """Return a diff of one hunk with these lines."""
    old, new = (sum(not line.startswith(sign) for line in lines) for sign in "+-")
    body = "".join(f"{line}\n" for line in lines)
    return f"--- a/{PATH}\n+++ b/{PATH}\n@@ -{at},{old} +{at},{new} @@\n{body}"


def made(folder: Path, diff: str | bytes, before: str | bytes) -> Rewrite:
    data = before.encode() if isinstance(before, str) else before
    return rewriter(folder, one=diff).fold(PATH, data, {"one"})


PAIRS = {
    "line changed": (ENGINE.encode(), KIMI.encode()),
    "first line added": (b"a = 1\nb = 2\n", b"c = 3\na = 1\nb = 2\n"),
    "first line removed": (b"c = 3\na = 1\nb = 2\n", b"a = 1\nb = 2\n"),
    "last line added": (b"a = 1\n", b"a = 1\nb = 2\n"),
    "far apart": (b"x = 0\n" + b"a = 1\n" * 30 + b"y = 0\n", b"x = 1\n" + b"a = 1\n" * 30 + b"y = 1\n"),
    "one of many": (SAME.encode() * 9, SAME.encode() * 4 + b"def f():\n    return 2\n" + SAME.encode() * 4),
    "empty file filled": (b"", b"a = 1\n"),
    "file emptied": (b"a = 1\n", b""),
    "no final newline": (b"a = 1", b"a = 2"),
    "final newline added": (b"a = 1", b"a = 1\n"),
    "CRLF": (b"a = 1\r\nb = 2\r\n", b"a = 1\r\nb = 3\r\n"),
    "form feed": (b"a = 1\n\x0c\nb = 2\n", b"a = 1\n\x0c\nb = 3\n"),
    "latin-1": (b"# coding: latin-1\na = '\xe9'\n", b"# coding: latin-1\na = '\xff'\n"),
    "looks like a name": (b"a = (2\n-- 1)\n", b"a = (3\n-- 1)\n"),
}


@pytest.mark.parametrize(("before", "after"), PAIRS.values(), ids=PAIRS)
def test_diff_is_applied_and_taken_back(tmp_path: Path, before: bytes, after: bytes) -> None:
    runner = rewriter(tmp_path, one=unified_diff(PATH, before, after))
    rewrite = runner.fold(PATH, before, {"one"})
    assert (rewrite.after, rewrite.patches) == (after, {"one"})
    assert runner.fold(PATH, after, {"one"}) == Rewrite(after, after, frozenset())
    assert runner.restore(PATH, after, {"one"}, digest(before)) == rewrite
    assert runner.restore(PATH, after + b"#", {"one"}, digest(before)) is None


MOVED = "import os\n\n\n" + ENGINE
TWICE = ENGINE + ENGINE
LINE = hunk("     def start(self):", '-        models = ["llama", "qwen"]', "+        models = []", at=2)


def test_hunk_is_found_at_its_only_place(tmp_path: Path) -> None:
    assert made(tmp_path, LINE, MOVED).after == MOVED.replace('["llama", "qwen"]', "[]").encode()


def test_of_several_places_its_own_line_is_taken(tmp_path: Path) -> None:
    for at, expected in ((2, 0), (9, 1)):
        after = made(tmp_path / str(at), LINE.replace("@@ -2", f"@@ -{at}"), TWICE).after.decode()
        assert [after[: len(ENGINE) - 10].count("models = []"), after.count("models = []")] == [1 - expected, 1]


def test_own_line_moves_with_the_patches_before(tmp_path: Path) -> None:
    top = unified_diff(PATH, TWICE.encode(), ("import os\n" * 7 + TWICE).encode())
    runner = rewriter(tmp_path, a_top=top, b_line=LINE)
    after = runner.fold(PATH, TWICE.encode(), {"a_top", "b_line"}).after.decode()
    assert after == "import os\n" * 7 + TWICE.replace('["llama", "qwen"]', "[]", 1)
    assert runner.restore(PATH, after.encode(), {"a_top", "b_line"}, digest(TWICE.encode())) is not None


@pytest.mark.parametrize(
    ("diff", "before", "error", "words"),
    [
        (LINE, "x = 1\n", AnchorNotFound, "^one: the hunk of line 2 of engine/core.py fits nowhere$"),
        (LINE, ENGINE.replace("start(self)", "start( self)"), AnchorNotFound, "fits nowhere"),
        (LINE, ENGINE.replace("\n", "\r\n"), AnchorNotFound, "fits nowhere"),
        (LINE, "import os\n" + TWICE, AnchorAmbiguous, "of engine/core.py fits in 2 places$"),
        (LINE, "import os\n" + ENGINE + ENGINE.replace('["llama", "qwen"]', "[]"), AnchorAmbiguous, "in 2 places"),
        (
            hunk("-y = 1", "+y = 2") + hunk("-x = 1", "+x = 2", at=9).partition(".py\n@@")[2].join(["@@", ""]),
            "x = 1\ny = 1\n",
            AnchorNotFound,
            "^one: the hunks of engine/core.py are in another order there$",
        ),
        (hunk("-x = 1", "+x = ("), "x = 1\n", RewriteUnsound, "does not compile"),
        (hunk(" x = 1", "+x = 1", at=9), "x = 1\nx = 1\nx = 1\n", AnchorAmbiguous, "in 2 places"),
    ],
    ids=["absent", "spacing", "line ends", "twice", "before and after", "order", "no Python", "repeated"],
)
def test_refused(tmp_path: Path, diff: str, before: str, error: type[PatchError], words: str) -> None:
    with pytest.raises(error, match=words):
        made(tmp_path, diff, before)


def test_hunk_that_is_there_already_is_left(tmp_path: Path) -> None:
    before, after = PAIRS["far apart"]
    half = before.replace(b"x = 0", b"x = 1")
    rewrite = made(tmp_path, unified_diff(PATH, before, after), half)
    assert rewrite == Rewrite(half, after, frozenset({"one"}))
    assert rewrite.steps == (Step("one", Text(PATH, half), Text(PATH, after)),)


def test_own_line_counts_also_where_the_hunk_is_there(tmp_path: Path) -> None:
    diff = hunk(" x = 1", "+x = 1")
    assert made(tmp_path, diff, "x = 1\nx = 1\nx = 1\n").patches == frozenset()


INVALID = {
    "too short": (LINE.replace("-2,2", "-2,5"), "Hunk is shorter than expected"),
    "too long": (LINE + "+        x = 1\n", "line 17: the hunk's header counts fewer lines than it has"),
    "too long after the mark": (
        unified_diff(PATH, b"x", b"y").decode() + "+x = 1\n",
        "line 19: the hunk's header counts fewer lines than it has",
    ),
    "blank too long": (LINE + " \n", "line 17: the hunk's header counts fewer lines"),
    "no line of its own": (f"--- a/{PATH}\n+++ b/{PATH}\n@@ -5,0 +6,1 @@\n+x = 1\n", "says where it belongs"),
    "removed without context": (f"--- a/{PATH}\n+++ b/{PATH}\n@@ -5,1 +4,0 @@\n-x = 1\n", "says where it belongs"),
    "changes nothing": (f"--- a/{PATH}\n+++ b/{PATH}\n@@ -1,1 +1,1 @@\n x = 1\n", "says where it belongs"),
    "no line at all": (f"--- a/{PATH}\n+++ b/{PATH}\n@@ -1,0 +1,0 @@\n", "says where it belongs"),
    "a line like a name": (
        hunk("--- a/engine/b.py", "+++ b/engine/b.py") + "@@ -9,1 +9,1 @@\n-x\n+y\n",
        "looks like the name of a file",
    ),
}


@pytest.mark.parametrize(("diff", "words"), INVALID.values(), ids=INVALID)
def test_hunks_that_cannot_be_placed(tmp_path: Path, diff: str, words: str) -> None:
    with pytest.raises(PatchInvalid, match=words) as caught:
        made(tmp_path, diff, ENGINE)
    assert "one.diff: " in caught.value.message


@pytest.mark.parametrize("after", [KIMI + "x = 1\n", "x = 1\n" + KIMI, ENGINE])
def test_change_outside_the_hunks_is_refused(tmp_path: Path, after: str) -> None:
    header = load_catalog(write_catalog(tmp_path, {"two": {}})).headers["two"]
    write_diff(tmp_path, "one", unified_diff(PATH, ENGINE.encode(), KIMI.encode()))
    header = load_catalog(tmp_path).headers["one"]
    before = Text(PATH, ENGINE.encode())
    Hunks(header).prove(before, Text(PATH, KIMI.encode()))
    with pytest.raises(RewriteUnsound, match=r"^one changes engine/core\.py outside its hunks$"):
        Hunks(header).prove(before, Text(PATH, after.encode()))


def test_hunks_in_another_order_are_not_taken_back(tmp_path: Path) -> None:
    diff = unified_diff(PATH, b"x = 1\n" + b"a = 0\n" * 9 + b"y = 1\n", b"x = 2\n" + b"a = 0\n" * 9 + b"y = 2\n")
    runner = rewriter(tmp_path, one=diff)
    mixed = b"a = 0\n" * 3 + b"y = 2\nx = 2\n" + b"a = 0\n" * 3
    assert runner.restore(PATH, mixed, {"one"}, digest(b"")) is None


@pytest.fixture
def mixed(tree: Tree) -> Tree:
    """Return the tree with a diff beside the Python patch of the same file, listed."""
    stop = ENGINE.replace("return None", "return 0")
    write_diff(tree.catalog, "a_stop", unified_diff(PATH, ENGINE.encode(), stop.encode()))
    write_catalog(tree.catalog, {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    targets = tree.catalog / "targets.toml"
    targets.write_text(targets.read_text().replace("patches = [", 'patches = ["a_stop", '))
    list_digests(tree.catalog, tree.site, {"engine": "1.5", "worker": "1.5"})
    return tree


def states(tree: Tree, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    assert run([*tree.options(), "--json", "status"]) == 0
    return {patch["id"]: patch["state"] for patch in json.loads(capsys.readouterr().out)["patches"]}


def test_both_kinds_on_one_file(mixed: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(mixed.site)
    assert run([*mixed.options(), "apply"]) == 0
    assert "return 0" in mixed.engine.read_text() and "'kimi'" in mixed.engine.read_text()
    assert set(states(mixed, capsys).values()) == {"applied"}
    assert run([*mixed.options(), "check"]) == 0
    assert run([*mixed.options(), "revert", "a_stop"]) == 0
    assert states(mixed, capsys) == {"a_stop": "pristine", "engine_models": "applied", "worker_unwrap": "applied"}
    assert run([*mixed.options(), "revert"]) == 0
    assert snapshot(mixed.site) == before


@pytest.mark.parametrize("listed", [True, False])
def test_journal_is_lost(mixed: Tree, capsys: pytest.CaptureFixture[str], listed: bool) -> None:
    before = snapshot(mixed.site)
    if not listed:
        targets = mixed.catalog / "targets.toml"
        targets.write_text(targets.read_text().partition("# Written by")[0])
    assert run([*mixed.options(), "apply", "--allow-unlisted"]) == 0
    shutil.rmtree(mixed.site / ".patchkit")
    assert set(states(mixed, capsys).values()) == {"applied"}
    assert run([*mixed.options(), "revert"]) == 0
    assert snapshot(mixed.site) == before


def test_upstream_part_beside_a_lost_journal(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    """A diff leaves no mark, so what was there before any patch is told by RECORD's digest alone."""
    upstream = unified_diff(PATH, ENGINE.replace("return None", "return 1").encode(), ENGINE.encode())
    stop = unified_diff(PATH, ENGINE.encode(), KIMI.encode())
    catalog = tree.catalog.parent / "diffs"
    rewriter(catalog, a_none=upstream, b_kimi=stop)
    options = ["--site", str(tree.site), "--catalog", str(catalog)]
    assert run([*options, "apply", "--allow-unlisted"]) == 0
    shutil.rmtree(tree.site / ".patchkit")
    assert states(Tree(tree.site, catalog, tree.engine, tree.worker), capsys) == {
        "a_none": "upstream",
        "b_kimi": "applied",
    }
    assert run([*options, "revert"]) == 0
    assert tree.engine.read_text() == ENGINE


def test_reading_an_applied_listed_tree_loads_no_parser_of_diffs(mixed: Tree) -> None:
    assert run([*mixed.options(), "apply"]) == 0
    code = (
        "import sys; from patchkit.cli import run; code = run(sys.argv[1:]); "
        "heavy = {'libcst', 'rich', 'unidiff', 'difflib', 'email.parser'} & set(sys.modules); "
        "sys.exit(f'{code} {sorted(heavy)}')"
    )
    done = subprocess.run([sys.executable, "-c", code, *mixed.options(), "check"], capture_output=True, text=True)
    assert done.stderr == "0 []\n"


def test_diffs_alone_load_no_libcst(tree: Tree, tmp_path: Path) -> None:
    rewriter(tmp_path / "diffs", one=unified_diff(PATH, ENGINE.encode(), KIMI.encode()))
    code = "import sys; from patchkit.cli import run; sys.exit(f\"{run(sys.argv[1:])} {'libcst' in sys.modules}\")"
    options = ["--site", str(tree.site), "--catalog", str(tmp_path / "diffs"), "apply", "--allow-unlisted"]
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True)
    assert done.stderr == "0 False\n"
    assert tree.engine.read_text() == KIMI


def test_one_id_in_two_files_is_refused(tree: Tree) -> None:
    write_diff(tree.catalog, "engine_models", LINE)
    with pytest.raises(PatchInvalid, match=r"has both engine_models\.diff and engine_models\.py: an id has one file$"):
        load_catalog(tree.catalog)


def test_diff_of_another_package_is_refused(tree: Tree) -> None:
    write_diff(tree.catalog, "other", LINE.replace("engine/core", "worker/core"))
    line = DIFF.count("\n") + 1
    with pytest.raises(PatchInvalid, match=rf"other\.diff: line {line}: worker/core\.py is not in the package engine$"):
        load_catalog(tree.catalog)


@pytest.mark.parametrize("name", ["a_stop", "z_stop"])
def test_kinds_on_one_file_in_any_order_of_ids(tmp_path: Path, name: str) -> None:
    """A code patch is proved also where a diff came after it, and the tree was printed between."""
    stop = ENGINE.replace("return None", "return 0")
    write_catalog(tmp_path, {"engine_models": {}})
    write_diff(tmp_path, name, unified_diff(PATH, ENGINE.encode(), stop.encode()))
    rewrite = Rewriter(load_catalog(tmp_path), OWN).fold(PATH, ENGINE.encode(), {name, "engine_models"})
    assert rewrite.patches == {name, "engine_models"}
    assert b"return 0" in rewrite.after and b"'kimi'" in rewrite.after
