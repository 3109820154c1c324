"""The verdict before the load, beside what the real engine does to the same pairs: the truth matrix."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchkit.gates.checkpoint import open_checkpoint
from patchkit.gates.code import Code
from patchkit.gates.gate import FAIL, UNKNOWN, Gate, Subject
from patchkit.gates.preflight import judge
from patchkit.gates.registry import Registry
from tests.configs import DRAFTERS, KEY, PARAMS, TARGETS, Config, drafter_for, small
from tests.engine.conftest import HERE, Engine
from tests.engine.environment import LATER, TORCHVISION, base, overlay, preloads

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("gates")]

SET = ("kimi-k25-serve",)
RELEASES = [
    pytest.param("0.15.1", SET, id="0.15.1 patched"),
    pytest.param("0.16.0", (), id="0.16.0"),
    pytest.param("0.16.0", SET, id="0.16.0 patched"),
    pytest.param("0.17.1", SET, id="0.17.1 patched"),
    pytest.param("0.18.1", (), id="0.18.1"),
    pytest.param("0.28.0", (), id="0.28.0"),
]
SPECULATORS = {KEY: [2, 4, 5], "draft_vocab_size": 256}
MISTRAL = {"hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 8, "vocab_size": 512}
"""The text model of the small target in Mistral's own format."""


@dataclass(frozen=True)
class Pair:
    """A target and a drafter before an engine."""

    target: str
    drafter: str
    config: Config
    without: tuple[str, ...] = ("embed_tokens",)
    fc: int | None = None
    tp: int = 1
    pp: int = 1

    @property
    def name(self) -> str:
        """Return the name of the pair, which is that of the drafter's folder, too."""
        return f"{self.target}--{self.drafter}"

    def case(self) -> dict[str, Any]:
        """Return what the engine is asked."""
        trust, params = "auto_map" in TARGETS.get(self.target, {}), self.target in PARAMS
        sizes = {"tp": self.tp, "pp": self.pp}
        return {"name": self.name, "model": self.target, "draft": self.name, "trust": trust, "params": params} | sizes


def drafter(target: str, **changes: Any) -> Config:
    """Return a small drafter for a target, right but for the changes."""
    text = MISTRAL if target in PARAMS else small(TARGETS[target])
    return drafter_for(text, **{"intermediate_size": 128, "max_position_embeddings": 256} | changes)


def pairs() -> Iterator[Pair]:
    """Yield a right pair of every target, and pairs that are wrong in one way each."""
    for target in (*TARGETS, *PARAMS):
        yield Pair(target, "right", drafter(target))
    yield Pair("llama", "of-speculators", small(DRAFTERS["llama-speculators"]) | SPECULATORS)
    for target in ("llava", "qwen3-vl", "mistral3", "deepseek-v3", "kimi-k2.5", "llama"):
        yield Pair(target, "first-id", drafter(target, **{KEY: [0, 4, 5]}))
        yield Pair(target, "last-id", drafter(target, **{KEY: [2, 4, 8]}))
        yield Pair(target, "no-states", drafter(target, eagle_config={"use_aux_hidden_state": False}))
    for target in ("kimi-k2.5", "llama"):
        yield from wrong(target)


def wrong(target: str) -> Iterator[Pair]:
    """Yield the pairs of a target with the drafters that are wrong in one way each, or odd and right."""
    own: tuple[str, ...] = ()
    one_head = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 128}
    few = {"vocab_size": 256, "draft_vocab_size": 256}
    yield Pair(target, "id-outside", drafter(target, **{KEY: [2, 4, 30]}))
    yield Pair(target, "id-twice", drafter(target, **{KEY: [2, 4, 4]}))
    yield Pair(target, "two-ids", drafter(target, **{KEY: [2, 4]}))
    yield Pair(target, "no-ids", drafter(target, **{KEY: ...}))
    yield Pair(target, "twice-as-wide", drafter(target, hidden_size=256, head_dim=64))
    yield Pair(target, "head-of-target", drafter(target), ("embed_tokens", "lm_head"))
    yield Pair(target, "few-drafted-no-head", drafter(target, draft_vocab_size=256), ("embed_tokens", "lm_head"))
    yield Pair(target, "few-drafted", drafter(target, draft_vocab_size=256))
    yield Pair(target, "few-drafted-no-map", drafter(target, draft_vocab_size=256), ("embed_tokens", "d2t"))
    yield Pair(target, "few-known", drafter(target, **few))
    yield Pair(target, "few-known-own-embeddings", drafter(target, **few), own)
    yield Pair(target, "own-embeddings", drafter(target), own)
    yield Pair(target, "unknown-class", drafter(target, architectures=["FooForCausalLM"]))
    yield Pair(target, "plain-class", drafter(target, architectures=["LlamaForCausalLM"]))
    yield Pair(target, "narrow-fc", drafter(target), fc=256)
    yield Pair(target, "narrow-fc-two-ids", drafter(target, **{KEY: [2, 4]}), fc=256)
    yield Pair(target, "one-head-tp-2", drafter(target, **one_head), tp=2)
    yield Pair(target, "right-tp-2", drafter(target), tp=2)
    yield Pair(target, "right-pp-2", drafter(target), pp=2)


