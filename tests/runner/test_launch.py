from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit import proof
from patchkit.record import digest
from patchkit.runner import launch
from patchkit.runner.command import Served
from patchkit.runner.launch import Server, Settings, started
from tests.runner.fake import Fake, fake, wait_for

__all__ = ["fake"]


def settings(fake: Fake, **more: object) -> Settings:
    files = {"vllm/core.py": digest((fake.site / "vllm/core.py").read_bytes())}
    given = Settings(str(fake.python), fake.log, files, wanted_gpus="none", ready_timeout=30, interval=0.3)
    return replace(given, **more)  # type: ignore[arg-type]


def served(fake: Fake, act: str = "well") -> Served:
    return Served("some/model", arguments=("--port", str(fake.port), "--act", act))


def quiet(_: object) -> None:
    """Say nothing."""


def test_server_is_ready_proved_and_gone_at_the_end(fake: Fake) -> None:
    stages = []
    with started(served(fake), settings(fake)) as server:
        assert server.wait_ready(lambda seen: stages.append(seen.log.stage))
        assert (stages[0], server.log.stage, server.code) == ("starting", "started", None)
        assert set(server.log.proofs) == set(fake.started())
        assert set(server.log.proofs.values()) == {proof.set_digest(dict(server.settings.files))}
        assert len(fake.left()) == 5
        assert 0 < server.elapsed < 30
    assert fake.left() == []
    assert server.code == 137


def test_pipe_to_the_keeper_is_closed_at_the_end(fake: Fake) -> None:
    with started(served(fake, "dies"), settings(fake)) as server:
        server.keeper.wait(timeout=30)
    try:
        assert server.keeper.stdin is not None and server.keeper.stdin.closed
    finally:
        close(server)


def close(server: Server) -> None:
    """Close the pipe to a keeper that is gone; what was written into it stays unread."""
    assert server.keeper.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        server.keeper.stdin.close()


def test_server_that_dies_is_never_ready(fake: Fake) -> None:
    with started(served(fake, "dies"), settings(fake)) as server:
        assert not server.wait_ready(quiet)
        assert server.watch(quiet) == 1
    assert server.log.last == "ValueError: model is refused"


def test_server_that_loads_too_long_is_not_ready(fake: Fake) -> None:
    with started(served(fake, "loads"), settings(fake, ready_timeout=1)) as server:
        assert not server.wait_ready(quiet)
        assert server.code is None
        assert server.log.stage == "loading the model"
    assert fake.left() == []


def test_work_is_said_at_every_interval_until_a_signal_ends_the_server(fake: Fake) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with started(served(fake, "seven"), settings(fake)) as server:
        assert server.wait_ready(quiet)
        assert server.watch(say) == 7
        assert (server.asked, server.asked_at is not None) == ([signal.SIGTERM], True)
    assert len(said) == 2
    assert all(line.endswith(" tokens/s") for line in said)
    assert fake.left() == []


@pytest.mark.parametrize("act", ["idle", "sick"])
def test_server_that_does_nothing_or_does_not_tell_is_not_talked_about(fake: Fake, act: str) -> None:
    said: list[str] = []
    with started(served(fake, act), settings(fake)) as server:
        assert server.wait_ready(quiet)
        time.sleep(0.3)
        ask, asked = server._ask, []

        def counted(path: str) -> str | None:
            asked.append(path)
            if len(asked) == 2:
                server.stop(at_once=True)
            return ask(path)

        server._ask = counted  # type: ignore[method-assign]
        assert server.watch(said.append) == 137
    assert (said, asked) == ([], ["/metrics", "/metrics"])


def test_answer_that_is_no_metrics_does_not_end_a_server_that_works(fake: Fake) -> None:
    with started(served(fake), settings(fake)) as server:
        assert server.wait_ready(quiet)

        def odd(path: str) -> str:
            server.stop(at_once=True)
            return "<html>busy</html>\n"

        server._ask = odd  # type: ignore[method-assign]
        assert server.watch(quiet) == 137


def test_end_of_a_server_is_heard_at_once(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_CALM", 60)
    with started(served(fake), settings(fake)) as server:
        assert server.wait_ready(quiet)
        threading.Timer(0.5, lambda: server.stop(at_once=True)).start()
        began = time.monotonic()
        assert server.watch(quiet) == 137
        assert time.monotonic() - began < 30


def test_signal_while_it_loads_ends_it(fake: Fake) -> None:
    def show(server: Server) -> None:
        if server.log.stage == "loading the model" and not server.asked:
            os.kill(os.getpid(), signal.SIGINT)

    with started(served(fake, "loads"), settings(fake)) as server:
        assert not server.wait_ready(show)
        assert server.watch(quiet) == 143
        assert server.asked == [signal.SIGINT]


def test_second_signal_kills(fake: Fake) -> None:
    with started(served(fake, "hangs"), settings(fake)) as server:
        assert server.wait_ready(quiet)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)
        assert server.code is None
        os.kill(os.getpid(), signal.SIGINT)
        assert server.watch(quiet) == 137
    assert fake.left() == []


