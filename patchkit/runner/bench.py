"""Measure the same prompts on two servers, without speculation and with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchkit.errors import RunnerError
from patchkit.runner.client import Round, ask_all, served_name
from patchkit.runner.command import Served
from patchkit.runner.comparison import Comparison, Measured
from patchkit.runner.launch import Server, started
from patchkit.runner.serve import Run


@dataclass(frozen=True)
class Load:
    """What is asked of each server."""

    prompts: Sequence[object]
    """Texts, or lists of token ids."""
    tokens: int = 128
    """How many tokens each answer has."""
    at_once: int = 1
    """How many prompts are asked at a time."""
    rounds: int = 3
    """How often all of them are asked, after a first time that does not count."""


def compare(run: Run, load: Load) -> Comparison:
    """Run the server twice; ``run`` was prepared with the drafter."""
    speculating = run.served
    plain = replace(speculating, draft=None, tokens=None)
    without = _measure(run, plain, load, "without speculation")
    return Comparison(without, _measure(run, speculating, load, "with speculation"), speculating.tokens or 0)


def _measure(run: Run, served: Served, load: Load, name: str) -> Measured:
    run.say(f"{name}: log: {run.settings.log}")
    with started(served, run.settings) as server:
        if not server.wait_ready(run.show):
            raise RunnerError(f"the server {name} {_why(server)}", f"patchkit explain {run.settings.log}")
        ready = server.elapsed
        run.prove(server)
        model = served_name(served.url)
        run.say(f"{name}: ready after {ready:.1f} s; {load.rounds} rounds of {len(load.prompts)} prompts")
        _ask(server, model, load)
        before = server.metrics()
        rounds = []
        for number in range(load.rounds):
            rounds.append(_ask(server, model, load))
            run.say(f"{name}: round {number + 1}: {rounds[-1].throughput:.1f} tokens/s")
        after = server.metrics()
        server.stop()
        server.watch(run.say)
    if before is None or after is None:
        raise RunnerError(f"the server {name} tells no metrics", f"see {run.settings.log}")
    return Measured(tuple(rounds), after.since(before), ready)


def _ask(server: Server, model: str, load: Load) -> Round:
    """Ask all prompts once; an end that was asked for meanwhile is one."""
    if server.asked:
        raise RunnerError("the comparison was interrupted", "start it again")
    return ask_all(server.served.url, model, load.prompts, load.tokens, load.at_once)


def _why(server: Server) -> str:
    if server.asked:
        return "was interrupted"
    code = server.code
    return f"ended with {code} while it started" if code is not None else "is not ready in time"
