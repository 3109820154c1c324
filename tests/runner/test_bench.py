"""``patchkit-serve bench`` with the little server, which is faster where it speculates."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.serve_cli import run
from tests.runner.fake import Fake, fake, wait_for

__all__ = ["fake"]


@pytest.fixture
def line(fake: Fake) -> Callable[..., list[str]]:
    """Return what gives a command line."""

    def make(act: str = "well", *more: str) -> list[str]:
        known = ["--draft", "some/draft", "--num-speculative-tokens", "2", "--output-tokens", "8", "--rounds", "2"]
        found = fake.words(act, *known, *more)
        place = found.index("--interval")
        return ["bench", *found[:place], *found[place + 2 :]]

    return make


def test_both_servers_are_measured_and_compared(
    fake: Fake, line: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "page.html"
    assert run(line("well", "--json", str(figures), "--html", str(page), "--concurrency", "2")) == 0
    out, err = capsys.readouterr()
    rows = out.splitlines()
    assert rows[0].split() == ["WITHOUT", "WITH", "SPECULATION"]
    assert rows[-1].startswith("speculation pays: ") and "acceptance 50%" in rows[-1]
    assert "without speculation: ready after " in err and "with speculation: round 2: " in err
    found = json.loads(figures.read_text())
    assert found["acceptance_by_position"] == [1.0, 0.0]
    assert (found["accepted_length"], found["acceptance_rate"]) == (2.0, 0.5)
    assert 1.02 < found["speed_up"] < 3
    assert len(found["without"]["tokens_per_second"]) == len(found["with"]["tokens_per_second"]) == 2
    assert page.read_text().startswith("<!doctype html>") and "model: 2 speculative tokens" in page.read_text()
    assert fake.left() == []


def test_prompts_of_a_file(line: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\n\ntwo\n")
    assert run(line("well", "--prompts", str(prompts))) == 0
    assert "2 rounds of 2 prompts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("refuses", "the server refuses a prompt: 400 b'no'"),
        ("nameless", "the server does not name its model"),
        ("sick", "tells no metrics"),
        ("dies", "the server without speculation ended with 1 while it started"),
    ],
)
def test_server_that_cannot_be_measured(
    fake: Fake, line: Callable[..., list[str]], act: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line(act)) == 1
    assert said in capsys.readouterr().err
    assert fake.left() == []


def test_server_that_is_not_ready_in_time(line: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line("loads", "--ready-timeout", "1")) == 1
    assert "the server without speculation is not ready in time" in capsys.readouterr().err


def test_interruption_ends_it(fake: Fake, line: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        wait_for(lambda: "Starting to load" in (fake.log.read_text() if fake.log.exists() else ""))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert run(line("loads")) == 1
    thread.join()
    assert "the server without speculation was interrupted" in capsys.readouterr().err
    assert fake.left() == []


def test_interruption_between_rounds_ends_it(
    fake: Fake, line: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from patchkit.runner import bench

    def ask(*words: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return None

    monkeypatch.setattr(bench, "ask_all", ask)
    assert run(line("hangs")) == 1
    assert "the comparison was interrupted" in capsys.readouterr().err
    assert fake.left() == []


def test_what_is_wrong_is_said_before_anything_is_started(
    fake: Fake, line: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    assert run(line("well", "--prompts", str(tmp_path / "empty.txt"))) == 2
    assert run(["bench", "some/model"]) == 2
    assert run(line("well", "--json", str(tmp_path / "none/figures.json"))) == 1
    err = capsys.readouterr().err
    assert "--prompts has no prompt" in err and "give --draft" in err and "figures.json cannot be written" in err
    assert fake.started() == []


def test_unpatched_tree_is_not_measured(
    fake: Fake, line: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    place = fake.site / "vllm/core.py"
    place.write_text(place.read_text() + "# edited\n")
    assert run(line()) == 1
    assert "nothing was started" in capsys.readouterr().err
    assert fake.started() == []
