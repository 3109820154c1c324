"""``patchkit fleet`` and ``patchkit-serve --fleet`` as a person meets them, on nodes that are threads."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchkit import serve_cli
from patchkit.cli import run
from patchkit.errors import FleetError
from patchkit.findings import Finding
from patchkit.fleet import cluster as cluster_module
from patchkit.fleet import run as run_module
from patchkit.fleet.cluster import Cluster, Progress, connected
from patchkit.fleet.guard import with_address
from patchkit.fleet.nodes import Lost, Node
from patchkit.fleet.report import ENDS, FleetReport, NodeReport
from patchkit.fleet.view import ProgressLine, show, summarise
from tests.fleet.threads import Threads, unseen
from tests.runner.fake import Fake, make_fake
from tests.trees import Tree, make_tree, snapshot

NODES = [Node(f"id{number}", f"node{number}", f"127.0.0.{number}") for number in range(3)]
Lay = Callable[..., Threads]


@pytest.fixture
def trees(tmp_path: Path) -> list[Tree]:
    return [make_tree(tmp_path / node.name) for node in NODES]


@pytest.fixture
def lay(monkeypatch: pytest.MonkeyPatch) -> Lay:
    """Let threads stand where the cluster stands."""

    def lay(sites: list[Path], catalog: Path) -> Threads:
        made = Threads(dict(zip(NODES, sites)), catalog)

        @contextmanager
        def connected(_address: str, _timeout: float, progress: Progress, *_: Any) -> Iterator[Threads]:
            made.__post_init__()
            made._progress = progress
            try:
                yield made
            finally:
                made.close()

        monkeypatch.setattr(run_module, "connected", connected)
        return made

    return lay


@pytest.fixture
def threads(trees: list[Tree], lay: Lay) -> Threads:
    return lay([tree.site for tree in trees], trees[0].catalog)


def call(trees: list[Tree], verb: str, *words: str) -> int:
    return run(["--catalog", str(trees[0].catalog), "fleet", verb, *words])


def test_session(trees: list[Tree], threads: Threads, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(trees, "status") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines()[0].split("  ")[0] == "NODE"
    assert shown.out.splitlines()[-1] == (
        "status: every patch that is for what is installed is in place on 0 of 3 nodes"
    )
    assert call(trees, "status", "--exit-code") == 1
    assert call(trees, "check") == 1
    shown = capsys.readouterr()
    assert (
        "not-applied: all 3 nodes: engine_models is not applied\n    patchkit fleet apply engine_models\n" in shown.err
    )
    assert "check: 3 unpatched, digest " in shown.out
    assert call(trees, "apply", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "apply: 3 planned"
    assert call(trees, "apply") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "apply: 3 written"
    assert call(trees, "check") == 0
    assert "check: 3 nodes agree, all in place, digest " in capsys.readouterr().out
    assert call(trees, "revert", "worker_unwrap", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verb"], report["ok"], report["written"]) == ("fleet revert", True, True)
    assert [row["changes"] for row in report["nodes"]] == [["worker/capture.py"]] * 3
    assert call(trees, "revert") == 0


def test_node_that_is_lost(trees: list[Tree], threads: Threads, capsys: pytest.CaptureFixture[str]) -> None:
    threads.hooks["look", "node1"] = lambda: threads.lose(NODES[1])
    assert call(trees, "status") == 1
    assert "node-lost: node1: the node has died\n    mend the node, give it more time" in capsys.readouterr().err
    threads.answers["look", "node2"] = '{"patches": 7}'
    assert call(trees, "check") == 1
    assert "node-failed: node2: its answer makes no sense" in capsys.readouterr().err


def test_worker_that_is_not_started(
    trees: list[Tree], threads: Threads, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = threads.start

    def refused(parcel: bytes, order: dict[str, object]) -> dict[Node, Any]:
        return {**start(parcel, order), NODES[0]: Lost("its worker has died")}

    monkeypatch.setattr(threads, "start", refused)
    before = [snapshot(tree.site) for tree in trees]
    assert call(trees, "apply") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "apply: 1 lost, 2 as-before"
    assert call(trees, "status") == 1
    assert [snapshot(tree.site) for tree in trees] == before


@pytest.mark.parametrize(("step", "words"), [("plan", "3 as-before"), ("finish", "3 as-before"), ("keep", "3 written")])
def test_interrupt(
    trees: list[Tree], threads: Threads, step: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    threads.hooks[step, "node1"] = interrupt
    assert call(trees, "apply") == 130
    assert capsys.readouterr().out.splitlines()[-1] == f"apply: interrupted; {words}"
    assert all((tree.site / ".patchkit").exists() is (step == "keep") for tree in trees)


def test_interrupt_that_is_swallowed_is_heard_all_the_same(
    trees: list[Tree], threads: Threads, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        with suppress(KeyboardInterrupt):  # as Python does in a callback
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    threads.hooks["plan", "node1"] = interrupt
    before = signal.getsignal(signal.SIGINT)
    assert call(trees, "apply") == 130
    assert capsys.readouterr().out.splitlines()[-1] == "apply: interrupted; 3 as-before"
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupt_that_is_ignored_stays_so(trees: list[Tree], threads: Threads) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup and a shell's background do
    try:
        threads.hooks["plan", "node1"] = lambda: os.kill(os.getpid(), signal.SIGINT)
        assert call(trees, "apply") == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_interrupt_before_any_node_was_asked(
    trees: list[Tree], threads: Threads, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threads, "start", interrupt)
    assert call(trees, "apply", "--json") == 130
    report = json.loads(capsys.readouterr().out)
    assert (report["interrupted"], [row["end"] for row in report["nodes"]]) == (True, ["as-before"] * 3)


@pytest.mark.parametrize(
    "words",
    [
        ["--root", "/mnt", "fleet", "check"],
        ["--python", "python", "--site", "/opt/site", "fleet", "check"],
        ["--site", "site", "fleet", "check"],
        ["fleet", "check", "no-such-patch"],
        ["fleet"],
    ],
)
def test_wrong_usage(words: list[str], threads: Threads) -> None:
    assert run(words) == 2


def test_name_that_only_nodes_may_know(trees: list[Tree], threads: Threads, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(trees, "revert", "a_stray") == 1
    assert "unknown-name: all 3 nodes: 'a_stray' is neither a patch nor a set" in capsys.readouterr().err


def refused(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["fleet", "check", *words]) == 1
    shown = capsys.readouterr()
    assert shown.out == "check: no node was asked\n"
    return shown.err


def test_without_ray(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    err = refused(capsys=capsys)
    assert err.startswith("ray-missing: Ray is not installed here (")
    assert err.endswith("    pip install 'patchkit[fleet]'\n")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "nothing answers at 127.0.0.1:1: Connection refused"),
        ("ray://127.0.0.1:1", "nothing answers at ray://127.0.0.1:1: Connection refused"),
        ("nowhere", "nothing answers at nowhere: "),
    ],
)
def test_address_at_which_nothing_listens(address: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="needs the extra fleet")
    assert refused("--address", address, capsys=capsys).startswith(f"fleet-unreachable: {words}")


def fake_ray(**more: Any) -> SimpleNamespace:
    class RayError(Exception):
        pass

    usual = {"init": lambda **_: None, "shutdown": lambda: None, "nodes": list, "kill": lambda *_, **__: None}
    return SimpleNamespace(**usual, exceptions=SimpleNamespace(RayError=RayError), **more)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Version mismatch: the cluster was started\nwith Ray 2.49", "has another Ray or Python: Version mismatch"),
        ("Could not find any running Ray instance.", "no cluster can be had on this machine: Could not find"),
    ],
)
def test_cluster_that_cannot_be_joined(
    words: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def init(**_: object) -> None:
        raise ConnectionError(words)

    ray = fake_ray()
    ray.init = init
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert expected in refused(capsys=capsys)


@pytest.mark.parametrize(("failures", "attempts"), [(1, 2), (2, 3), (3, 3)])
def test_server_that_loses_the_process_of_a_client(
    failures: int, attempts: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[str] = []

    def init(**_: object) -> None:
        calls.append("init")
        if calls.count("init") <= failures:
            raise ConnectionAbortedError("Initialization failure from server:\npsutil.ZombieProcess")

    ray = fake_ray()
    ray.init, ray.shutdown = init, lambda: calls.append("shutdown")
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(cluster_module, "_refuse_deaf", lambda _: None)
    err = refused("--address", "ray://head:10001", capsys=capsys)
    assert ("Initialization failure" in err) == (failures == 3)
    assert calls == ["init", "shutdown"] * attempts  # the last one ends what was joined, or what was not


def test_cluster_without_a_node_that_is_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", fake_ray())
    err = refused("--address", "auto", "--node", "nobody", capsys=capsys)
    assert err == "fleet-unreachable: no node that is alive is called nobody\n    there is: none at all\n"
    with pytest.raises(FleetError), connected("auto", 1, unseen):
        pass


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("ActorDiedError", "The actor died because its node has died. Node Id: 1", "the node has died"),
        ("NodeDiedError", "", "the node has died"),
        ("ActorUnschedulableError", "", "the node has left the cluster"),
        (
            "RayTaskError(OSError)",
            "Traceback\n  File\nOSError: no space left",
            "its worker failed: OSError: no space left",
        ),
        ("ActorDiedError", "The actor was killed", "its worker has died"),
    ],
)
def test_reasons(name: str, text: str, words: str) -> None:
    assert cluster_module._why(type(name, (Exception,), {})(text)) == words


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("{", "its answer makes no sense: "),
        ("[]", "its answer makes no sense"),
        ('{"died": "it was killed"}', "the process that worked there has died: it was killed"),
    ],
)
def test_answers_that_are_none(answer: str, words: str) -> None:
    cluster = Cluster(fake_ray(get=lambda _: answer), (NODES[0],), 1, unseen)
    found = cluster._take(NODES[0], "ref")
    assert isinstance(found, Lost)
    assert found.reason.startswith(words)
    assert cluster.ask("planning", {NODES[0]: {}}) == {NODES[0]: Lost("it was lost before")}


def test_progress_is_one_line_of_a_terminal() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as reader, os.fdopen(theirs, "w") as writer:
        line = ProgressLine(writer, is_shown=True)
        line("planning", NODES[1:], 3)
        line("planning", NODES[1:], 3)
        line("planning", (), 0)
        line.close()
        wanted = b"\r\x1b[Kplanning: 1 of 3 nodes, waiting for node1, node2\r\x1b[K"
        seen = b""
        while len(seen) < len(wanted):
            seen += reader.read(500)
        assert seen == wanted
    silent = ProgressLine(io.StringIO(), is_shown=True)
    silent("planning", (), 0)
    silent.close()
    quiet = ProgressLine(io.StringIO(), is_shown=False)
    quiet("planning", NODES, 3)
    quiet.close()


def test_every_end_has_a_meaning_and_is_counted() -> None:
    reports = tuple(NodeReport(Node(end, end, ""), end) for end in ENDS)
    words = ", ".join(f"1 {end}" for end in ENDS)
    assert summarise(FleetReport("apply", reports)) == f"apply: {words}"
    assert summarise(FleetReport("check", (*reports[:1], *reports[:1]), (Finding("nodes-differ", "m", ""),))) == (
        "check: 2 agree"
    )


def test_finding_of_several_patches_is_said_once() -> None:
    out, err = io.StringIO(), io.StringIO()
    twice = tuple(Finding("foreign-edit", "m", "h", patch) for patch in ("one", "two"))
    show(FleetReport("check", (NodeReport(NODES[0], "unpatched", findings=twice),)), out, err)
    assert err.getvalue() == "foreign-edit: node0: m\n    h\n"


def test_finding_without_a_hint() -> None:
    out, err = io.StringIO(), io.StringIO()
    show(FleetReport("apply", findings=(Finding("node-failed", "m\x1b[2J", ""),)), out, err)
    assert (out.getvalue(), err.getvalue()) == ("apply: no node was asked\n", "node-failed: m\\x1b[2J\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--fleet", "Kimi-K2.5"], ["--fleet", "auto", "Kimi-K2.5"]),
        (["Kimi-K2.5", "--fleet"], ["Kimi-K2.5", "--fleet", "auto"]),
        (["--fleet", "ray://head:10001", "m"], ["--fleet", "ray://head:10001", "m"]),
        (["--fleet", "head:6379", "m"], ["--fleet", "head:6379", "m"]),
        (["m", "--", "--fleet", "x"], ["m", "--", "--fleet", "x"]),
    ],
)
def test_address_of_a_server_may_be_left_out(words: list[str], expected: list[str]) -> None:
    assert with_address(words) == expected


def serve(fake: Fake, *words: str) -> int:
    options = ["--catalog", str(fake.catalog), "--python", str(fake.python), "--set", "all", "--log", str(fake.log)]
    arguments = ["--port", str(fake.port), "--act", "short"]
    return serve_cli.run([*options, "--gpus", "none", *words, "some/model", "--", *arguments])


@pytest.fixture
def fakes(tmp_path: Path) -> list[Fake]:
    return [make_fake(tmp_path / node.name, patched=True) for node in NODES[:2]]


def test_server_over_nodes_that_agree_is_started(
    fakes: list[Fake], lay: Lay, capsys: pytest.CaptureFixture[str]
) -> None:
    lay([fake.site for fake in fakes], fakes[0].catalog)
    serve(fakes[0], "--fleet")
    err = capsys.readouterr().err
    assert "patchkit-serve: fleet: check: 2 nodes agree, all in place, digest " in err
    assert "nothing was started" not in err


def test_server_over_nodes_that_differ_is_not_started(
    fakes: list[Fake], lay: Lay, capsys: pytest.CaptureFixture[str]
) -> None:
    lay([fake.site for fake in fakes], fakes[0].catalog)
    assert run(["--site", str(fakes[1].site), "--catalog", str(fakes[1].catalog), "revert"]) == 0
    assert serve(fakes[0], "--fleet", "auto") == 1
    shown = capsys.readouterr()
    assert "nodes-differ: " in shown.err
    assert shown.err.endswith("patchkit-serve: nothing was started\n")
    assert not fakes[0].log.exists()


def test_server_over_nodes_with_other_files_than_here_is_not_started(
    fakes: list[Fake], lay: Lay, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lay([fakes[1].site], fakes[0].catalog)
    files = {"vllm/core.py": "0" * 64}
    monkeypatch.setattr("patchkit.runner.serve._files", lambda _: files)
    assert serve(fakes[0], "--fleet") == 1
    assert "all nodes have another vllm/core.py than this machine" in capsys.readouterr().err


def test_catalog_is_refused_before_a_node_is_asked(
    trees: list[Tree], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_module, "connected", None)
    assert run(["--no-code", "--catalog", str(trees[0].catalog), "fleet", "check"]) == 1
    assert capsys.readouterr().err.startswith("code-refused: ")
    assert run(["--json", "--catalog", str(tmp_path / "none"), "fleet", "apply"]) == 1
    assert [one["code"] for one in json.loads(capsys.readouterr().out)["findings"]] == ["catalog-missing"]


def test_no_line_of_a_node_passes_for_one_of_ours() -> None:
    out, err = io.StringIO(), io.StringIO()
    evil = Finding("node-failed", "no\ncheck: 3 nodes agree", "see\ncheck: all in place\x1b[2J")
    show(FleetReport("check", (NodeReport(NODES[0], "lost", findings=(evil,)),)), out, err)
    assert not [line for line in err.getvalue().splitlines() if line.startswith("check")]
    assert "\x1b" not in err.getvalue()


def test_reader_that_has_gone_is_no_error(trees: list[Tree], threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert call(trees, "status") == 0
