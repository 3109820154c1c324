"""The command line as a contract: exit codes, stdout, stderr."""

from __future__ import annotations

import io
import json
import os
import py_compile
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit import actions, cli
from patchkit.cli import run
from tests.trees import ENGINE, WORKER, WORKER_PATCH, Tree, install, list_digests, snapshot, write_catalog

VERBS = ("list", "status", "diff", "apply", "revert", "check", "statement")


def lines(text: str) -> list[str]:
    """Return lines without the blanks that align columns."""
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture
def shell(tree: Tree, capsys: pytest.CaptureFixture[str]) -> object:
    """Return a function that runs a command on the tree: exit code, stdout lines, stderr lines."""

    def shell(*arguments: str) -> tuple[int, list[str], list[str]]:
        code = run([*tree.options(), *arguments])
        out, err = capsys.readouterr()
        return code, lines(out.replace(str(tree.site), "SITE")), lines(err)

    return shell


def test_list(shell) -> None:
    code, out, err = shell("list")
    assert (code, err) == (0, [])
    assert out[:3] == [
        "PATCH FOR UPSTREAM",
        "engine_models engine >=1.0,<2.0 released in 2.0",
        "worker_unwrap worker >=1.0,<2.0 released in 2.0",
    ]
    assert out[3:7] == ["", "engine_models", "The engine takes another model", "cures: model is refused"]


def test_session(shell) -> None:
    head = ["engine 1.5 (engine-cpu) in SITE", "worker 1.5 in SITE", "PATCH TARGET STATE TO DO"]
    pristine = ["engine_models engine pristine patchkit apply", "worker_unwrap worker pristine patchkit apply"]
    applied = ["engine_models engine applied nothing", "worker_unwrap worker applied nothing"]
    missing = [
        "not-applied: engine_models is not applied",
        "patchkit apply engine_models",
        "not-applied: worker_unwrap is not applied",
        "patchkit apply worker_unwrap",
    ]
    assert shell("status") == (0, [*head, *pristine, "status: 0 of 2 patches in place"], [])
    assert shell("status", "--exit-code")[0] == 1
    assert shell("check") == (1, [*head, *pristine, "check: 2 findings"], missing)
    written = ["engine/core.py +2 -1 engine_models", "worker/capture.py +2 -1 worker_unwrap"]
    assert shell("diff", "--stat") == (0, written, [])
    assert shell("diff", "--exit-code")[0] == 1
    assert shell("apply") == (0, [*written, "apply: 2 files written"], [])
    assert shell("apply") == (0, ["apply: nothing to do"], [])
    assert shell("diff", "--exit-code") == (0, [], [])
    assert shell("status", "--exit-code") == (0, [*head, *applied, "status: 2 of 2 patches in place"], [])
    assert shell("check") == (0, [*head, *applied, "check: 2 patches in place"], [])
    assert shell("revert", "engine_models") == (
        0,
        ["engine/core.py +1 -2 pristine again", "revert: 1 file written"],
        [],
    )
    assert shell("check", "worker_unwrap")[0] == 0
    assert shell("check", "all")[0] == 1
    assert shell("revert")[0] == 0
    assert shell("revert") == (0, ["revert: nothing to do"], [])


def test_dry_run_shows_the_diff_and_says_so_beside_it(shell, tree: Tree) -> None:
    before = snapshot(tree.site)
    code, out, err = shell("apply", "--dry-run", "engine_models")
    assert (code, err) == (0, ["apply: 1 file would be written"])
    assert out[:3] == ["diff --git a/engine/core.py b/engine/core.py", "--- a/engine/core.py", "+++ b/engine/core.py"]
    assert "+ # patchkit: engine_models" in out
    assert snapshot(tree.site) == before


def test_piped_diff_is_what_git_applies(tree: Tree, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run([*tree.options(), "diff"]) == 0
    diff = capfdbinary.readouterr().out
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.site.parent)}
    subprocess.run(["git", "apply", "-p1"], cwd=tree.site, input=diff, check=True, env=environment)
    assert run([*tree.options(), "check"]) == 0


