"""Annotations and the step's summary of a GitHub workflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.findings import Finding
from patchkit.formats import github
from patchkit.report import Report, TargetReport
from tests.test_preflight import DRAFT, WIDE, command, site
from tests.trees import Tree

__all__ = ["site"]


@pytest.fixture(autouse=True)
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that the step's summary is appended to."""
    place = tmp_path / "summary.md"
    place.write_text("of another step\n")
    monkeypatch.setenv(github.VARIABLE, str(place))
    return place


def test_finding_is_an_annotation_of_its_file(tree: Tree, step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "check", "--format", "github"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        "::error file=engine/core.py,title=patchkit check%3A not-applied::engine_models is not applied%0A"
        "patchkit apply engine_models",
        "::error file=worker/capture.py,title=patchkit check%3A not-applied::worker_unwrap is not applied%0A"
        "patchkit apply worker_unwrap",
        "::error title=patchkit check::check: 2 findings",
    ]
    lines = step.read_text().splitlines()
    assert lines[:2] == ["of another step", "### ❌ check&#58; 2 findings"]
    assert "| <code>engine&#95;models</code> | engine | pristine | patchkit apply |" in lines


def test_success_is_a_notice(tree: Tree, step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    capsys.readouterr()
    assert run([*tree.options(), "check", "--format", "github"]) == 0
    assert capsys.readouterr().out == "::notice title=patchkit check::check: 2 patches in place\n"
    assert "### ✅ check&#58; 2 patches in place" in step.read_text()


def test_gate_is_an_annotation_of_its_line(site: Path, step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(site, WIDE, DRAFT, "--format", "github")) == 1
    out = capsys.readouterr().out
    assert "::error file=vllm/v1/spec_decode/eagle.py,line=" in out
    assert ",title=patchkit preflight%3A gate-closed::WideForConditionalGeneration: the proposer reads" in out
    assert "| fail | <code>image-token</code> | WideForConditionalGeneration&#58; the proposer" in step.read_text()


def test_no_text_ends_a_command_or_begins_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    finding = Finding("shadowed", "50% of\r\n::set-env name=A::b\x1b", "", None, "a,b:c%\n.py")
    first = github.write(Report("check", False, findings=(finding,))).splitlines()[0]
    assert first == (
        "::error file=a%2Cb%3Ac%25%0A.py,title=patchkit check%3A shadowed::50%25 of\\r%0A::set-env name=A::b\\x1b"
    )


def test_no_text_is_markup_of_the_summary(step: Path) -> None:
    finding = Finding("shadowed", "<script>|`*_[x](http://y)\n@team #1", "")
    target = TargetReport("engine", "engine", "1<b>", "/a|b", False)
    github.write(Report("check", False, targets=(target,), findings=(finding,)))
    text = step.read_text()
    assert "&lt;script&gt;&#124;&#96;&#42;&#95;&#91;x&#93;&#40;http&#58;//y&#41;<br>&#64;team &#35;1" in text
    assert "<code>engine 1&lt;b&gt;</code> in <code>/a&#124;b</code>, not listed in targets.toml" in text


def test_summary_that_cannot_be_written_is_a_warning_and_changes_no_exit_code(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(github.VARIABLE, str(tmp_path))
    assert run([*tree.options(), "apply"]) == 0
    capsys.readouterr()
    assert run([*tree.options(), "check", "--format", "github"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        "::warning title=patchkit::the step's summary cannot be written: Is a directory"
    )


def test_without_a_step_nothing_is_written(monkeypatch: pytest.MonkeyPatch, step: Path) -> None:
    monkeypatch.delenv(github.VARIABLE)
    github.write(Report("check", True))
    assert step.read_text() == "of another step\n"
