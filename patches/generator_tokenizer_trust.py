"""The hidden-state generator loads a tokenizer that needs remote code when its caller says so

The generator loads the target's tokenizer with no word on remote code. A model that brings its tokenizer as code, as
Kimi-K2.5 does, is asked about on a terminal and refused anywhere else, and the caller has no way to agree.

The rewrite gives the generator a parameter, tokenizer_trust_remote_code, and passes it on. Its default leaves
everything as it was: nothing is trusted that was not before. The config and the model are still loaded with remote
code, as the library itself says. speculators 0.5.0 gave the generator up.
"""

from __future__ import annotations

import libcst as cst

from patchkit.arguments import add_parameter, take_added_parameter
from patchkit.cst import find_definition
from patchkit.edits import swap, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.5.0",
    symptom="contains custom code which must be executed to correctly load the model",
    upstream=Upstream(status="released", fixed_in="0.5.0"),
)

METHOD = "VllmHiddenStatesGenerator.__init__"
PARAMETER = "tokenizer_trust_remote_code"
OLD = "self.tokenizer = AutoTokenizer.from_pretrained(model_path)"
NEW = f"""
self.tokenizer = AutoTokenizer.from_pretrained(
    model_path, trust_remote_code={PARAMETER}
)
"""


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.__init__",)
)
def pass_setting(module: cst.Module) -> cst.Module:
    """Add the parameter and pass it on."""
    module = add_parameter(module, _find(module), f"{PARAMETER}: bool | None = None", __name__)
    return swap(module, METHOD, OLD, NEW, __name__)


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def take_back(module: cst.Module) -> cst.Module:
    """Load the tokenizer with no word again."""
    return swap_back(take_added_parameter(module, _find(module), PARAMETER, __name__), METHOD, OLD, NEW, __name__)


def _find(module: cst.Module) -> cst.FunctionDef:
    method = find_definition(module, METHOD)
    assert isinstance(method, cst.FunctionDef)
    return method
