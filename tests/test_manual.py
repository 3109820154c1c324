"""The help of every verb: it fits a screen, and its examples are lines that the parser takes."""

from __future__ import annotations

import shlex

import click
import pytest

from patchkit import cli, serve_cli
from patchkit.manual import Verb
from tests.support import CATALOG

_ENDS = {"&&", "|", ">", "2>&1"}


def verb(name: str) -> Verb:
    command: click.Command | None = cli.cli
    if name.startswith("patchkit-serve"):
        command, name = serve_cli.bench if name.endswith("bench") else serve_cli.serve, ""
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert isinstance(command, Verb)
    return command


FLEET = tuple(f"fleet {name}" for name in ("status", "check", "apply", "revert"))
NAMES = (*cli.VERBS, *FLEET, "patchkit-serve", "patchkit-serve bench")
EXAMPLES = [(name, line) for name in NAMES for line, _ in verb(name).examples]


def help_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    program = serve_cli.run if words[0] == "patchkit-serve" else cli.run
    assert program([*words[1:], "--help"]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("name", ["", *NAMES])
def test_help_fits(
    name: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    words = name.split() if name.startswith("patchkit-serve") else ["patchkit", *name.split()]
    lines = help_of(words, capsys)
    assert len(lines) < 60
    assert max(map(len, lines)) <= min(columns, 100)
    assert not any(line.endswith("...") for line in lines[1:])


def test_verbs_are_grouped_with_their_whole_first_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(["patchkit"], capsys)
    for title, verbs in cli.GROUPS.items():
        start = lines.index(f"{title}:") + 1
        shown = [line.split(maxsplit=1) for line in lines[start : start + len(verbs)]]
        assert shown == [[name, verb(name).get_short_help_str()] for name in verbs]


@pytest.mark.parametrize("name", NAMES)
def test_help_says_exit_codes_and_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = name.split() if name.startswith("patchkit-serve") else ["patchkit", *name.split()]
    lines = [line.strip() for line in help_of(words, capsys)]
    assert lines[lines.index("Exit codes:") + 1].startswith("0  ")
    shown = lines[lines.index("Examples:") + 1 :]
    assert [line for line in shown if line in dict(verb(name).examples)] == list(dict(verb(name).examples))
    assert 2 <= len(verb(name).examples) <= 3


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_example_parses(name: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    words = shlex.split(line)
    program = name.split()[0] if name.startswith("patchkit-serve") else "patchkit"
    words = words[words.index(program) + 1 :]
    called = " ".join(words[:2]) if name == "fleet" else name
    monkeypatch.setattr(verb(called), "callback", lambda *_, **given: asked.append(given))
    length = next((number for number, word in enumerate(words) if word in _ENDS), len(words))
    run = serve_cli.run if program == "patchkit-serve" else cli.run
    assert run(words[:length]) == 0
    (given,) = asked
    assert CATALOG.select(given.get("names", ())).ids
