"""``patchkit new``: the catalog it writes into, the template filled in, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit import authoring
from patchkit.cli import run
from patchkit.template import quoted
from tests.trees import Tree, snapshot

FILE = "engine/core.py"
ROOT = Path(__file__).parent.parent
TITLE = "what becomes true, as one sentence in the present, without a full stop"
REASON = "what the installed code does, why that is wrong, what the rewrite does, what it leaves alone"
PATCH_WORDS = {
    TITLE: "The engine says that it stops",
    REASON: "It says nothing. The rewrite says it.",
    "the shortest stable part of the error text that this cures": "NoneType",
    "the definition with the statement, as Class.method": "Engine.stop",
    "the statement as the release has it": "return None",
    "the statement as it should be": "return 'stopped'",
    "SCOPE again: nothing else may change": "Engine.stop",
}
TEST_WORDS = {
    "a small definition of your own with the old statement in it": (
        "class Engine:\n    def stop(self):\n        x = 1\n        return None"
    ),
    "the same with the new statement, and the line # patchkit: engine_stops above it": (
        "class Engine:\n    def stop(self):\n        x = 1\n        # patchkit: engine_stops\n        return 'stopped'"
    ),
    "the same without the old statement": "class Engine:\n    def stop(self):\n        x = 1",
}


def new(tree: Tree, *more: str, file: str = FILE, target: str = "engine", name: str = "engine_stops") -> int:
    return run([*tree.options(), "new", name, "--target", target, "--file", file, *more])


def fill_in(place: Path, words: dict[str, str]) -> None:
    text = place.read_text()
    for blank, value in words.items():
        assert f"<fill in: {blank}>" in text
        text = text.replace(f"<fill in: {blank}>", value)
    place.write_text(text)


def run_tests(catalog: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a catalog as its own team does: elsewhere, with nothing of this repository but patchkit."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
    return subprocess.run(command, cwd=catalog, capture_output=True, text=True, env=environment)


def test_new_patch_leaves_the_others_of_its_catalog_of_use(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tree, "--symptom", "it says 'nothing'", "--versions", ">=1.0,<2.0") == 0
    assert capsys.readouterr() == (
        "patches/engine_stops.py: 6 places to fill in\n"
        "tests/patches/test_engine_stops.py: 3 places to fill in\n"
        "new: 2 files written; fill them in, then run pytest tests/patches/test_engine_stops.py\n",
        "",
    )
    text = (tree.catalog / "patches/engine_stops.py").read_text()
    assert """symptom="it says 'nothing'",""" in text
    assert 'versions=">=1.0,<2.0",' in text
    assert run([*tree.options(), "apply"]) == 0
    assert run([*tree.options(), "check"]) == 0
    assert capsys.readouterr().err == ""
    before = snapshot(tree.site)
    assert run([*tree.options(), "apply", "engine_stops"]) == 1
    err = capsys.readouterr().err
    assert f"engine_stops.py is not filled in yet: line 1: {TITLE}; line 3: {REASON}; " in err
    assert "fill it in, then run its test: pytest tests/patches/test_engine_stops.py" in err
    assert snapshot(tree.site) == before


def test_template_filled_in(tree: Tree, tmp_path: Path) -> None:
    catalog = tmp_path / "team"
    arguments = ["engine_stops", "--target", "engine", "--file", FILE]
    assert run([*tree.options(), "new", *arguments]) == 0
    tree.catalog.rename(catalog)
    unfilled = run_tests(catalog)
    assert unfilled.returncode == 1
    assert "AssertionError: fill in\n" in unfilled.stdout
    for words in (*PATCH_WORDS, *TEST_WORDS):
        assert words in unfilled.stdout
    fill_in(catalog / "patches/engine_stops.py", PATCH_WORDS)
    half = run_tests(catalog)
    assert half.returncode == 1
    assert "fill in the test: a small definition of your own" in half.stdout
    fill_in(catalog / "tests/patches/test_engine_stops.py", TEST_WORDS)
    filled = run_tests(catalog)
    assert (filled.returncode, "7 passed" in filled.stdout) == (0, True), filled.stdout
    options = ["--site", str(tree.site), "--catalog", str(catalog)]
    assert run([*options, "apply", "engine_stops", "--allow-unlisted"]) == 0
    assert "# patchkit: engine_stops\n        return 'stopped'" in tree.engine.read_text()
    assert run([*options, "revert"]) == 0
    config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    here = ["--config", 'lint.isort.known-first-party = ["patchkit"]', "--extend-per-file-ignores", "tests/*:D"]
    check_passes(catalog, "ruff", "check", *config, *here)
    check_passes(catalog, "ruff", "format", "--check", *config)
    check_passes(catalog, "mypy", "--strict", "--cache-dir", os.devnull)


def check_passes(catalog: Path, *command: str) -> None:
    files = ["patches/engine_stops.py", "tests/patches/test_engine_stops.py"]
    done = subprocess.run([sys.executable, "-m", *command, *files], cwd=catalog, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("is_there", [False, True], ids=["new folder", "empty folder"])
@pytest.mark.parametrize("option", ["--in", "--catalog"])
def test_new_catalog(
    tmp_path: Path, option: str, is_there: bool, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "mine"
    if is_there:
        place.mkdir()
    arguments = ["--target", "vllm", "--file", "vllm/x.py", "--versions", "==0.16.0", option, str(place)]
    assert run(["--site", str(tree.site), "new", "x_starts", *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[2] == "targets.toml: a new catalog"
    assert run(["--site", str(tree.site), "--catalog", str(place), "list"]) == 0
    assert run(["--site", str(tree.site), "--catalog", str(place), "status", "x_starts"]) == 0
    assert run(["--site", str(tree.site), "new", "y_starts", *arguments]) == 0
    assert "targets.toml" not in capsys.readouterr().out.splitlines()[-3:]


def test_current_folder_is_the_catalog(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree.catalog)
    arguments = ["new", "engine_stops", "--target", "engine", "--file", FILE]
    assert run(["--json", "--site", str(tree.site), *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["created"] == [
        {"path": "patches/engine_stops.py", "blanks": 7},
        {"path": "tests/patches/test_engine_stops.py", "blanks": 3},
    ]
    assert 'versions="==1.5",' in Path("patches/engine_stops.py").read_text()


def test_current_folder_is_no_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "x_starts", "--target", "vllm", "--file", "vllm/x.py"]) == 1
    assert capsys.readouterr().err == (
        f"catalog-missing: {tmp_path} is no catalog: it has no targets.toml\n    name one, or an empty folder for a "
        "new one: patchkit new x_starts --target vllm --file vllm/x.py --in DIR\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"target": "motor"}, "'motor' is not a target", "known targets: engine, worker"),
        ({"file": "worker/capture.py"}, "worker/capture.py is not in the package engine", "as in engine/file.py"),
        ({"file": "engine/cora.py"}, "engine-cpu 1.5 has no engine/cora.py", "did you mean engine/core.py?"),
        ({"file": "engine/x/core.py"}, "engine-cpu 1.5 has no engine/x/core.py", "did you mean engine/core.py?"),
        ({"file": "engine/qqqqqqqqq.py"}, "engine-cpu 1.5 has no engine/qqqqqqqqq.py", "name a file below "),
        ({"name": "all"}, "all is the name of a set", "give the patch another id"),
        ({"name": "engine_models"}, "patches/engine_models.py is there already", "move the file away"),
    ],
)
def test_refused(
    tree: Tree, changes: dict[str, str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(tree.catalog)
    assert new(tree, **changes) == 1
    err = capsys.readouterr().err
    assert message in err
    assert hint in err
    assert snapshot(tree.catalog) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Engine-Stops", "--file", FILE], "'Engine-Stops' must be snake_case"),
        (["_x", "--file", FILE], "'_x' must be snake_case"),
        (["../x", "--file", FILE], "'../x' must be snake_case"),
        (["x", "--file", "../core.py"], "'../core.py' is not the path of a .py file"),
        (["x", "--file", "engine/core.pyc"], "is not the path of a .py file"),
        (["x", "--file", FILE, "--symptom", " "], "must be a part of one line"),
        (["x", "--file", FILE, "--symptom", "a\nb"], "must be a part of one line"),
        (["x", "--file", FILE, "--in", "here"], "--in and --catalog exclude each other"),
    ],
)
def test_usage(tree: Tree, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "new", "--target", "engine", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_versions_without_both_ends(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tree, "--versions", ">=1.0") == 1
    err = capsys.readouterr().err
    assert "versions '>=1.0' needs both ends" in err
    assert "correct the option" in err
    assert not (tree.catalog / "patches/engine_stops.py").exists()


def test_not_installed_and_no_versions(tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site"
    site.mkdir()
    arguments = ["--catalog", str(tree.catalog), "--site", str(site), "new", "x", "--target", "engine", "--file", FILE]
    assert run(arguments) == 1
    assert "engine is not installed here" in capsys.readouterr().err
    assert run([*arguments, "--versions", "==1.0"]) == 0


def test_local_build_stands_for_its_release(tree: Tree) -> None:
    metadata = next(tree.site.glob("engine_cpu*")) / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.5", "Version: 1.5+cu129"))
    assert new(tree) == 0
    assert 'versions="==1.5",' in (tree.catalog / "patches/engine_stops.py").read_text()


def test_checkout_says_nothing_of_a_release(tree: Tree) -> None:
    (next(tree.site.glob("engine_cpu*")) / "RECORD").unlink()
    (next(tree.site.glob("engine-*")) / "RECORD").unlink()
    assert new(tree) == 1
    assert new(tree, "--versions", "==1.0") == 0


def test_half_written_is_taken_back(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    (tree.catalog / "tests").write_text("a file\n")
    before = snapshot(tree.catalog)
    assert new(tree) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert snapshot(tree.catalog) == before


def test_folder_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["--target", "vllm", "--file", "vllm/x.py", "--in", str(tmp_path / "file")]
    assert run(["new", "x", *arguments]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_dangling_link_is_left_alone(tree: Tree) -> None:
    (tree.catalog / "patches/engine_stops.py").symlink_to("/nowhere")
    with pytest.raises(authoring.AlreadyThere):
        authoring._refuse_existing([tree.catalog / "patches/engine_stops.py"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", '"a"'),
        ("it's", '"it\'s"'),
        ('say "a"', "'say \"a\"'"),
        ("'a' \"b\"", "'\\'a\\' \"b\"'"),
        ("a\\b", '"a\\\\b"'),
    ],
)
def test_quoted(text: str, expected: str) -> None:
    assert quoted(text) == expected
