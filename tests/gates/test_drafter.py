from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from patchkit.gates.drafter import (
    architectures,
    draft_class,
    has_tensor,
    judge_architecture,
    judge_sizes,
    judge_tokens,
)
from patchkit.gates.gate import Gate, Subject
from tests.gates.fragments import DRAFT, TARGET, TEXT, VLLM, subject

SPECULATIVE = dedent(VLLM["vllm/config/speculative.py"])
DRAFTER = dedent(VLLM["vllm/model_executor/models/llama_eagle3.py"])
KEY = "eagle_aux_hidden_state_layer_ids"
SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "eagle3",
    "transformer_layer_config": TEXT | {"model_type": "llama"},
    KEY: [2, 4, 5],
}
ALGOS = """
    from . import registry as table

    SUPPORTED = dict()

    @register_speculator
    @register_speculator()
    def not_this(config, pre):
        pre["architectures"] = ["NotThis"]

    @register_speculator("dflash")
    def update_dflash(config, pre):
        pre["architectures"] = ["DFlashDraftModel"]

    @register_speculator("eagle3")
    def update_eagle3(config, pre):
        pre["norm"] = config.get("norm", True)
        REST
    """
OLD = ALGOS.replace("REST", 'pre["architectures"] = ["Eagle3LlamaForCausalLM"]')
NEW = ALGOS.replace(
    "REST",
    'names = {"qwen3": "Eagle3Qwen3ForCausalLM", "llama": "Eagle3LlamaForCausalLM", **more}\n'
    '        pre["architectures"] = [names[pre["model_type"]]]',
)
ALGOS_AT = "vllm__transformers_utils__configs__speculators__algos"


