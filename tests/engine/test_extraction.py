"""Hidden-state extraction by speculators in the real engine on a CPU: each failure in turn, then every row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.conftest import Engine
from tests.support import CATALOG

pytestmark = pytest.mark.engine

# The patches of each pair of releases in the order in which a run meets what they cure.
BEFORE_LOADING = ("generator_tokenizer_trust", "generator_encoder_decoder_setting")
AFTER_LOADING = (
    "custom_worker_unwrap",
    "generator_memory_figure",
    "generator_kv_cache_arguments",
    "generator_block_size",
)
RUNNING = ("generator_no_prefix_cache", "generator_sampled_step", "generator_reply_of_one_worker")
EOS = ("generator_request_without_eos",)
OLD = (*BEFORE_LOADING, *AFTER_LOADING)
NEW = ("generator_tokenizer_trust", "generator_memory_figure")
LOUD = {
    ("0.16.0", "0.3.0"): (*OLD, *RUNNING),
    ("0.17.1", "0.3.0"): (*OLD, *EOS, *RUNNING),
    ("0.16.0", "0.4.0.1"): (*NEW, "generator_more_sequences"),
    ("0.17.1", "0.4.0.1"): (*NEW, *EOS, "generator_more_sequences"),
}
# The patch that is then still missing; its symptom is in no text.
SILENT = {"0.3.0": "generator_states_by_request", "0.4.0.1": "generator_results_in_order"}
COUNTS = [12, 14, 2, 40]
"""Sequences in each batch."""
Pair = tuple[str, str]


def ask(
    engine: Engine, pair: Pair, patches: tuple[str, ...], *words: str, question: str = "generate"
) -> dict[str, Any]:
    answer: dict[str, Any] = engine.ask("extraction.py", question, pair, tuple(sorted(patches)), *words)
    return answer


STEPS = [(pair, number) for pair, patches in LOUD.items() for number in range(len(patches))]


@pytest.mark.parametrize(
    ("pair", "number"), STEPS, ids=[f"{'-'.join(pair)}-{LOUD[pair][step]}" for pair, step in STEPS]
)
def test_each_failure_in_turn(engine: Engine, pair: Pair, number: int) -> None:
    answer = ask(engine, pair, LOUD[pair][:number])
    symptom = CATALOG.headers[LOUD[pair][number]].patch.symptom
    assert symptom in answer["error"] or symptom == answer["line"]


@pytest.mark.parametrize("pair", LOUD, ids="-".join)
def test_states_of_another_request_until_the_last_patch(engine: Engine, pair: Pair) -> None:
    batches = ask(engine, pair, LOUD[pair])["batches"]
    assert [batch["sequences"] for batch in batches] == COUNTS
    assert [batch["equal hooks"] for batch in batches] != COUNTS


@pytest.mark.parametrize("pair", LOUD, ids="-".join)
def test_every_state_is_its_own(engine: Engine, pair: Pair) -> None:
    answer = ask(engine, pair, ("kimi-k25-extract",), "--alone")
    for batch, count in zip(answer["batches"], COUNTS, strict=True):
        assert batch == {"sequences": count, "ids in order": True, "lengths": count, "equal hooks": count}
    # Five layers of each sequence; run alone and whole, or in chunks beside others, the rows are the same.
    assert answer["compared alone"] == 5 * sum(COUNTS)
    assert answer["greatest difference alone"] == 0


@pytest.mark.parametrize("vllm", ["0.16.0", "0.17.1"])
def test_text_model_is_embedded(engine: Engine, vllm: str) -> None:
    pair = (vllm, "0.3.0")
    closed = ask(engine, pair, (*LOUD[pair], SILENT["0.3.0"]), "--text")
    assert CATALOG.headers["custom_worker_embed_input_ids"].patch.symptom in closed["error"]
    opened = ask(engine, pair, ("kimi-k25-extract",), "--text", "--alone")
    assert [batch["equal hooks"] for batch in opened["batches"]] == COUNTS
    assert opened["greatest difference alone"] == 0


@pytest.mark.parametrize("speculators", ["0.3.0", "0.4.0.1"])
def test_preprocessing_with_a_tokenizer_in_python(engine: Engine, speculators: str) -> None:
    pair = ("0.16.0", speculators)
    closed = ask(engine, pair, (), question="preprocess")
    assert closed["rows"] == []
    opened = ask(engine, pair, ("kimi-k25-extract",), question="preprocess")
    assert opened["is fast"] is False
    assert opened["rows"] == opened["expected"]
    assert len(opened["rows"]) == 4
