"""The hidden-state generator finishes every step of the engine

execute_model of vLLM's executors returns None since 0.12 where a step still waits for sample_tokens, and refuses the
next step until it was called. The generator of speculators 0.3.0 never calls it: a second batch, and a prompt that is
run in several chunks, stop with a state error.

The rewrite calls sample_tokens where the step waits for it. speculators 0.4.0 calls it after every step.
"""

from __future__ import annotations

import libcst as cst

from patchkit.edits import swap, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.4.0",
    requires={"vllm": ">=0.15.0,<0.18.0"},
    symptom="sample_tokens() must be called after execute_model() returns None",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)

OLD = "self.executor.execute_model(scheduler_output)"
NEW = """
if self.executor.execute_model(scheduler_output) is None:
    self.executor.sample_tokens(None)
"""


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.generate",)
)
def sample(module: cst.Module) -> cst.Module:
    """Let the step sample where it waits to."""
    return swap(module, "VllmHiddenStatesGenerator.generate", OLD, NEW, __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Run the step alone again."""
    return swap_back(module, "VllmHiddenStatesGenerator.generate", OLD, NEW, __name__)