def weights(made: Subject, tensors: Mapping[str, Sequence[int] | None]) -> Subject:
    """Give the drafter weights with these names and, where they are given, shapes."""
    assert made.draft is not None
    header = json.dumps({name: {"shape": shape} for name, shape in tensors.items()}).encode()
    (made.draft.folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return made


def texts(gate: Gate) -> list[str]:
    return [line.text for line in gate.evidence]


def alone(tmp_path: Path) -> Subject:
    made = subject(tmp_path)
    made.draft = None
    return made


def test_without_a_drafter_nothing_is_said(tmp_path: Path) -> None:
    made = alone(tmp_path)
    assert (judge_architecture(made), judge_tokens(made), judge_sizes(made)) == (None, None, None)
    assert (architectures(made), draft_class(made), has_tensor(made, "lm_head")) == (None, None, None)


# Its class in the registry


def named(made: Subject) -> Gate:
    gate = judge_architecture(made)
    assert gate is not None and (gate.id, gate.when) == ("draft-architecture", "configuration")
    return gate


def test_architecture_in_the_registry_passes(tmp_path: Path) -> None:
    gate = named(subject(tmp_path))
    assert (gate.verdict, gate.message) == ("pass", "LlamaForCausalLMEagle3 is Eagle3LlamaForCausalLM")
    assert texts(gate) == [
        '"LlamaForCausalLMEagle3": ("llama_eagle3", "Eagle3LlamaForCausalLM"),',
        '"architectures": [',
    ]
    cls = draft_class(subject(tmp_path))
    assert cls is not None and cls.name == "Eagle3LlamaForCausalLM"


def test_architecture_that_the_registry_has_not_fails_with_the_text_of_vllm(tmp_path: Path) -> None:
    gate = named(subject(tmp_path, draft=DRAFT | {"architectures": ["Qwen9ForCausalLM"]}))
    assert gate.verdict == "fail"
    assert gate.error == "Model architectures ['Eagle3Qwen9ForCausalLM'] are not supported for now."
    assert gate.message == (
        "vLLM's registry has no Eagle3Qwen9ForCausalLM, which is what it makes of this drafter for EAGLE-3"
    )
    assert texts(gate) == ['"architectures": [']
    assert gate.hint.startswith("use a drafter in a format that this release knows")


@pytest.mark.parametrize("source", ["", "class Other(:"])
def test_registry_that_cannot_be_read_leaves_it_open(tmp_path: Path, source: str) -> None:
    gate = named(subject(tmp_path, vllm__model_executor__models__registry=source))
    assert (gate.verdict, gate.message) == ("unknown", "vLLM's registry of models cannot be read")


@pytest.mark.parametrize("value", [None, [], "LlamaForCausalLMEagle3", 3, [3], [["x"]], {}, True])
def test_config_that_names_no_architecture_cannot_be_told(tmp_path: Path, value: object) -> None:
    made = subject(tmp_path, draft=DRAFT | {"architectures": value})
    gate = named(made)
    assert (gate.verdict, gate.error) == ("unknown", None)
    assert gate.message == "the drafter's config.json names no architecture that can be followed"
    assert draft_class(made) is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["LlamaForCausalLM"], ("Eagle3LlamaForCausalLM",)),
        (["Eagle3LlamaForCausalLM"], ("Eagle3LlamaForCausalLM",)),
        (["LlamaForCausalLMEagle3", "X"], ("LlamaForCausalLMEagle3", "Eagle3X")),
        (["LargeForCausalLM", "X"], ("Eagle3EagleLargeForCausalLM",)),
    ],
)
def test_vllm_gives_a_drafter_the_name_of_eagle3(tmp_path: Path, given: list[str], expected: tuple[str, ...]) -> None:
    assert architectures(subject(tmp_path, draft=DRAFT | {"architectures": given})) == expected


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("deep", "Eagle3DeepMTPModel"),
        ("deeper", "Eagle3DeepMTPModel"),
        ("deep_mtp", "Eagle3DeepMTPModel"),
        ("llama", "LlamaForCausalLMEagle3"),
        (None, "LlamaForCausalLMEagle3"),
        (["deep"], "LlamaForCausalLMEagle3"),
        (3, "LlamaForCausalLMEagle3"),
    ],
)
def test_override_of_vllm_turns_some_types_into_other_drafters(
    tmp_path: Path, model_type: object, expected: str
) -> None:
    assert architectures(subject(tmp_path, draft=DRAFT | {"model_type": model_type})) == (expected,)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('in ("deep", "deeper")', 'in ("deep")', "Eagle3DeepMTPModel"),
        ('in ("deep", "deeper")', 'not in ("deeper",)', "LlamaForCausalLMEagle3"),
        ('in ("deep", "deeper")', "in NAMES", "LlamaForCausalLMEagle3"),
        ('model_type in ("deep", "deeper")', 'kind in ("deep", "deeper")', "LlamaForCausalLMEagle3"),
        ('hf_config.model_type in ("deep", "deeper")', "overrides is not None", "LlamaForCausalLMEagle3"),
        ('hf_config.model_type in ("deep", "deeper")', "overrides", "LlamaForCausalLMEagle3"),
        ('in ("deep", "deeper")', 'in ("deep",) in (True,)', "LlamaForCausalLMEagle3"),
        ('hf_config.model_type = "deep_mtp"', "hf_config.model_type = make()", "LlamaForCausalLMEagle3"),
        ('hf_config.model_type = "deep_mtp"', 'kind = "deep_mtp"', "LlamaForCausalLMEagle3"),
        ('["DeepMTPModel"]', "names", None),
        ('{"n_predict": 1, "architectures": ["DeepMTPModel"]}', '{"n_predict": 1, **more}', "LlamaForCausalLMEagle3"),
        ("def hf_config_override", "def other", "LlamaForCausalLMEagle3"),
        ("def hf_config_override(hf_config):", "hf_config_override = None\n\n    def other(hf_config):",
         "LlamaForCausalLMEagle3"),
        (SPECULATIVE, "class Other: ...", "LlamaForCausalLMEagle3"),
        (SPECULATIVE, "class Other(:", "LlamaForCausalLMEagle3"),
    ],
)  # fmt: skip
def test_override_is_followed_as_it_is_written(tmp_path: Path, old: str, new: str, expected: str | None) -> None:
    source = SPECULATIVE.replace(old, new)
    assert source != SPECULATIVE
    draft = DRAFT | {"model_type": "deep"}
    found = architectures(subject(tmp_path, draft=draft, vllm__config__speculative=source))
    assert found == ((expected,) if expected else None)


