"""All nodes or none: each step of a rollout, broken on one node, on real trees."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.fleet import work as work_module
from patchkit.fleet.nodes import Node
from patchkit.fleet.rollout import Rollout
from patchkit.journal import read_journal
from tests.fleet.threads import Threads
from tests.runner.fake import wait_for
from tests.trees import make_tree, snapshot

ORDER = {"names": [], "python": None, "site": None, "allow_unlisted": False, "dry_run": False}


class Fleet:
    """Nodes with a tree each, and what the trees were."""

    def __init__(self, folder: Path, count: int, shared: int = 0) -> None:
        self.trees = [make_tree(folder / f"node{number}") for number in range(count)]
        self.nodes = [Node(f"id{number}", f"node{number}", f"127.0.0.{number}") for number in range(count)]
        sites = [tree.site for tree in self.trees]
        sites[1 : 1 + shared] = [sites[0]] * shared
        self.cluster = Threads(dict(zip(self.nodes, sites)), self.trees[0].catalog)
        self.before = self.snapshots()

    def snapshots(self) -> list[dict[str, tuple[int, int, int, bytes]]]:
        return [snapshot(tree.site) for tree in self.trees]

    def run(self, verb: str = "apply", *, keep_going: bool = False, dry_run: bool = False) -> list[str]:
        self.rollout = Rollout(self.cluster, keep_going, dry_run)
        order = {**ORDER, "verb": verb, "dry_run": dry_run}
        try:
            self.rollout.start(self.cluster.start(b"", order))
            self.rollout.run()
        finally:
            self.cluster.close()
        return [self.rollout.ends[node].end for node in self.nodes]

    def codes(self) -> list[str]:
        return [finding.code for node in self.nodes for finding in self.rollout.ends[node].findings]

    def is_applied(self, number: int) -> bool:
        return run([*self.trees[number].options(), "--catalog", str(self.trees[0].catalog), "check"]) == 0


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, 3)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "_LATE", 1.0)


def test_apply_and_revert(fleet: Fleet) -> None:
    assert fleet.run() == ["written"] * 3
    assert all(fleet.is_applied(number) for number in range(3))
    assert fleet.run() == ["nothing-to-do"] * 3
    assert fleet.run("revert") == ["written"] * 3
    assert fleet.snapshots() == fleet.before


def test_dry_run_writes_nothing(fleet: Fleet) -> None:
    assert fleet.run(dry_run=True) == ["planned"] * 3
    assert fleet.rollout.ends[fleet.nodes[0]].told.changes == ("engine/core.py", "worker/capture.py")
    assert fleet.snapshots() == fleet.before


def test_one_that_refuses_lets_nobody_write(fleet: Fleet) -> None:
    fleet.trees[1].engine.write_text("x = 1\n")
    before = fleet.snapshots()
    assert fleet.run() == ["planned", "refused", "planned"]
    assert fleet.codes() == ["foreign-edit"]
    assert fleet.snapshots() == before


def test_keep_going_leaves_out_the_one_that_refuses(fleet: Fleet) -> None:
    fleet.trees[1].engine.write_text("x = 1\n")
    assert fleet.run(keep_going=True) == ["written", "refused", "written"]
    assert fleet.is_applied(0)


@pytest.mark.parametrize("step", ["plan", "light", "seek", "douse"])
def test_node_lost_before_anything_is_written(fleet: Fleet, step: str) -> None:
    fleet.cluster.hooks[step, "node1"] = lambda: fleet.cluster.lose(fleet.nodes[1])
    ends = fleet.run()
    assert ends[1] == "lost"
    assert fleet.codes() == ["node-lost"]
    assert "written" not in ends
    assert fleet.snapshots() == fleet.before


@pytest.mark.parametrize("step", ["write", "finish"])
def test_node_lost_while_it_writes_takes_the_others_back(fleet: Fleet, step: str) -> None:
    fleet.cluster.hooks[step, "node1"] = lambda: fleet.cluster.lose(fleet.nodes[1])
    assert fleet.run() == ["as-before", "unknown", "as-before"]
    assert fleet.codes() == ["node-lost"]
    assert fleet.snapshots() == fleet.before  # whoever is not listened to has taken back what it wrote


def test_node_lost_while_it_writes_may_be_left_behind(fleet: Fleet) -> None:
    fleet.cluster.hooks["write", "node1"] = lambda: fleet.cluster.lose(fleet.nodes[1])
    assert fleet.run(keep_going=True) == ["written", "unknown", "written"]
    assert [fleet.is_applied(number) for number in range(3)] == [True, False, True]


def test_node_lost_after_it_has_committed_stays_committed(fleet: Fleet) -> None:
    fleet.cluster.hooks["keep", "node1"] = lambda: fleet.cluster.lose(fleet.nodes[1])
    assert fleet.run() == ["written"] * 3
    assert fleet.codes() == ["node-lost"]
    assert all(fleet.is_applied(number) for number in range(3))


def test_tree_that_changes_after_the_plan_is_not_written(fleet: Fleet) -> None:
    fleet.cluster.hooks["write", "node2"] = lambda: fleet.trees[2].engine.write_text("x = 1\n") and None
    assert fleet.run() == ["as-before", "as-before", "refused"]
    assert fleet.codes() == ["plan-outdated"]
    assert [*fleet.snapshots()[:2]] == fleet.before[:2]
    assert fleet.trees[2].engine.read_text() == "x = 1\n"


def test_what_is_committed_and_not_as_asked_is_taken_back(fleet: Fleet) -> None:
    """The last to commit finds its tree changed: the others have committed and go back to the byte."""

    def edit() -> None:
        fleet.trees[2].worker.write_text("x = 1\n")

    fleet.cluster.hooks["finish", "node2"] = edit
    assert fleet.run() == ["as-before"] * 3
    assert "foreign-edit" in fleet.codes()
    assert fleet.snapshots()[:2] == fleet.before[:2]
    assert not (fleet.trees[2].site / ".patchkit").exists()


def test_only_what_this_run_changed_is_taken_back(fleet: Fleet) -> None:
    assert run([*fleet.trees[0].options(), "apply", "worker_unwrap"]) == 0
    before = fleet.snapshots()
    journal = read_journal(fleet.trees[0].site)
    fleet.cluster.hooks["finish", "node1"] = lambda: fleet.cluster.lose(fleet.nodes[1])
    assert fleet.run() == ["as-before", "unknown", "as-before"]
    after = read_journal(fleet.trees[0].site)
    assert (after.files, after.pending, after.last) == (journal.files, None, journal.last)
    assert fleet.snapshots() == before


@pytest.mark.parametrize(
    ("answer", "end"), [('{"findings": 7}', "refused"), ('{"patches": [{}]}', "refused"), ('{"sites": []}', "refused")]
)
def test_answer_that_makes_no_sense_is_a_refusal(fleet: Fleet, answer: str, end: str) -> None:
    fleet.cluster.answers["plan", "node0"] = answer
    assert fleet.run() == [end, "planned", "planned"]
    assert fleet.codes() == ["node-failed"]
    assert fleet.snapshots() == fleet.before


def test_another_plan_than_the_verified_one_is_not_written(fleet: Fleet) -> None:
    site = fleet.trees[0].site
    fleet.cluster.answers["plan", "node0"] = f'{{"sites": {{"{site}": "another"}}}}'
    assert fleet.run() == ["refused", "as-before", "as-before"]
    assert fleet.codes() == ["plan-outdated"]
    assert fleet.snapshots() == fleet.before


def test_rollback_that_fails_leaves_an_unknown_end(fleet: Fleet) -> None:
    row = '{"code": "rollback-failed", "message": "m", "hint": "h"}'
    fleet.cluster.answers["write", "node0"] = f'{{"findings": [{row}]}}'
    fleet.cluster.answers["undo", "node1"] = f'{{"findings": [{row}]}}'
    assert fleet.run() == ["unknown", "unknown", "as-before"]
    assert fleet.codes() == ["rollback-failed", "rollback-failed"]


def test_node_lost_while_it_takes_back(fleet: Fleet) -> None:
    fleet.cluster.hooks["write", "node1"] = lambda: fleet.cluster.lose(fleet.nodes[1])
    fleet.cluster.hooks["undo", "node2"] = lambda: fleet.cluster.lose(fleet.nodes[2])
    assert fleet.run() == ["as-before", "unknown", "unknown"]
    assert fleet.snapshots() == fleet.before


def test_one_writes_the_folder_that_several_see(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 4, shared=2)
    assert fleet.run() == ["written", "shared", "shared", "written"]
    assert [fleet.rollout.ends[node].shares_with for node in fleet.nodes] == [None, "node0", "node0", None]
    assert fleet.is_applied(0)
    assert fleet.is_applied(3)
    assert not list(fleet.trees[0].site.glob(".patchkit/.beacon-*"))
    assert fleet.run("revert") == ["written", "shared", "shared", "written"]
    assert fleet.snapshots() == fleet.before


def test_shared_folder_goes_back_with_its_writer(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3, shared=1)
    fleet.cluster.hooks["verify", "node1"] = lambda: fleet.cluster.lose(fleet.nodes[1])
    assert fleet.run() == ["as-before", "lost", "as-before"]
    assert fleet.snapshots() == fleet.before


def test_who_has_seen_what_another_wrote_goes_back_with_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3, shared=2)
    fleet.cluster.hooks["verify", "node2"] = lambda: fleet.cluster.lose(fleet.nodes[2])
    assert fleet.run() == ["as-before", "as-before", "lost"]
    assert fleet.snapshots() == fleet.before


def test_writer_of_a_shared_folder_that_is_lost(tmp_path: Path) -> None:
    """With --keep-going the others go on; who waits for the lost one says that nothing came."""
    fleet = Fleet(tmp_path, 3, shared=1)
    fleet.cluster.hooks["write", "node0"] = lambda: fleet.cluster.lose(fleet.nodes[0])
    assert fleet.run(keep_going=True) == ["unknown", "refused", "written"]
    assert fleet.codes() == ["node-lost", "not-applied", "not-applied"]


def interrupted(fleet: Fleet, step: str) -> Rollout:
    """Return a run that was interrupted in a step, brought to its end."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    fleet.cluster.hooks[step, "node1"] = interrupt
    rollout = Rollout(fleet.cluster, False, False)
    rollout.start(fleet.cluster.start(b"", {**ORDER, "verb": "apply"}))
    with pytest.raises(KeyboardInterrupt):
        rollout.run()
    rollout.settle()
    fleet.cluster.close()
    return rollout


