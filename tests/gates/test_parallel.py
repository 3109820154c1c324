from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from patchkit.gates.gate import Gate, Subject
from patchkit.gates.parallel import judge
from tests.gates.fragments import DRAFT, TARGET, VLLM, subject

LLAMA = dedent(VLLM["vllm/model_executor/models/llama.py"])
DRAFTER = dedent(VLLM["vllm/model_executor/models/llama_eagle3.py"])
TAKES = DRAFTER.replace("inputs_embeds=None", "intermediate_tensors=None")
RELAY = "supports_aux_hidden_states_over_pp"
UTILS = f"""
    def verify(model):
        if not getattr(model, "{RELAY}", False):
            raise ValueError
    """
PIPELINE = "NotImplementedError: Pipeline parallelism is not supported for this model."


def on(made: Subject, tensor: int = 1, pipeline: int = 1) -> Gate:
    made.tensor_parallel, made.pipeline_parallel = tensor, pipeline
    gate = judge(made)
    assert gate.id == "parallel"
    return gate


def piped(tmp_path: Path, drafter: str = TAKES, llama: str = LLAMA, target: Any = TARGET, **changes: str) -> Gate:
    made = subject(
        tmp_path,
        target,
        vllm__model_executor__models__llama_eagle3=drafter,
        vllm__model_executor__models__llama=llama,
        **changes,
    )
    return on(made, pipeline=2)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_sizes_that_divide_the_heads_pass(tmp_path: Path, size: int) -> None:
    gate = on(subject(tmp_path), size)
    assert (gate.verdict, gate.when, gate.error) == ("pass", "configuration", None)
    assert gate.message == f"tensor parallel {size}, pipeline parallel 1: heads and classes allow it"


@pytest.mark.parametrize(("whose", "folder"), [("drafter", "draft"), ("target", "target")])
@pytest.mark.parametrize("heads", [5, 3, 1, 2**40 - 1])
def test_heads_that_cannot_be_split_fail(tmp_path: Path, whose: str, folder: str, heads: int) -> None:
    changed = {"num_attention_heads": heads}
    target, draft = (TARGET, DRAFT | changed) if whose == "drafter" else (TARGET | changed, DRAFT)
    gate = on(subject(tmp_path, target, draft), 2)
    assert (gate.verdict, gate.when) == ("fail", "configuration")
    assert gate.error == f"Total number of attention heads ({heads}) must be divisible by tensor parallel size (2)."
    assert gate.message == f"the {whose}'s {heads} attention heads cannot be split over 2 ranks"
    (line,) = gate.evidence
    assert (line.path, line.text) == (str(tmp_path / folder / "config.json"), f'"num_attention_heads": {heads},')
    assert "--tensor-parallel-size" in gate.hint


def test_drafter_is_asked_first(tmp_path: Path) -> None:
    odd = {"num_attention_heads": 5}
    assert on(subject(tmp_path, TARGET | odd, DRAFT | odd), 2).message.startswith("the drafter's")


@pytest.mark.parametrize("whose", ["drafter", "target"])
@pytest.mark.parametrize("heads", [None, "4", [4], True, 4.0, {}, 0, -5, 2**40 + 1])
def test_heads_that_are_no_number_cannot_be_told(tmp_path: Path, whose: str, heads: object) -> None:
    changed = {"num_attention_heads": heads}
    target, draft = (TARGET, DRAFT | changed) if whose == "drafter" else (TARGET | changed, DRAFT)
    gate = on(subject(tmp_path, target, draft), 2)
    assert (gate.verdict, gate.evidence) == ("unknown", ())
    assert gate.message == f"the {whose}'s config.json gives no num_attention_heads"


def test_heads_do_not_matter_to_one_rank(tmp_path: Path) -> None:
    nothing = {"num_attention_heads": None}
    assert on(subject(tmp_path, TARGET | nothing, DRAFT | nothing)).verdict == "pass"


@pytest.mark.parametrize("heads", [None, 0, -4, 2**40])
def test_heads_of_the_target_have_other_names_too(tmp_path: Path, heads: object) -> None:
    target = TARGET | {"num_attention_heads": heads, "n_head": 5}
    assert on(subject(tmp_path, target), 2).message == "the target's 5 attention heads cannot be split over 2 ranks"


@pytest.mark.parametrize(
    ("groups", "size", "verdict"),
    [
        (4, 2, "pass"), (2, 4, "pass"), (1, 4, "pass"), (0, 4, "pass"), (-3, 4, "pass"), (2**40 + 1, 4, "pass"),
        ("3", 4, "pass"), (3, 2, "fail"), (3, 4, "fail"),
    ],
)  # fmt: skip
def test_key_value_heads_of_the_drafter_and_ranks_divide_each_other(
    tmp_path: Path, groups: object, size: int, verdict: str
) -> None:
    gate = on(subject(tmp_path, draft=DRAFT | {"num_key_value_heads": groups}), size)
    assert gate.verdict == verdict
    if verdict == "fail":
        assert gate.when == "target-loaded"
        assert gate.message == f"the drafter's {groups} key-value heads and {size} ranks do not divide each other"
        assert [line.text for line in gate.evidence] == [f'"num_key_value_heads": {groups},']


