"""The whole answer: every gate's verdict with its cure, or the table of all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO

from patchkit.gates.gate import FAIL, UNKNOWN, Gate, Subject
from patchkit.gates.models import ModelRow
from patchkit.gates.preflight import judge
from patchkit.gates.structure import Step
from patchkit.header import Header
from patchkit.symptoms import Recogniser


@dataclass(frozen=True)
class Verdict:
    """What vLLM will say to a model and a drafter, or to every multimodal class."""

    target: str = ""
    """The target's config.json."""
    draft: str | None = None
    gates: tuple[Gate, ...] = ()
    """In the order in which a server meets them."""
    steps: tuple[Step, ...] = ()
    """The way from the target's class to its decoder layers."""
    target_bytes: int | None = None
    """Size of the target's weights, where the folder has them or their index."""
    draft_bytes: int | None = None
    models: tuple[ModelRow, ...] = ()

    @property
    def failed(self) -> tuple[Gate, ...]:
        """Return the gates that stop the server or make its speculation useless."""
        return tuple(gate for gate in self.gates if gate.verdict == FAIL)

    @property
    def unknown(self) -> tuple[Gate, ...]:
        """Return the gates of which nothing can be said."""
        return tuple(gate for gate in self.gates if gate.verdict == UNKNOWN)


def give_verdict(subject: Subject, headers: Mapping[str, Header]) -> Verdict:
    """Judge every gate, and name the patch that cures each that fails."""
    return Verdict(
        str(subject.target.place),
        str(subject.draft.place) if subject.draft else None,
        tuple(_with_cure(gate, tuple(headers.values())) for gate in judge(subject)),
        subject.structure.steps if subject.structure else (),
        subject.target.size,
        subject.draft.size if subject.draft else None,
    )


def _with_cure(gate: Gate, headers: Sequence[Header]) -> Gate:
    """Return a gate with the patch that knows its error and changes one of the files that it names."""
    if gate.verdict != FAIL or gate.error is None:
        return gate
    recogniser = Recogniser(headers)
    # The recogniser reads logs, where some errors are only told by what stands before them.
    recogniser.read(BytesIO(f"aux_hidden_states eagle3\n{gate.error}\n".encode("utf-8", "replace")))
    files = {evidence.path for evidence in gate.evidence}
    cures = [symptom.cure for symptom in recogniser.symptoms if symptom.cure]
    cure = next((header.id for header in headers if header.id in cures and files.intersection(header.files)), None)
    return replace(gate, cure=cure)