@pytest.mark.parametrize(
    ("source", "inner", "expected"),
    [
        (OLD, "llama", "Eagle3LlamaForCausalLM"),
        (OLD, "qwen3", "Eagle3LlamaForCausalLM"),
        (NEW, "llama", "Eagle3LlamaForCausalLM"),
        (NEW, "qwen3", "Eagle3Qwen3ForCausalLM"),
        (NEW, None, "Eagle3LlamaForCausalLM"),
        (NEW, "none", None),
        (OLD.replace('@register_speculator("eagle3")', '@register_speculator("eagle4")'), "llama", None),
        (OLD.replace('["Eagle3LlamaForCausalLM"]', "make()"), "llama", None),
        ("", "llama", None),
        ("class X(:", "llama", None),
    ],
)
def test_drafter_of_speculators_is_named_by_the_release(
    tmp_path: Path, source: str, inner: object, expected: str | None
) -> None:
    draft = SPECULATORS | {"transformer_layer_config": TEXT | {"model_type": inner}}
    made = subject(tmp_path, draft=draft, **{ALGOS_AT: source})
    assert architectures(made) == ((expected,) if expected else None)
    gate = named(made)
    assert gate.verdict == {"Eagle3LlamaForCausalLM": "pass", None: "unknown"}.get(expected, "fail")
    assert texts(gate)[-1] == '"speculators_model_type": "eagle3",'


@pytest.mark.parametrize("kind", [None, 3, True, ["eagle3"], {"eagle3": 1}, "eagle4", ""])
def test_kind_of_speculators_that_the_release_has_not_cannot_be_told(tmp_path: Path, kind: object) -> None:
    made = subject(tmp_path, draft=SPECULATORS | {"speculators_model_type": kind}, **{ALGOS_AT: OLD})
    assert architectures(made) is None


@pytest.mark.parametrize("inner", [["llama"], {"llama": 1}, 3, True])
def test_model_type_of_speculators_that_is_no_text_is_not_looked_up(tmp_path: Path, inner: object) -> None:
    draft = SPECULATORS | {"transformer_layer_config": TEXT | {"model_type": inner}}
    assert architectures(subject(tmp_path / "new", draft=draft, **{ALGOS_AT: NEW})) is None
    assert architectures(subject(tmp_path / "old", draft=draft, **{ALGOS_AT: OLD})) == ("Eagle3LlamaForCausalLM",)


# Its number of tokens


def tokens(tmp_path: Path, count: int | None, **changes: Any) -> Gate:
    made = subject(tmp_path, draft=DRAFT | changes)
    made.speculative_tokens = count
    gate = judge_tokens(made)
    assert gate is not None and (gate.id, gate.when) == ("speculative-tokens", "configuration")
    return gate


@pytest.mark.parametrize(
    ("count", "changes", "message"),
    [
        (3, {}, "3 tokens can be drafted"),
        (3, {"n_predict": 3}, "3 tokens can be drafted"),
        (6, {"n_predict": 3}, "6 tokens can be drafted"),
        (2, {"n_predict": 3}, "2 tokens can be drafted"),
        (3, {"n_predict": 0}, "3 tokens can be drafted"),
        (3, {"n_predict": -2}, "3 tokens can be drafted"),
        (3, {"n_predict": 2**70}, "3 tokens can be drafted"),
        (3, {"n_predict": "2"}, "3 tokens can be drafted"),
        (3, {"n_predict": True}, "3 tokens can be drafted"),
        (3, {"n_predict": 2.0}, "3 tokens can be drafted"),
        (3, {"n_predict": [2]}, "3 tokens can be drafted"),
        (None, {"n_predict": 3}, "the number in the drafter's config.json can be drafted"),
        (None, {"speculators_model_type": "eagle3"}, "the number in the drafter's config.json can be drafted"),
    ],
)
def test_number_of_tokens_passes(tmp_path: Path, count: int | None, changes: dict[str, Any], message: str) -> None:
    gate = tokens(tmp_path, count, **changes)
    assert (gate.verdict, gate.message) == ("pass", message)


def test_number_that_is_no_multiple_fails_with_the_text_of_vllm(tmp_path: Path) -> None:
    gate = tokens(tmp_path, 5, n_predict=2)
    assert (gate.verdict, gate.hint) == ("fail", "take a multiple of 2")
    assert gate.error == "num_speculative_tokens:5 must be divisible by n_predict=2"
    assert gate.message == "the drafter predicts 2 tokens at once, and 5 is no multiple of that"
    assert texts(gate) == ['"n_predict": 2']


@pytest.mark.parametrize("lookahead", [None, "3", [3], True, 0, -3, 2**40])
def test_number_that_nobody_gives_cannot_be_told(tmp_path: Path, lookahead: object) -> None:
    gate = tokens(tmp_path, None, n_predict=lookahead)
    assert (gate.verdict, gate.hint) == ("unknown", "say it with --num-speculative-tokens to have it judged")
    assert "vLLM wants num_speculative_tokens" in gate.message


# Its widths


def sized(made: Subject) -> Gate:
    gate = judge_sizes(made)
    assert gate is not None and gate.id == "drafter-sizes"
    return gate


