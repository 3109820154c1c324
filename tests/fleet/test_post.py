"""The process on a node: what is shipped is all it needs, and whoever goes away takes nothing half done with it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from patchkit.errors import Abandoned, TransactionError
from patchkit.fleet import beacon, process
from patchkit.fleet.channel import Channel
from patchkit.fleet.parcel import closure, pack
from patchkit.fleet.post import Post
from patchkit.fleet.work import Work, serve
from patchkit.journal import FOLDER, read_journal
from tests.fleet.raylets import wait_for
from tests.trees import Tree, snapshot

ORDER = {"verb": "apply", "names": [], "python": None, "allow_unlisted": False, "dry_run": False}
MEANT = {"libcst", "tomli", "packaging", "unidiff"}


def order(tree: Tree, **more: object) -> str:
    return json.dumps({**ORDER, "site": str(tree.site), **more})


def ask(post: Post, step: str, **more: object) -> dict[str, object]:
    answer = json.loads(post.ask(json.dumps({"do": step, **more})))
    assert isinstance(answer, dict)
    return answer


def names(parcel: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(parcel)).namelist()


def renamed(parcel: bytes) -> bytes:
    """Return a parcel whose compiled modules are for another machine."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(parcel)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            parts = name.split("/")
            other = "/".join([parts[0], ".another.so", *parts[2:]]) if parts[0] == "native" else name
            target.writestr(other, source.read(name))
    return out.getvalue()


class Posts:
    """Makes what stands on a node, and ends it."""

    def __init__(self) -> None:
        self.made: list[Post] = []

    def __call__(self) -> Post:
        self.made.append(Post())
        return self.made[-1]

    def close(self) -> None:
        for post in self.made:
            for file in (post._input, post._output, post._log):
                assert file is not None
                with suppress(BrokenPipeError):
                    file.close()


@pytest.fixture
def posts() -> Iterator[Posts]:
    made = Posts()
    yield made
    made.close()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a node have an interpreter with nothing installed, and a folder for temporary files of its own."""
    venv.create(tmp_path / "bare", symlinks=True)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare/bin/python"))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary


def test_parcel_has_what_nodes_need(tree: Tree) -> None:
    found = names(pack(tree.catalog))
    assert {found.metadata["Name"].lower() for found in closure(["patchkit"])} >= MEANT
    assert f"pure/patchkit/fleet/{Path(str(process.__file__)).name}" in found
    assert f"pure/patchkit-{version('patchkit')}.dist-info/METADATA" in found
    assert [name for name in found if name.startswith("catalog/")] == [
        "catalog/patches/engine_models.py",
        "catalog/patches/worker_unwrap.py",
        "catalog/targets.toml",
    ]
    assert not [name for name in found if "/rich/" in name or "/click/" in name or name.endswith(".pyc")]
    (tree.catalog / "patches" / "__pycache__").mkdir()
    assert names(pack(tree.catalog)) == found


def test_nothing_needs_to_be_installed(tree: Tree, posts: Posts, bare: Path) -> None:
    before, post = snapshot(tree.site), posts()
    hello = json.loads(post.start(pack(tree.catalog), order(tree)))
    assert os.getpgid(hello["pid"]) == hello["pid"] != os.getpid()  # nobody's child, in a session of its own
    plan = ask(post, "plan")
    assert (plan["findings"], list(plan["sites"])) == ([], [str(tree.site)])  # type: ignore[call-overload]
    assert ask(post, "write", sites=plan["sites"], others=[]) == {"state": "written"}
    assert ask(post, "finish")["state"] == "finished"
    assert ask(post, "keep") == {"state": "kept"}
    assert ask(post, "undo") == {"state": "kept"}  # too late, and said so
    assert read_journal(tree.site).pending is None
    assert post._input is not None
    post._input.close()
    wait_for(lambda: not list(bare.iterdir()))
    assert snapshot(tree.site) != before


def test_process_that_nobody_listens_to_takes_back_what_it_wrote(tree: Tree, posts: Posts, bare: Path) -> None:
    before, post = snapshot(tree.site), posts()
    post.start(pack(tree.catalog), order(tree))
    plan = ask(post, "plan")
    assert ask(post, "write", sites=plan["sites"], others=[]) == {"state": "written"}
    assert snapshot(tree.site) != before
    assert post._input is not None
    post._input.close()  # as when the worker is killed
    wait_for(lambda: not list(bare.iterdir()))
    assert snapshot(tree.site) == before


@pytest.mark.parametrize(("number", "words"), [(signal.SIGKILL, "it was killed"), (signal.SIGTERM, "it was killed")])
def test_process_that_dies(tree: Tree, posts: Posts, bare: Path, number: int, words: str) -> None:
    before, post = snapshot(tree.site), posts()
    pid = json.loads(post.start(pack(tree.catalog), order(tree)))["pid"]
    plan = ask(post, "plan")
    assert ask(post, "write", sites=plan["sites"], others=[]) == {"state": "written"}
    os.kill(pid, number)
    assert ask(post, "finish") == {"died": words}
    assert ask(post, "undo") == {"died": words}
    assert (snapshot(tree.site) == before) is (number == signal.SIGTERM)


def test_process_that_fails_says_why(tree: Tree, posts: Posts, bare: Path) -> None:
    post = posts()
    post.start(pack(tree.catalog), order(tree))
    assert "a plan comes first" in str(ask(post, "light", name=f"{'a' * 16}-1")["died"])


def test_machine_of_another_kind_uses_its_own_compiled_modules(
    tree: Tree, posts: Posts, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parcel = renamed(pack(tree.catalog))
    post = posts()
    post.start(parcel, order(tree, verb="status"))
    assert ask(post, "look")["ok"] is False  # which needs none
    post = posts()
    post.start(parcel, order(tree))
    (finding,) = ask(post, "plan")["findings"]  # type: ignore[misc]
    assert finding["code"] == "node-failed"
    assert finding["message"] == "what was shipped cannot be loaded: No module named 'libcst'"
    assert "pip install 'libcst>=1.9'" in finding["hint"]
    monkeypatch.undo()
    post = posts()
    post.start(parcel, order(tree))
    assert ask(post, "plan")["findings"] == []


def test_target_of_an_interpreter(tree: Tree, posts: Posts, bare: Path, tmp_path: Path) -> None:
    """Without a site folder the node's own interpreter is asked, or the one that is named."""
    (other,) = (tmp_path / "bare").glob("lib/python3*/site-packages")
    (other / "tree.pth").write_text(f"{tree.site}\n")
    for python in (None, sys.executable):
        post = posts()
        post.start(pack(tree.catalog), order(tree, site=None, python=python, verb="check"))
        told = ask(post, "look")
        assert told["environment"]["python"] == sys.executable  # type: ignore[index]
        assert {row["site"] for row in told["targets"]} == {str(tree.site)}  # type: ignore[attr-defined]
    post = posts()
    post.start(pack(tree.catalog), order(tree, site=None, python="/nowhere/python"))
    assert ask(post, "plan")["findings"][0]["code"] == "environment-invalid"  # type: ignore[index]


