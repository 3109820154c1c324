from __future__ import annotations

import pytest

from patchkit.runner.metrics import Speculation, describe, read_metrics

NAMES = {
    "generation_tokens": (100.0, 20.0),
    "spec_decode_num_drafts": (30.0, 10.0),
    "spec_decode_num_draft_tokens": (90.0, 30.0),
    "spec_decode_num_accepted_tokens": (50.0, 10.0),
}


def counter(name: str, *samples: tuple[str, float]) -> str:
    lines = [f"# HELP vllm:{name}_total Words.", f"# TYPE vllm:{name}_total counter"]
    lines += [f'vllm:{name}_total{{{labels},model_name="m"}} {value}' for labels, value in samples]
    lines += [f"# HELP vllm:{name}_created Words.", f"# TYPE vllm:{name}_created gauge"]
    lines += [f'vllm:{name}_created{{{labels},model_name="m"}} 1.7e+09' for labels, _ in samples]
    return "\n".join([*lines, ""])


TEXT = "".join(
    [
        "# TYPE python_gc_objects_collected_total counter\n",
        'python_gc_objects_collected_total{generation="0"} 7\n',
        "# TYPE vllm:num_requests_running gauge\n",
        'vllm:num_requests_running{engine="0"} 3.0\n',
        *(counter(name, ('engine="0"', first), ('engine="1"', second)) for name, (first, second) in NAMES.items()),
        counter(
            "spec_decode_num_accepted_tokens_per_pos",
            *((f'engine="{engine}",position="{place}"', 15.0 - 5 * place) for engine in (0, 1) for place in (0, 1, 2)),
        ),
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="odd"} 99\n',
    ]
)
FOUND = Speculation(120, 40, 120, 60, {0: 30, 1: 20, 2: 10})


def test_counters_are_summed_over_the_engines() -> None:
    assert read_metrics(TEXT) == FOUND


def test_nothing_is_counted_where_there_is_nothing() -> None:
    assert read_metrics("") == Speculation()
    assert read_metrics("# TYPE vllm:generation_tokens gauge\nvllm:generation_tokens 5\n") == Speculation()


def test_rates() -> None:
    assert (FOUND.acceptance_rate, FOUND.accepted_length, FOUND.rates) == (0.5, 2.5, (0.75, 0.5, 0.25))


def test_rates_of_nothing_drafted_are_none() -> None:
    idle = Speculation(10, by_position={0: 0})
    assert (idle.acceptance_rate, idle.accepted_length, idle.rates) == (None, None, ())
    assert (Speculation(drafted=1).acceptance_rate, Speculation(drafted=1).accepted_length) == (0.0, None)


def test_difference() -> None:
    later = Speculation(220, 50, 150, 80, {0: 40, 1: 25, 2: 10, 3: 1})
    assert later.since(FOUND) == Speculation(100, 10, 30, 20, {0: 10, 1: 5, 2: 0, 3: 1})
    assert FOUND.since(Speculation()) == FOUND


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (FOUND, "12.0 tokens/s, acceptance 50.0%, 2.50 tokens a step, by position 0.75 0.50 0.25"),
        (Speculation(5), "0.5 tokens/s"),
        (Speculation(5, drafted=1), "0.5 tokens/s"),
    ],
)
def test_one_line(found: Speculation, line: str) -> None:
    assert describe(found, 10) == line
