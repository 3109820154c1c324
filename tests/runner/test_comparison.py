from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from patchkit.runner.client import Answer, Round
from patchkit.runner.comparison import Comparison, Measured
from patchkit.runner.metrics import Speculation
from patchkit.runner.picture import draw

NOTHING = Speculation()


def measured(*rates: float, counted: Speculation = NOTHING) -> Measured:
    """Return rounds of ten answers of 100 tokens, with these tokens a second."""
    answers = tuple(Answer(100, 0.1 * number, 1.0 * number) for number in range(1, 11))
    return Measured(tuple(Round(answers, 1000 / rate) for rate in rates), counted, 12.3)


COUNTED = Speculation(1000, 500, 1000, 500, {0: 400, 1: 100})


def comparison(*rates: float, counted: Speculation = COUNTED) -> Comparison:
    return Comparison(measured(90, 100, 110), measured(*rates, counted=counted), 2)


def test_speed_up_is_that_of_the_medians_with_what_two_rounds_can_show() -> None:
    found = comparison(140, 150, 160)
    assert found.speed_up == pytest.approx(1.5)
    assert found.spread == pytest.approx((140 / 110, 160 / 90))


@pytest.mark.parametrize(
    ("rates", "counted", "verdict"),
    [
        ((150,), COUNTED, "speculation pays: 1.50×; acceptance 50%; break-even here is 17%"),
        ((66,), COUNTED, "speculation loses: 0.66×; acceptance 50%; no acceptance would make it even here"),
        ((80,), COUNTED, "speculation loses: 0.80×; acceptance 50%; break-even here is 75%"),
        ((101,), COUNTED, "speculation makes no difference: 1.01×; acceptance 50%; break-even here is 49%"),
        ((300,), COUNTED, "speculation pays: 3.00×; acceptance 50%; break-even here is 0%"),
        ((95,), Speculation(generated=5), "nothing was drafted; 0.95×"),
    ],
)
def test_verdict_in_words(rates: tuple[float, ...], counted: Speculation, verdict: str) -> None:
    assert comparison(*rates, counted=counted).verdict == verdict


def test_break_even_is_where_a_step_gives_as_many_tokens_as_it_costs() -> None:
    found = comparison(150)
    assert found.break_even is not None
    length = 1 + found.break_even * 2
    step = COUNTED.accepted_length / found.speculating.throughput  # type: ignore[operator]
    assert length / step == pytest.approx(found.plain.throughput)
    assert comparison(150, counted=Speculation()).break_even is None


def test_table_has_both_sides() -> None:
    rows = {what.strip(): (without, speculating) for what, without, speculating in comparison(140, 150, 160).rows()}
    assert rows == {
        "tokens a second": ("100.0", "150.0"),
        "of each round": ("90.0 100.0 110.0", "140.0 150.0 160.0"),
        "first token, median": ("600 ms", "600 ms"),
        "whole answer, median": ("6.00 s", "6.00 s"),
        "whole answer, 95 %": ("10.00 s", "10.00 s"),
        "ready after": ("12 s", "12 s"),
        "acceptance": ("", "50.0%"),
        "by position": ("", "0.80 0.20"),
        "tokens a step": ("1.00", "2.00"),
        "speed-up": ("", "1.50 (1.27 to 1.78)"),
    }
    assert "acceptance" not in [row[0] for row in comparison(150, counted=Speculation()).rows()]


def test_figures_as_json() -> None:
    found = json.loads(json.dumps(comparison(140, 150, 160).to_json()))
    assert found["speed_up"] == pytest.approx(1.5)
    assert found["acceptance_by_position"] == [0.8, 0.2]
    assert found["without"]["tokens_per_second"] == pytest.approx([90, 100, 110])
    assert found["with"]["answer_seconds"] == {"p50": 6.0, "p95": 10.0}
    assert found["verdict"].startswith("speculation pays")


class Page(HTMLParser):
    """Counts a page's elements, and fails where one is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data}\n"


def test_page_is_whole_and_needs_nothing_from_elsewhere() -> None:
    page = Page()
    page.feed(text := draw(comparison(140, 150, 160), "Kimi <b>K2.5</b> & more"))
    assert page.open == []
    assert "Kimi <b>K2.5</b> & more" in page.text and "<b>" not in text
    assert not any({"src", "href"} & set(attributes) for _, attributes in page.seen)
    bars = [float(attributes["width"] or 0) for tag, attributes in page.seen if tag == "rect"]
    assert len(bars) == 3 + 3 + 2
    assert bars[5] == max(bars[:6]) and bars[0] / bars[5] == pytest.approx(90 / 160, abs=0.01)
    assert "position 1" in page.text and "80%" in page.text


def test_page_without_drafts_and_without_tokens() -> None:
    page = Page()
    page.feed(draw(Comparison(measured(1), measured(1), 2), "t"))
    assert "Acceptance by position" not in page.text
