"""``patchkit explain`` as a user runs it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from patchkit.cli import run
from tests.test_failures import rewrite_version
from tests.trees import Tree

LOG = b"INFO one\nAttributeError: 'X' object: has no attribute 'model'\nINFO three\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    place = tmp_path / "server.log"
    place.write_bytes(LOG)
    return place


def cure_line(out: str) -> str:
    (line,) = [line.strip() for line in out.splitlines() if "cures it" in line]
    return line


def test_what_was_seen_and_what_to_do(tree: Tree, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "explain", str(log)]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0].startswith("engine 1.5 (engine-cpu) in ")
    assert lines[2] == "line 2: AttributeError: 'X' object: has no attribute 'model'"
    assert lines[4] == "    worker_unwrap cures it; patchkit apply"
    assert lines[-1] == "explain: 1 known error in 3 lines"


def test_state_of_the_cure(tree: Tree, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*tree.options(), "explain", str(log)]
    assert run([*tree.options(), "apply"]) == 0
    capsys.readouterr()
    assert run(command) == 1
    assert cure_line(capsys.readouterr().out).startswith("worker_unwrap cures it; it is applied here")
    assert run([*tree.options(), "revert"]) == 0
    tree.worker.write_text("changed\n")
    capsys.readouterr()
    assert run(command) == 1
    assert cure_line(capsys.readouterr().out) == "worker_unwrap cures it; see patchkit status"


def test_environment_without_the_target(
    tree: Tree, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run(["--catalog", str(tree.catalog), "--site", str(empty), "explain", str(log)]) == 1
    assert "not installed here: name the environment with --python" in cure_line(capsys.readouterr().out)


def test_environment_that_cannot_be_examined(tree: Tree, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--catalog", str(tree.catalog), "--site", "/nonexistent", "explain", str(log)]) == 1
    out, err = capsys.readouterr()
    assert cure_line(out) == "worker_unwrap cures it; its state here is not known"
    assert err.startswith("environment-invalid: /nonexistent")


def test_several_times(tree: Tree, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(LOG * 3)
    assert run([*tree.options(), "explain", str(log)]) == 1
    out = capsys.readouterr().out
    assert "line 2, 3 times: " in out and "explain: 1 known error in 9 lines" in out


def test_nothing_known_needs_no_environment(tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "quiet.log"
    for text, words in (("INFO\n", "no known errors in 1 line"), ("a\nb\n", "no known errors in 2 lines")):
        place.write_text(text)
        assert run(["--catalog", str(tree.catalog), "--site", "/nonexistent", "explain", str(place)]) == 0
        assert capsys.readouterr() == (f"explain: {words}\n", "")


def test_empty_log_is_said_to_be_empty(tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.log").touch()
    assert run([*tree.options(), "explain", str(tmp_path / "empty.log")]) == 0
    assert capsys.readouterr().out == "explain: no known errors in 0 lines\n"


def test_error_that_no_patch_cures(tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "cpu.log"
    place.write_text("NotImplementedError: spec decode is not supported\n")
    assert run([*tree.options(), "explain", str(place)]) == 1
    assert "    no patch of this catalog cures it\n" in capsys.readouterr().out


def test_json(tree: Tree, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "explain", "--json", str(log)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["verb"], report["ok"], report["lines"], report["findings"]) == ("explain", False, 3, [])
    assert report["symptoms"] == [
        {
            "line": 2,
            "text": "AttributeError: 'X' object: has no attribute 'model'",
            "count": 1,
            "meaning": report["symptoms"][0]["meaning"],
            "cure": "worker_unwrap",
        }
    ]
    assert [(patch["id"], patch["state"]) for patch in report["patches"]] == [("worker_unwrap", "pristine")]


def test_standard_input(tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LOG)))
    assert run([*tree.options(), "explain", "-"]) == 1
    assert not sys.stdin.closed


def test_pipe_by_name(tree: Tree, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(LOG))
    writer.start()
    assert run([*tree.options(), "explain", str(pipe)]) == 1
    writer.join()


@pytest.mark.parametrize("name", ["absent.log", "", "folder", "a\0b"])
def test_log_that_cannot_be_read(tree: Tree, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    assert run([*tree.options(), "explain", str(tmp_path / name)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("log-unreadable: ") and "name a file, or - for the input" in err


def test_log_that_fails_while_it_is_read(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    # The memory of a process opens, and gives an error where nothing is mapped.
    assert run([*tree.options(), "explain", "/proc/self/mem"]) == 1
    assert capsys.readouterr().err.startswith("log-unreadable: the log cannot be read: ")


def test_escape_codes_do_not_reach_the_terminal(tree: Tree, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(b"\x1b[2J\xff" + LOG.splitlines()[1])
    assert run([*tree.options(), "explain", str(log)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b[2J" in out


def test_obsolete_patch(tree: Tree, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite_version(tree, "9.0")
    assert run([*tree.options(), "explain", str(log)]) == 1
    assert "worker_unwrap cures it; " in capsys.readouterr().out


def test_module_loads_neither_rich_nor_libcst(tree: Tree, log: Path) -> None:
    arguments = [*tree.options(), "explain", str(log)]
    code = f"import sys; from patchkit.cli import run; run({arguments!r}); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'libcst'" not in done.stdout and "'rich'" not in done.stdout
