"""States, told by digests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.catalog import load_catalog
from patchkit.cli import run
from patchkit.environment import Environment
from patchkit.errors import RecordMissing
from patchkit.rewrite import Rewriter
from patchkit.survey import Survey
from tests.trees import ENGINE, WORKER, WORKER_PATCH, Tree, install, list_digests, write_catalog


def survey(tree: Tree) -> Survey:
    return Survey(load_catalog(tree.catalog), Environment(None, (3, 11), (tree.site,)))


def states(tree: Tree) -> dict[str, str]:
    """Return the state of each patch."""
    found = survey(tree)
    return {name: found.state(name).state for name in found.catalog.headers}


def reinstall(tree: Tree, version: str, text: str = ENGINE) -> None:
    """Replace the engine by another release."""
    for metadata in (*tree.site.glob("engine_cpu-*"), *tree.site.glob("engine-*")):
        for file in metadata.iterdir():
            file.unlink()
        metadata.rmdir()
    install(tree.site, "engine-cpu", version, {"engine/__init__.py": "", "engine/core.py": text})


OTHER = ENGINE.replace("return None", "return 0")
FIXED = OTHER.replace('["llama", "qwen"]', "['llama', 'qwen', 'kimi']")


@pytest.mark.parametrize(
    ("version", "text", "state"),
    [
        ("1.5", ENGINE, "pristine"),
        ("1.5", OTHER, "pristine"),
        ("1.5", FIXED, "upstream"),
        ("1.5", OTHER.replace("models =", "known ="), "conflict"),
        ("0.9", OTHER, "not-applicable"),
        ("0.9", ENGINE, "pristine"),
        ("2.0", OTHER, "upstream"),
        ("2.0.post1", OTHER, "upstream"),
        ("2.0rc1", OTHER, "pristine"),
        ("2.0.dev3+gabc", FIXED, "upstream"),
        ("1.9.9+local", OTHER, "pristine"),
    ],
)
def test_state_by_release_and_content(tree: Tree, version: str, text: str, state: str) -> None:
    reinstall(tree, version, text)
    assert states(tree)["engine_models"] == state


def test_listed_upstream_needs_no_parser(tree: Tree) -> None:
    reinstall(tree, "1.6", FIXED)
    list_digests(write_catalog(tree.catalog, {"engine_models": {}}), tree.site, {"engine": "1.6"})
    found = survey(tree)
    assert found.state("engine_models").state == "upstream"
    assert found.is_listed("engine")


def test_foreign_file_is_foreign_for_each_of_its_patches(tree: Tree) -> None:
    tree.engine.write_text("x = 1\n")
    assert states(tree) == {"engine_models": "foreign", "worker_unwrap": "pristine"}


def test_missing_file(tree: Tree) -> None:
    tree.engine.unlink()
    assert states(tree)["engine_models"] == "missing"


def test_file_that_record_does_not_list_is_foreign(tree: Tree) -> None:
    (tree.site / "engine/extra.py").write_text(ENGINE)
    write_catalog(tree.catalog, {"engine_models": {"path": "engine/extra.py"}})
    state = survey(tree).state("engine_models")
    assert state.state == "foreign"
    assert state.reason == "engine/extra.py is in no RECORD of engine-cpu"


def test_file_that_is_no_regular_file_is_foreign(tree: Tree) -> None:
    tree.engine.unlink()
    tree.engine.mkdir()
    state = survey(tree).state("engine_models")
    assert state.state == "foreign"
    assert "cannot be read" in state.reason


def test_broken_installation_is_foreign_with_the_reason(tree: Tree) -> None:
    (tree.site / "engine_cpu-1.5.dist-info/RECORD").unlink()
    state = survey(tree).state("engine_models")
    assert (state.state, type(state.error)) == ("foreign", RecordMissing)


REQUIRING = {**WORKER_PATCH, "requires": '{"engine": ">=1.0,<1.6"}'}


def test_condition_on_another_distribution(tree: Tree) -> None:
    write_catalog(tree.catalog, {"engine_models": {}, "worker_unwrap": REQUIRING})
    assert states(tree)["worker_unwrap"] == "pristine"
    reinstall(tree, "1.7")
    state = survey(tree).state("worker_unwrap")
    assert (state.state, state.reason) == ("not-applicable", "for engine >=1.0 <1.6, and engine-cpu 1.7 is installed")


def test_condition_on_a_distribution_that_is_absent(tree: Tree) -> None:
    write_catalog(tree.catalog, {"worker_unwrap": REQUIRING})
    for metadata in (*tree.site.glob("engine_cpu-*"), *tree.site.glob("engine-*")):
        for file in metadata.iterdir():
            file.unlink()
        metadata.rmdir()
    assert survey(tree).state("worker_unwrap").reason == "for engine >=1.0 <1.6, and it is not installed"


def test_condition_that_breaks_under_an_applied_patch_makes_it_obsolete(tree: Tree) -> None:
    write_catalog(tree.catalog, {"engine_models": {}, "worker_unwrap": REQUIRING})
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    reinstall(tree, "1.7")
    state = survey(tree).state("worker_unwrap")
    assert (state.state, state.is_obsolete) == ("stale", True)
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    assert tree.worker.read_text() == WORKER
    assert states(tree) == {"engine_models": "applied", "worker_unwrap": "not-applicable"}


def revise(tree: Tree, patch_id: str) -> None:
    """Change a patch file without changing what it does."""
    patch = tree.catalog / "patches" / f"{patch_id}.py"
    patch.write_text(patch.read_text() + "\n\n# a remark\n")


def test_revision_that_does_the_same_is_still_applied(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    revise(tree, "engine_models")
    assert states(tree)["engine_models"] == "applied"


def test_only_the_revised_patch_of_a_file_is_stale(tree: Tree) -> None:
    second = {"within": "Engine.stop", "old": "return None", "new": "return 0"}
    both = {"engine_models": {}, "engine_stop": second}
    write_catalog(tree.catalog, both)
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    write_catalog(tree.catalog, {**both, "engine_stop": {**second, "new": "return 1"}})
    assert states(tree) == {"engine_models": "applied", "engine_stop": "stale", "worker_unwrap": "pristine"}


def test_revision_that_conflicts_is_stale(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    write_catalog(tree.catalog, {"engine_models": {"old": "models = []"}})
    assert states(tree)["engine_models"] == "stale"
    assert run([*tree.options(), "revert"]) == 0
    assert tree.engine.read_text() == ENGINE


def test_older_patchkit_that_wrote_the_same_is_applied(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    journal = tree.site / ".patchkit/journal.json"
    journal.write_text(journal.read_text().replace('"patchkit": "0.1.0"', '"patchkit": "0.0.1"'))
    write_catalog(tree.catalog, {"engine_models": {}, "worker_unwrap": WORKER_PATCH})  # nothing listed any more
    assert states(tree) == {"engine_models": "applied", "worker_unwrap": "applied"}


def test_older_patchkit_that_wrote_otherwise_is_stale(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    write_catalog(tree.catalog, {"engine_models": {"new": "models = ['kimi']"}, "worker_unwrap": WORKER_PATCH})
    journal = tree.site / ".patchkit/journal.json"
    document = json.loads(journal.read_text())
    revision = load_catalog(tree.catalog).headers["engine_models"].revision
    document["files"]["engine/core.py"].update(patchkit="0.0.1", patches={"engine_models": revision})
    journal.write_text(json.dumps(document))
    assert states(tree)["engine_models"] == "stale"


def test_unlisted_file_without_a_journal_is_recognised_by_its_code(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    for file in (tree.site / ".patchkit").rglob("*.*"):
        file.unlink()
    for file in (tree.site / ".patchkit/objects").iterdir():
        file.unlink()
    write_catalog(tree.catalog, {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    assert states(tree) == {"engine_models": "applied", "worker_unwrap": "applied"}
    assert run([*tree.options(), "revert"]) == 0
    assert (tree.engine.read_text(), tree.worker.read_text()) == (ENGINE, WORKER)


def test_journal_without_its_json_still_supplies_bytes(tree: Tree) -> None:
    write_catalog(tree.catalog, {"engine_models": {"restore": ""}, "worker_unwrap": WORKER_PATCH})
    list_digests(tree.catalog, tree.site, {"engine": "1.5", "worker": "1.5"})
    assert run([*tree.options(), "apply"]) == 0
    (tree.site / ".patchkit/journal.json").unlink()
    assert run([*tree.options(), "revert"]) == 0
    assert tree.engine.read_text() == ENGINE


def test_pristine_bytes_that_are_lost_are_a_finding(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    write_catalog(tree.catalog, {"engine_models": {"restore": ""}, "worker_unwrap": WORKER_PATCH})
    list_digests(tree.catalog, tree.site, {"engine": "1.5", "worker": "1.5"})
    assert run([*tree.options(), "apply"]) == 0
    for file in (tree.site / ".patchkit/objects").iterdir():
        file.unlink()
    capsys.readouterr()
    assert run([*tree.options(), "revert", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["code"], finding["file"]) == ("pristine-lost", "engine/core.py")
    assert "pip install --force-reinstall --no-deps engine-cpu==1.5" in finding["hint"]
    assert "language_model" in tree.worker.read_text()
    assert states(tree)["engine_models"] == "applied"


def test_patch_beside_one_whose_bytes_are_lost_is_foreign(tree: Tree) -> None:
    second = {"within": "Engine.stop", "old": "return None", "new": "return 0"}
    write_catalog(tree.catalog, {"engine_models": {"restore": ""}, "engine_stop": second})
    assert run([*tree.options(), "apply", "engine_models", "--allow-unlisted"]) == 0
    for file in (tree.site / ".patchkit/objects").iterdir():
        file.unlink()
    assert states(tree)["engine_stop"] == "foreign"


def test_patch_of_another_catalog(tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    second = {"within": "Engine.stop", "old": "return None", "new": "return 0"}
    other = write_catalog(tmp_path / "other", {"engine_stop": second})
    found = survey(replace(tree, catalog=other))
    assert sorted(found.strays()) == ["engine_models", "worker_unwrap"]
    options = ["--site", str(tree.site), "--catalog", str(other)]
    before = tree.engine.read_text()
    capsys.readouterr()
    assert run([*options, "apply", "--allow-unlisted", "--json"]) == 1
    assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["unknown-patch"]
    assert tree.engine.read_text() == before
    assert run([*options, "revert", "engine_models"]) == 0
    assert tree.engine.read_text() == ENGINE
    assert "language_model" in tree.worker.read_text()
    assert run([*options, "apply", "--allow-unlisted"]) == 0
    assert run([*options, "revert"]) == 0
    assert (tree.engine.read_text(), tree.worker.read_text()) == (ENGINE, WORKER)


def test_corrupt_journal_is_a_finding_and_nothing_is_written(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    journal = tree.site / ".patchkit/journal.json"
    for text in ("{", "[]", '{"schema": 2}', "\udcff"):
        journal.write_bytes(text.encode("utf-8", "surrogateescape"))
        for verb in ("check", "apply", "revert"):
            capsys.readouterr()
            assert run([*tree.options(), verb, "--json"]) == 1
            assert "journal-corrupt" in [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]]
    journal.unlink()
    assert run([*tree.options(), "check"]) == 0
    assert run([*tree.options(), "revert"]) == 0
    assert tree.engine.read_text() == ENGINE


def test_uninstalled_target_leaves_a_journal_that_revert_forgets(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    for metadata in (*tree.site.glob("engine*-1.5.dist-info"), tree.site / "worker-1.5.dist-info"):
        for file in metadata.iterdir():
            file.unlink()
        metadata.rmdir()
    assert run([*tree.options(), "revert"]) == 0
    assert not (tree.site / ".patchkit").exists()
    assert run([*tree.options(), "revert"]) == 1  # now it is a run over nothing


def test_files_that_no_list_knows_are_rewritten_at_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(Rewriter, "fold_ahead", lambda _, jobs: asked.append([path for path, _, _ in jobs]))
    found = survey(tree)
    assert [state.state for state in found.states(found.catalog.headers)] == ["pristine", "pristine"]
    assert asked == []  # digests tell
    listed = (tree.catalog / "targets.toml").read_text()
    (tree.catalog / "targets.toml").write_text(listed.partition("[releases")[0])
    found = survey(tree)
    assert [state.state for state in found.states(found.catalog.headers)] == ["pristine", "pristine"]
    assert asked == [["engine/core.py", "worker/capture.py"]]
