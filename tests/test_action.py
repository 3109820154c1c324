"""The GitHub action and the workflow: their schemas, and the action's steps run as a runner runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.trees import Tree

ROOT = Path(__file__).parent.parent
ACTION = ROOT / "examples/ci/action/action.yml"
WORKFLOW = ROOT / "examples/ci/check-image.yml"


def steps() -> list[dict[str, Any]]:
    return list(yaml.safe_load(ACTION.read_text("utf-8"))["runs"]["steps"])


def run_step(step: dict[str, Any], temporary: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step with the shell of a runner, after putting the inputs into its environment."""
    declared = yaml.safe_load(ACTION.read_text("utf-8"))["inputs"]
    given = {**{name: str(value["default"]) for name, value in declared.items()}, **inputs}
    variables = {**os.environ, "RUNNER_TEMP": str(temporary), "GITHUB_ACTION_PATH": str(ACTION.parent)}
    variables.pop("VIRTUAL_ENV", None)
    for name, value in step.get("env", {}).items():
        variables[name] = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: given[match[1]], value)
    script = temporary / "step.sh"
    script.write_text(step["run"])
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    return subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.fixture
def run(tree: Tree, tmp_path: Path) -> Any:
    """Return what runs the action's second step with the patchkit of this checkout."""
    bin_folder = tmp_path / "runner/patchkit/bin"
    bin_folder.mkdir(parents=True)
    command = bin_folder / "patchkit"
    words = f"exec {sys.executable} -m patchkit --catalog {tree.catalog}"
    command.write_text(f'#!/bin/sh\n{words} "$@"\n')
    command.chmod(0o755)
    return lambda **inputs: run_step(steps()[1], tmp_path / "runner", **inputs)


@pytest.mark.parametrize(("place", "kind"), [(ACTION, "github-actions"), (WORKFLOW, "github-workflows")])
def test_schema(place: Path, kind: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_input_is_text_of_a_script() -> None:
    assert not [step for step in steps() if "${{" in step["run"]]
    (job,) = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"].values()
    assert not [step for step in job["steps"] if "${{" in step.get("run", "")]


def test_actions_of_others_are_pinned_by_commit() -> None:
    (job,) = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"].values()
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w/<>-]+@([0-9a-f]{40}|<commit>)", name) for name in used)


def test_inputs_of_the_workflow_are_those_of_the_action() -> None:
    (job,) = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"].values()
    (step,) = [step for step in job["steps"] if "examples/ci/action@" in step.get("uses", "")]
    assert set(step["with"]) <= set(yaml.safe_load(ACTION.read_text("utf-8"))["inputs"])


def test_check_of_a_root(run: Any, tree: Tree, tmp_path: Path) -> None:
    assert run(root=str(tmp_path)).returncode == 1
    assert run(root=str(tmp_path), verb="apply", sets="engine_models worker_unwrap").returncode == 0
    done = run(root=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    begin, *lines, end = done.stdout.splitlines()
    token = begin.removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", token)
    assert (lines[-1], end) == ("check: 2 patches in place", f"::{token}::")


def test_interpreter(run: Any) -> None:
    done = run(python="/absent/python")
    assert done.returncode == 1
    assert "/absent/python cannot be run" in done.stderr


@pytest.mark.parametrize("field", ["verb", "sets", "root", "python"])
@pytest.mark.parametrize("text", ["$(touch gone)", '"; touch gone; "', "*", "--catalog=/elsewhere"])
def test_hostile_inputs_stay_words(
    run: Any, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = {"root": str(tmp_path), field: text}
    if field == "python":
        inputs["root"] = ""
    assert run(**inputs).returncode in (1, 2)
    assert not (tmp_path / "gone").exists()


@pytest.mark.wheels
def test_both_steps(tmp_path: Path) -> None:
    """The first step makes patchkit from the checkout that the action's file lies in."""
    if shutil.which("python3") is None:
        pytest.skip("the runner's python3 is not here")
    install, check = steps()
    done = run_step(install, tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "image/lib/python3.11/site-packages").mkdir(parents=True)
    done = run_step(check, tmp_path, root=str(tmp_path / "image"))
    assert (done.returncode, done.stderr.partition(":")[0]) == (1, "nothing-applicable")
