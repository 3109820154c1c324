from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from patchkit.catalog import load_catalog
from patchkit.cli import run as patchkit
from patchkit.environment import find_environment
from patchkit.errors import GpuUnusable, ModelUnreadable, PortInUse, RunnerError
from patchkit.proof import set_digest
from patchkit.record import digest
from patchkit.runner import serve
from patchkit.runner.command import Served
from patchkit.runner.launch import Server, Settings
from patchkit.runner.serve import Run
from tests.gates.fragments import DRAFT, TARGET, TRANSFORMERS, VLLM, write
from tests.runner.fake import Fake, fake, make_fake
from tests.runner.test_gpus import nvml
from tests.test_preflight import WIDE
from tests.trees import Tree

__all__ = ["fake", "nvml"]


class Made(Run):
    """A run whose words are kept."""

    said: list[str]


def quiet(_: Server) -> None:
    """Show nothing."""


def make(fake: Fake, act: str = "well", *, model: str = "some/model", draft: str | None = None, **more: Any) -> Made:
    catalog = load_catalog(fake.catalog)
    environment = find_environment(str(fake.python), None, None, ["vllm"])
    arguments = ("--port", str(fake.port), "--act", act)
    served = Served(model, draft, 3 if draft else None, arguments)
    given: dict[str, Any] = {"wanted_gpus": "none", "ready_timeout": 30.0, "interval": 0.5, **more}
    said: list[str] = []
    settings = Settings(str(fake.python), fake.log, {}, **given)
    made = Made(catalog, environment, catalog.select(("all",)), served, settings, said.append, quiet)
    made.said = said
    return made


def folder(place: Path, config: dict[str, Any], size: int = 0) -> str:
    """Write a model with weights of a size that its index tells."""
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config))
    index = {"metadata": {"total_size": size}, "weight_map": {}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    return str(place)


def test_patched_tree_is_not_refused_and_its_digests_are_kept(fake: Fake) -> None:
    made = make(fake)
    assert made.prepare() is None
    files = {"vllm/core.py": digest((fake.site / "vllm/core.py").read_bytes())}
    assert (made.settings.files, made.settings.has_plugin, made.settings.gpus) == (files, False, [])
    assert made.said == [
        f"check: 1 patches, 1 files, digest {set_digest(files)[:16]}",
        "preflight: not asked, some/model is no folder here",
    ]


def test_unpatched_tree_is_refused_with_the_words_of_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make(make_fake(tmp_path, patched=False))
    refusal = made.prepare()
    assert refusal is not None
    assert (refusal.verb, [finding.code for finding in refusal.findings]) == ("check", ["not-applied"])
    assert made.said == []


def test_plugin_of_the_target_is_found(fake: Fake) -> None:
    metadata = fake.site / "patchkit-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[vllm.general_plugins]\npatchkit = patchkit.proof:verify\n")
    made = make(fake)
    assert made.prepare() is None
    assert made.settings.has_plugin


def test_closed_gate_refuses_a_drafter(fake: Fake, tmp_path: Path) -> None:
    write(fake.site, VLLM | TRANSFORMERS)
    made = make(fake, model=folder(tmp_path / "model", WIDE), draft=folder(tmp_path / "draft", DRAFT))
    refusal = made.prepare()
    assert refusal is not None
    assert (refusal.verb, refusal.ok) == ("preflight", False)


def test_open_gates_are_said(fake: Fake, tmp_path: Path) -> None:
    write(fake.site, VLLM | TRANSFORMERS)
    made = make(fake, model=folder(tmp_path / "model", TARGET), draft=folder(tmp_path / "draft", DRAFT))
    assert made.prepare() is None
    assert made.said[1].startswith("preflight: no gate of 12 fails")


def test_gates_do_not_stop_a_target_alone(fake: Fake, tmp_path: Path) -> None:
    made = make(fake, model=folder(tmp_path / "model", TARGET))
    assert made.prepare() is None
    assert made.said[1] == "preflight: no drafter"


def test_model_that_cannot_be_read_is_refused(fake: Fake, tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable):
        make(fake, model=str(tmp_path)).prepare()


def test_model_without_a_vllm_is_refused(tree: Tree, tmp_path: Path) -> None:
    assert patchkit([*tree.options(), "apply"]) == 0
    catalog = load_catalog(tree.catalog)
    served = Served(folder(tmp_path / "model", TARGET))
    settings = Settings("python", tmp_path / "log", {}, wanted_gpus="none")
    environment = find_environment(None, tree.site, None, ())
    said: list[str] = []
    refusal = Run(catalog, environment, catalog.select(()), served, settings, said.append, quiet).prepare()
    assert refusal is not None
    assert [finding.code for finding in refusal.findings] == ["not-installed"]
    assert said == [f"check: 2 patches, 0 files, digest {set_digest({})[:16]}"]