PAIRS = list(pairs())


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folders of all targets and drafters."""
    folder = tmp_path_factory.mktemp("gates")
    drafters = {
        pair.name: {"config": pair.config, "without": pair.without} | ({"fc": pair.fc} if pair.fc else {})
        for pair in PAIRS
    }
    spec = {"targets": {name: small(config) for name, config in TARGETS.items()}, "params": PARAMS}
    (folder / "spec.json").write_text(json.dumps(spec | {"drafters": drafters}))
    (folder / "cases.json").write_text(json.dumps([pair.case() for pair in PAIRS]))
    command = [str(base()), str(HERE / "folders.py"), str(folder / "spec.json"), str(folder)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return folder


def stages_of(gate: Gate) -> tuple[str, ...]:
    """Return the stages of the engine at which a gate that fails is met."""
    if gate.when == "configuration":
        return ("configuration",)
    by_gate = {"image-token": ("load",), "embeddings": ("load",), "interface": ("interface",), "capture": ("forward",)}
    if gate.id in by_gate and gate.when != "in-service":
        return ("layers",) if (gate.id, gate.when) == ("capture", "drafter-loaded") else by_gate[gate.id]
    if gate.id == "layer-ids":
        by_time = {"drafter-loaded": ("layers",), "first-forward": ("forward",), "first-request": ("request",)}
        return by_time.get(gate.when, ())
    if gate.id == "drafter-sizes":
        return {"drafter-loaded": ("load",), "in-service": ()}.get(gate.when, ("request",))
    return ()


@dataclass
class Comparison:
    """What one release's verdicts come to beside the engine's answers."""

    counts: Counter[str]
    wrong: list[str]


def compare(site: list[Path], folders: Path, answers: dict[str, dict[str, str | None]]) -> Comparison:
    """Compare every stage that the engine reached with what the gates of that stage say."""
    found = Comparison(Counter(), [])
    code = Code(site)
    registry = Registry(code)
    for pair in PAIRS:
        name = "params.json" if pair.target in PARAMS else "config.json"
        target, draft = open_checkpoint(folders / pair.target / name), open_checkpoint(folders / pair.name)
        gates = judge(Subject(code, registry, target, draft, pair.tp, pair.pp, speculative_tokens=2))
        answer = answers[pair.name]
        if (answer["load"] or "").startswith("target:"):
            found.counts["pairs whose target this environment cannot build"] += 1
            continue
        found.counts["pairs"] += 1
        closed = {stage: gate for gate in gates if gate.verdict == FAIL for stage in stages_of(gate)}
        doubtful = {stage for gate in gates if gate.verdict == UNKNOWN for stage in stages_of(gate)}
        found.counts["unknown"] += sum(gate.verdict == UNKNOWN for gate in gates)
        for stage, said in answer.items():
            # A model that lacks the interface was given no layers: its forward says nothing of the decoder's capture.
            is_moot = stage == "forward" and answer["interface"] is not None and stage not in closed
            if is_moot or (said or "").startswith("not reached"):
                continue
            found.counts["stages"] += 1
            if stage in doubtful and stage not in closed:
                continue
            if (stage in closed) != (said is not None):
                gate = closed.get(stage)
                verdict = f"{gate.id} {gate.verdict}: {gate.message}" if gate else "pass"
                found.wrong.append(f"{pair.name} at {stage}: the engine says {said}, preflight {verdict}")
    return found


@pytest.mark.parametrize(("release", "patches"), RELEASES)
def test_no_verdict_is_wrong(
    engine: Engine,
    folders: Path,
    release: str,
    patches: tuple[str, ...],
    record_property: Callable[[str, object], None],
) -> None:
    if release == "0.18.1" and not preloads(base())[1:]:
        pytest.skip("vLLM 0.18 wants libtcmalloc-minimal4")
    cases = str(folders / "cases.json")
    beside = None
    if release == LATER:
        beside = folders / "torchvision"
        overlay(TORCHVISION.name, TORCHVISION.version, beside)
    answers = engine.ask("truth.py", "answers", (release,), patches, cases, models=folders, beside=beside)
    python = engine.python_of(release)
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    found = compare([engine.site((release,), patches), packages], folders, answers)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(found.counts.items()))
    record_property("truth", f"vLLM {release}{' patched' if patches else ''}: {counts}, {len(found.wrong)} wrong")
    assert found.wrong == []
    assert found.counts["pairs"] >= 40
