"""Every gate for one model and drafter, in the order in which a server meets them."""

from __future__ import annotations

from patchkit.gates import drafter, image_token, interface, layers, parallel, plugins, sharing, target, whitelist
from patchkit.gates.gate import GATES, WHEN, Gate, Subject


def judge(subject: Subject) -> tuple[Gate, ...]:
    """Return the verdict of every gate, in the order of a server's start."""
    gates = (
        target.judge(subject),
        drafter.judge_architecture(subject),
        drafter.judge_tokens(subject),
        parallel.judge(subject),
        whitelist.judge(subject),
        image_token.judge(subject),
        sharing.judge(subject),
        interface.judge_interface(subject),
        interface.judge_capture(subject),
        layers.judge(subject),
        drafter.judge_sizes(subject),
        plugins.judge(subject.code),
    )
    order = {word: number for number, word in enumerate(WHEN)}
    places = {name: number for number, name in enumerate(GATES)}
    found = [gate for gate in gates if gate is not None]
    return tuple(sorted(found, key=lambda gate: (order[gate.when], places[gate.id])))
