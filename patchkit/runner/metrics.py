"""What the server's /metrics say about its speculation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_COUNTERS = {
    "vllm:generation_tokens": "generated",
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "drafted",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
}
_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"


@dataclass(frozen=True)
class Speculation:
    """Counters since the server's start, summed over its engines."""

    generated: float = 0
    """Tokens."""
    drafts: float = 0
    drafted: float = 0
    """Tokens that were proposed."""
    accepted: float = 0
    """Tokens of these that the target accepted."""
    by_position: Mapping[int, float] = field(default_factory=dict)
    """Accepted tokens by their place in the draft, from 0."""

    def since(self, earlier: Speculation) -> Speculation:
        """Return what was counted after an earlier look."""
        return Speculation(
            self.generated - earlier.generated,
            self.drafts - earlier.drafts,
            self.drafted - earlier.drafted,
            self.accepted - earlier.accepted,
            {place: count - earlier.by_position.get(place, 0) for place, count in self.by_position.items()},
        )

    @property
    def acceptance_rate(self) -> float | None:
        """Return the share of the drafted tokens that was accepted; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def accepted_length(self) -> float | None:
        """Return the mean number of tokens a step gives, the target's own included."""
        return 1 + self.accepted / self.drafts if self.drafts else None

    @property
    def rates(self) -> tuple[float, ...]:
        """Return the acceptance rate of each position, from the first."""
        return tuple(self.by_position[place] / self.drafts for place in sorted(self.by_position) if self.drafts)


def read_metrics(text: str) -> Speculation:
    """Read the counters from Prometheus' text format."""
    from prometheus_client.parser import text_string_to_metric_families

    totals: dict[str, float] = {}
    by_position: dict[int, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")
            if name in _COUNTERS and sample.name.endswith("_total"):
                totals[_COUNTERS[name]] = totals.get(_COUNTERS[name], 0) + sample.value
            elif name == _BY_POSITION and sample.labels.get("position", "").isdecimal():
                place = int(sample.labels["position"])
                by_position[place] = by_position.get(place, 0) + sample.value
    return Speculation(**totals, by_position=by_position)


def describe(found: Speculation, seconds: float) -> str:
    """Return one line about a while of this many seconds."""
    parts = [f"{found.generated / seconds:.1f} tokens/s"]
    if found.acceptance_rate is not None and found.accepted_length is not None:
        parts.append(f"acceptance {found.acceptance_rate:.1%}, {found.accepted_length:.2f} tokens a step")
        parts.append("by position " + " ".join(f"{rate:.2f}" for rate in found.rates))
    return ", ".join(parts)
