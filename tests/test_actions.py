"""The verbs as functions: recovery, contention, several site folders, leftovers."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit import actions, orders, transaction
from patchkit.catalog import load_catalog
from patchkit.cli import run
from patchkit.environment import Environment
from patchkit.errors import Locked, RollbackFailed, TransactionError
from patchkit.journal import read_journal
from patchkit.report import Report
from tests.trees import ENGINE, WORKER, WORKER_PATCH, Tree, install, list_digests, snapshot, write_catalog


def interrupted(tree: Tree, monkeypatch: pytest.MonkeyPatch, verb: str = "apply") -> None:
    """Leave the tree as a run leaves it that dies before it is committed."""
    with monkeypatch.context() as patch:
        patch.setattr(transaction.Transaction, "_finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(transaction.Transaction, "_roll_back", lambda *_: None)
        assert run([*tree.options(), verb]) == 130


def codes(text: str) -> list[str]:
    return [finding["code"] for finding in json.loads(text)["findings"]]


def test_interrupted_run_is_shown_by_reading_verbs_and_left_alone(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(tree, monkeypatch)
    left = snapshot(tree.site)
    for arguments in (["check"], ["status"], ["diff"], ["apply", "--dry-run"], ["revert", "--dry-run"]):
        capsys.readouterr()
        run([*tree.options(), "--json", *arguments])
        assert "interrupted" in codes(capsys.readouterr().out), arguments
    assert snapshot(tree.site) == left


@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_interrupted_run_is_taken_back_first(tree: Tree, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    before = snapshot(tree.site)
    interrupted(tree, monkeypatch)
    assert "kimi" in tree.engine.read_text()
    assert run([*tree.options(), verb]) == 0
    assert run([*tree.options(), "check"]) == (0 if verb == "apply" else 1)
    assert run([*tree.options(), "revert"]) == 0
    assert snapshot(tree.site) == before


def test_interrupted_revert_is_taken_back_first(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run([*tree.options(), "apply"]) == 0
    interrupted(tree, monkeypatch, "revert")
    assert tree.engine.read_text() == ENGINE
    assert run([*tree.options(), "apply"]) == 0
    assert run([*tree.options(), "check"]) == 0


def test_file_reinstalled_after_an_interruption_is_left_alone(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(tree, monkeypatch)
    tree.engine.write_text("new = 1\n")
    tree.worker.unlink()
    assert run([*tree.options(), "apply"]) == 1
    assert tree.engine.read_text() == "new = 1\n"
    assert not tree.worker.exists()
    assert read_journal(tree.site).pending is None


def test_interruption_whose_bytes_are_lost_says_so(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(tree, monkeypatch)
    shutil.rmtree(tree.site / ".patchkit/objects")
    capsys.readouterr()
    assert run([*tree.options(), "--json", "apply"]) == 1
    assert codes(capsys.readouterr().out) == ["rollback-failed"]
    assert read_journal(tree.site).pending is not None


def two_sites(tmp_path: Path) -> tuple[Environment, Path, Path]:
    """Return an environment with the engine in one site folder and the worker in another, and their catalog."""
    sites = tmp_path / "system", tmp_path / "user"
    install(sites[0], "engine", "1.5", {"engine/__init__.py": "", "engine/core.py": ENGINE})
    install(sites[1], "worker", "1.5", {"worker/__init__.py": "", "worker/capture.py": WORKER})
    catalog = write_catalog(tmp_path / "catalog", {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    return Environment(None, (3, 11), sites), catalog, tmp_path


def act(verb: str, environment: Environment, place: Path) -> Report:
    catalog = load_catalog(place)
    if verb == "revert":
        return actions.revert(catalog, environment, (), dry_run=False)
    return actions.apply(catalog, environment, catalog.select(()), allow_unlisted=True, dry_run=False)


def wholes(environment: Environment) -> list[bool]:
    """Return for each site folder whether its file is patched."""
    return [b"patchkit:" in next(site.glob("*/c*.py")).read_bytes() for site in environment.sites]


def test_two_site_folders_change_together(tmp_path: Path) -> None:
    environment, catalog, _ = two_sites(tmp_path)
    before = [snapshot(site) for site in environment.sites]
    assert act("apply", environment, catalog).ok
    assert wholes(environment) == [True, True]
    assert act("revert", environment, catalog).ok
    assert [snapshot(site) for site in environment.sites] == before


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("killed", [True, False])
def test_two_site_folders_are_both_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, killed: bool
) -> None:
    environment, catalog, _ = two_sites(tmp_path)
    finish = transaction.Transaction._finish
    done: list[Path] = []

    def finish_some(self: transaction.Transaction, site: Path) -> None:
        if len(done) == at:
            done.append(site)
            raise KeyboardInterrupt if killed else OSError(5, "Input/output error")
        done.append(site)
        finish(self, site)

    with monkeypatch.context() as patch:
        patch.setattr(transaction.Transaction, "_finish", finish_some)
        if killed:
            patch.setattr(transaction.Transaction, "_roll_back", lambda *_: None)
        expected = KeyboardInterrupt if killed else TransactionError
        if at == 1 and not killed:
            assert act("apply", environment, catalog).ok
        else:
            with pytest.raises(expected):
                act("apply", environment, catalog)
    report = act("apply", environment, catalog)
    assert report.ok
    assert wholes(environment) == [True, True]
    assert report.is_written is (at == 0)
    assert act("revert", environment, catalog).ok


def test_other_runs_that_keep_changing_the_tree(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_is_current", lambda *_: False)
    catalog = load_catalog(tree.catalog)
    with pytest.raises(Locked, match="keep changing the tree"):
        actions.apply(
            catalog, Environment(None, (3, 11), (tree.site,)), catalog.select(()), allow_unlisted=False, dry_run=False
        )
    assert tree.engine.read_text() == ENGINE


def test_run_that_waited_plans_again(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Callable[[], object]] = [lambda: run([*tree.options(), "apply", "worker_unwrap"])]
    real = orders._transaction

    def late(*arguments: object) -> object:
        if held:
            held.pop()()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(orders, "_transaction", late)
    assert run([*tree.options(), "apply", "engine_models"]) == 0
    assert run([*tree.options(), "check"]) == 0


def test_empty_journal_folder_of_a_killed_run_goes_with_revert(tree: Tree) -> None:
    before = snapshot(tree.site)
    (tree.site / ".patchkit/objects").mkdir(parents=True)
    (tree.site / ".patchkit/objects/.x.new").write_text("half")
    assert run([*tree.options(), "revert"]) == 0
    assert snapshot(tree.site) == before


def test_obsolete_entry_is_dropped_when_something_is_written(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    tree.engine.write_text(ENGINE)  # as a reinstall does
    assert run([*tree.options(), "revert", "worker_unwrap"]) == 0
    assert not (tree.site / ".patchkit").exists()


def test_journal_of_a_target_that_cannot_be_looked_into_is_kept(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    record = tree.site / "engine_cpu-1.5.dist-info/RECORD"
    data = record.read_bytes()
    record.unlink()
    assert run([*tree.options(), "revert", "worker_unwrap"]) == 0
    record.write_bytes(data)
    assert run([*tree.options(), "revert"]) == 0
    assert tree.engine.read_text() == ENGINE


def test_failure_that_cannot_be_taken_back_is_told(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def full(*_args: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(transaction, "swap", full)
        patch.setattr(transaction.Transaction, "_settle", full)
        catalog = load_catalog(tree.catalog)
        environment = Environment(None, (3, 11), (tree.site,))
        with pytest.raises(RollbackFailed, match=re.escape("No space left on device")) as caught:
            actions.apply(catalog, environment, catalog.select(()), allow_unlisted=False, dry_run=False)
    assert "takes the unfinished run back first" in caught.value.hint
    assert run([*tree.options(), "apply"]) == 0


def test_file_that_reads_back_differently_is_taken_back(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(tree.site)
    with monkeypatch.context() as patch:
        real = transaction.stage

        def torn(place: Path, temporary: Path, data: bytes, link: str | None, root: Path | None) -> None:
            real(place, temporary, data[:-5] if b"patchkit" in data else data, link, root)

        patch.setattr(transaction, "stage", torn)
        assert run([*tree.options(), "apply"]) == 1
        assert tree.engine.read_text() != ENGINE  # neither before nor after: nothing to roll back by digest
    tree.engine.write_text(ENGINE)
    tree.worker.write_text(WORKER)
    assert snapshot(tree.site) == before


def test_folder_that_cannot_be_tidied_is_told(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*tree.options(), "apply"]) == 0
    (tree.site / ".patchkit/objects/folder").mkdir()
    capsys.readouterr()
    assert run([*tree.options(), "--json", "revert"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["code"] == "write-failed"
    assert finding["message"].startswith("the files are as asked, but")
    assert tree.engine.read_text() == ENGINE


def test_patch_changed_without_its_digests_is_refused(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    patch = tree.catalog / "patches/engine_models.py"
    patch.write_text(patch.read_text().replace("'kimi'", "'kimi_k2'"))
    assert run([*tree.options(), "--json", "apply"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["file"]) == ("rewrite-unsound", "engine/core.py")
    assert "targets.toml lists" in finding["message"]
    assert (tree.engine.read_text(), tree.worker.read_text()) == (ENGINE, WORKER)


def test_patch_that_a_listed_file_does_not_list_is_examined(tree: Tree, tmp_path: Path) -> None:
    second = {"within": "Engine.stop", "old": "return None", "new": "return 0"}
    one = write_catalog(tmp_path / "one", {"engine_models": {}})
    list_digests(one, tree.site, {"engine": "1.5"})
    (one / "patches/engine_stop.py").write_text(
        (write_catalog(tmp_path / "two", {"engine_stop": second}) / "patches/engine_stop.py").read_text()
    )
    options = ["--site", str(tree.site), "--catalog", str(one)]
    assert run([*options, "apply", "engine_stop"]) == 0
    assert "return 0" in tree.engine.read_text()


def test_links_to_nowhere_come_back_as_files(tree: Tree, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    shared.write_text(ENGINE)
    tree.engine.unlink()
    tree.engine.symlink_to(shared)
    assert run([*tree.options(), "apply"]) == 0
    shared.unlink()
    assert run([*tree.options(), "revert"]) == 0
    assert not tree.engine.is_symlink()
    assert tree.engine.read_text() == ENGINE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_bytecode_folder_that_cannot_be_read_is_a_finding(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    (tree.engine.parent / "__pycache__").mkdir(mode=0)
    assert run([*tree.options(), "--json", "check"]) == 1
    assert codes(capsys.readouterr().out) == ["file-unreadable"]


def test_revert_that_took_nothing_back_is_a_finding(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*tree.options(), "apply"]) == 0
    monkeypatch.setattr(transaction.Transaction, "commit", lambda *_: None)
    capsys.readouterr()
    assert run([*tree.options(), "--json", "revert"]) == 1
    assert codes(capsys.readouterr().out) == ["still-applied", "still-applied"]