def test_modules_that_cannot_be_loaded_are_said(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where temporary files may not be run: it is not the patches' fault."""
    told = io.BytesIO()
    channel = Channel(io.BytesIO(b'{"do": "plan"}\n'), told)
    for name in [name for name in sys.modules if name.partition(".")[0] == "libcst"]:
        monkeypatch.setitem(sys.modules, name, None)
    serve(channel, Work(channel, tree.catalog, json.loads(order(tree))))
    (finding,) = json.loads(told.getvalue())["findings"]
    assert finding["code"] == "node-failed"


def test_interpreter_is_asked_where_no_folder_is_named(tree: Tree) -> None:
    asked = json.loads(order(tree, site=None, verb="status"))
    told = Work(Channel(io.BytesIO(), io.BytesIO()), tree.catalog, asked).look({})
    assert told["environment"]["python"] == sys.executable  # type: ignore[index]


def test_wait_for_what_another_node_wrote(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is seen late is looked at again."""
    work = Work(Channel(io.BytesIO(), io.BytesIO()), tree.catalog, json.loads(order(tree)))
    assert work.plan({})["ok"] is True
    asleep: list[float] = []

    def sleep(seconds: float) -> None:
        asleep.append(seconds)
        own = [sys.executable, "-m", "patchkit", *tree.options(), "apply"]
        subprocess.run(own, check=True, capture_output=True)

    monkeypatch.setattr(time, "sleep", sleep)
    assert work.verify({})["ok"] is True
    assert asleep == [1]


def test_channel_that_nobody_reads() -> None:
    source, sink = os.pipe()
    os.close(source)
    with os.fdopen(sink, "wb", buffering=0) as file, pytest.raises(Abandoned):
        Channel(io.BytesIO(), file).say({})


def test_channel_takes_only_tables_and_whole_lines(tree: Tree) -> None:
    told = io.BytesIO()
    channel = Channel(io.BytesIO(b'7\n{"do": "jump"}\n{"do": "loo'), told)
    serve(channel, Work(channel, tree.catalog, json.loads(order(tree))))
    assert told.getvalue() == b'{"state": "as-before"}\n' * 2


def test_beacons(tmp_path: Path) -> None:
    name, other = f"{'a' * 16}-0", f"{'b' * 16}-1"
    assert beacon.light(tmp_path, name) is None
    assert beacon.light(tmp_path, name) == "File exists"
    old = tmp_path / FOLDER / f".beacon-{other}"
    old.touch()
    os.utime(old, (0, 0))
    assert beacon.seen(tmp_path, [name, other]) == [name, other]
    assert beacon.light(tmp_path, f"{'c' * 16}-2") is None
    assert beacon.seen(tmp_path, [name, other]) == [name]
    beacon.douse(tmp_path, f"{'c' * 16}-2")
    beacon.douse(tmp_path, name)
    beacon.douse(tmp_path, name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TransactionError, match="no name of a beacon"):
        beacon.light(tmp_path, "../x")


def test_beacon_is_left_in_a_folder_like_that_of_apply(tree: Tree) -> None:
    """What others could write would not count as a journal; a link is not followed."""
    before = os.umask(0o002)
    try:
        assert beacon.light(tree.site, f"{'a' * 16}-0") is None
        assert (tree.site / FOLDER).stat().st_mode & 0o022 == 0
    finally:
        os.umask(before)
    beacon.douse(tree.site, f"{'a' * 16}-0")
    (tree.site.parent / "elsewhere").mkdir()
    (tree.site / FOLDER).symlink_to("../elsewhere")
    assert "no folder by now" in str(beacon.light(tree.site, f"{'a' * 16}-0"))
    beacon.douse(tree.site, f"{'a' * 16}-0")
    assert (tree.site / FOLDER).is_symlink() and not list((tree.site.parent / "elsewhere").iterdir())