def test_interrupt_brings_every_node_back(fleet: Fleet) -> None:
    rollout = interrupted(fleet, "finish")
    assert [rollout.ends[node].end for node in fleet.nodes] == ["as-before"] * 3
    assert fleet.snapshots() == fleet.before


def test_interrupt_after_the_decision_keeps_all(fleet: Fleet) -> None:
    rollout = interrupted(fleet, "keep")
    assert [rollout.ends[node].end for node in fleet.nodes] == ["written"] * 3
    assert all(fleet.is_applied(number) for number in range(3))


def test_driver_that_is_gone_after_the_commitment_leaves_it(fleet: Fleet) -> None:
    fleet.cluster.start(b"", {**ORDER, "verb": "apply"})
    rollout = Rollout(fleet.cluster, False, False)
    rollout.start({node: {} for node in fleet.nodes})
    assert rollout._plan()
    assert rollout._share()
    assert rollout._write(fleet.nodes)
    assert rollout._finish()
    fleet.cluster.close()
    assert all(fleet.is_applied(number) for number in range(3))


def test_folder_that_nobody_can_write(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    (fleet.trees[1].site / ".patchkit").write_text("")  # a file where the folder goes: root may write anywhere
    before = fleet.snapshots()
    assert fleet.run() == ["planned", "refused", "planned"]
    assert fleet.codes() == ["write-failed"]
    assert fleet.snapshots() == before


def test_sixty_four_nodes(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 64)
    fleet.cluster.hooks["finish", "node50"] = lambda: fleet.cluster.lose(fleet.nodes[50])
    ends = fleet.run()
    assert ends.count("as-before") == 63
    assert fleet.snapshots() == fleet.before
    assert fleet.run() == ["written"] * 64


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    # One that has ended stands in the list for a moment still.
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("Thread-")])
