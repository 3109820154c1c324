"""The hidden-state generator says that its model is no encoder-decoder

vLLM requires is_encoder_decoder of a SchedulerConfig since 0.12. The generator of speculators 0.3.0 builds one without
it, and stops with a validation error before anything is loaded.

The rewrite gives it as False: what the generator runs is the prefill of a decoder. speculators 0.4.0 does the same.
"""

from __future__ import annotations

import libcst as cst

from patchkit.arguments import add_argument, take_added_argument
from patchkit.cst import find_call, find_definition
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.4.0",
    requires={"vllm": ">=0.15.0,<0.18.0"},
    symptom="is_encoder_decoder",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py",
    within=("VllmHiddenStatesGenerator._create_vllm_config",),
)
def give_argument(module: cst.Module) -> cst.Module:
    """Give the setting."""
    return add_argument(module, _find(module), "is_encoder_decoder=False", __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Take the setting out."""
    return take_added_argument(module, _find(module), "is_encoder_decoder", __name__)


def _find(module: cst.Module) -> cst.Call:
    return find_call(find_definition(module, "VllmHiddenStatesGenerator._create_vllm_config"), "SchedulerConfig")
