"""The hidden-state generator makes requests without an end-of-sequence token

vLLM 0.17.0 took eos_token_id out of Request; up to 0.16 it is required. The generator of speculators 0.3.0 and 0.4
gives it, which is right up to 0.16 and a TypeError from 0.17 on, after the target's weights are loaded.

The rewrite leaves the argument out, and so is only for vLLM from 0.17.0 on. Nothing is lost: the generator ends a
request when its prompt was run, not at a token. speculators 0.5.0 gave the generator up.
"""

from __future__ import annotations

import libcst as cst

from patchkit.arguments import drop_argument, put_argument_back
from patchkit.cst import find_call, find_definition
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.5.0",
    requires={"vllm": ">=0.17.0,<0.18.0"},
    symptom="unexpected keyword argument 'eos_token_id'",
    upstream=Upstream(status="released", fixed_in="0.5.0"),
)


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.generate",)
)
def leave_out_argument(module: cst.Module) -> cst.Module:
    """Leave the argument out."""
    return drop_argument(module, _find(module), "eos_token_id", __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Put the argument back."""
    return put_argument_back(module, _find(module), "eos_token_id=self.tokenizer.eos_token_id", __name__)


def _find(module: cst.Module) -> cst.Call:
    return find_call(find_definition(module, "VllmHiddenStatesGenerator.generate"), "Request")
