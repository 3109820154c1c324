"""The hidden-state generator sizes the KV cache where there is no CUDA device

The generator asks CUDA for the free memory: speculators 0.3.0 by itself, 0.4 through a function that takes CUDA for
the accelerator whenever torch was built with it. On a machine without a device that stops it after the target's
weights are loaded, although vLLM runs there.

The rewrite asks as before where there is a device, and vLLM's platform for its memory otherwise; on a CPU that is
VLLM_CPU_KVCACHE_SPACE or a share of the machine's. speculators 0.5.0 gave the generator up.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_all
from patchkit.edits import swap, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.5.0",
    requires={"vllm": ">=0.15.0,<0.18.0"},
    symptom="Found no NVIDIA driver on your system",
    upstream=Upstream(status="released", fixed_in="0.5.0"),
)

METHOD = "VllmHiddenStatesGenerator.__init__"
ASK = "free_memory, _ = {function}()"
ASK_OR_PLATFORM = """
if {condition}:
    free_memory, _ = {function}()
else:
    from vllm.platforms import current_platform

    free_memory = current_platform.get_device_total_memory()
"""


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.__init__",)
)
def ask_platform(module: cst.Module) -> cst.Module:
    """Ask the platform where there is no device to ask."""
    old, new = _forms(module)
    return swap(module, METHOD, old, new, __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Ask for the device's memory alone again."""
    old, new = _forms(module)
    return swap_back(module, METHOD, old, new, __name__)


def _forms(module: cst.Module) -> tuple[str, str]:
    """Return what stands there in this release, and what comes in its place."""
    imported = find_all(module, cst.ImportAlias, lambda alias: alias.evaluated_name == "mem_get_info")
    function = "mem_get_info" if imported else "torch.cuda.mem_get_info"
    condition = "torch.accelerator.is_available()" if imported else "torch.cuda.is_available()"
    return ASK.format(function=function), ASK_OR_PLATFORM.format(function=function, condition=condition)
