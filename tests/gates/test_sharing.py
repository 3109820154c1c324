from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from patchkit.gates.gate import Gate, Subject
from patchkit.gates.sharing import judge
from tests.gates.fragments import TARGET, TEXT, VLLM, subject

LLAMA = dedent(VLLM["vllm/model_executor/models/llama.py"])
SEE_CLASS = dedent(VLLM["vllm/model_executor/models/see.py"])
PROPOSER = dedent(VLLM["vllm/v1/spec_decode/eagle.py"])
SEE: dict[str, Any] = {"architectures": ["SeeForConditionalGeneration"], "model_type": "see", "text_config": TEXT}
INNER = "self.model = self._init_model(vllm_config=vllm_config)"
HEAD = "self.lm_head = ParallelLMHead(self.config.vocab_size)"
CONFIG = """
    class VllmConfig:
        def use_v2_model_runner(self):
            return HAS_TRITON
    """
V2 = {"vllm__config__vllm": CONFIG, "vllm__v1__worker__gpu__spec_decode__eagle__utils": "def load(): ..."}
LATER = V2 | {"vllm__v1__worker__gpu__spec_decode__eagle__utils": "head = get_target_lm_head(model)"}


def headless(made: Subject, *tensors: str) -> Subject:
    assert made.draft is not None
    index = made.draft.folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors or ("fc.weight",), "a")}))
    return made


def on(made: Subject) -> Gate:
    gate = judge(made)
    assert gate.id == "embeddings"
    return gate


def texts(gate: Gate) -> list[str]:
    return [line.text for line in gate.evidence]


@pytest.mark.parametrize("target", [TARGET, SEE], ids=["text", "multimodal"])
def test_language_model_with_a_model_passes(tmp_path: Path, target: dict[str, Any]) -> None:
    gate = on(subject(tmp_path, target))
    assert (gate.verdict, gate.when) == ("pass", "drafter-loaded")
    assert gate.message == "LlamaForCausalLM.model owns the embeddings"
    assert texts(gate) == ["class LlamaForCausalLM(nn.Module, SupportsPP, SupportsEagle3):"]


def test_unknown_target_cannot_be_told(tmp_path: Path) -> None:
    gate = on(subject(tmp_path, TARGET | {"architectures": None}))
    assert (gate.verdict, gate.message, gate.evidence) == ("unknown", "the target's class is not known", ())


def test_language_model_that_cannot_be_told(tmp_path: Path) -> None:
    source = SEE_CLASS.replace('["LlamaForCausalLM"]', "names")
    gate = on(subject(tmp_path, SEE, vllm__model_executor__models__see=source))
    assert gate.verdict == "unknown"
    assert gate.message == "the language model of SeeForConditionalGeneration cannot be told from its source"
    assert texts(gate)[0].startswith("class SeeForConditionalGeneration(")


def test_language_model_with_a_base_that_cannot_be_read(tmp_path: Path) -> None:
    source = LLAMA.replace(INNER, "").replace("CausalLM(nn.Module, ", "CausalLM(Elsewhere, ")
    gate = on(subject(tmp_path, vllm__model_executor__models__llama=source))
    assert (gate.verdict, gate.when) == ("unknown", "drafter-loaded")
    assert texts(gate) == ["class LlamaForCausalLM(Elsewhere, SupportsPP, SupportsEagle3):"]


BARE = LLAMA.replace(INNER, "")
START = "def load_model(self, target_model):\n"
NO_MODEL = "Target model does not have 'model' attribute"
NO_ATTRIBUTE = "AttributeError: 'LlamaForCausalLM' object has no attribute 'model'"


def bare(tmp_path: Path, proposer: str) -> Gate:
    return on(subject(tmp_path, SEE, vllm__model_executor__models__llama=BARE, vllm__v1__spec_decode__eagle=proposer))


@pytest.mark.parametrize(
    ("proposer", "error", "line"),
    [
        (PROPOSER, NO_MODEL, 'if self.get_model_name(target_model) in ["SeeForConditionalGeneration"]:'),
        (PROPOSER.replace(START, f"{START}        found = target_model.get_language_model()\n"), NO_MODEL,
         "found = target_model.get_language_model()"),
        (PROPOSER.replace("does not have", "without"), NO_ATTRIBUTE,
         'if self.get_model_name(target_model) in ["SeeForConditionalGeneration"]:'),
        ("", NO_ATTRIBUTE, None),
    ],
    ids=["says it", "takes it by a call", "does not say it", "no proposer"],
)  # fmt: skip
def test_bare_language_model_fails_with_the_text_of_the_release(
    tmp_path: Path, proposer: str, error: str, line: str | None
) -> None:
    gate = bare(tmp_path, proposer)
    assert (gate.verdict, gate.when, gate.error) == ("fail", "drafter-loaded", error)
    assert gate.message == (
        "SeeForConditionalGeneration's language model is a bare LlamaForCausalLM, which has no attribute 'model'"
    )
    *first, wrapper, inner = texts(gate)
    assert first == ([line] if line else [])
    assert wrapper.startswith("class SeeForConditionalGeneration(") and inner.startswith("class LlamaForCausalLM(")