def test_target_alone_is_judged_by_itself(tmp_path: Path) -> None:
    made = subject(tmp_path)
    made.draft = None
    assert on(made, 4, 2).verdict == "pass"
    assert on(made, 3).message == "the target's 4 attention heads cannot be split over 3 ranks"


def test_drafter_that_takes_no_pipeline_fails(tmp_path: Path) -> None:
    gate = piped(tmp_path, DRAFTER)
    assert (gate.verdict, gate.when, gate.error) == ("fail", "configuration", PIPELINE)
    assert gate.message == "the drafter's class Eagle3LlamaForCausalLM takes no pipeline parallelism"
    assert [line.text for line in gate.evidence] == ["class Eagle3LlamaForCausalLM(LlamaForCausalLM):"]
    assert gate.hint == "use tensor parallelism: pipeline_parallel_size 1"


def test_target_that_takes_no_pipeline_fails(tmp_path: Path) -> None:
    drafter = TAKES.replace("(LlamaForCausalLM)", "(LlamaForCausalLM, SupportsPP)")
    gate = piped(tmp_path, drafter, LLAMA.replace("(nn.Module, SupportsPP, ", "(nn.Module, "))
    assert (gate.verdict, gate.error) == ("fail", PIPELINE)
    assert gate.message == "the target's class LlamaForCausalLM takes no pipeline parallelism"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(nn.Module, SupportsPP, SupportsEagle3)", "(Elsewhere)"),
        ("def forward(self, input_ids, positions, intermediate_tensors=None)", "def other(self)"),
    ],
    ids=["base", "forward"],
)
def test_class_whose_pipeline_cannot_be_told(tmp_path: Path, old: str, new: str) -> None:
    made = subject(tmp_path, vllm__model_executor__models__llama=LLAMA.replace(old, new))
    made.draft = None
    gate = on(made, pipeline=2)
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message == "whether LlamaForCausalLM takes pipeline parallelism cannot be told"


@pytest.mark.parametrize("arguments", ["self, **kwargs", "self, *, intermediate_tensors=None"])
def test_forward_may_take_the_states_by_keyword(tmp_path: Path, arguments: str) -> None:
    head = "def forward(self, input_ids, positions, intermediate_tensors=None)"
    made = subject(tmp_path, vllm__model_executor__models__llama=LLAMA.replace(head, f"def forward({arguments})"))
    made.draft = None
    assert on(made, pipeline=2).verdict == "pass"


@pytest.mark.parametrize(
    ("target", "draft", "whose"),
    [
        (TARGET | {"architectures": []}, DRAFT, "target"),
        (TARGET, DRAFT | {"architectures": ["None"]}, "drafter"),
        (TARGET, DRAFT | {"architectures": "LlamaForCausalLMEagle3"}, "drafter"),
        (TARGET, DRAFT | {"architectures": [["x"], 3]}, "drafter"),
    ],
)
def test_class_that_is_not_known_cannot_be_told(tmp_path: Path, target: Any, draft: Any, whose: str) -> None:
    made = subject(tmp_path, target, draft, vllm__model_executor__models__llama_eagle3=TAKES)
    gate = on(made, pipeline=2)
    assert (gate.verdict, gate.message) == ("unknown", f"the {whose}'s class is not known")


def test_states_of_other_ranks_do_not_arrive_in_most_releases(tmp_path: Path) -> None:
    gate = piped(tmp_path)
    assert (gate.verdict, gate.when, gate.error) == ("fail", "first-forward", None)
    assert gate.message.startswith("the auxiliary states of earlier pipeline ranks do not reach the drafter")
    assert [line.text for line in gate.evidence] == ["class LlamaModel(nn.Module):"]
    assert gate.hint == "use pipeline_parallel_size 1"


