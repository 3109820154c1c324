"""``patchkit statement``, held against the schema of CycloneDX and read by its library."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from patchkit import statement
from patchkit.cli import run
from tests.trees import ENGINE, WORKER_PATCH, Tree, install, patch_text, snapshot, write_catalog


@pytest.fixture(autouse=True)
def no_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no date of the machine that tests come into a document."""
    monkeypatch.delenv(statement.VARIABLE, raising=False)


def stated(tree: Tree, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the document, which the schema accepts and the library reads."""
    capsys.readouterr()
    assert run([*tree.options(), "statement"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(out) is None
    document: dict[str, Any] = json.loads(out)
    bom = Bom.from_json(document)
    assert len(bom.components) == len(document["components"])
    return document


def refused(tree: Tree, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the codes of the findings for which nothing is stated."""
    capsys.readouterr()
    assert run([*tree.options(), "statement"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("statement: ")
    return [line.partition(":")[0] for line in err.splitlines()[:-1] if not line.startswith(" ")]


def sha256(data: bytes) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]


def test_pristine_distributions_have_no_pedigree(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    purl = "pkg:pypi/engine-cpu@1.5"
    assert stated(tree, capsys)["components"][0] == {
        "type": "library",
        "name": "engine-cpu",
        "version": "1.5",
        "purl": purl,
        "bom-ref": purl,
    }


def test_changed_distribution_descends_from_its_wheel(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply", "engine_models"]) == 0
    before = snapshot(tree.site)
    engine, worker = stated(tree, capsys)["components"]
    assert snapshot(tree.site) == before
    assert "pedigree" not in worker
    (ancestor,) = engine["pedigree"]["ancestors"]
    assert ancestor == {"type": "library", "name": "engine-cpu", "version": "1.5", "purl": "pkg:pypi/engine-cpu@1.5"}
    (patch,) = engine["pedigree"]["patches"]
    assert patch["type"] == "unofficial"
    assert patch["resolves"] == [
        {
            "type": "defect",
            "id": "engine_models",
            "name": "The engine takes another model",
            "description": "cures: model is refused; upstream: released in 2.0",
        }
    ]
    assert engine["pedigree"]["notes"].startswith("patchkit changed 1 file of the installed wheel")
    (file,) = engine["components"]
    assert (file["type"], file["name"]) == ("file", "engine/core.py")
    assert file["hashes"] == sha256(tree.engine.read_bytes())
    assert file["pedigree"]["ancestors"][0]["hashes"] == sha256(ENGINE.encode())
    assert file["properties"] == [{"name": "patchkit:patch", "value": "engine_models"}]
    (revision,) = engine["properties"]
    data = (tree.catalog / "patches/engine_models.py").read_bytes()
    assert revision == {
        "name": "patchkit:revision:engine_models",
        "value": f"sha256:{hashlib.sha256(data).hexdigest()}",
    }


def test_upstream_is_linked(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    place = tree.catalog / "patches/engine_models.py"
    place.write_text(patch_text().replace("status=", 'issue="a/b#1", pull="a/b#2", status='))
    assert run([*tree.options(), "apply", "engine_models"]) == 0
    (resolved,) = stated(tree, capsys)["components"][0]["pedigree"]["patches"][0]["resolves"]
    assert resolved["references"] == ["https://github.com/a/b/issues/1", "https://github.com/a/b/pull/2"]


def test_patch_that_is_not_upstream_says_its_status(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    place = tree.catalog / "patches/engine_models.py"
    place.write_text(patch_text(status="reported", fixed_in=""))
    assert run([*tree.options(), "apply", "engine_models"]) == 0
    (resolved,) = stated(tree, capsys)["components"][0]["pedigree"]["patches"][0]["resolves"]
    assert resolved["description"] == "cures: model is refused; upstream: reported"


def test_same_tree_gives_the_same_bytes_and_another_one_another_serial_number(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    first = stated(tree, capsys)
    assert stated(tree, capsys) == first
    assert "timestamp" not in first["metadata"]
    assert run([*tree.options(), "apply"]) == 0
    assert stated(tree, capsys)["serialNumber"] != first["serialNumber"]


@pytest.mark.parametrize(("seconds", "stamp"), [("1700000000", "2023-11-14T22:13:20Z"), ("x", None), ("", None)])
def test_timestamp_is_that_of_the_build(
    tree: Tree, seconds: str, stamp: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(statement.VARIABLE, seconds)
    assert stated(tree, capsys)["metadata"].get("timestamp") == stamp


def test_local_version_is_quoted(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    install(tree.site, "worker", "1.5+cu129", {"worker/__init__.py": "", "worker/capture.py": "x = 1\n"})
    for place in (tree.site / "worker-1.5.dist-info").iterdir():
        place.unlink()
    (tree.site / "worker-1.5.dist-info").rmdir()
    assert stated(tree, capsys)["components"][1]["purl"] == "pkg:pypi/worker@1.5%2Bcu129"


def test_json_has_the_document_in_the_report(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    document = stated(tree, capsys)
    assert run([*tree.options(), "--json", "statement"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["verb"], report["statement"]) == ("statement", document)


def test_foreign_edit_is_not_stated(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.engine.write_text("edited = 1\n")
    assert refused(tree, capsys) == ["foreign-edit"]
    assert run([*tree.options(), "--json", "statement"]) == 1
    assert json.loads(capsys.readouterr().out)["statement"] is None


def test_older_revision_is_not_stated(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    write_catalog(tree.catalog, {"engine_models": {"new": "models = ['kimi']"}, "worker_unwrap": WORKER_PATCH})
    assert refused(tree, capsys) == ["stale"]


def test_patch_of_another_catalog_is_not_stated(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    (tree.catalog / "patches/engine_models.py").rename(tree.catalog / "patches/engine_other.py")
    text = (tree.catalog / "targets.toml").read_text().replace("engine_models", "engine_other")
    (tree.catalog / "targets.toml").write_text(text)
    assert refused(tree, capsys) == ["unknown-patch"]


def test_distribution_that_cannot_be_vouched_for_is_not_stated(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    (tree.site / "worker-1.5.dist-info/RECORD").unlink()
    assert refused(tree, capsys) == ["record-missing"]


def test_nothing_installed_is_a_finding(tree: Tree, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(Tree(tmp_path / "empty", tree.catalog, tree.engine, tree.worker), capsys) == ["nothing-applicable"]
