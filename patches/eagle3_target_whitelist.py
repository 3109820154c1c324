"""EAGLE-3 accepts Kimi-K2 and DeepSeek-V3 as target models

vLLM checks the model_type of the target's text config against a list of names, by substring, and refuses every other
model before anything is loaded. Kimi-K2.5 has the text config of Kimi-K2 (kimi_k2; deepseek_v3 where a checkpoint
leaves the key out), which this release does not list although its architecture can be captured from.

The rewrite adds the names that the list does not admit yet, at its end. The check itself, its message and the names
that are there stay as they are. Releases from 0.18.0 on list both names; 0.22.0 dropped the list.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_all, find_definition, find_one, list_strings, replace, require
from patchkit.edits import extend_list, is_marked, mark, shorten_list, unmark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="vllm",
    versions=">=0.15.0,<0.18.0",
    symptom="is only supported for",
    upstream=Upstream(
        status="released", issue="vllm-project/vllm#31254", pull="vllm-project/vllm#36361", fixed_in="0.18.0"
    ),
)

METHOD = "SpeculativeConfig._verify_args"
LIST_NAMES = ("eagle3_target_supported", "aux_hidden_states_supported")  # renamed in 0.17.0
MODEL_TYPES = ("kimi_k2", "deepseek_v3")


@patch.rewrites("vllm/config/speculative.py", within=("SpeculativeConfig._verify_args",))
def add_model_types(module: cst.Module) -> cst.Module:
    """Add the model types that no name of the list is a substring of."""
    line, names = _find_list(module)
    known = list_strings(names, METHOD)
    missing = [model_type for model_type in MODEL_TYPES if not any(name in model_type for name in known)]
    if not missing:
        return module
    return replace(module, line, mark(replace(line, names, extend_list(names, missing)), __name__))


@patch.restores("vllm/config/speculative.py")
def drop_model_types(module: cst.Module) -> cst.Module:
    """Drop the model types at the end of the list."""
    line, names = _find_list(module)
    known = list_strings(names, METHOD)
    count = len(known)
    while count and known[count - 1] in MODEL_TYPES:
        count -= 1
    if not is_marked(line, __name__) or not 0 < count < len(known):
        return module
    return replace(module, line, unmark(replace(line, names, shorten_list(names, len(known) - count)), __name__))


def _find_list(module: cst.Module) -> tuple[cst.SimpleStatementLine, cst.List]:
    """Return the statement that assigns the list, and the list, having seen that the check reads it."""
    method = find_definition(module, METHOD)
    line = find_one(method, cst.SimpleStatementLine, _assigns_list, f"{METHOD}: the list of target model types")
    assign = line.body[0]
    assert isinstance(assign, cst.Assign)
    name = assign.targets[0].target
    assert isinstance(name, cst.Name)
    list_strings(assign.value, METHOD)
    assert isinstance(assign.value, cst.List)
    reads = find_all(method, cst.CompFor, lambda loop: loop.iter.deep_equals(name))
    require(len(reads) == 1, METHOD, f"one check of the model type against {name.value}")
    return line, assign.value


def _assigns_list(line: cst.SimpleStatementLine) -> bool:
    assign = line.body[0]
    if len(line.body) != 1 or not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return False
    target = assign.targets[0].target
    return isinstance(target, cst.Name) and target.value in LIST_NAMES
