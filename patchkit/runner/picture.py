"""One self-contained page with the numbers of a comparison and their bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from patchkit.runner.comparison import Comparison

_WIDTH, _BAR, _GAP, _LEFT = 640, 22, 8, 170
_COLOURS = {"without": "#8a8f98", "with": "#2563a8", "position": "#2e8b57"}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 44rem; padding: 0 1rem; color: #1c1e21 }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .25rem .5rem }
tr { border-bottom: 1px solid #ddd } h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
svg { width: 100%; height: auto } .verdict { font-size: 1.15rem; font-weight: 600 }
@media (prefers-color-scheme: dark) { body { background: #16181b; color: #e6e6e6 } tr { border-color: #444 } }
"""


def draw(comparison: Comparison, title: str) -> str:
    """Return the page."""
    rounds = [
        (f"{name} speculation, round {number}", rate, _COLOURS[name])
        for name, found in (("without", comparison.plain), ("with", comparison.speculating))
        for number, rate in enumerate(found.throughputs, 1)
    ]
    rates = [
        (f"position {number}", rate, _COLOURS["position"])
        for number, rate in enumerate(comparison.speculating.counted.rates, 1)
    ]
    rows = "".join(
        f"<tr><td>{escape(what)}</td><td>{escape(without)}</td><td>{escape(speculating)}</td></tr>"
        for what, without, speculating in comparison.rows()
    )
    drawn = f"<h2>Acceptance by position</h2>{_bars(rates, 1.0, '{:.0%}')}" if rates else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
        f'<h1>{escape(title)}</h1><p class="verdict">{escape(comparison.verdict)}</p>'
        f"<table><tr><th></th><th>without</th><th>with speculation</th></tr>{rows}</table>"
        f"<h2>Tokens a second</h2>{_bars(rounds, max(rate for _, rate, _ in rounds), '{:.1f}')}{drawn}</body></html>\n"
    )


def _bars(bars: Sequence[tuple[str, float, str]], greatest: float, form: str) -> str:
    """Return horizontal bars, each with its name and its value."""
    height = len(bars) * (_BAR + _GAP)
    parts = []
    for number, (name, value, colour) in enumerate(bars):
        top = number * (_BAR + _GAP)
        length = (_WIDTH - _LEFT - 60) * (value / greatest if greatest else 0)
        parts.append(
            f'<text x="{_LEFT - 8}" y="{top + 16}" text-anchor="end" font-size="13" fill="currentColor">'
            f"{escape(name)}</text>"
            f'<rect x="{_LEFT}" y="{top}" width="{length:.1f}" height="{_BAR}" rx="3" fill="{colour}"/>'
            f'<text x="{_LEFT + length + 6:.1f}" y="{top + 16}" font-size="13" fill="currentColor">'
            f"{form.format(value)}</text>"
        )
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'