def with_draft(tmp_path: Path, **changes: Any) -> Subject:
    return subject(tmp_path, draft=DRAFT | changes)


def test_sizes_that_fit_pass(tmp_path: Path) -> None:
    gate = sized(subject(tmp_path))
    assert (gate.verdict, gate.when) == ("pass", "first-forward")
    assert gate.message == "hidden size 64 and vocabulary fit the target's 64 and 100"
    assert texts(gate) == ['"hidden_size": 64,', '"vocab_size": 100,']


@pytest.mark.parametrize(
    "width", [None, "64", [64], True, 64.0, 0, -64, 2**40, 10**4300 - 1], ids=lambda width: str(width)[:20]
)
@pytest.mark.parametrize("whose", ["target", "drafter"])
def test_width_that_is_no_number_cannot_be_told(tmp_path: Path, whose: str, width: object) -> None:
    changed = {"hidden_size": width}
    target, draft = (TARGET | changed, DRAFT) if whose == "target" else (TARGET, DRAFT | changed)
    gate = sized(subject(tmp_path, target, draft))
    assert (gate.verdict, gate.message) == ("unknown", f"the {whose}'s config.json gives no hidden_size")


@pytest.mark.parametrize("width", [0, -64, 2**40, 10**4300 - 1, "64", None], ids=lambda width: str(width)[:20])
def test_width_of_the_states_that_is_none_is_that_of_the_drafter(tmp_path: Path, width: object) -> None:
    gate = sized(with_draft(tmp_path / "fits", target_hidden_size=width))
    assert (gate.verdict, gate.message) == ("pass", "hidden size 64 and vocabulary fit the target's 64 and 100")
    gate = sized(with_draft(tmp_path / "not", target_hidden_size=width, hidden_size=32))
    assert gate.message.endswith("the drafter's fc takes 96 = 3 × 32")


@pytest.mark.parametrize(("width", "verdict"), [(64, "pass"), (32, "fail")])
def test_last_state_alone_must_be_as_wide_as_the_drafter(tmp_path: Path, width: int, verdict: str) -> None:
    gate = sized(with_draft(tmp_path, eagle_config={"use_aux_hidden_state": False}, hidden_size=width))
    assert gate.verdict == verdict
    if verdict == "fail":
        assert (gate.when, gate.error) == ("first-request", None)
        assert gate.message == f"the drafter takes the target's last state, of width 64, and is {width} wide"


@pytest.mark.parametrize(
    ("changes", "message", "error"),
    [
        ({KEY: [2, 4]}, "2 states of width 64, and the drafter's fc takes 192 = 3 × 64", "(1x128 and 192x64)"),
        ({KEY: [2, 4, 4]}, "2 states of width 64, and the drafter's fc takes 192 = 3 × 64", "(1x128 and 192x64)"),
        ({"hidden_size": 32}, "3 states of width 64, and the drafter's fc takes 96 = 3 × 32", "(1x192 and 96x32)"),
        ({"target_hidden_size": 8}, "3 states of width 64, and the drafter's fc takes 24 = 3 × 8", "(1x192 and 24x64)"),
    ],
)
def test_fc_that_does_not_take_the_states_fails(
    tmp_path: Path, changes: dict[str, Any], message: str, error: str
) -> None:
    gate = sized(with_draft(tmp_path, **changes))
    assert (gate.verdict, gate.when) == ("fail", "first-request")
    assert gate.message.endswith(message)
    assert gate.error == f"RuntimeError: mat1 and mat2 shapes cannot be multiplied {error}"
    assert gate.hint.startswith("use a drafter that was trained for this target")
    assert texts(gate)[0].startswith('"hidden_size": ')


@pytest.mark.parametrize(
    ("target", "ids", "verdict"),
    [
        (TARGET, None, "pass"),
        (TARGET | {"num_hidden_layers": 4}, None, "fail"),
        (TARGET | {"num_hidden_layers": None}, None, "pass"),
        (TARGET | {"architectures": []}, None, "pass"),
        (TARGET | {"num_hidden_layers": 4}, [1, 2, 3], "pass"),
    ],
    ids=["defaults", "defaults that coincide", "no depth", "no class", "named"],
)
def test_states_are_counted_by_the_layers_that_vllm_takes(
    tmp_path: Path, target: dict[str, Any], ids: object, verdict: str
) -> None:
    gate = sized(subject(tmp_path, target, DRAFT | {KEY: ids}))
    assert gate.verdict == verdict
    assert ("2 states of width 64" in gate.message) == (verdict == "fail")


