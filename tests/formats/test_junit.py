"""JUnit XML, read back as a CI system reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase

from patchkit.cli import run
from patchkit.findings import CODES, Finding
from patchkit.formats import junit
from patchkit.gates.gate import GATES
from patchkit.report import Report
from patchkit.survey import FileState, PatchState
from tests.test_preflight import DRAFT, SEE, TARGET, WIDE, command, site
from tests.trees import WORKER_PATCH, Tree, list_digests, write_catalog

__all__ = ["site"]


def cases(text: str) -> dict[tuple[str, str], TestCase]:
    """Return the cases of a document by class and name; its counts must be those of the cases."""
    document = JUnitXml.fromstring(text.encode())
    found = [case for suite in document for case in suite]
    kinds = [type(case.result[0]) if case.result else None for case in found]
    assert (document.tests, document.failures, document.errors) == (
        len(found),
        kinds.count(Failure),
        kinds.count(Error),
    )
    assert sum(suite.skipped for suite in document) == kinds.count(Skipped)
    assert len({(case.classname, case.name) for case in found}) == len(found)
    return {(case.classname, case.name): case for case in found}


def checked(tree: Tree, capsys: pytest.CaptureFixture[str], code: int, *names: str) -> dict[tuple[str, str], TestCase]:
    capsys.readouterr()
    assert run([*tree.options(), "check", "--format", "junit", *names]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert out.isascii()
    return cases(out)


def outcome(case: TestCase) -> tuple[type | None, str | None]:
    return (type(case.result[0]), case.result[0].type) if case.result else (None, None)


def test_patch_that_is_not_applied_fails_in_each_of_its_files(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    found = checked(tree, capsys, 1)
    assert {name: outcome(case) for name, case in found.items()} == {
        ("engine_models", "engine/core.py"): (Failure, "not-applied"),
        ("worker_unwrap", "worker/capture.py"): (Failure, "not-applied"),
    }
    result = found["engine_models", "engine/core.py"].result[0]
    assert result.message == "engine_models is not applied"
    assert result.text == "not-applied: engine_models is not applied\n    patchkit apply engine_models"


def test_patch_in_place_passes_in_the_suite_of_its_distribution(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    assert [outcome(case) for case in checked(tree, capsys, 0).values()] == [(None, None)] * 2
    run([*tree.options(), "check", "--format", "junit"])
    document = JUnitXml.fromstring(capsys.readouterr().out.encode())
    assert [suite.name for suite in document] == ["engine-cpu 1.5", "worker 1.5"]


def test_patch_that_is_not_for_what_is_installed_is_skipped(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    write_catalog(tree.catalog, {"engine_models": {}, "worker_unwrap": WORKER_PATCH | {"versions": ">=1.6,<2.0"}})
    list_digests(tree.catalog, tree.site, {"engine": "1.5"})
    assert run([*tree.options(), "apply"]) == 0
    skipped = checked(tree, capsys, 0)["worker_unwrap", "worker/capture.py"]
    assert outcome(skipped) == (Skipped, None)
    assert skipped.result[0].message == "not-applicable: for worker >=1.6 <2.0, and 1.5 is installed"
    named = checked(tree, capsys, 1, "worker_unwrap", "engine_models")
    assert outcome(named["worker_unwrap", "worker/capture.py"]) == (Failure, "not-applicable")


def test_edited_file_fails_for_its_patch_alone(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    tree.engine.write_text("edited = 1\n")
    found = checked(tree, capsys, 1)
    assert outcome(found["engine_models", "engine/core.py"]) == (Failure, "foreign-edit")
    assert outcome(found["worker_unwrap", "worker/capture.py"]) == (None, None)


def test_what_cannot_be_looked_at_is_an_error(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.engine.unlink()
    tree.engine.mkdir()
    assert outcome(checked(tree, capsys, 1)["engine_models", "engine/core.py"]) == (Error, "file-unreadable")


def test_finding_of_no_patch_has_a_case_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--site", str(tmp_path / "none"), "check", "--format", "junit"]) == 1
    found = cases(capsys.readouterr().out)
    assert {name: outcome(case) for name, case in found.items()} == {
        ("environment", "environment-invalid"): (Error, "environment-invalid")
    }


def test_file_of_a_failing_patch_that_no_finding_names_fails_too() -> None:
    files = (FileState("a.py", "foreign"), FileState("b.py", "pristine"), FileState("c.py", "applied"))
    state = PatchState("two_files", "engine", "foreign", files)
    finding = Finding("foreign-edit", "a.py was edited", "", "two_files", "a.py")
    other = Finding("stale", "of another patch", "", "other_patch", "a.py")
    found = cases(junit.write(Report("check", False, patches=(state,), findings=(finding, other))))
    assert {name: outcome(case) for name, case in found.items()} == {
        ("two_files", "a.py"): (Failure, "foreign-edit"),
        ("two_files", "b.py"): (Failure, "pristine"),
        ("two_files", "c.py"): (None, None),
        ("environment", "stale"): (Failure, "stale"),
    }


def test_findings_of_one_kind_that_belong_to_no_patch_have_names_of_their_own() -> None:
    findings = tuple(Finding("interrupted", f"run {number}", "") for number in range(2))
    found = cases(junit.write(Report("check", False, findings=findings)))
    assert list(found) == [("environment", "interrupted"), ("environment", "interrupted 2")]


def test_gate_is_a_case(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(site, WIDE, DRAFT, "--format", "junit")) == 1
    found = cases(capsys.readouterr().out)
    assert [name for _, name in found if name not in GATES] == []
    token = found["preflight", "image-token"]
    assert outcome(token) == (Failure, "gate-closed")
    assert token.result[0].text.startswith("met after the target's weights are loaded\nvllm/v1/spec_decode/eagle.py:")
    assert "vLLM says: AttributeError" in token.result[0].text
    assert outcome(found["preflight", "target-architecture"]) == (None, None)


def test_unknown_gate_is_skipped_unless_it_counts(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draft = {key: value for key, value in DRAFT.items() if key != "eagle_aux_hidden_state_layer_ids"}
    assert run(command(site, TARGET, draft, "--format", "junit")) == 0
    assert outcome(cases(capsys.readouterr().out)["preflight", "layer-ids"]) == (Skipped, None)
    assert run(command(site, TARGET, draft, "--strict", "--format", "junit")) == 1
    assert outcome(cases(capsys.readouterr().out)["preflight", "layer-ids"]) == (Failure, "gate-unknown")


def test_what_xml_does_not_have_is_spelt_out(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = SEE | {"architectures": ["\x1b]0;<t>\x07\ufffe\ud800&\"'"]}
    assert run(command(site, hostile, DRAFT, "--format", "junit")) == 0
    case = cases(capsys.readouterr().out)["preflight", "target-architecture"]
    assert "\\x1b]0;<t>\\x07\\ufffe\\ud800&" in case.result[0].message


def test_every_refusal_is_a_known_code() -> None:
    assert set(CODES) >= junit._REFUSALS
