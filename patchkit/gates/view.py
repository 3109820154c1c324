"""Verdicts as text."""

from __future__ import annotations

from collections.abc import Mapping

from patchkit.gates.gate import FAIL, PASS, UNKNOWN, WHEN, Gate
from patchkit.gates.verdict import Verdict
from patchkit.screen import Screen, cut

_STYLES = {PASS: "green", FAIL: "bold red", UNKNOWN: "yellow"}


def show_verdict(screen: Screen, verdict: Verdict, cures: Mapping[str, str]) -> None:
    """Write the way to the decoder layers, and every gate; ``cures`` says what to do for each patch that opens one."""
    if verdict.steps:
        screen.chain([f"{step.attribute}: {step.cls}" if step.attribute else step.cls for step in verdict.steps])
    width = max(len(gate.id) for gate in verdict.gates)
    for gate in verdict.gates:
        screen.line(f"{gate.verdict:7}  {gate.id.ljust(width)}  {cut(gate.message)}", _STYLES[gate.verdict])
        if gate.verdict == PASS:
            continue
        screen.line(f"         met {WHEN[gate.when]}{_cost(verdict, gate)}")
        for evidence in gate.evidence:
            screen.line(f"         {evidence.path}:{evidence.line}: {evidence.text}", "dim")
        if gate.error and gate.verdict == FAIL:
            screen.line(f"         vLLM says: {cut(gate.error)}")
        if gate.cure:
            screen.line(f"         {gate.cure} opens it; {cures.get(gate.cure, 'its state here is not known')}")
        elif gate.hint:
            screen.line(f"         {gate.hint}")
        elif gate.verdict == FAIL:
            screen.line("         no patch of this catalog opens it")


def show_models(screen: Screen, verdict: Verdict) -> None:
    """Write the table of all multimodal classes, those that would die first."""
    rows = sorted(verdict.models, key=lambda row: (not row.would_die, row.interface != PASS, row.architecture))
    table = [(row.architecture, row.interface, row.image_token, row.message.partition(": ")[2]) for row in rows]
    screen.table(("ARCHITECTURE", "INTERFACE", "IMAGE TOKEN", "WHY"), table)


def summarise(verdict: Verdict) -> str:
    """Return one line: what the verdict comes to."""
    if verdict.models:
        able = [row for row in verdict.models if row.interface == PASS]
        dying = sum(row.would_die for row in able)
        unknown = sum(row.image_token == UNKNOWN for row in able)
        rest = f", of {unknown} it cannot be told" if unknown else ""
        return f"{len(able)} of {len(verdict.models)} multimodal classes take EAGLE-3; {dying} would die{rest}"
    count, unknown = len(verdict.failed), len(verdict.unknown)
    doubt = f", {unknown} cannot be told" if unknown else ""
    if not count:
        return f"no gate of {len(verdict.gates)} fails{doubt}"
    first = verdict.failed[0]
    return f"{count} of {len(verdict.gates)} gates fail{doubt}; the first is met {WHEN[first.when]}"


def _cost(verdict: Verdict, gate: Gate) -> str:
    """Return what is loaded in vain, where the folders say how large the weights are."""
    if gate.when in ("configuration", "in-service"):
        return ""
    sizes = [verdict.target_bytes, None if gate.when == "target-loaded" else verdict.draft_bytes]
    known = sum(size for size in sizes if size)
    return f" ({known / 1e9:.1f} GB)" if known else ""
