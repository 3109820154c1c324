"""The hidden-state generator calls for the KV cache's layout as vLLM takes it

get_kv_cache_config_from_groups has no kv_cache_specs since vLLM 0.12; the groups carry them. The generator of
speculators 0.3.0 still passes the argument, and stops with a TypeError after the target's weights are loaded.

The rewrite leaves the argument out. speculators 0.4.0 does the same.
"""

from __future__ import annotations

import libcst as cst

from patchkit.arguments import drop_argument, put_argument_back
from patchkit.cst import find_call, find_definition
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.4.0",
    requires={"vllm": ">=0.15.0,<0.18.0"},
    symptom="unexpected keyword argument 'kv_cache_specs'",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.__init__",)
)
def leave_out_argument(module: cst.Module) -> cst.Module:
    """Leave the argument out."""
    return drop_argument(module, _find(module), "kv_cache_specs", __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Put the argument back."""
    return put_argument_back(module, _find(module), "kv_cache_specs=kv_cache_spec", __name__)


def _find(module: cst.Module) -> cst.Call:
    return find_call(find_definition(module, "VllmHiddenStatesGenerator.__init__"), "get_kv_cache_config_from_groups")
