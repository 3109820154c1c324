"""Completion in real shells: what they offer, and that nothing else reaches the prompt."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from patchkit import completion, serve_cli
from patchkit.cli import VERBS, cli, run
from patchkit.completion import SHELLS, script, variable
from tests.shells import BIN, Terminal, need
from tests.trees import Tree

TITLE = "The engine takes another model"
Offers = Callable[..., dict[str, str]]


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a folder with the script of each shell."""
    for shell in SHELLS:
        assert run(["completion", shell]) == 0
        (tmp_path / f"patchkit.{shell}").write_text(capsys.readouterr().out)
    return tmp_path


def ask(command: list[str], place: Path, **variables: str) -> str:
    """Run a shell with the tools on its path; nothing may come on the error stream."""
    need(command[0])
    path = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(place), "LANG": "C.UTF-8"}
    done = subprocess.run(command, cwd=place, env={**path, **variables}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_bash(line: str, place: Path) -> dict[str, str]:
    """Return what the function of the script offers for the last of the words."""
    words = line.replace("=", " = ").split(" ")
    array = " ".join(f"'{word}'" for word in words if word or word == words[-1])
    function = f"_{words[0].replace('-', '_')}_completion"
    code = f"""source patchkit.bash; COMP_WORDS=({array}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    {function} {words[0]}; printf '%s\\n' "${{COMPREPLY[@]}}" """
    return {one: "" for one in ask(["bash", "--norc", "-c", code], place).splitlines() if one}


def in_fish(line: str, place: Path) -> dict[str, str]:
    """Return what fish offers, with its descriptions."""
    out = ask(["fish", "--no-config", "-c", f"source patchkit.fish; complete -C '{line}'"], place)
    return dict(one.partition("\t")[::2] for one in out.splitlines())


@pytest.fixture(params=[in_bash, in_fish], ids=["bash", "fish"])
def offers(request: pytest.FixtureRequest, place: Path) -> Offers:
    return lambda line: request.param(line, place)


def test_verbs(offers: Offers) -> None:
    assert list(offers("patchkit ap")) == ["apply"]
    assert set(offers("patchkit ")) == set(VERBS)


def test_options(offers: Offers) -> None:
    assert list(offers("patchkit apply --dr")) == ["--dry-run"]
    assert set(offers("patchkit --")) >= {"--python", "--site", "--root", "--catalog", "--json"}


def test_names_of_the_bundled_catalog(offers: Offers) -> None:
    assert set(offers("patchkit check kimi-k25-s")) == {"kimi-k25-serve"}
    assert set(offers("patchkit diff kimi_k25_i")) == {"kimi_k25_image_token"}


@pytest.mark.parametrize("option", ["--catalog {0} apply ", "apply --catalog {0} ", "--catalog={0} apply "])
def test_names_of_the_catalog_that_is_meant(offers: Offers, tree: Tree, option: str) -> None:
    assert set(offers(f"patchkit {option.format(tree.catalog)}")) == {"all", "engine_models", "worker_unwrap"}


def test_name_is_offered_once(offers: Offers, tree: Tree) -> None:
    assert set(offers(f"patchkit --catalog {tree.catalog} apply all ")) == {"engine_models", "worker_unwrap"}


def test_catalog_in_the_home_folder(offers: Offers, tree: Tree) -> None:
    assert set(offers("patchkit --catalog ~/catalog apply e")) == {"engine_models"}


def test_words_of_the_runner(offers: Offers) -> None:
    assert set(offers("patchkit-serve --set kimi-k25-s")) == {"kimi-k25-serve"}
    assert set(offers("patchkit-serve be")) == {"bench"}
    assert set(offers("patchkit-serve --htm")) == set()
    assert set(offers("patchkit-serve bench --htm")) == {"--html"}


def test_shells_are_offered(offers: Offers) -> None:
    assert list(offers("patchkit completion z")) == ["zsh"]


@pytest.mark.parametrize("text", ["", "schema = 2", "schema = [", None])
def test_broken_catalog_offers_nothing(offers: Offers, tree: Tree, text: str | None) -> None:
    if text is None:
        shutil.rmtree(tree.catalog)
    else:
        (tree.catalog / "targets.toml").write_text(text)
    assert offers(f"patchkit --catalog {tree.catalog} apply e") == {}


def test_descriptions_in_fish(place: Path, tree: Tree) -> None:
    assert in_fish("patchkit ap", place) == {"apply": "Make the selected patches applied, all of them or none."}
    assert in_fish(f"patchkit --catalog {tree.catalog} apply e", place) == {"engine_models": TITLE}


def test_files_in_fish(place: Path) -> None:
    (place / "server.log").write_text("")
    (place / "server").mkdir()
    assert set(in_fish("patchkit explain ser", place)) == {"server.log", "server/"}
    assert set(in_fish("patchkit --site ser", place)) == {"server/"}
    assert set(in_fish("patchkit-serve --draft ser", place)) == {"server/"}


def test_files_in_bash(place: Path) -> None:
    (place / "server.log").write_text("")
    (place / "folder").mkdir()
    with Terminal("bash", place) as terminal:
        terminal.type("source patchkit.bash; echo so''urced\r", "sourced")
        terminal.type("patchkit explain ser\t", "server.log")
        terminal.type("\x15patchkit --site fol\t", "folder/")
        terminal.type("\x15patchkit --catalog=fol\t", "folder/")
        terminal.type("\x15patchkit ap\t", "apply ")


def test_zsh_offers_with_descriptions(place: Path, tree: Tree) -> None:
    (place / "server.log").write_text("")
    (place / "folder").mkdir()
    with Terminal("zsh", place) as terminal:
        terminal.type(
            "autoload -Uz compinit; compinit -u; setopt no_always_last_prompt; source patchkit.zsh; echo so''urced\r",
            "sourced",
        )
        terminal.type("patchkit ap\t", "apply ")
        terminal.type("\x15patchkit re\t", "revert ")
        terminal.type(
            "\x15patchkit c\t", "check ", "-- Fail unless every selected", "completion ", "-- Print the script"
        )
        terminal.type(f"\x15patchkit --catalog {tree.catalog} apply eng\t", "engine_models ")
        terminal.type(f"\x15patchkit --catalog {tree.catalog} apply \t", f"-- {TITLE}")
        terminal.type("\x15patchkit explain ser\t", "server.log")
        terminal.type("\x15patchkit --site fol\t", "folder/")
        terminal.type("\x15patchkit-serve --set kimi-k25-s\t", "kimi-k25-serve")


@pytest.mark.parametrize(
    ("shell", "start"),
    [
        ("bash", "PATH={0}:$PATH"),
        ("zsh", "PATH={0}:$PATH; autoload -Uz compinit; compinit -u"),
        ("fish", "set -x PATH {0} $PATH"),
    ],
)
def test_broken_installation_leaves_the_prompt_alone(place: Path, shell: str, start: str) -> None:
    broken = place / "bin"
    broken.mkdir()
    (broken / "patchkit").write_text(f"#!{sys.executable}\nraise SystemError('on purpose')\n")
    (broken / "patchkit").chmod(0o755)
    with Terminal(shell, place) as terminal:
        terminal.type(f"{start.format(broken)}; source patchkit.{shell}; echo so''urced\r", "sourced")
        terminal.settle()
        terminal.type("patchkit ap\t")
        screen = terminal.settle()
    assert "patchkit ap" in screen
    assert "purpose" not in screen
    assert "Traceback" not in screen


def test_script_is_kept_from_the_prompt() -> None:
    for shell in SHELLS:
        assert script("patchkit", shell).count(" 2>/dev/null)") == 1
    assert "string split --max 1" in script("patchkit", "fish")


def test_runner_without_its_extra_is_not_completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", "zsh"]) == 0
    assert "#compdef patchkit-serve" in capsys.readouterr().out
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert run(["completion", "zsh"]) == 0
    out = capsys.readouterr().out
    assert "#compdef patchkit\n" in out
    assert "patchkit-serve" not in out


def test_names_in_process(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    argument = next(param for param in cli.get_command(click.Context(cli), "apply").params if param.name == "names")
    context = click.Context(cli)
    context.params = {"catalog": tree.catalog, "names": ("all",)}
    found = completion.names(context, argument, "")
    assert {item.value: item.help for item in found}["engine_models"] == TITLE
    context.params = {"catalog": tree.catalog / "nowhere"}
    assert completion.names(context, argument, "") == []
    assert completion.names(click.Context(cli), argument, "kimi_k25_i")[0].value == "kimi_k25_image_token"


@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [
        ("patchkit --catalog = {0} apply e", 5, ["plain,engine_models"]),
        ("patchkit explain ser", 2, ["file,ser"]),
        ("patchkit --root fol", 2, ["dir,fol"]),
        ("patchkit status --exit-c", 2, ["plain,--exit-code"]),
        ("patchkit ap", 1, ["plain,apply"]),
    ],
)
def test_answer_to_bash(
    tree: Tree,
    words: str,
    number: int,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable("patchkit"), "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words.format(tree.catalog))
    monkeypatch.setenv("COMP_CWORD", str(number))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert (ended.value.code, capsys.readouterr().out.splitlines()) == (0, expected)


@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [
        ("patchkit-serve --set kimi-k25-s", 2, ["plain,kimi-k25-serve"]),
        ("patchkit-serve be", 1, ["plain,bench"]),
        ("patchkit-serve fol", 1, ["dir,fol"]),
        ("patchkit-serve bench --htm", 2, ["plain,--html"]),
        ("patchkit-serve bench MODEL -- fol", 4, ["file,fol"]),
    ],
)
def test_answer_of_the_runner(
    words: str, number: int, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable("patchkit-serve"), "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(number))
    with pytest.raises(SystemExit) as ended:
        serve_cli.run([])
    assert (ended.value.code, capsys.readouterr().out.splitlines()) == (0, expected)


def test_completion_loads_no_parser_and_no_tables(tree: Tree) -> None:
    code = (
        "import atexit, sys; heavy = {'libcst', 'rich', 'unidiff', 'difflib', 'subprocess'}; "
        "atexit.register(lambda: print(sorted(heavy & set(sys.modules)), file=sys.stderr)); "
        "from patchkit.cli import run; run([])"
    )
    for words in (f"patchkit --catalog {tree.catalog} apply e", "patchkit "):
        asked = {variable("patchkit"): "fish_complete", "COMP_WORDS": words, "COMP_CWORD": words.split(" ")[-1]}
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True)
        assert done.stderr == "[]\n"
