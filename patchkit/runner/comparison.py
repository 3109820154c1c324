"""Whether speculation pays: the same prompts without it and with it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.runner.client import Round
from patchkit.runner.metrics import Speculation

_EVEN = 0.02
"""What differs by less is called even."""


@dataclass(frozen=True)
class Measured:
    """One server's rounds, and what it counted in them."""

    rounds: tuple[Round, ...]
    counted: Speculation
    ready: float
    """Seconds until the server was ready."""

    @property
    def throughputs(self) -> tuple[float, ...]:
        """Return the tokens a second of each round."""
        return tuple(found.throughput for found in self.rounds)

    @property
    def throughput(self) -> float:
        """Return the median of these."""
        return statistics.median(self.throughputs)

    def latency(self, share: float) -> float:
        """Return the seconds within which this share of the answers was whole."""
        return _quantile([answer.whole for found in self.rounds for answer in found.answers], share)

    def first_token(self, share: float) -> float:
        """Return the seconds within which this share of the answers had begun."""
        return _quantile([answer.first for found in self.rounds for answer in found.answers], share)


@dataclass(frozen=True)
class Comparison:
    """Both, side by side."""

    plain: Measured
    speculating: Measured
    tokens: int
    """Speculative tokens."""

    @property
    def speed_up(self) -> float:
        """Return the throughput with speculation as a multiple of that without."""
        return self.speculating.throughput / self.plain.throughput

    @property
    def spread(self) -> tuple[float, float]:
        """Return the least and the greatest speed-up that two rounds can show."""
        ours, theirs = self.speculating.throughputs, self.plain.throughputs
        return min(ours) / max(theirs), max(ours) / min(theirs)

    @property
    def break_even(self) -> float | None:
        """Return the acceptance rate at which speculation would neither win nor lose here; None where none would do.

        A step with speculation takes as long as ``accepted_length / speed_up`` tokens without it; so many tokens a
        step must give.
        """
        length = self.speculating.counted.accepted_length
        if length is None:
            return None
        rate = (length / self.speed_up - 1) / self.tokens
        return rate if rate <= 1 else None

    @property
    def verdict(self) -> str:
        """Return it in words."""
        counted = self.speculating.counted
        if counted.acceptance_rate is None:
            return f"nothing was drafted; {self.speed_up:.2f}×"
        word = "makes no difference"
        if abs(self.speed_up - 1) >= _EVEN:
            word = "pays" if self.speed_up > 1 else "loses"
        even = self.break_even
        rest = f"break-even here is {max(even, 0):.0%}" if even is not None else "no acceptance would make it even here"
        return f"speculation {word}: {self.speed_up:.2f}×; acceptance {counted.acceptance_rate:.0%}; {rest}"

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table: what, without, with."""
        counted = self.speculating.counted
        both = (self.plain, self.speculating)
        rows = [
            ("tokens a second", *(f"{found.throughput:.1f}" for found in both)),
            ("  of each round", *(" ".join(f"{rate:.1f}" for rate in found.throughputs) for found in both)),
            ("first token, median", *(f"{found.first_token(0.5) * 1000:.0f} ms" for found in both)),
            ("whole answer, median", *(f"{found.latency(0.5):.2f} s" for found in both)),
            ("whole answer, 95 %", *(f"{found.latency(0.95):.2f} s" for found in both)),
            ("ready after", *(f"{found.ready:.0f} s" for found in both)),
        ]
        if counted.acceptance_rate is not None and counted.accepted_length is not None:
            rows.append(("acceptance", "", f"{counted.acceptance_rate:.1%}"))
            rows.append(("  by position", "", " ".join(f"{rate:.2f}" for rate in counted.rates)))
            rows.append(("tokens a step", "1.00", f"{counted.accepted_length:.2f}"))
        low, high = self.spread
        rows.append(("speed-up", "", f"{self.speed_up:.2f} ({low:.2f} to {high:.2f})"))
        return rows  # type: ignore[return-value]

    def to_json(self) -> dict[str, object]:
        """Return everything that was measured."""
        counted = self.speculating.counted
        return {
            "schema": 1,
            "speed_up": self.speed_up,
            "spread": list(self.spread),
            "acceptance_rate": counted.acceptance_rate,
            "acceptance_by_position": list(counted.rates),
            "accepted_length": counted.accepted_length,
            "break_even": self.break_even,
            "verdict": self.verdict,
            "without": _measured(self.plain),
            "with": _measured(self.speculating),
        }


def _measured(found: Measured) -> dict[str, object]:
    return {
        "tokens_per_second": list(found.throughputs),
        "first_token_seconds": {"p50": found.first_token(0.5), "p95": found.first_token(0.95)},
        "answer_seconds": {"p50": found.latency(0.5), "p95": found.latency(0.95)},
        "ready_seconds": found.ready,
    }


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
