"""The Kimi set in the real engine on a CPU: each gate in turn, then every state of every layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.conftest import Engine
from tests.engine.environment import base, preloads

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]

ORDER = (
    "eagle3_target_whitelist",
    "kimi_k25_image_token",
    "eagle3_aux_hidden_states",
)
"""The patches in the order of the gates that they open."""
LAYERS = 8
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(engine: Engine) -> Ask:
    """Return a function that asks the real engine of a release, with some patches applied, a question."""

    def ask(question: str, release: str, patches: tuple[str, ...] = (), draft: str = "draft") -> dict[str, Any]:
        answer: dict[str, Any] = engine.ask("probe.py", question, (release,), patches, draft)
        return answer

    return ask


@pytest.mark.parametrize("release", ["0.16.0", "0.17.1"])
def test_first_gate_closed_then_open(ask: Ask, release: str) -> None:
    assert "is only supported for" in ask("config", release)["error"]
    assert "model_type='kimi_k2'" in ask("config", release)["error"]
    assert ask("config", release, ORDER[:1]) == {"error": None}


@pytest.mark.parametrize("release", ["0.16.0", "0.17.1"])
def test_second_gate_closed_then_open(ask: Ask, release: str) -> None:
    closed = ask("drafter", release, ORDER[:1])
    assert closed["error"] == "AttributeError: 'KimiK25Config' object has no attribute 'image_token_index'"
    opened = ask("drafter", release, ORDER[:2])
    assert (opened["error"], opened["image token"], opened["embeddings shared"]) == (None, 250, True)


@pytest.mark.parametrize("release", ["0.16.0", "0.17.1"])
def test_third_gate_closed_then_open(ask: Ask, release: str) -> None:
    closed, opened = ask("drafter", release, ORDER[:2]), ask("drafter", release, ORDER)
    assert (closed["wrapper"], closed["text model"]) == (False, False)
    assert (opened["wrapper"], opened["text model"]) == (True, True)
    assert (opened["error"], opened["image token"], opened["embeddings shared"]) == (None, 250, True)


@pytest.mark.parametrize("release", ["0.16.0", "0.17.1"])
def test_states_are_those_of_the_layers_and_tokens_stay(ask: Ask, release: str) -> None:
    pristine, patched = ask("states", release), ask("states", release, ORDER)
    expected = [[prompt[-1] + 1 + step for step in range(8)] for prompt in ([10, 11, 12], [100], [33, 34, 35, 36, 37])]
    assert pristine == {"tokens": expected}
    assert patched["tokens"] == expected
    assert patched["tokens while captured"] == expected[0]
    assert patched["layers"] == list(range(LAYERS + 1))
    assert patched["states equal hooks"] == [True] * 8
    assert all(len({str(state) for state in states}) == LAYERS + 1 for states in patched["states"])


def test_states_are_those_of_the_first_upstream_release(ask: Ask) -> None:
    if not preloads(base())[1:]:
        pytest.skip("vLLM 0.18 wants libtcmalloc-minimal4")
    upstream, patched = ask("states", "0.18.1"), ask("states", "0.17.1", ORDER)
    assert upstream["tokens"] == patched["tokens"]
    assert upstream["states equal hooks"] == [True] * 8
    assert upstream["layers"] == list(range(1, LAYERS))
    assert [states[1:LAYERS] for states in patched["states"]] == upstream["states"]
