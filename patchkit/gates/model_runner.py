"""Which of vLLM's two model runners a server takes by itself; only the first asks for the image token."""

from __future__ import annotations

import ast

from patchkit.gates.gate import Subject
from patchkit.gates.module import Evidence
from patchkit.gates.syntax import dotted, returned, strings, walk

_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_RULE = "_is_default_v2_model_runner_model"


def model_runner(subject: Subject) -> tuple[str, tuple[Evidence, ...]]:
    """Return ``v1``, ``v2`` or ``either``, with the line that decides.

    Through 0.21 it is v1, from 0.29 v2. Between them it depends on the model, and where that lets v2 in, on what else
    is switched on and on Triton.
    """
    module = subject.code.module("vllm.config.vllm")
    cls = module.classes.get("VllmConfig") if module else None
    decision = cls.members.get("use_v2_model_runner") if cls else None
    if cls is None or decision is None:
        return "v1", ()
    evidence = (cls.module.evidence(decision),)
    rule = cls.members.get(_RULE)
    if rule is None:
        return ("v2" if subject.pipeline_parallel == 1 else "either"), evidence
    table = cls.module.assignments.get("DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES")
    named = {name for item in (walk(table) if table is not None else ()) for name in _string(item)}
    if named.intersection(subject.target.architectures):
        return "either", (cls.module.evidence(rule), *evidence)
    values = returned(rule)
    is_dense = not subject.target.number(*_EXPERTS)
    is_by_name = bool(values) and _is_by_name(values[-1])
    is_open = bool(values) and isinstance(values[-1], ast.BoolOp) and isinstance(values[-1].op, ast.Or)
    is_v1 = is_by_name or (is_open and not is_dense)
    return ("v1" if is_v1 else "either"), (cls.module.evidence(rule), *evidence)


def _is_by_name(value: ast.expr) -> bool:
    """Tell whether a rule lets nothing in but the architectures named: ``any(…)``, or ``not … and not …``."""
    if isinstance(value, ast.Call):
        return dotted(value.func) == ("any",)
    parts = value.values if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) else [value]
    return all(isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not) for part in parts)


def _string(node: ast.AST) -> tuple[str, ...]:
    return strings(node) if isinstance(node, ast.Constant) else ()
