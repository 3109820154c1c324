"""The hidden-state generator tells the scheduler the block size of the KV cache

vLLM's Scheduler requires block_size since 0.11.2. The generator of speculators 0.3.0 does not give it, and stops with a
TypeError after the target's weights are loaded.

The rewrite gives the block size of the cache's config, which attention backends change: MLA on a GPU needs 64 where
the generator asks for 16. speculators 0.4.0 gives what it asked for, which does no harm while prefixes are not cached.
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
    symptom="missing 1 required positional argument: 'block_size'",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.__init__",)
)
def give_argument(module: cst.Module) -> cst.Module:
    """Give the block size."""
    return add_argument(module, _find(module), "block_size=self.vllm_config.cache_config.block_size", __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Take the block size out."""
    return take_added_argument(module, _find(module), "block_size", __name__)


def _find(module: cst.Module) -> cst.Call:
    return find_call(find_definition(module, "VllmHiddenStatesGenerator.__init__"), "Scheduler")