COUNTED = DRAFTER + "\n    num_aux_hidden_states = 3\n"


@pytest.mark.parametrize(
    ("source", "changes", "verdict"),
    [
        (COUNTED, {"num_aux_hidden_states": 2}, "pass"),
        (COUNTED, {"eagle_config": {KEY: [1, 2]}}, "pass"),
        (COUNTED, {"num_aux_hidden_states": 4, "eagle_config": {KEY: [1, 2]}}, "fail"),
        (COUNTED, {"num_aux_hidden_states": 0}, "fail"),
        (COUNTED, {"num_aux_hidden_states": 0, "eagle_config": {KEY: [1, 2]}}, "pass"),
        (COUNTED, {"num_aux_hidden_states": "2"}, "fail"),
        (COUNTED, {"num_aux_hidden_states": True}, "fail"),
        (COUNTED, {"eagle_config": {KEY: []}}, "fail"),
        (COUNTED, {"eagle_config": {KEY: "12"}}, "fail"),
        (COUNTED, {"eagle_config": [1, 2]}, "fail"),
        (COUNTED, {}, "fail"),
        (DRAFTER, {"num_aux_hidden_states": 2}, "fail"),
        ("class Other: ...", {"num_aux_hidden_states": 2}, "fail"),
    ],
)
def test_class_of_later_releases_counts_its_states(
    tmp_path: Path, source: str, changes: dict[str, Any], verdict: str
) -> None:
    draft = DRAFT | {KEY: [2, 4]} | changes
    gate = sized(subject(tmp_path, draft=draft, vllm__model_executor__models__llama_eagle3=source))
    assert gate.verdict == verdict
    assert ("2 states of width 64" in gate.message) == (verdict == "fail")


@pytest.mark.parametrize(
    ("name", "shape", "verdict"),
    [
        ("fc.weight", [64, 192], "pass"),
        ("model.fc.weight", [64, 192], "pass"),
        ("model.fc.weight", [64, 128], "fail"),
        ("fc.weight", [], "fail"),
        ("fc.weight", None, "pass"),
        ("fc.weight", ["192"], "pass"),
        ("xfc.weight", [64, 128], "pass"),
    ],
)
def test_weights_of_fc_must_be_those_of_the_config(tmp_path: Path, name: str, shape: Any, verdict: str) -> None:
    gate = sized(weights(subject(tmp_path), {name: shape, "lm_head.weight": [1]}))
    assert gate.verdict == verdict
    if verdict == "fail":
        assert gate.when == "drafter-loaded"
        assert gate.message == f"fc.weight is {shape}, and config.json makes a drafter whose fc takes 192"


@pytest.mark.parametrize(
    ("tensors", "verdict", "said"),
    [
        (None, "unknown", "it needs embeddings of its own, and may have them"),
        (("fc.weight",), "fail", "the drafter has no embeddings of its own and is 32 wide; the target's are 64 wide"),
        (("model.embed_tokens.weight", "lm_head.weight"), "pass", "hidden size 32 and vocabulary fit"),
    ],
)
def test_drafter_of_another_width_needs_its_own_embeddings(
    tmp_path: Path, tensors: tuple[str, ...] | None, verdict: str, said: str
) -> None:
    made = with_draft(tmp_path, hidden_size=32, target_hidden_size=64)
    gate = sized(weights(made, dict.fromkeys(tensors)) if tensors else made)
    assert (gate.verdict, gate.when) == (verdict, "first-forward")
    assert said in gate.message
    assert texts(gate)[0] == '"hidden_size": 32,'


# Its vocabulary

OWN = ("lm_head.weight", "model.embed_tokens.weight", "d2t")


