"""The hidden-state generator takes more sequences than the engine runs at once

The generator of speculators 0.4 lets the engine run 32 sequences at once, and ends none before all prompts were run.
The engine then never gets to the 33rd sequence of a batch, and the generator stops with an error that it has no states
of it.

The rewrite ends a request as soon as its own prompt was run, so that the next one gets its place. speculators 0.5.0
gave the generator up.
"""

from __future__ import annotations

import libcst as cst

from patchkit.edits import swap, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.4.0,<0.5.0",
    symptom="not found in captured states",
    upstream=Upstream(status="released", fixed_in="0.5.0"),
)

METHOD = "VllmHiddenStatesGenerator.generate"
OLD = "self.executor.sample_tokens(model_output)"
NEW = """
self.executor.sample_tokens(model_output)
self.scheduler.finish_requests(
    [
        req_id
        for req_id in scheduler_output.num_scheduled_tokens
        if request_num_computed[req_id] >= request_id_to_prompt_len[req_id]
    ],
    RequestStatus.FINISHED_ABORTED,
)
"""


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.generate",)
)
def end_early(module: cst.Module) -> cst.Module:
    """End the requests whose prompts were run after each step."""
    return swap(module, METHOD, OLD, NEW, __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """End no request before the last step again."""
    return swap_back(module, METHOD, OLD, NEW, __name__)