@pytest.mark.parametrize("arguments", [["--json", "status"], ["status", "--json"]])
def test_json_before_and_after_the_verb(tree: Tree, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    files = [{"path": "engine/core.py", "state": "pristine", "sha256": report["patches"][0]["files"][0]["sha256"]}]
    files[0]["pristine_sha256"] = files[0]["sha256"]
    assert report["schema"] == 1
    assert (report["verb"], report["ok"]) == ("status", False)
    assert report["environment"] == {"python": None, "site": [str(tree.site)]}
    assert report["targets"] == [
        {"target": "engine", "distribution": "engine-cpu", "version": "1.5", "site": str(tree.site), "listed": True},
        {"target": "worker", "distribution": "worker", "version": "1.5", "site": str(tree.site), "listed": True},
    ]
    first = report["patches"][0]
    assert first == {"id": "engine_models", "target": "engine", "state": "pristine", "reason": "", "files": files}
    assert report["findings"][0] == {
        "code": "not-applied",
        "message": "engine_models is not applied",
        "hint": "patchkit apply engine_models",
        "patch": "engine_models",
        "file": None,
    }


def test_json_of_every_verb_is_one_object(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        run([*tree.options(), "--json", verb])
        out, err = capsys.readouterr()
        assert (json.loads(out)["verb"], err) == (verb, "")


@pytest.mark.parametrize("arguments", [["check", "--format", "json"], ["--json", "check", "--format", "json"]])
def test_format_json_is_json(tree: Tree, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "--json", "check"]) == 1
    expected = capsys.readouterr()
    assert run([*tree.options(), *arguments]) == 1
    assert capsys.readouterr() == expected
    assert json.loads(expected.out)["verb"] == "check"


def test_format_text_is_the_default(shell) -> None:
    assert shell("check", "--format", "text") == shell("check")


def test_json_of_list_is_the_catalog(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "--json", "list"]) == 0
    first = json.loads(capsys.readouterr().out)["patches"][0]
    assert first["id"] == "engine_models"
    assert first["upstream"] == {"status": "released", "issue": "", "pull": "", "fixed_in": "2.0"}
    assert first["files"] == ["engine/core.py"]


def test_json_of_diff_has_the_diff(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "--json", "diff"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [change["path"] for change in report["changes"]] == ["engine/core.py", "worker/capture.py"]
    assert "+        # patchkit: engine_models\n" in report["changes"][0]["diff"]
    assert report["written"] is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["apply", "engine_model"], "did you mean engine_models?"),
        (["apply", "nothing_like_it"], "known names: engine_models, worker_unwrap, all"),
        (["revert", "nothing_like_it"], "neither a patch nor a set"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["apply", "--force"], "No such option"),
        (["status", "--root", "/"], "--site and --root exclude each other"),
        (["digests"], "Missing argument"),
        (["check", "--format", "yaml"], "'yaml' is not one of 'text', 'json', 'junit', 'sarif', 'github'"),
        (["status", "--format", "junit"], "No such option"),
        (["--json", "check", "--format", "sarif"], "--format json and --format sarif exclude each other"),
        (["preflight", "--all-models", "--format", "github"], "--all-models is a table without a verdict"),
    ],
)
def test_usage_errors_exit_with_2(shell, arguments: list[str], words: str) -> None:
    code, out, err = shell(*arguments)
    assert (code, out) == (2, [])
    assert words in " ".join(err)


