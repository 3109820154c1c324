"""Hidden-state extraction embeds the tokens of a text model

vLLM's decoders call the look-up of embeddings embed_input_ids, not get_input_embeddings. The worker extension of
speculators 0.3.0 calls the old name wherever the engine passes token ids and not embeddings: a text-only model stops
with an AttributeError in its first forward. A multimodal model gets embeddings and does not come here.

The rewrite calls embed_input_ids. speculators 0.4.0 does the same.
"""

from __future__ import annotations

import libcst as cst

from patchkit.edits import swap, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.4.0",
    requires={"vllm": ">=0.15.0,<0.18.0"},
    symptom="object has no attribute 'get_input_embeddings'",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)

OLD = """
hidden_states = (
    inputs_embeds
    if inputs_embeds is not None
    else self.get_input_embeddings(input_ids)
)
"""
NEW = """
hidden_states = (
    inputs_embeds
    if inputs_embeds is not None
    else self.embed_input_ids(input_ids)
)
"""


@patch.rewrites("speculators/data_generation/custom_worker.py", within=("_patched_forward",))
def embed(module: cst.Module) -> cst.Module:
    """Call the look-up by its name."""
    return swap(module, "_patched_forward", OLD, NEW, __name__)


@patch.restores("speculators/data_generation/custom_worker.py")
def take_back(module: cst.Module) -> cst.Module:
    """Call it by the old name again."""
    return swap_back(module, "_patched_forward", OLD, NEW, __name__)
