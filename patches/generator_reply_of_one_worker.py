"""The hidden-state generator takes the states that one worker replies with

collective_rpc with unique_reply_rank gives that worker's reply itself since vLLM 0.11.2, not a list with it. The
generator of speculators 0.3.0 takes its first element, which is the states of one layer, and stops after the first
batch with an error on the truth value of a tensor.

The rewrite takes the reply as it comes. speculators 0.4.0 does the same.
"""

from __future__ import annotations

import libcst as cst

from patchkit.edits import swap, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.4.0",
    requires={"vllm": ">=0.15.0,<0.18.0"},
    symptom="Boolean value of Tensor with more than one value is ambiguous",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)

OLD = "aux_hidden_states = captured_states_list[0]"
NEW = "aux_hidden_states = captured_states_list"


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.generate",)
)
def take_reply(module: cst.Module) -> cst.Module:
    """Take the reply, not its first element."""
    return swap(module, "VllmHiddenStatesGenerator.generate", OLD, NEW, __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Take the first element again."""
    return swap_back(module, "VllmHiddenStatesGenerator.generate", OLD, NEW, __name__)
