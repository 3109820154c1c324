"""The examples for Kubernetes: valid by its own schemas, and their commands do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.trees import Tree, snapshot

FOLDER = Path(__file__).parent.parent / "examples/kubernetes"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))


def pods(place: Path) -> list[dict[str, Any]]:
    return [document["spec"]["template"]["spec"] for document in yaml.safe_load_all(place.read_text("utf-8"))]


def containers(place: Path) -> list[dict[str, Any]]:
    return [one for pod in pods(place) for one in (*pod.get("initContainers", ()), *pod["containers"])]


@pytest.mark.parametrize("place", EXAMPLES, ids=lambda place: place.stem)
@pytest.mark.parametrize("version", ["1.30", "1.35"])
def test_manifest_is_valid(place: Path, version: str) -> None:
    for document in yaml.safe_load_all(place.read_text("utf-8")):
        kubernetes_validate.validate(document, version, strict=True)


def test_validator_refuses_what_is_wrong() -> None:
    (document,) = yaml.safe_load_all(EXAMPLES[0].read_text("utf-8"))
    document["spec"]["template"]["spec"]["initContainer"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, "1.35", strict=True)


@pytest.mark.parametrize("place", EXAMPLES, ids=lambda place: place.stem)
def test_volumes_are_those_that_are_mounted(place: Path) -> None:
    for pod in pods(place):
        declared = {volume["name"] for volume in pod.get("volumes", ())}
        mounted = {mount["name"] for one in containers(place) for mount in one.get("volumeMounts", ())}
        assert mounted == declared


def do(command: list[str], tree: Tree, **variables: str) -> int:
    """Run a container's command on a tree, with the patches of its catalog."""
    words = [
        word.replace("patchkit --site", f"{sys.executable} -m patchkit --catalog {tree.catalog} --site")
        for word in command
    ]
    words = [word.replace("kimi-k25-serve", "all").replace("exec sleep infinity", "true") for word in words]
    return subprocess.run(words, env={**os.environ, **variables}, capture_output=True, check=False).returncode


def test_copy_is_patched_and_the_image_is_not(tree: Tree, tmp_path: Path) -> None:
    copy, apply, server = containers(FOLDER / "apply-at-start.yaml")
    before = snapshot(tree.site)
    variables = {"SITE": str(tree.site), "COPY": str(tmp_path / "copy")}
    (tmp_path / "copy").mkdir()
    assert do(copy["command"], tree, **variables) == 0
    assert do(apply["command"], tree, **variables) == 0
    assert snapshot(tree.site) == before
    assert snapshot(tmp_path / "copy") != before
    # It is mounted where the files were.
    assert server["volumeMounts"][0]["mountPath"] == copy["env"][0]["value"]
    (tmp_path / "copy/engine/core.py").write_text("x = 1\n")
    assert do(apply["command"], tree, **variables) == 1


def test_pod_is_ready_where_all_is_in_place(tree: Tree) -> None:
    (check,) = containers(FOLDER / "check-nodes.yaml")
    probe = check["readinessProbe"]["exec"]["command"]
    assert do(probe, tree, SITE=str(tree.site)) == 1
    apply = [sys.executable, "-m", "patchkit", *tree.options(), "apply"]
    subprocess.run(apply, check=True, capture_output=True)
    assert do(probe, tree, SITE=str(tree.site)) == 0
    assert do(check["command"], tree, SITE=str(tree.site)) == 0