@pytest.mark.parametrize(
    ("changes", "tensors", "verdict", "when", "said"),
    [
        ({}, OWN, "pass", "first-forward", "fit"),
        ({"draft_vocab_size": 50}, None, "pass", "first-forward", "fit"),
        ({"draft_vocab_size": 50}, OWN, "pass", "first-forward", "fit"),
        ({"draft_vocab_size": 0}, OWN, "pass", "first-forward", "fit"),
        ({"draft_vocab_size": "50"}, OWN, "pass", "first-forward", "fit"),
        ({"draft_vocab_size": 50}, OWN[:2], "fail", "in-service",
         "the drafter drafts 50 of 100 tokens, and has no d2t tensor that says which"),
        ({"draft_vocab_size": 50}, OWN[1:], "fail", "in-service",
         "the drafter has no lm_head: the first 50 rows of the target's are taken for what it drafts"),
        ({}, OWN[1:], "pass", "first-forward", "fit"),
        ({"draft_vocab_size": 101}, OWN, "fail", "first-request",
         "draft_vocab_size 101 is larger than the drafter's vocab_size 100"),
        ({"vocab_size": 90}, OWN, "fail", "first-request",
         "the drafter's own embeddings are for 90 tokens, and the target has 100"),
        ({"vocab_size": 90}, None, "unknown", "first-request", "the drafter knows 90 tokens, the target 100"),
        ({"vocab_size": 90}, OWN[::2], "pass", "first-forward", "fit"),
        ({"vocab_size": 110}, OWN, "unknown", "in-service", "vocabulary of 110 is larger than the target's of 100"),
        ({"vocab_size": None}, OWN, "unknown", "first-request", "the drafter's config.json gives no vocab_size"),
        ({"vocab_size": None, "draft_vocab_size": 50}, OWN, "unknown", "first-request",
         "the drafter's config.json gives no vocab_size"),
        ({"vocab_size": "100"}, OWN, "unknown", "first-request", "the drafter's config.json gives no vocab_size"),
        ({"vocab_size": True}, OWN, "unknown", "first-request", "the drafter's config.json gives no vocab_size"),
        ({"vocab_size": -1}, OWN, "unknown", "first-request", "the drafter's config.json gives no vocab_size"),
        ({"vocab_size": 0}, OWN, "unknown", "first-request", "the drafter's config.json gives no vocab_size"),
        ({"vocab_size": 2**40}, OWN, "unknown", "first-request", "the drafter's config.json gives no vocab_size"),
        ({"draft_vocab_size": 2**40}, OWN, "pass", "first-forward", "fit"),
        ({"draft_vocab_size": -1}, OWN, "pass", "first-forward", "fit"),
        ({"vocab_size": 90}, OWN[1:], "fail", "in-service",
         "the drafter has no lm_head: the first 90 rows of the target's are taken for what it drafts"),
        ({"vocab_size": 99}, OWN, "fail", "first-request",
         "the drafter's own embeddings are for 99 tokens, and the target has 100"),
    ],
)  # fmt: skip
def test_vocabularies_are_compared(
    tmp_path: Path, changes: dict[str, Any], tensors: tuple[str, ...] | None, verdict: str, when: str, said: str
) -> None:
    made = with_draft(tmp_path, **changes)
    gate = sized(weights(made, dict.fromkeys(tensors)) if tensors else made)
    assert (gate.verdict, gate.when) == (verdict, when)
    assert said in gate.message
    assert (gate.hint == "") == (verdict == "pass" or "gives no" in said)


@pytest.mark.parametrize("size", [None, "100", [100], 100.0, 0, -100, 2**40])
def test_vocabulary_of_the_target_that_is_no_number_cannot_be_told(tmp_path: Path, size: object) -> None:
    gate = sized(subject(tmp_path, TARGET | {"vocab_size": size}))
    assert (gate.verdict, gate.message) == ("unknown", "the target's config.json gives no vocab_size")


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [(None, None), (("lm_head.weight",), True), (("lm_head_norm.weight",), False), (("a.lm_head.b",), True)],
)
def test_tensor_is_found_by_a_part_of_its_name(
    tmp_path: Path, tensors: tuple[str, ...] | None, expected: bool | None
) -> None:
    made = subject(tmp_path)
    assert has_tensor(weights(made, dict.fromkeys(tensors)) if tensors else made, "lm_head") is expected


@pytest.mark.parametrize("ids", [[[2, 4, 5]], [{}], [2, [4], 5], [2, "4"], [2.0, 4.0], [None]], ids=str)
def test_ids_that_are_not_all_whole_numbers_are_left_to_their_own_gate(tmp_path: Path, ids: list[object]) -> None:
    gate = sized(with_draft(tmp_path, **{KEY: ids}))
    assert (gate.verdict, gate.message) == ("pass", "hidden size 64 and vocabulary fit the target's 64 and 100")


def test_vocabularies_are_compared_whatever_the_ids_are(tmp_path: Path) -> None:
    gate = sized(weights(with_draft(tmp_path, vocab_size=90, **{KEY: ["2"]}), dict.fromkeys(OWN)))
    assert (gate.verdict, gate.when) == ("fail", "first-request")