def test_help_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    shown = [line.split()[0] for line in out[out.index("Look:") :].splitlines() if line.startswith("  ")]
    assert shown == list(cli.VERBS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == "patchkit, version 0.1.0\n"


@pytest.mark.parametrize("verb", ["status", "diff", "apply", "revert", "check"])
def test_target_that_is_not_installed_is_never_a_success(
    tree: Tree, tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    code = run(["--site", str(empty), "--catalog", str(tree.catalog), "--json", verb])
    report = json.loads(capsys.readouterr().out)
    assert code == (0 if verb in ("status", "diff") else 1)
    assert (report["ok"], [finding["code"] for finding in report["findings"]]) == (False, ["nothing-applicable"])


def test_patch_named_by_id_must_be_for_what_is_installed(shell, tree: Tree) -> None:
    for file in tree.site.glob("worker-1.5.dist-info/*"):
        file.unlink()
    (tree.site / "worker-1.5.dist-info").rmdir()
    assert shell("apply", "worker_unwrap")[0] == 1
    assert shell("apply")[0] == 0
    assert shell("check")[0] == 0
    assert shell("check", "worker_unwrap")[0] == 1
    assert shell("check", "engine_models")[0] == 0


def test_bytecode_made_while_patched_leaves_no_empty_folder(tree: Tree) -> None:
    before = set(tree.site.rglob("*"))
    assert run([*tree.options(), "apply"]) == 0
    for place in (tree.engine, tree.worker):
        py_compile.compile(str(place), doraise=True)
    (tree.worker.parent / "__pycache__" / "other.cpython-311.pyc").write_bytes(b"")
    assert run([*tree.options(), "revert"]) == 0
    assert {place.name for place in set(tree.site.rglob("*")) - before} == {"__pycache__", "other.cpython-311.pyc"}


def test_unlisted_release_needs_a_word(shell, tree: Tree) -> None:
    text = ENGINE.replace("return None", "return 0")
    install(tree.site, "engine-cpu", "1.5", {"engine/__init__.py": "", "engine/core.py": text})
    code, out, err = shell("apply")
    assert (code, out) == (1, ["apply: 1 finding, nothing was written"])
    assert err[0] == "digest-unlisted: engine/core.py of engine-cpu 1.5 is not in targets.toml"
    assert shell("diff", "--allow-unlisted", "--stat")[1][0] == "engine/core.py +2 -1 engine_models"
    assert shell("apply", "--allow-unlisted")[0] == 0
    assert "engine 1.5 (engine-cpu) in SITE, not listed in targets.toml" in shell("check")[1]
    assert shell("check")[0] == 0
    assert shell("revert")[0] == 0
    assert tree.engine.read_text() == text


def test_interrupt_exits_with_130(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(actions, "apply", interrupted)
    assert run([*tree.options(), "apply"]) == 130


def test_defect_of_ours_exits_with_3_and_a_traceback(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(actions, "check", broken)
    assert run([*tree.options(), "check"]) == 3
    err = capsys.readouterr().err
    assert "ZeroDivisionError: on purpose" in err
    assert err.splitlines()[-1].startswith("patchkit failed: this is a defect of patchkit")


def test_reader_that_goes_away_does_not_change_the_exit_code(tree: Tree) -> None:
    command = f'"{sys.executable}" -m patchkit --site "{tree.site}" --catalog "{tree.catalog}"'
    for verb, code in (("list", 0), ("check", 1)):
        script = f"{command} {verb} 2>/dev/null | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == (f"{code}\n", "")


def test_main_exits_with_the_code(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["patchkit", *tree.options(), "check"])
    with pytest.raises(SystemExit) as exited:
        cli.main()
    assert exited.value.code == 1


def test_digests_compares_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zipfile

    site = tmp_path / "unpacked"
    install(
        site,
        "worker",
        "1.5",
        {"worker/__init__.py": "", "worker/capture.py": WORKER},
    )
    wheel = tmp_path / "worker-1.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in sorted(place for place in site.rglob("*") if place.is_file()):
            archive.write(file, str(file.relative_to(site)))
    catalog = write_catalog(tmp_path / "catalog", {"worker_unwrap": WORKER_PATCH})
    options = ["--site", str(site), "--catalog", str(catalog)]
    assert run([*options, "digests", str(wheel)]) == 1
    assert "worker 1.5 is not listed as its wheel is" in capsys.readouterr().err
    assert run([*options, "digests", "--write", str(wheel)]) == 0
    assert run([*options, "digests", str(wheel)]) == 0
    other = write_catalog(tmp_path / "other", {"worker_unwrap": WORKER_PATCH})
    list_digests(other, site, {"worker": "1.5"})
    assert (catalog / "targets.toml").read_text().split() == (other / "targets.toml").read_text().split()
    assert run([*options, "digests", "--write", str(wheel)]) == 0
    assert (catalog / "targets.toml").read_text().count("[releases") == 1


def test_closed_pipe_keeps_the_exit_code(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert run([*tree.options(), "check"]) == 1
        assert run([*tree.options(), "list"]) == 0


def test_streams_of_another_kind_are_taken_as_they_are(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    assert run([*tree.options(), "list"]) == 0
    assert "engine_models" in out.getvalue()


def test_module_is_a_command(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["patchkit", *tree.options(), "check"])
    with pytest.raises(SystemExit) as exited:
        runpy.run_module("patchkit", run_name="__main__")
    assert exited.value.code == 1
    runpy.run_module("patchkit.__main__", run_name="other")