@pytest.mark.parametrize(
    ("flag", "verdict"),
    [
        (f"    {RELAY} = True", "pass"),
        (f"    {RELAY}: bool = True", "pass"),
        (f"    {RELAY} = False", "fail"),
        (f"    {RELAY} = find()", "fail"),
        (f"    {RELAY}: bool", "fail"),
        (f"    def {RELAY}(self): ...", "fail"),
        ("    other = True", "fail"),
    ],
)
def test_decoder_that_relays_passes_where_the_release_asks_for_it(tmp_path: Path, flag: str, verdict: str) -> None:
    llama = LLAMA.replace("class LlamaModel(nn.Module):\n", f"class LlamaModel(nn.Module):\n{flag}\n\n")
    utils = {"vllm__v1__worker__gpu__spec_decode__eagle__eagle3_utils": UTILS}
    gate = piped(tmp_path, llama=llama, **utils)
    assert gate.verdict == verdict
    if verdict == "fail":
        assert gate.when == "drafter-loaded"
        assert gate.error == "LlamaForCausalLM does not support eagle3 with pipeline parallelism"
        assert gate.message == "LlamaModel does not hand on the auxiliary states of earlier ranks"
    else:
        assert gate.message == "tensor parallel 1, pipeline parallel 2: heads and classes allow it"


def test_release_that_does_not_ask_relays_nothing(tmp_path: Path) -> None:
    utils = {"vllm__v1__worker__gpu__spec_decode__eagle__eagle3_utils": "def verify(model): ..."}
    assert piped(tmp_path, **utils).when == "first-forward"


def test_decoder_that_cannot_be_told_leaves_the_relay_open(tmp_path: Path) -> None:
    llama = LLAMA.replace("self.model = self._init_model(vllm_config=vllm_config)", "self.model = find()")
    llama = llama.replace("self.start_layer", "self.other")
    gate = piped(tmp_path, llama=llama)
    assert (gate.verdict, gate.message) == ("unknown", "the class that owns the decoder layers cannot be told")


ONE_RANK = """
    @staticmethod
    def create_draft_parallel_config(target_parallel_config, size):
        return ParallelConfig(pipeline_parallel_size=1, tensor_parallel_size=size)
"""
RELAYS = LLAMA.replace("class LlamaModel(nn.Module):\n", f"class LlamaModel(nn.Module):\n    {RELAY} = True\n\n")


def one_rank(tmp_path: Path, method: str = ONE_RANK, drafter: str = DRAFTER, llama: str = RELAYS) -> Gate:
    changes = {
        "vllm__config__speculative": dedent(VLLM["vllm/config/speculative.py"]) + method,
        "vllm__v1__worker__gpu__spec_decode__eagle__eagle3_utils": UTILS,
    }
    return piped(tmp_path, drafter, llama, **changes)


@pytest.mark.parametrize("drafter", [DRAFTER, "class Other: ..."], ids=["takes none", "not known"])
def test_drafter_on_one_rank_needs_no_pipeline(tmp_path: Path, drafter: str) -> None:
    gate = one_rank(tmp_path, drafter=drafter)
    assert (gate.verdict, gate.when) == ("pass", "configuration")
    assert gate.message == "tensor parallel 1, pipeline parallel 2: heads and classes allow it"


def test_target_of_a_drafter_on_one_rank_is_still_asked(tmp_path: Path) -> None:
    gate = one_rank(tmp_path / "class", llama=LLAMA.replace("(nn.Module, SupportsPP, ", "(nn.Module, "))
    assert (gate.verdict, gate.message) == ("fail", "the target's class LlamaForCausalLM takes no pipeline parallelism")
    gate = one_rank(tmp_path / "relay", llama=LLAMA)
    assert (gate.verdict, gate.when) == ("fail", "drafter-loaded")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pipeline_parallel_size=1", "pipeline_parallel_size=2"),
        ("pipeline_parallel_size=1", "pipeline_parallel_size=target_parallel_config.pipeline_parallel_size"),
        ("pipeline_parallel_size=1", "pipeline_parallel_size=one"),
        ("pipeline_parallel_size=1", "other=1"),
        ("pipeline_parallel_size=1, ", ""),
        ("return ", "draft = ParallelConfig(pipeline_parallel_size=size)\n        return "),
        ("create_draft_parallel_config", "create_other_config"),
        (ONE_RANK, ""),
        (ONE_RANK, "\n    create_draft_parallel_config = None\n"),
    ],
    ids=[
        "two", "of the target", "by a name", "by another name", "not said", "one of two", "other method", "no method",
        "no function",
    ],
)  # fmt: skip
def test_drafter_that_may_have_more_ranks_is_asked_for_its_pipeline(tmp_path: Path, old: str, new: str) -> None:
    method = ONE_RANK.replace(old, new)
    assert method != ONE_RANK
    gate = one_rank(tmp_path, method)
    assert (gate.verdict, gate.error) == ("fail", PIPELINE)
    assert gate.message == "the drafter's class Eagle3LlamaForCausalLM takes no pipeline parallelism"


@pytest.mark.parametrize("source", ["", "class Other: ...", "class SpeculativeConfig(:"])
def test_release_that_does_not_say_the_drafters_ranks_splits_it(tmp_path: Path, source: str) -> None:
    assert piped(tmp_path, DRAFTER, vllm__config__speculative=source).error == PIPELINE
