"""What a gate says, and what it is asked about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from patchkit.gates.checkpoint import Checkpoint, is_size
from patchkit.gates.code import Code
from patchkit.gates.module import Evidence
from patchkit.gates.registry import Registry
from patchkit.gates.structure import Structure

PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"

WHEN = {
    "configuration": "at once, before anything is loaded",
    "target-loaded": "after the target's weights are loaded",
    "drafter-loaded": "after the target's and the drafter's weights are loaded",
    "first-forward": "at the first forward, after all weights are loaded",
    "first-request": "at the first request: the server has started and says that it is ready",
    "in-service": "never: the server starts and answers, with a low acceptance rate",
}
"""When a server meets a gate, in its order. Words are added, never renamed."""

GATES = {
    "target-architecture": "the target's class is in vLLM's registry",
    "draft-architecture": "the drafter's class is in vLLM's registry",
    "speculative-tokens": "vLLM takes the number of speculative tokens",
    "parallel": "heads and classes allow the parallel sizes",
    "whitelist": "vLLM's list of targets for EAGLE-3 has the text model's model_type",
    "image-token": "the proposer finds the image token of a multimodal target",
    "embeddings": "the proposer finds the target's embeddings and lm_head where the drafter needs them",
    "interface": "the target's class has the EAGLE-3 interface",
    "capture": "the decoder gives its auxiliary hidden states",
    "layer-ids": "the drafter's layer ids are in the target, distinct and in order",
    "drafter-sizes": "widths and vocabulary of target and drafter fit",
    "plugins": "no plugin of the environment replaces the proposer",
}
"""Every gate, with what it asks, in the order of the report. Words are added, never renamed."""


@dataclass(frozen=True)
class Gate:
    """The verdict of one gate."""

    id: str
    """One of ``GATES``."""
    verdict: str
    """``pass``, ``fail``, or ``unknown`` where source and configuration do not say."""
    message: str
    when: str
    """When a server meets it: one of ``WHEN``."""
    evidence: tuple[Evidence, ...] = ()
    error: str | None = None
    """The error that vLLM raises, where it fails with one."""
    cure: str | None = None
    """Id of the patch that cures it; None where no patch of the catalog does."""
    hint: str = ""
    """The next command or step, where it does not pass."""


@dataclass
class Subject:
    """A model, perhaps a drafter, and the installed code that is to serve them."""

    code: Code
    registry: Registry
    target: Checkpoint
    draft: Checkpoint | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    speculative_tokens: int | None = None

    @cached_property
    def architecture(self) -> str | None:
        """Return the first of the target's architectures that the registry has."""
        known = self.registry.architectures
        return next((name for name in self.target.architectures if name in known), None)

    @cached_property
    def structure(self) -> Structure | None:
        """Return the target's classes."""
        cls = self.registry.model(self.architecture) if self.architecture else None
        return Structure(self.code, self.registry, self.target, cls) if cls else None

    @property
    def layers(self) -> int | None:
        """Return the number of the target's decoder layers."""
        return self.target.number("num_hidden_layers", "n_layer", "num_layers", "n_layers")

    @cached_property
    def draft_keys(self) -> dict[str, object]:
        """Return the drafter's settings as vLLM sees them: those of speculators' own format are moved up."""
        if self.draft is None:
            return {}
        inner = self.draft.config.get("transformer_layer_config")
        if "speculators_model_type" not in self.draft.config or not isinstance(inner, dict):
            return dict(self.draft.config)
        moved = ("draft_vocab_size", "target_hidden_size", "eagle_aux_hidden_state_layer_ids")
        above = {key: self.draft.config[key] for key in moved if self.draft.config.get(key)}
        return {**inner, **above}

    def draft_number(self, *names: str) -> int | None:
        """Return the first of the drafter's settings that is a size."""
        values = (self.draft_keys.get(name) for name in names)
        return next((value for value in values if is_size(value)), None)

    @property
    def uses_aux_hidden_states(self) -> bool:
        """Tell whether the drafter wants auxiliary hidden states, as an EAGLE-3 drafter does unless it says no."""
        settings = self.draft_keys.get("eagle_config")
        return not isinstance(settings, dict) or bool(settings.get("use_aux_hidden_state", True))

    def said(self, checkpoint: Checkpoint, *keys: str) -> tuple[Evidence, ...]:
        """Return the lines of a config.json that have these keys."""
        found = ((key, *checkpoint.line(key)) for key in keys)
        return tuple(Evidence(str(checkpoint.place), number, text) for _, number, text in found if text)
