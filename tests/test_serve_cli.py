"""``patchkit-serve`` as a user runs it."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import httpx
import pytest

from patchkit import serve_cli
from patchkit.runner.log import ServerLog
from patchkit.serve_cli import main, run
from tests.gates.fragments import DRAFT, TRANSFORMERS, VLLM, write
from tests.runner.fake import Fake, born, children, end, fake, is_running, make_fake, spawn, wait_for
from tests.runner.test_serve import folder
from tests.test_preflight import WIDE

__all__ = ["fake"]


def is_ready(fake: Fake) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{fake.port}/health", trust_env=False).is_success
    except httpx.HTTPError:
        return False


@pytest.fixture
def later() -> Iterator[Callable[[Callable[[], bool], Callable[[], None]], None]]:
    """Do something in another thread once something is true."""
    threads = []

    def start(condition: Callable[[], bool], action: Callable[[], None]) -> None:
        def wait() -> None:
            with contextlib.suppress(AssertionError):
                wait_for(condition)
            action()

        threads.append(threading.Thread(target=wait))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_ready_proof_lines_end(
    fake: Fake, later: Callable[[Callable[[], bool], Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    later(lambda: "tokens/s" in screen.getvalue(), terminate)
    assert run(fake.words()) == 0
    lines = screen.getvalue().splitlines()
    assert {line.split(": ")[0] for line in lines} == {"patchkit-serve"}
    said = [line.removeprefix("patchkit-serve: ") for line in lines]
    assert said[0].startswith("check: 1 patches, 1 files, digest ")
    assert said[1] == "preflight: not asked, some/model is no folder here"
    assert said[2] == f"log: {fake.log}"
    assert said[3].endswith(" s: starting")
    ready = next(number for number, line in enumerate(said) if line.startswith("ready after "))
    assert said[ready - 1].startswith("proof: 5 processes run the patched files, digest ")
    assert said[-2].endswith("tokens/s") and said[-1].startswith("ended ")
    assert fake.left() == []


def test_exit_code_is_the_one_of_the_server(
    fake: Fake,
    later: Callable[[Callable[[], bool], Callable[[], None]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    later(lambda: is_ready(fake), terminate)
    assert run(fake.words("seven")) == 7
    out, err = capsys.readouterr()
    assert err.endswith("patchkit-serve: the server ended with 7\n")
    assert out.startswith("explain: no known errors in ")


def test_server_that_dies_while_it_loads_is_explained(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake.words("dies")) == 1
    out, err = capsys.readouterr()
    assert err.endswith("patchkit-serve: the server ended with 1\n")
    assert "ValueError: model is refused\n" in out
    assert "vllm_models cures it; it is applied here" in out


def test_unpatched_tree_is_refused_with_the_words_of_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = make_fake(tmp_path, patched=False)
    monkeypatch.setenv("FAKE_PIDS", str(fake.pids))
    assert run(fake.words()) == 1
    out, err = capsys.readouterr()
    assert "vllm_models" in out and "pristine" in out
    assert "not-applied" in err
    assert err.endswith("patchkit-serve: nothing was started\n")
    assert not fake.log.exists()
    assert fake.started() == []


def test_closed_gate_is_refused_with_the_words_of_preflight(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(fake.site, VLLM | TRANSFORMERS)
    draft = ("--draft", folder(tmp_path / "draft", DRAFT), "--num-speculative-tokens", "3")
    assert run(fake.words("well", *draft, model=folder(tmp_path / "model", WIDE))) == 1
    out, err = capsys.readouterr()
    assert "\nfail     " in out
    assert err.endswith("patchkit-serve: nothing was started\n")
    assert not fake.log.exists()


def test_port_in_use_is_refused(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", fake.port)):
        assert run(fake.words()) == 1
    assert f"port-in-use: port {fake.port} of 127.0.0.1 cannot be had: " in capsys.readouterr().err
    assert not fake.log.exists()


def test_server_that_is_not_ready_in_time_is_ended(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake.words("loads", "--ready-timeout", "1")) == 137
    assert "patchkit-serve: not ready after 1 s: it is ended\n" in capsys.readouterr().err
    assert fake.left() == []


def test_server_that_does_not_prove_itself_is_refused(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake.words("unproved")) == 1
    assert "server-refused: the server does not run what was checked" in capsys.readouterr().err
    assert fake.left() == []


def test_file_that_was_changed_after_the_check_stops_the_server(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake.words("tampers")) == 1
    assert "the server ended with 1" in capsys.readouterr().err
    assert b"does not run the patched files" in fake.log.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing argument 'MODEL'"),
        (["--draft", "x", "model"], "--draft and --num-speculative-tokens belong together"),
        (["--num-speculative-tokens", "3", "model"], "--draft and --num-speculative-tokens belong together"),
        (["--draft", "x", "--num-speculative-tokens", "0", "model"], "0 is not in the range"),
        (["--interval", "0", "model"], "is not in the range"),
        (["--log", "/", "model"], "is a directory"),
        (["--port", "1", "model"], "No such option"),
    ],
)
def test_wrong_use_exits_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert said in capsys.readouterr().err


def test_unknown_set_exits_2(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--catalog", str(fake.catalog), "--set", "absent", "model"]) == 2
    assert "absent" in capsys.readouterr().err
    assert run(["--catalog", str(fake.catalog), "model"]) == 2
    assert "kimi-k25-serve" in capsys.readouterr().err


@pytest.mark.parametrize(("word", "said"), [("--help", "Start the patched vLLM"), ("--version", "patchkit-serve, ver")])
def test_help_and_version(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([word]) == 0
    assert said in capsys.readouterr().out


def test_kimi_is_the_default_and_so_are_the_interpreter_and_the_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--python", sys.executable, "--gpus", "none", "model"]) == 1
    out, err = capsys.readouterr()
    assert "kimi_k25_image_token" in out
    assert err.endswith("patchkit-serve: nothing was started\n")


def test_port_that_is_none_is_refused_in_words(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*fake.words(), "--port", "nonsense"]) == 1
    assert "server-arguments: --port nonsense is no port" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, click.Abort])
def test_interrupt_before_the_start_exits_130(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(place: Path) -> None:
        raise error

    monkeypatch.setattr(serve_cli, "load_catalog", interrupted)
    assert run(["model"]) == 130


def test_main_exits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["patchkit-serve", "--draft", "x", "model"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_log_that_cannot_be_written_is_refused_in_words(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    (fake.log.parent / "file").touch()
    assert run(fake.words("well", "--log", str(fake.log.parent / "file/server.log"))) == 1


def test_log_is_in_the_state_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert serve_cli._log_place().parent == tmp_path / ".local/state/patchkit"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = serve_cli._log_place()
    assert place.parent == tmp_path / "state/patchkit"
    assert place.name.startswith("serve-") and place.name.endswith(f"-{os.getpid()}.log")


def test_terminal_has_one_line_that_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"Starting to load model\nhostile \x1b[31m" + b"x" * 200 + b"\n")
    log = ServerLog(tmp_path / "log")
    log.read()
    log.close()
    reading, writing = os.openpty()
    with open(reading, "rb", buffering=0) as screen, open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((60, 20)))
        view = serve_cli._View()
        server = SimpleNamespace(log=log, elapsed=12.3)
        view.show(server)  # type: ignore[arg-type]
        first = screen.read(4096).decode()
        view.say("done")
        view.say("more")
        stream.flush()
        second = ""
        while "more" not in second:
            second += screen.read(4096).decode()
    assert first.startswith("\r\x1b[K    12 s  loading the model  hostile \\x1b[31mxx")
    assert len(first) == len("\r\x1b[K") + 59
    assert second == "\r\x1b[Kpatchkit-serve: done\r\npatchkit-serve: more\r\n"


def test_plain_output_has_a_line_for_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = serve_cli._View()
    log = ServerLog(tmp_path / "log")
    for stage in ("starting", "starting", "compiling"):
        log.stage = stage
        view.show(SimpleNamespace(log=log, elapsed=1.0))  # type: ignore[arg-type]
    assert capsys.readouterr().err == "patchkit-serve: 1 s: starting\npatchkit-serve: 1 s: compiling\n"


# The runner as a process of its own.


def test_signal_to_the_runner_ends_the_server(fake: Fake) -> None:
    with spawn(fake.command("seven")) as process:
        try:
            wait_for(lambda: is_ready(fake))
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 7
        finally:
            end(process.pid)
    assert fake.left() == []


def test_second_signal_to_the_runner_kills_the_server(fake: Fake) -> None:
    with spawn(fake.command("hangs")) as process:
        try:
            wait_for(lambda: is_ready(fake))
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
            assert is_ready(fake)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=5) == 137
        finally:
            end(process.pid)
    assert fake.left() == []


def test_nothing_is_left_when_the_runner_is_killed(fake: Fake) -> None:
    with spawn(fake.command("stubborn")) as process:
        try:
            wait_for(lambda: is_ready(fake))
            (keeping,) = children(process.pid)
            when = {pid: born(pid) for pid in (keeping, *fake.started())}
            assert len(when) == 6
        finally:
            process.kill()
            process.wait()
        wait_for(lambda: not any(is_running(pid) and born(pid) == at for pid, at in when.items()), 5)


def test_missing_extra_is_named(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "httpx" else object())
    assert run(fake.words("well")) == 1
    assert capsys.readouterr().err == (
        "server-arguments: patchkit-serve needs httpx\n    pip install 'patchkit[serve]'\n"
    )


def test_defect_of_ours_exits_with_3_and_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("a defect")

    monkeypatch.setattr("patchkit.serve_cli.load_catalog", fail)
    assert run(["model"]) == 3
    written = capsys.readouterr().err
    assert "LookupError: a defect" in written
    assert "patchkit-serve failed: this is a defect of patchkit" in written
