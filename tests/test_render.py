"""Reports as text, on a terminal and not."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from patchkit import actions
from patchkit.catalog import load_catalog
from patchkit.cli import run
from patchkit.environment import find_environment
from patchkit.findings import Finding
from patchkit.render import Renderer, _to_open, printable
from patchkit.report import Report
from patchkit.survey import PatchState
from tests.trees import ENGINE, WORKER_PATCH, Tree, write_catalog


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal of 80 columns with colours."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def plain(text: str) -> str:
    """Return text without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def subject(tree: Tree):
    catalog = load_catalog(tree.catalog)
    return catalog, find_environment(None, tree.site, None, ()), catalog.select(())


def test_states_are_a_table_that_fits_80_columns(tree: Tree, terminal: Terminal) -> None:
    Renderer(terminal, io.StringIO()).report(actions.status(*subject(tree)))
    text = plain(terminal.getvalue())
    table = [line for line in text.splitlines() if "engine_models" in line]
    assert [" ".join(line.split()) for line in table] == ["engine_models engine pristine patchkit apply"]
    assert all(len(line) <= 80 for line in text.splitlines() if "site-packages" not in line)
    assert "\x1b[33mpristine" in terminal.getvalue()


def test_long_path_is_not_broken(tree: Tree, terminal: Terminal) -> None:
    Renderer(terminal, io.StringIO()).report(actions.status(*subject(tree)))
    assert f"worker 1.5 in {tree.site}\n" in plain(terminal.getvalue())


def test_diff_on_a_terminal_is_coloured_patch_by_patch(tree: Tree, terminal: Terminal) -> None:
    report = actions.diff(*subject(tree), allow_unlisted=False)
    Renderer(terminal, io.StringIO()).report(report, show_diff=True)
    text = terminal.getvalue()
    assert plain(text).count("── engine_models\n") == 1
    assert plain(text).count("── worker_unwrap\n") == 1
    assert "\x1b[32m+        # patchkit: engine_models" in text
    assert '\x1b[31m-        models = ["llama", "qwen"]' in text


def test_two_patches_of_one_file_stand_apart(tree: Tree, terminal: Terminal) -> None:
    second = {"within": "Engine.stop", "old": "return None", "new": "return 0"}
    write_catalog(tree.catalog, {"engine_models": {}, "engine_stop": second, "worker_unwrap": WORKER_PATCH})
    report = actions.diff(*subject(tree), allow_unlisted=True)
    Renderer(terminal, io.StringIO()).report(report, show_diff=True)
    parts = plain(terminal.getvalue()).split("── ")
    assert [part.split("\n")[0] for part in parts[1:]] == ["engine_models", "engine_stop", "worker_unwrap"]
    assert "return 0" not in parts[1]
    assert "return 0" in parts[2]


def test_revert_on_a_terminal_says_what_is_taken_back(tree: Tree, terminal: Terminal) -> None:
    assert run([*tree.options(), "apply"]) == 0
    catalog, environment, _ = subject(tree)
    report = actions.revert(catalog, environment, (), dry_run=True)
    Renderer(terminal, io.StringIO()).report(report, show_diff=True)
    assert "── engine_models taken back\n" in plain(terminal.getvalue())


def test_source_is_not_taken_for_markup(tree: Tree, terminal: Terminal) -> None:
    fields = {"new": "models = ['[bold]', ':smile:', '[/red]']"}
    write_catalog(tree.catalog, {"engine_models": fields, "worker_unwrap": WORKER_PATCH})
    report = actions.diff(*subject(tree), allow_unlisted=True)
    Renderer(terminal, io.StringIO()).report(report, show_diff=True)
    assert "models = ['[bold]', ':smile:', '[/red]']" in plain(terminal.getvalue())


def test_list_on_a_terminal(tree: Tree, terminal: Terminal) -> None:
    Renderer(terminal, io.StringIO()).report(actions.list_patches(load_catalog(tree.catalog)))
    assert "  The engine takes another model\n" in plain(terminal.getvalue())


def test_patch_that_is_not_upstream_says_its_status(tree: Tree) -> None:
    write_catalog(tree.catalog, {"engine_models": {"status": "reported", "fixed_in": ""}})
    out = io.StringIO()
    Renderer(out, io.StringIO()).report(actions.list_patches(load_catalog(tree.catalog)))
    assert out.getvalue().splitlines()[1].split()[-1] == "reported"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n", "plain\n"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\rb", "a\\rb"),
        ("\u202ea", "\\u202ea"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_never_reach_the_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_finding_with_an_escape_code_in_a_path(tmp_path: Path) -> None:
    err = io.StringIO()
    finding = Finding("foreign-edit", "x\x1b]0;evil\x07.py was edited", "")
    Renderer(io.StringIO(), err).report(Report("check", False, findings=(finding,)))
    assert err.getvalue() == "foreign-edit: x\\x1b]0;evil\\x07.py was edited\n"


def test_file_with_escape_codes_in_a_diff(tree: Tree, terminal: Terminal) -> None:
    evil = ENGINE.replace("return models", "return models  # \x1b[2J").encode()
    from tests.trees import install

    install(tree.site, "engine-cpu", "1.5", {"engine/__init__.py": "", "engine/core.py": evil})
    report = actions.diff(*subject(tree), allow_unlisted=True)
    Renderer(terminal, io.StringIO()).report(report, show_diff=True)
    assert "\x1b[2J" not in terminal.getvalue()
    assert "\\x1b[2J" in terminal.getvalue()


def test_obsolete_patch_is_to_be_taken_back(tree: Tree) -> None:
    fields = {**WORKER_PATCH, "requires": '{"engine": ">=1.0,<1.6"}'}
    write_catalog(tree.catalog, {"engine_models": {}, "worker_unwrap": fields})
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    from tests.test_failures import rewrite_version

    rewrite_version(tree, "1.7")
    out = io.StringIO()
    Renderer(out, io.StringIO()).report(actions.status(*subject(tree)))
    line = next(line for line in out.getvalue().splitlines() if line.startswith("worker_unwrap"))
    assert " ".join(line.split()) == (
        "worker_unwrap worker stale patchkit apply takes it back: "
        "applied, but it is for engine >=1.0 <1.6, and engine-cpu 1.7 is installed"
    )
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    assert "model.model" in tree.worker.read_text()
    assert "patchkit" not in tree.worker.read_text()


def test_what_is_said_of_many_patches_of_a_file_is_said_once() -> None:
    out, err = io.StringIO(), io.StringIO()
    findings = [Finding("foreign-edit", "a.py was changed", "look at it", name, "a.py") for name in ("one", "two")]
    findings.insert(1, Finding("not-applied", "two is not applied", "patchkit apply", "two"))
    Renderer(out, err).report(Report("check", False, findings=tuple(findings)))
    assert err.getvalue().splitlines()[::2] == ["foreign-edit: a.py was changed", "not-applied: two is not applied"]
    assert out.getvalue() == "check: 2 findings\n"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("pristine", "patchkit apply mend"),
        ("stale", "patchkit apply mend"),
        ("foreign", "see patchkit status"),
        ("not-installed", "what it is for is not installed here: name the environment with --python"),
        ("not-applicable", "nothing, it is for another release"),
    ],
)
def test_patch_that_opens_a_gate_says_what_to_do_in_its_state(state: str, words: str) -> None:
    assert _to_open(PatchState("mend", "vllm", state, (), "for another release")) == words
