"""A drafter beside Kimi-K2.5 shares its embeddings and lm_head in vLLM 0.15

load_model of the proposer takes the target's embeddings from .model of its language model, and lm_head from the
language model itself. In vLLM 0.15 the language model of Kimi-K2.5 is the decoder: it has no .model, and lm_head sits
on the wrapper. The server dies with an AttributeError after the drafter is loaded.

The rewrite lets load_model see such a language model as one that has the decoder as .model and the wrapper's lm_head.
Other models are seen as they were. From 0.16.0 on Kimi-K2.5 wraps a whole DeepseekV2ForCausalLM.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_all, find_definition, find_one, is_code, replace, statements
from patchkit.edits import mark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="vllm",
    versions=">=0.15.0,<0.16.0",
    symptom="'DeepseekV2Model' object has no attribute 'model'",
    upstream=Upstream(status="released", fixed_in="0.16.0"),
)

METHOD = "SpecDecodeBaseProposer.load_model"
TAKE = "target_language_model = target_model.get_language_model()"
SEE = """
if not hasattr(target_language_model, "model"):
    from types import SimpleNamespace

    target_language_model = SimpleNamespace(
        model=target_language_model, lm_head=target_model.lm_head
    )
"""


@patch.rewrites("vllm/v1/spec_decode/eagle.py", within=("SpecDecodeBaseProposer.load_model",))
def see_decoder(module: cst.Module) -> cst.Module:
    """Look at the language model right after it is taken."""
    method = find_definition(module, METHOD)
    if find_all(method, cst.If, lambda node: is_code(node, SEE)):
        return module
    take = find_one(method, cst.SimpleStatementLine, lambda node: is_code(node, TAKE), f"{METHOD}: {TAKE}")
    (see,) = statements(SEE)
    assert isinstance(see, cst.If)
    return replace(module, take, [take, mark(see, __name__)])


@patch.restores("vllm/v1/spec_decode/eagle.py")
def take_alone(module: cst.Module) -> cst.Module:
    """Take the look out."""
    method = find_definition(module, METHOD)
    found = find_all(method, cst.If, lambda node: is_code(node, SEE))
    return replace(module, found[0], []) if found else module
