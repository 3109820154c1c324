from __future__ import annotations

import io
from dataclasses import replace

import pytest

from patchkit.gates.gate import Gate
from patchkit.gates.module import Evidence
from patchkit.gates.verdict import Verdict
from patchkit.gates.view import show_verdict
from patchkit.screen import Screen

FAILED = Gate("image-token", "fail", "the message", "target-loaded", (Evidence("a.py", 3, "x = 1"),), "the error")


def shown(*gates: Gate, cures: dict[str, str] | None = None) -> list[str]:
    out = io.StringIO()
    show_verdict(Screen(out, is_terminal=False), Verdict(gates=gates), cures or {})
    return out.getvalue().splitlines()


def test_verdict_without_a_way_begins_with_its_gates() -> None:
    assert shown(Gate("capture", "pass", "the message", "first-forward")) == ["pass     capture  the message"]


def test_unknown_gate_without_a_hint_says_no_more() -> None:
    assert shown(Gate("capture", "unknown", "the message", "first-forward")) == [
        "unknown  capture  the message",
        "         met at the first forward, after all weights are loaded",
    ]


@pytest.mark.parametrize(
    ("gate", "cures", "last"),
    [
        (FAILED, {}, "no patch of this catalog opens it"),
        (replace(FAILED, hint="do this"), {}, "do this"),
        (replace(FAILED, cure="mend"), {"mend": "patchkit apply mend"}, "mend opens it; patchkit apply mend"),
        (replace(FAILED, cure="mend"), {}, "mend opens it; its state here is not known"),
    ],
)
def test_last_line_of_a_gate_is_the_next_step(gate: Gate, cures: dict[str, str], last: str) -> None:
    assert shown(gate, cures=cures) == [
        "fail     image-token  the message",
        "         met after the target's weights are loaded",
        "         a.py:3: x = 1",
        "         vLLM says: the error",
        f"         {last}",
    ]


def test_long_texts_are_cut() -> None:
    line = shown(replace(FAILED, message="m" * 5000, error="e" * 5000))
    assert line[0].endswith("m…") and len(line[0]) < 1100 and len(line[3]) < 1100