def test_server_that_does_not_end_in_time_is_killed(fake: Fake) -> None:
    with started(served(fake, "hangs"), settings(fake, stop_timeout=0.5)) as server:
        assert server.wait_ready(quiet)
        server.stop()
        assert server.watch(quiet) == 137
        assert server.asked_at is not None
        assert time.monotonic() - server.asked_at > 0.5


def fail(server: Server) -> None:
    assert server.wait_ready(quiet)
    raise LookupError


def test_nothing_is_left_after_an_error(fake: Fake) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(LookupError), started(served(fake, "stubborn"), settings(fake)) as server:
        fail(server)
    assert fake.left() == []
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_nothing_is_left_after_the_keeper_is_killed(fake: Fake) -> None:
    with started(served(fake), settings(fake)) as server:
        assert server.wait_ready(quiet)
        server.keeper.kill()
        server.watch(quiet)
    time.sleep(1)
    assert fake.left() == []


def test_target_without_patchkit_is_given_a_copy_of_the_plugin(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/kept")
    with started(served(fake, "loads"), settings(fake)) as server:
        (folder,) = tmp_path.glob("patchkit-proof-*")
        assert (folder / "patchkit_proof.py").read_bytes() == Path(proof.__file__).read_bytes()
        wait_for(lambda: server.log.read() or server.log.proofs)  # type: ignore[func-returns-value]
        variables = Path(f"/proc/{min(server.log.proofs)}/environ").read_bytes().split(b"\0")
        assert f"PYTHONPATH={folder}:/kept".encode() in variables
    assert not folder.exists()


def test_copy_of_the_plugin_is_found_by_its_metadata(fake: Fake) -> None:
    code = "from importlib.metadata import *; print(*entry_points(group='vllm.general_plugins'))"
    with launch._plugin() as folder:
        command = [str(fake.python), "-c", code]
        done = subprocess.run(command, capture_output=True, check=True, text=True, env={"PYTHONPATH": str(folder)})
    assert "name='patchkit', value='patchkit_proof:verify'" in done.stdout


def test_target_with_patchkit_proves_by_its_own(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with started(served(fake), settings(fake, has_plugin=True)) as server:
        assert server.wait_ready(quiet)
        assert server.log.proofs == {}
        assert list(tmp_path.glob("patchkit-proof-*")) == []


def test_file_that_was_changed_after_the_check_stops_the_server(fake: Fake) -> None:
    with started(served(fake, "tampers"), settings(fake)) as server:
        assert not server.wait_ready(quiet)
        assert server.watch(quiet) == 1
    assert "NotProved: patchkit: this server does not run the patched files: " in server.log.last
    assert fake.started() == []


def test_proofs_of_an_earlier_run_in_the_same_log_do_not_count(fake: Fake) -> None:
    fake.log.write_text("patchkit proof: process 1 has 1 patched files, digest " + "0" * 64 + "\n")
    with started(served(fake), settings(fake)) as server:
        assert server.wait_ready(quiet)
        assert 1 not in server.log.proofs


def test_log_gets_a_folder(fake: Fake, tmp_path: Path) -> None:
    place = tmp_path / "new/folder/server.log"
    with started(served(fake, "dies"), settings(fake, log=place)) as server:
        server.keeper.wait(timeout=30)
    assert b"model is refused" in place.read_bytes()


def test_interpreter_that_is_not_there_is_an_error_of_the_server(fake: Fake) -> None:
    with started(served(fake), settings(fake, python="/nonexistent/python")) as server:
        assert server.keeper.wait(timeout=30) == 1


def test_keeper_is_out_of_reach_of_the_path_of_the_server(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    (fake.pids.parent / "bad").mkdir()
    (fake.pids.parent / "bad/select.py").write_text("raise SystemExit(9)\n")
    monkeypatch.setenv("PYTHONPATH", str(fake.pids.parent / "bad"))
    with started(served(fake, "dies"), settings(fake, python=sys.executable)) as server:
        assert server.keeper.wait(timeout=30) == 1
