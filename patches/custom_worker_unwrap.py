"""Hidden-state extraction finds the decoder layers of a multimodal model

The worker extension of speculators takes only models that support vLLM's EAGLE-3 interface, and patches the forward of
their .model. A multimodal wrapper such as KimiK25ForConditionalGeneration has neither: the run stops with this text,
or with an AttributeError on .model, after the target's weights are loaded.

The rewrite looks for the module that owns the decoder layers: .model of a model that supports the interface; else
through language_model, down to its .model where it has one (in vLLM 0.15 it is the inner model itself); else .model
when it has layers. A model with none of these is refused by an error that names its class. What is captured, and how,
stays as it is. speculators 0.4.0 looks through wrappers itself.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_all, find_definition, find_one, is_code, replace, require, statements
from patchkit.edits import is_marked, mark, unmark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.4.0",
    symptom="does not support hidden state extraction",
    upstream=Upstream(status="released", fixed_in="0.4.0"),
)

METHOD = "HiddenStatesWorkerExtension._setup_hidden_states_capture"
GATE = """
if not supports_eagle3(model):
    raise ValueError(
        f"Model {type(model).__name__} does not support hidden state extraction"
    )
"""
TAKE = "base_model = model.model"
LOOKUP = """
if supports_eagle3(model) and hasattr(model, "model"):
    base_model = model.model
elif hasattr(model, "language_model"):
    base_model = getattr(model.language_model, "model", model.language_model)
elif hasattr(getattr(model, "model", None), "layers"):
    base_model = model.model
else:
    raise ValueError(
        f"Model {type(model).__name__} does not support hidden state extraction: "
        "it supports no EAGLE-3 interface, and neither language_model nor model "
        "leads to decoder layers"
    )
"""


@patch.rewrites(
    "speculators/data_generation/custom_worker.py",
    within=("HiddenStatesWorkerExtension._setup_hidden_states_capture",),
)
def look_through_wrapper(module: cst.Module) -> cst.Module:
    """Put the look-up in place of the check and of the line that takes .model."""
    method = find_definition(module, METHOD)
    if find_all(method, cst.If, lambda node: is_code(node, LOOKUP)):
        return module
    gate = find_one(
        method, cst.If, lambda node: is_code(node.test, "not supports_eagle3(model)"), f"{METHOD}: the check"
    )
    require(is_code(gate, GATE), METHOD, "the check to raise its ValueError and nothing else")
    require(gate in method.body.body, METHOD, "the check under no condition")
    take = find_one(method, cst.SimpleStatementLine, lambda node: is_code(node, TAKE), f"{METHOD}: {TAKE}")
    body = list(method.body.body)
    place = body.index(gate)
    require(body[place + 1 : place + 2] == [take], METHOD, f"{TAKE!r} right after the check")
    (lookup,) = statements(LOOKUP)
    assert isinstance(lookup, cst.If)
    comments = [line for line in take.leading_lines if line.comment]
    first = lookup.body.with_changes(body=(take.with_changes(leading_lines=comments),))
    body[place : place + 2] = [mark(lookup.with_changes(leading_lines=gate.leading_lines, body=first), __name__)]
    return replace(module, method, method.with_changes(body=method.body.with_changes(body=body)))


@patch.restores("speculators/data_generation/custom_worker.py")
def take_model_again(module: cst.Module) -> cst.Module:
    """Put the check and the line that takes .model back."""
    method = find_definition(module, METHOD)
    lookups = find_all(method, cst.If, lambda node: is_code(node, LOOKUP) and is_marked(node, __name__))
    if not lookups:
        return module
    (lookup,) = lookups
    (gate,) = statements(GATE)
    (take,) = lookup.body.body
    assert isinstance(gate, cst.If) and isinstance(take, cst.SimpleStatementLine)
    restored = [
        gate.with_changes(leading_lines=unmark(lookup, __name__).leading_lines),
        take.with_changes(leading_lines=(cst.EmptyLine(indent=False),)),
    ]
    return replace(module, lookup, restored)