@pytest.mark.parametrize("there", [False, True])
def test_driver_is_not_asked_where_no_gpu_is_wanted(
    fake: Fake, nvml: SimpleNamespace, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "are_there", lambda: there)
    made = make(fake)
    assert made.prepare() is None
    assert (made.settings.gpus, nvml.calls, made.settings.hides_gpus) == ([], [], there)


@pytest.mark.parametrize(("wanted", "visible"), [("1", None), ("1", "0"), ("all", "1"), ("all", "GPU-1")])
def test_chosen_gpus_are_named_with_what_is_free(
    fake: Fake, nvml: SimpleNamespace, wanted: str, visible: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    made = make(fake, wanted_gpus=wanted)
    assert made.prepare() is None
    assert [gpu.index for gpu in made.settings.gpus] == [1]
    assert made.said[-1] == "GPU 1: NVIDIA H200, 150 of 150 GB free"


def test_gpu_that_cannot_be_used_is_refused(fake: Fake, nvml: SimpleNamespace) -> None:
    nvml.memory[1].free = 10**9
    with pytest.raises(GpuUnusable, match=r"GPU 1 .* is held"):
        make(fake, wanted_gpus="all").prepare()


def test_weights_that_do_not_fit_are_refused(fake: Fake, nvml: SimpleNamespace, tmp_path: Path) -> None:
    made = make(fake, wanted_gpus="all", model=folder(tmp_path / "model", TARGET, 10**12))
    with pytest.raises(GpuUnusable, match=r"a rank's share of the weights is 500\.0 GB"):
        made.prepare()


def test_port_that_somebody_listens_on_is_refused(fake: Fake) -> None:
    with socket.create_server(("127.0.0.1", fake.port)), pytest.raises(PortInUse):
        make(fake).prepare()


def test_ready_proof_work_and_end_are_said(fake: Fake) -> None:
    made = make(fake, "well")
    assert made.prepare() is None
    made.said.clear()

    def say(line: str) -> None:
        made.said.append(line)
        if line.endswith("tokens/s"):
            os.kill(os.getpid(), signal.SIGTERM)

    made.say = say
    assert made.run() == 0
    assert made.said[0] == f"log: {fake.log}"
    assert made.said[1].startswith("proof: 5 processes run the patched files, digest ")
    assert made.said[2].startswith("ready after ") and made.said[2].endswith(f" s: http://127.0.0.1:{fake.port}")
    assert made.said[-1].startswith("ended ") and made.said[-1].endswith(" s after it was asked to")
    assert fake.left() == []


@pytest.mark.parametrize(
    ("act", "words"), [("unproved", "no process has proved its files"), ("lies", "process 1 has other files")]
)
def test_server_that_does_not_prove_itself_is_ended(fake: Fake, act: str, words: str) -> None:
    made = make(fake, act)
    assert made.prepare() is None
    with pytest.raises(RunnerError, match=f"does not run what was checked: {words}"):
        made.run()
    assert len(fake.started()) == 5
    assert fake.left() == []


def test_server_that_is_not_ready_in_time_is_ended(fake: Fake) -> None:
    made = make(fake, "loads", ready_timeout=1.0)
    assert made.run() == 137
    assert "not ready after 1 s: it is ended" in made.said
    assert fake.left() == []


def test_signal_while_it_loads_is_no_timeout(fake: Fake) -> None:
    made = make(fake, "loads")

    def show(server: Server) -> None:
        if server.log.stage == "loading the model" and not server.asked:
            os.kill(os.getpid(), signal.SIGTERM)

    made.show = show
    assert made.run() == 143
    assert not any("not ready" in line for line in made.said)


def test_server_that_dies_is_explained(fake: Fake) -> None:
    made = make(fake, "dies")
    assert made.run() == 1
    assert made.said == [f"log: {fake.log}"]
    report = made.explain()
    assert [symptom.cure for symptom in report.symptoms] == ["vllm_models"]
    assert report.symptoms[0].text == "ValueError: model is refused"


def test_file_that_was_changed_after_the_check_stops_the_server(fake: Fake) -> None:
    made = make(fake, "tampers")
    assert made.prepare() is None
    assert made.run() == 1
    assert b"core.py has SHA-256" in fake.log.read_bytes()
