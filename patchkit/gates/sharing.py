"""What a drafter takes from the target: its embeddings and its lm_head (the end of a proposer's ``load_model``)."""

from __future__ import annotations

import ast

from patchkit.gates.drafter import has_tensor
from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.image_token import Chain, find_chain
from patchkit.gates.model_runner import model_runner
from patchkit.gates.structure import Structure
from patchkit.gates.syntax import dotted, strings, walk

_WHEN = "drafter-loaded"
_V2 = "vllm.v1.worker.gpu.spec_decode.eagle.utils"
_NO_MODEL = "Target model does not have 'model' attribute"


def judge(subject: Subject) -> Gate:
    """Look for the language model's ``model`` and, where the drafter has none of its own, for ``lm_head``."""
    structure = subject.structure
    if structure is None:
        return Gate("embeddings", UNKNOWN, "the target's class is not known", _WHEN)
    language = structure.language_model
    evidence = (language.evidence,) if language else (structure.cls.evidence,)
    if language is None or structure.has_inner_model is None:
        message = f"the language model of {structure.cls.name} cannot be told from its source"
        return Gate("embeddings", UNKNOWN, message, _WHEN, evidence)
    chain = find_chain(subject)
    if not structure.has_inner_model and not (chain and _sees_bare_model(chain)):
        said = (chain.module.evidence(_taken(chain)),) if chain else ()
        is_named = chain is not None and any(_NO_MODEL in line for line in chain.module.lines)
        error = _NO_MODEL if is_named else f"AttributeError: '{language.name}' object has no attribute 'model'"
        message = f"{structure.cls.name}'s language model is a bare {language.name}, which has no attribute 'model'"
        return Gate("embeddings", FAIL, message, _WHEN, (*said, structure.cls.evidence, *evidence), error)
    if not structure.has_inner_model:
        message = f"the proposer takes the bare {language.name} as it is, and the lm_head of {structure.cls.name}"
        return Gate("embeddings", PASS, message, _WHEN, evidence)
    message = f"{language.name}.model owns the embeddings"
    return _judge_head(subject, structure) or Gate("embeddings", PASS, message, _WHEN, evidence)


def _sees_bare_model(chain: Chain) -> bool:
    """Tell whether the proposer asks whether the language model has a ``model``, and helps itself where not."""
    for node in walk(chain.method):
        if isinstance(node, ast.If) and isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not):
            call = node.test.operand
            is_asked = isinstance(call, ast.Call) and dotted(call.func) == ("hasattr",) and len(call.args) == 2
            if is_asked and strings(call.args[1]) == ("model",):  # type: ignore[attr-defined]
                return any(isinstance(part, ast.Assign) for part in node.body)
    return False


def _taken(chain: Chain) -> ast.AST:
    """Return where the proposer takes the language model."""
    calls = [node for node in walk(chain.method) if isinstance(node, ast.Call)]
    return next((call for call in calls if dotted(call.func)[-1:] == ("get_language_model",)), chain.node)


def _judge_head(subject: Subject, structure: Structure) -> Gate | None:
    """Judge the lm_head of a drafter that has none of its own."""
    has_own = has_tensor(subject, "lm_head")
    language = structure.language_model
    if has_own is not False or language is None or subject.draft is None:
        return None
    said = language.evidence
    runner, evidence = model_runner(subject)
    module = subject.code.module(_V2)
    looks_at_wrapper = module is not None and not any("get_target_lm_head" in line for line in module.lines)
    if runner != "v1" and looks_at_wrapper and structure.is_multimodal and not structure.lineage.has("lm_head"):
        message = f"the drafter has no lm_head, and model runner v2 looks for one on {structure.cls.name} alone"
        hint = "set VLLM_USE_V2_MODEL_RUNNER=0, or use a drafter with its own lm_head"
        verdict = FAIL if runner == "v2" else UNKNOWN
        return Gate("embeddings", verdict, message, "in-service", (structure.cls.evidence, *evidence), hint=hint)
    lineage = subject.code.lineage(language)
    if lineage.has("lm_head"):
        return None
    verdict = FAIL if lineage.is_complete else UNKNOWN
    message = f"the drafter has no lm_head of its own, and {language.name} has none to share"
    return Gate("embeddings", verdict, message, "in-service", (said,), hint="use a drafter with its own lm_head")
