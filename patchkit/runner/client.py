"""A small client: the same prompts, so many at a time, with the time that each takes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from patchkit.errors import RunnerError

PROMPTS = (
    "Explain how a heat pump warms a house in winter.",
    "Write a function in Python that merges two sorted lists, and its tests.",
    "List the planets of the solar system with their diameters.",
    "Summarise the causes of the French revolution in five sentences.",
    "Translate into German: the weather is fine, so we walk to the lake.",
    "What is the derivative of x squared times the sine of x?",
    "Write a short letter to a landlord about a broken window.",
    "Name ten words that rhyme with light.",
)
"""What is asked where no prompts are given; our own words."""


@dataclass(frozen=True)
class Answer:
    """One prompt's answer."""

    tokens: int
    first: float
    """Seconds until its first token."""
    whole: float
    """Seconds until its last one."""


@dataclass(frozen=True)
class Round:
    """All prompts, once."""

    answers: tuple[Answer, ...]
    seconds: float

    @property
    def throughput(self) -> float:
        """Return the tokens a second."""
        return sum(answer.tokens for answer in self.answers) / self.seconds


def ask_all(url: str, model: str, prompts: Sequence[object], tokens: int, at_once: int) -> Round:
    """Ask every prompt, so many at a time; each gets exactly so many tokens, greedily."""
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        answers = tuple(pool.map(lambda prompt: _ask(url, model, prompt, tokens), prompts))
    return Round(answers, time.monotonic() - began)


def _ask(url: str, model: str, prompt: object, tokens: int) -> Answer:
    import httpx

    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    began, first, count = time.monotonic(), None, 0
    try:
        with httpx.stream(
            "POST",
            f"{url}/v1/completions",
            json=body,
            timeout=600,
            trust_env=False,
            verify=False,  # noqa: S501
        ) as answer:
            if not answer.is_success:
                raise RunnerError(f"the server refuses a prompt: {answer.status_code} {answer.read()[:200]!r}")
            for line in answer.iter_lines():
                found = _event(line)
                if found.get("choices") and first is None:
                    first = time.monotonic()
                usage = found.get("usage")
                if isinstance(usage, dict):
                    count = int(usage["completion_tokens"])
    except httpx.HTTPError as error:
        raise RunnerError(f"the server does not answer a prompt: {error!r}", "see its log") from error
    ended = time.monotonic()
    return Answer(count, (first or ended) - began, ended - began)


def _event(line: str) -> dict[str, object]:
    """Return what a line of the stream says; nothing where it is no event."""
    text = line.removeprefix("data: ")
    try:
        found = json.loads(text) if text != line and text != "[DONE]" else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def served_name(url: str) -> str:
    """Return the name by which the server knows its model."""
    import httpx

    try:
        answer = httpx.get(f"{url}/v1/models", timeout=30, trust_env=False, verify=False).json()  # noqa: S501
        return str(answer["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise RunnerError(f"the server does not name its model: {error!r}", "see its log") from error
