"""Edits made by hand: shown, recorded, adopted."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from patchkit.cli import run
from patchkit.environment import Environment
from patchkit.errors import DownloadFailed
from patchkit.installation import Installation
from patchkit.journal import read_journal
from patchkit.pristine import read_pristine
from patchkit.record import digest
from patchkit.targets import Target
from tests.faults import armed, fail
from tests.trees import ENGINE, WORKER, Tree, install, snapshot, write_catalog, write_diff

Shell = Callable[..., tuple[int, str, str]]

EDITED = ENGINE.replace('"qwen"]', '"qwen", "mistral"]')
WORKED = WORKER.replace("model.model", "model.language_model.model")
FILES = {"engine/__init__.py": "", "engine/core.py": ENGINE, "engine/data.json": "{}", "engine/more.py": "x = 1\n"}
WORDS = ("--title", "The engine takes Kimi", "--reason", "It does not list it.", "--symptom", "model is refused")
DIFF = """\
diff --git a/engine/core.py b/engine/core.py
--- a/engine/core.py
+++ b/engine/core.py
@@ -1,6 +1,6 @@
 class Engine:
     def start(self):
-        models = ["llama", "qwen"]
+        models = ["llama", "qwen", "mistral"]
         return models
{}
     def stop(self):
""".format(" ")  # a line of context that is blank


@pytest.fixture
def site(tree: Tree) -> Path:
    """Return the site folder with a larger engine, not compiled."""
    shutil.rmtree(tree.site / "engine_cpu-1.5.dist-info")
    install(tree.site, "engine-cpu", "1.5", FILES)
    return tree.site


@pytest.fixture
def wheel(site: Path, tmp_path: Path) -> Path:
    """Return the wheel of the engine."""
    return make_wheel(tmp_path / "engine_cpu-1.5-py3-none-any.whl", FILES)


def make_wheel(place: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return place


@pytest.fixture
def shell(site: Path, tree: Tree, capsysbinary: pytest.CaptureFixture[bytes]) -> Shell:
    """Return what runs the command line on the tree: to an exit code, output and errors."""

    def call(*arguments: str | Path, catalog: Path = tree.catalog) -> tuple[int, str, str]:
        code = run(["--site", str(site), "--catalog", str(catalog), *map(str, arguments)])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def test_nothing_was_edited(shell: Shell, site: Path) -> None:
    before = snapshot(site)
    assert shell("record") == (0, "", "record: nothing was edited\n")
    assert shell("record", "--adopt") == (0, "record: nothing was edited\n", "")
    assert snapshot(site) == before


def test_edit_is_shown(shell: Shell, tree: Tree, wheel: Path) -> None:
    tree.engine.write_text(EDITED)
    before = snapshot(tree.site)
    assert shell("record", "--wheel", wheel) == (0, DIFF, "record: 1 file edited by hand\n")
    assert snapshot(tree.site) == before


def test_edit_in_json(shell: Shell, tree: Tree, wheel: Path) -> None:
    tree.engine.write_text(EDITED)
    code, out, err = shell("--json", "record", "engine", "--wheel", wheel)
    report = json.loads(out)
    assert (code, err, report["verb"], report["ok"], report["written"]) == (0, "", "record", True, False)
    assert report["edits"] == [{"path": "engine/core.py", "state": "edited", "patches": []}]
    assert [change["diff"] for change in report["changes"]] == [DIFF]
    assert (report["recorded"], report["to_fill_in"]) == ([], [])


def test_whole_story(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    pristine = snapshot(tree.site)
    tree.engine.write_text(EDITED)
    (tree.site / "engine/more.py").write_text("x = 2\n")
    new = tmp_path / "new"
    code, out, err = shell("record", "-o", new, "--id", "engine_kimi", "--wheel", wheel, *WORDS)
    assert (code, out.startswith(DIFF)) == (0, True)
    written = [f"record: {new / 'patches/engine_kimi.diff'} written", f"record: {new / 'targets.toml'} written"]
    assert err.splitlines() == ["record: 2 files edited by hand", *written]
    rows = ["engine/core.py  {}  engine_kimi", "engine/more.py  {}  engine_kimi"]
    hint = "record: patchkit record --adopt takes it over into the journal"
    assert shell("record", catalog=new) == (
        0,
        "",
        "\n".join([*(row.format("adoptable") for row in rows), "record: 2 files as patches make them", hint, ""]),
    )
    assert "1 of 1 patches in place" in shell("status", catalog=new)[1]
    adopted = "\n".join([*(row.format("adopted") for row in rows), "record: 2 files adopted", ""])
    assert shell("record", "--adopt", catalog=new) == (0, adopted, "")
    entry = read_journal(tree.site).files["engine/core.py"]
    assert (entry.pristine, entry.sha256) == (digest(ENGINE.encode()), digest(EDITED.encode()))
    assert shell("record", "--adopt", catalog=new) == (0, "record: nothing was edited\n", "")
    assert shell("record", catalog=new)[::2] == (0, "record: nothing was edited\n")
    assert shell("check", catalog=new)[0] == 0
    assert shell("revert", catalog=new)[0] == 0
    assert snapshot(tree.site) == pristine
    assert shell("apply", catalog=new)[0] == 0
    assert tree.engine.read_text() == EDITED
    assert shell("check", catalog=new)[0] == 0


def test_what_is_not_given_is_to_be_filled_in(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    tree.engine.write_text(EDITED)
    new = tmp_path / "new"
    code, _, err = shell("record", "-o", new, "--id", "engine_kimi", "--wheel", wheel, "--title", 'A "new" title')
    place = new / "patches/engine_kimi.diff"
    assert (code, err.splitlines()[-1]) == (0, f"record: fill in reason, symptom in {place}")
    assert shell("apply", catalog=new)[0] == 1
    code, _, err = shell("check", catalog=new)
    assert (code, err.splitlines()[0]) == (
        1,
        f"patch-invalid: {place} is not filled in yet: line 3: what the installed code does, why that is wrong here, "
        "what the edit does instead; line 6: the shortest stable part of the error that the edit cures",
    )
    place.write_text(place.read_text().replace("<fill in: ", ""))
    code, out, _ = shell("--json", "list", catalog=new)
    (listed,) = json.loads(out)["patches"]
    assert (listed["title"], listed["versions"], listed["upstream"]["status"]) == (
        'A "new" title',
        "==1.5",
        "unreported",
    )


def test_patch_beside_others(shell: Shell, tree: Tree, wheel: Path) -> None:
    tree.engine.write_text(EDITED)
    before = (tree.catalog / "targets.toml").read_bytes()
    arguments = ("record", "-o", tree.catalog, "--id", "engine_kimi", "--wheel", wheel, *WORDS)
    code, _, err = shell(*arguments)
    place = tree.catalog / "patches/engine_kimi.diff"
    assert (code, err.splitlines()) == (0, ["record: 1 file edited by hand", f"record: {place} written"])
    assert (tree.catalog / "targets.toml").read_bytes() == before
    code, _, err = shell(*arguments)
    assert (code, err.splitlines()[-1]) == (0, "record: patchkit record --adopt takes it over into the journal")
    assert shell("record", "--adopt")[0] == 0
    assert shell("check", "engine_kimi")[0] == 0


@pytest.mark.parametrize("ending", ["py", "diff"])
def test_patch_is_not_replaced(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path, ending: str) -> None:
    tree.engine.write_text(EDITED)
    place = tmp_path / f"new/patches/one.{ending}"
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    code, _, err = shell("record", "-o", tmp_path / "new", "--id", "one", "--wheel", wheel)
    assert (code, err.splitlines()[0]) == (1, f"catalog-invalid: {place} is there already")
    assert [path.name for path in (tmp_path / "new").rglob("*.*")] == [place.name]


def test_catalog_of_other_targets(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    tree.engine.write_text(EDITED)
    new = write_catalog(tmp_path / "new", {"two": {}})
    targets = new / "targets.toml"
    targets.write_text(targets.read_text().replace("targets.engine", "targets.other"))
    code, _, err = shell("record", "-o", new, "--id", "one", "--wheel", wheel)
    assert (code, err.splitlines()[0]) == (1, f"catalog-invalid: {targets} has no target engine")


@pytest.mark.parametrize("name", ["targets.toml", "patches"])
def test_folder_that_cannot_be_written(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path, name: str) -> None:
    tree.engine.write_text(EDITED)
    new = tmp_path / "new"
    new.mkdir()
    # A link to nowhere that cannot be made, or a file in place of the folder.
    if name == "patches":
        (new / name).write_text("")
    else:
        (new / f".{name}.new").mkdir()
    code, _, err = shell("record", "-o", new, "--id", "one", "--wheel", wheel)
    assert (code, err.partition(":")[0]) == (1, "write-failed")
    assert [path for path in new.rglob("*") if path.suffix in (".toml", ".diff")] == []


def test_edit_that_does_not_compile(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    tree.engine.write_text(EDITED.replace("return models", "return ("))
    code, _, err = shell("record", "-o", tmp_path / "new", "--id", "one", "--wheel", wheel)
    assert code == 1
    assert err.startswith("rewrite-unsound: the edit makes no patch: engine/core.py does not compile for Python 3.11")
    assert not (tmp_path / "new").exists()


def test_edits_of_two_distributions(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    tree.engine.write_text(EDITED)
    tree.worker.write_text(WORKED)
    both = make_wheel(tmp_path / "both.whl", {**FILES, "worker/capture.py": WORKER})
    new = ("-o", tmp_path / "new", "--id", "one", "--wheel", both)
    code, out, err = shell("record", *new)
    assert (code, out.count("diff --git")) == (1, 2)
    assert err.startswith("several-targets: engine-cpu and worker are edited, and a patch is for one of them\n")
    code, out, _ = shell("record", "Worker", *new)
    assert (code, out.count("diff --git")) == (0, 1)
    assert 'target = "worker"' in (tmp_path / "new/patches/one.diff").read_text()


def test_what_no_patch_can_carry_is_said(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    tree.engine.write_text(EDITED)
    site = tree.site
    (site / "engine/data.json").write_text("[]")
    (site / "engine_cpu-1.5.dist-info/INSTALLER").write_text("me\n")
    (site / "engine/more.py").unlink()
    (site / "engine/sub").mkdir()
    (site / "engine/sub/new.py").write_text("")
    (site / "engine/__pycache__").mkdir(exist_ok=True)
    (site / "engine/__pycache__/core.cpython-311.pyc").write_bytes(b"")
    (site / "engine/old.pyc").write_bytes(b"")
    code, out, err = shell("record", "engine", "-o", tmp_path / "new", "--id", "one", "--wheel", wheel)
    assert (code, out) == (1, DIFF)
    assert [line for line in err.splitlines() if not line.startswith(" ")] == [
        "data-edited: engine/data.json is not as engine-cpu shipped it, and no patch can change it",
        "file-removed: engine/more.py is not there, and engine-cpu 1.5 has it",
        "data-edited: engine_cpu-1.5.dist-info/INSTALLER is not as engine-cpu shipped it, and no patch can change it",
        "file-added: engine/sub/new.py is in no RECORD of engine-cpu",
        "record: 1 file edited by hand, 4 findings",
        f"record: {tmp_path / 'new/patches/one.diff'} written",
        f"record: {tmp_path / 'new/targets.toml'} written",
        f"record: fill in title, reason, symptom in {tmp_path / 'new/patches/one.diff'}",
    ]


def test_file_that_cannot_be_read(shell: Shell, tree: Tree) -> None:
    tree.engine.unlink()
    tree.engine.mkdir()
    code, _, err = shell("record")
    assert (code, err.splitlines()[0]) == (1, "file-unreadable: engine/core.py cannot be read: not a regular file")
    assert shell("record", "--adopt")[0] == 1


def test_large_file_is_compared(shell: Shell, tree: Tree) -> None:
    with (tree.site / "engine/data.json").open("wb") as file:
        file.truncate(40 * 2**20)
    code, _, err = shell("record")
    assert (code, err.partition(":")[0]) == (1, "data-edited")


def test_linked_file_is_compared(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    shared.write_text(EDITED)
    tree.engine.unlink()
    tree.engine.symlink_to(shared)
    assert shell("record", "--wheel", wheel)[:2] == (0, DIFF)


def test_image_is_only_read(
    tree: Tree, wheel: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    tree.engine.unlink()
    tree.engine.symlink_to("/outside.py")
    (tmp_path / "lib/outside.py").write_text(EDITED)
    options = ["--root", str(tmp_path / "lib"), "--catalog", str(tree.catalog), "record", "--wheel", str(wheel)]
    assert run(options) == 0
    assert capsysbinary.readouterr().out.decode() == DIFF


def test_applied_patches_are_no_edits(shell: Shell, tree: Tree, wheel: Path) -> None:
    assert shell("apply", "--allow-unlisted")[0] == 0
    assert shell("record") == (0, "", "record: nothing was edited\n")
    (tree.site / "engine/more.py").write_text("x = 2\n")
    code, out, _ = shell("record", "--wheel", wheel)
    assert (code, out.count("diff --git"), "engine/more.py" in out) == (0, 1, True)


def test_edit_over_applied_patches_is_foreign(shell: Shell, tree: Tree, wheel: Path, tmp_path: Path) -> None:
    assert shell("apply", "--allow-unlisted")[0] == 0
    tree.engine.write_text(tree.engine.read_text() + "x = 1\n")
    before = snapshot(tree.site)
    words = "engine/core.py is neither as engine-cpu shipped it nor as patchkit wrote it"
    for arguments in (("record",), ("record", "-o", tmp_path / "new", "--id", "one"), ("record", "--adopt")):
        code, _, err = shell(*arguments, "--wheel", wheel)
        assert (code, err.splitlines()[0]) == (1, f"foreign-edit: {words}")
        assert "bring the file back" in err
    assert snapshot(tree.site) == before
    assert not (tmp_path / "new").exists()


def test_edit_after_a_reinstall_is_one_of_the_new_release(shell: Shell, tree: Tree, tmp_path: Path) -> None:
    assert shell("apply", "--allow-unlisted")[0] == 0
    shutil.rmtree(tree.site / "engine_cpu-1.5.dist-info")
    files = {**FILES, "engine/core.py": "y = 1\n"}
    install(tree.site, "engine-cpu", "1.6", files)
    tree.engine.write_text("y = 2\n")
    code, out, _ = shell("record", "--wheel", make_wheel(tmp_path / "new.whl", files))
    assert (code, out.splitlines()[-2:]) == (0, ["-y = 1", "+y = 2"])


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"engine/core.py": "x = 1\n"}, "engine/core.py of other.whl is not what RECORD of engine-cpu 1.5 lists"),
        ({}, "other.whl does not have engine/core.py"),
        (None, "other.whl is not a wheel: "),
    ],
)
def test_wheel_of_something_else(
    shell: Shell, tree: Tree, tmp_path: Path, files: dict[str, str] | None, words: str
) -> None:
    tree.engine.write_text(EDITED)
    place = tmp_path / "other.whl"
    if files is not None:
        make_wheel(place, files)
    code, out, err = shell("record", "--wheel", place)
    assert (code, out, err.startswith("wheel-invalid: "), words in err) == (1, "", True, True)
    assert "name the wheel of engine-cpu 1.5 with --wheel" in err


def test_wheel_that_pip_cannot_bring(shell: Shell, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.engine.write_text(EDITED)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    code, _, err = shell("record")
    assert (code, err.startswith("download-failed: pip does not bring engine-cpu==1.5: ERROR: ")) == (
        1,
        True,
    )
    assert "pip download --no-deps engine-cpu==1.5" in err


def test_no_python_has_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    installation = Installation(Target("engine", "engine", ("engine",)), "engine", Version("1"), tmp_path, {}, tmp_path)
    with pytest.raises(DownloadFailed, match=r"pip does not bring engine==1: .* cannot be run: No such file"):
        read_pristine(installation, ["engine/core.py"], None, Environment(None, (3, 11), ()))


def test_wheel_that_pip_brings(shell: Shell, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.engine.write_text(EDITED)
    index = tmp_path / "index"
    index.mkdir()
    metadata = "engine_cpu-1.5.dist-info"
    files = {f"{metadata}/METADATA": "Metadata-Version: 2.1\nName: engine-cpu\nVersion: 1.5\n"}
    files[f"{metadata}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    make_wheel(index / "engine_cpu-1.5-py3-none-any.whl", {**FILES, **files, f"{metadata}/RECORD": ""})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    assert shell("record") == (0, DIFF, "record: 1 file edited by hand\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--adopt", "-o", "new", "--id", "one"], "--adopt and --write exclude each other"),
        (["-o", "new"], "--write needs --id"),
        (["-o", "new", "--id", "One-two"], "--id 'One-two' must be snake_case"),
        (["nothing"], "'nothing' is not installed here; targets of the catalog: engine, worker"),
    ],
)
def test_usage(shell: Shell, arguments: list[str], words: str) -> None:
    code, _, err = shell("record", *arguments)
    assert (code, words in err) == (2, True)


def test_target_that_is_not_installed(shell: Shell, site: Path) -> None:
    shutil.rmtree(site / "worker-1.5.dist-info")
    assert shell("record")[0] == 0
    code, _, err = shell("record", "worker")
    assert (code, err.splitlines()[0]) == (1, "not-installed: not installed here: worker")
    assert shell("record", "worker", "--adopt")[0] == 1


def test_target_that_cannot_be_examined(shell: Shell, site: Path) -> None:
    (site / "worker-1.5.dist-info/RECORD").unlink()
    code, _, err = shell("record")
    assert (code, err.partition(":")[0]) == (1, "record-missing")


def test_record_with_a_row_that_cannot_be_trusted(shell: Shell, site: Path) -> None:
    with (site / "worker-1.5.dist-info/RECORD").open("a") as file:
        file.write("worker/x.py,md5=AAAA,1\n")
    code, _, err = shell("record")
    assert (code, err.partition(":")[0]) == (1, "record-malformed")


def test_distribution_that_is_no_target(shell: Shell, site: Path, tmp_path: Path) -> None:
    install(site, "other-tool", "3", {"tool/__init__.py": "", "tool/a.py": "x = 1\n"})
    assert shell("record", "Other.Tool")[::2] == (0, "record: nothing was edited\n")
    (site / "tool/a.py").write_text("x = 2\n")
    wheel, new = make_wheel(tmp_path / "tool.whl", {"tool/a.py": "x = 1\n"}), tmp_path / "new"
    assert shell("record", "other_tool", "--wheel", wheel, "-o", new, "--id", "tool_two", *WORDS)[0] == 0
    assert shell("record", "--adopt", catalog=new)[0] == 0
    assert shell("revert", catalog=new)[0] == 0
    assert (site / "tool/a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [({"a.py": ""}, "no package"), ({"a/__init__.py": "", "b/__init__.py": ""}, "2 packages (a, b)")],
)
def test_distribution_without_one_package(shell: Shell, site: Path, files: dict[str, str], words: str) -> None:
    install(site, "other", "3", files)
    code, _, err = shell("record", "other")
    assert (code, err.splitlines()[0]) == (1, f"owner-unclear: other has {words}, and a target has one")


def test_distribution_without_record(shell: Shell, site: Path) -> None:
    (install(site, "other", "3", {"other/__init__.py": ""}) / "RECORD").unlink()
    code, _, err = shell("record", "other")
    assert (code, err.partition(":")[0]) == (1, "record-missing")


def test_adopting_is_all_or_nothing(shell: Shell, tree: Tree) -> None:
    write_diff(tree.catalog, "engine_kimi", DIFF)
    tree.engine.write_text(EDITED)
    tree.worker.write_text("x = 1\n")
    before = snapshot(tree.site)
    code, out, err = shell("record", "--adopt")
    assert (code, out) == (1, "record: 1 finding\n")
    assert err.splitlines() == [
        "foreign-edit: worker/capture.py is neither as worker shipped it nor as patchkit wrote it",
        "    make a patch of the edit first: patchkit record --write DIR --id ID",
    ]
    assert snapshot(tree.site) == before
    assert shell("record", "engine", "--adopt")[0] == 0


def test_patch_for_another_release_is_not_adopted(shell: Shell, tree: Tree) -> None:
    head = (Path(__file__).parent / "trees.py").read_text().partition('DIFF = """\\\n')[2].partition('"""')[0]
    write_diff(tree.catalog, "engine_kimi", DIFF, head.replace(">=1.0,<2.0", ">=1.0,<1.2"))
    tree.engine.write_text(EDITED)
    code, _, err = shell("record", "--adopt")
    assert (code, err.splitlines()[0]) == (
        1,
        "stale: engine_kimi is not right here: applied, but it is for engine >=1.0 <1.2, and 1.5 is installed",
    )


def test_adopting_with_the_wheel_of_something_else(shell: Shell, tree: Tree, tmp_path: Path) -> None:
    tree.engine.write_text(EDITED)
    code, _, err = shell("record", "--adopt", "--wheel", make_wheel(tmp_path / "other.whl", {}))
    assert (code, err.splitlines()[0]) == (1, "wheel-invalid: other.whl does not have engine/core.py")


@pytest.mark.parametrize("given", [True, False])
def test_patch_without_a_way_back_is_adopted_with_the_wheel(
    shell: Shell, tree: Tree, wheel: Path, tmp_path: Path, given: bool
) -> None:
    new = write_catalog(tmp_path / "new", {"engine_models": {"restore": ""}})
    assert shell("apply", "--allow-unlisted", catalog=new)[0] == 0
    shutil.rmtree(tree.site / ".patchkit")
    code, _, err = shell("record", "--adopt", *(["--wheel", wheel] if given else []), catalog=new)
    assert (code, err.partition(":")[0]) == ((0, "") if given else (1, "foreign-edit"))
    assert shell("revert", catalog=new)[0] == (0 if given else 1)
    assert (tree.engine.read_text() == ENGINE) is given


def test_error_at_every_step_of_adopting_leaves_all_or_nothing(
    shell: Shell, tree: Tree, wheel: Path, tmp_path: Path
) -> None:
    write_diff(tree.catalog, "engine_kimi", DIFF)
    tree.engine.write_text(EDITED)
    shell("status")
    at = 0
    while True:
        copy = tmp_path / str(at) / "site-packages"
        shutil.copytree(tree.site, copy, symlinks=True)
        options = ["--site", str(copy), "--catalog", str(tree.catalog)]
        with armed(copy, at, fail()) as fault:
            code = run([*options, "record", "--adopt"])
        if fault.steps <= at:
            break
        assert (copy / "engine/core.py").read_text() == EDITED, f"step {at}"
        assert code in (0, 1), f"step {at}"
        assert run([*options, "record", "--adopt"]) == 0, f"step {at}"
        assert run([*options, "revert"]) == 0, f"step {at}"
        assert (copy / "engine/core.py").read_text() == ENGINE, f"step {at}"
        assert not (copy / ".patchkit").exists(), f"step {at}"
        at += 1
    assert (code, at > 20) == (0, True)
    assert os.listdir(copy / ".patchkit/objects") == [digest(ENGINE.encode())]
