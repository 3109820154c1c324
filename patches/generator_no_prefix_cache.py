"""The hidden-state generator runs every prompt whole, with no prefix cache

vLLM caches prefixes unless told otherwise. The requests of the generator of speculators 0.3.0 have no block hasher, so
the scheduler stops at an assertion; and a prompt found in the cache would not be run, so it would give no states.

The rewrite switches the cache off. speculators 0.4.0 does the same.
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
    symptom="assert len(request.block_hashes) >= num_full_blocks",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py",
    within=("VllmHiddenStatesGenerator._create_vllm_config",),
)
def give_argument(module: cst.Module) -> cst.Module:
    """Switch the cache off."""
    return add_argument(module, _find(module), "enable_prefix_caching=False", __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Take the switch out."""
    return take_added_argument(module, _find(module), "enable_prefix_caching", __name__)


def _find(module: cst.Module) -> cst.Call:
    return find_call(find_definition(module, "VllmHiddenStatesGenerator._create_vllm_config"), "CacheConfig")