@pytest.mark.parametrize(
    ("test", "step", "verdict"),
    [
        ('not hasattr(found, "model")', "found = Holder(found)", "pass"),
        ('not hasattr(found, "model")', "raise AttributeError", "fail"),
        ('not hasattr(found, "other")', "found = Holder(found)", "fail"),
        ('not hasattr(found, "model", 1)', "found = Holder(found)", "fail"),
        ('hasattr(found, "model")', "found = Holder(found)", "fail"),
        ('not asks(found, "model")', "found = Holder(found)", "fail"),
        ("not found", "found = Holder(found)", "fail"),
        ("-found", "found = Holder(found)", "fail"),
    ],
)
def test_proposer_may_help_itself_with_a_bare_language_model(
    tmp_path: Path, test: str, step: str, verdict: str
) -> None:
    gate = bare(tmp_path, PROPOSER.replace(START, f"{START}        if {test}:\n            {step}\n"))
    assert gate.verdict == verdict
    if verdict == "pass":
        assert gate.message == (
            "the proposer takes the bare LlamaForCausalLM as it is, and the lm_head of SeeForConditionalGeneration"
        )
        assert [text.partition("(")[0] for text in texts(gate)] == ["class LlamaForCausalLM"]


@pytest.mark.parametrize(
    ("tensors", "verdict"),
    [(("fc.weight",), "fail"), (("fc.weight", "lm_head.weight"), "pass"), (("x.lm_head_norm.weight",), "fail")],
)
def test_drafter_without_a_head_needs_that_of_the_target(
    tmp_path: Path, tensors: tuple[str, ...], verdict: str
) -> None:
    made = subject(tmp_path, vllm__model_executor__models__llama=LLAMA.replace(HEAD, ""))
    gate = on(headless(made, *tensors))
    assert gate.verdict == verdict
    if verdict == "fail":
        assert (gate.when, gate.error) == ("in-service", None)
        assert gate.message == "the drafter has no lm_head of its own, and LlamaForCausalLM has none to share"
        assert gate.hint == "use a drafter with its own lm_head"


def test_head_of_a_base_that_cannot_be_read_is_left_open(tmp_path: Path) -> None:
    source = LLAMA.replace(HEAD, "").replace("CausalLM(nn.Module, ", "CausalLM(Elsewhere, ")
    gate = on(headless(subject(tmp_path, vllm__model_executor__models__llama=source)))
    assert (gate.verdict, gate.when) == ("unknown", "in-service")
    assert gate.message.endswith("LlamaForCausalLM has none to share")


def test_head_of_the_language_model_is_shared(tmp_path: Path) -> None:
    assert on(headless(subject(tmp_path))).verdict == "pass"


def test_without_a_drafter_no_head_is_asked_for(tmp_path: Path) -> None:
    made = subject(tmp_path, vllm__model_executor__models__llama=LLAMA.replace(HEAD, ""))
    made.draft = None
    assert on(made).verdict == "pass"


@pytest.mark.parametrize(
    ("target", "pipeline", "changes", "verdict"),
    [
        (SEE, 1, V2, "fail"),
        (SEE, 2, V2, "unknown"),
        (SEE, 1, LATER, "pass"),
        (SEE, 1, {}, "pass"),
        (SEE, 1, {"vllm__config__vllm": CONFIG}, "pass"),
        (TARGET, 1, V2, "pass"),
        (SEE, 1, V2 | {"vllm__model_executor__models__see": f"{SEE_CLASS}\n    lm_head = None\n"}, "pass"),
    ],
    ids=["v2", "either", "later v2", "v1", "another v2", "text model", "head on the wrapper"],
)
def test_runner_v2_may_look_for_the_head_on_the_wrapper_alone(
    tmp_path: Path, target: dict[str, Any], pipeline: int, changes: dict[str, str], verdict: str
) -> None:
    made = headless(subject(tmp_path, target, **changes))
    made.pipeline_parallel = pipeline
    gate = on(made)
    assert gate.verdict == verdict
    if verdict != "pass":
        assert gate.when == "in-service"
        assert gate.message == (
            "the drafter has no lm_head, and model runner v2 looks for one on SeeForConditionalGeneration alone"
        )
        assert gate.hint.startswith("set VLLM_USE_V2_MODEL_RUNNER=0")
        assert texts(gate)[1:] == ["def use_v2_model_runner(self):"]
