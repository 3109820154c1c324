"""Tensor and pipeline parallel sizes against the heads and the classes of target and drafter."""

from __future__ import annotations

import ast

from patchkit.gates.checkpoint import Checkpoint
from patchkit.gates.drafter import draft_class
from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.module import Class, Evidence
from patchkit.gates.syntax import walk

_ID, _WHEN = "parallel", "configuration"
_V2 = "vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils"


def judge(subject: Subject) -> Gate:
    """Ask what vLLM asks of a parallel configuration, for the drafter first, as it does."""
    return _judge_heads(subject) or _judge_pipeline(subject) or _passes(subject)


def _passes(subject: Subject) -> Gate:
    sizes = f"tensor parallel {subject.tensor_parallel}, pipeline parallel {subject.pipeline_parallel}"
    return Gate(_ID, PASS, f"{sizes}: heads and classes allow it", _WHEN)


def _judge_heads(subject: Subject) -> Gate | None:
    size = subject.tensor_parallel
    heads: list[tuple[str, int | None, Checkpoint]] = []
    if subject.draft is not None:
        heads.append(("drafter", subject.draft_number("num_attention_heads"), subject.draft))
    heads.append(("target", subject.target.number("num_attention_heads", "n_head", "n_heads"), subject.target))
    for whose, count, checkpoint in heads if size > 1 else ():
        said = subject.said(checkpoint, "num_attention_heads")
        if count is None:
            message = f"the {whose}'s config.json gives no num_attention_heads"
            return Gate(_ID, UNKNOWN, message, _WHEN)
        if count % size:
            error = f"Total number of attention heads ({count}) must be divisible by tensor parallel size ({size})."
            message = f"the {whose}'s {count} attention heads cannot be split over {size} ranks"
            hint = "take a --tensor-parallel-size that divides both models' heads"
            return Gate(_ID, FAIL, message, _WHEN, said, error, hint=hint)
    groups = subject.draft_number("num_key_value_heads") if subject.draft is not None else None
    if groups and (groups % size if groups >= size else size % groups):
        assert subject.draft is not None
        message = f"the drafter's {groups} key-value heads and {size} ranks do not divide each other"
        said = subject.said(subject.draft, "num_key_value_heads")
        hint = "take another --tensor-parallel-size"
        return Gate(_ID, FAIL, message, "target-loaded", said, hint=hint)
    return None


def _judge_pipeline(subject: Subject) -> Gate | None:
    """Judge more than one pipeline rank: the classes, then whether states of other ranks arrive."""
    if subject.pipeline_parallel < 2:
        return None
    drafter = draft_class(subject) if subject.draft is not None else None
    target = subject.structure.cls if subject.structure else None
    wanted = [("drafter", drafter)] if subject.draft is not None and _splits_drafter(subject) else []
    for whose, cls in (*wanted, ("target", target)):
        if cls is None:
            return Gate(_ID, UNKNOWN, f"the {whose}'s class is not known", _WHEN)
        verdict = _supports_pipeline(subject, cls)
        if verdict is not True:
            error = "NotImplementedError: Pipeline parallelism is not supported for this model."
            message = f"the {whose}'s class {cls.name} takes no pipeline parallelism"
            return Gate(
                _ID,
                FAIL if verdict is False else UNKNOWN,
                message if verdict is False else f"whether {cls.name} takes pipeline parallelism cannot be told",
                _WHEN,
                (cls.evidence,),
                error if verdict is False else None,
                hint="use tensor parallelism: pipeline_parallel_size 1",
            )
    return _judge_relay(subject) if subject.draft is not None else None


def _splits_drafter(subject: Subject) -> bool:
    """Tell whether the drafter gets as many pipeline ranks as the target; from 0.30 it has one."""
    module = subject.code.module("vllm.config.speculative")
    cls = module.classes.get("SpeculativeConfig") if module else None
    method = cls.members.get("create_draft_parallel_config") if cls else None
    calls = [node for node in walk(method) if isinstance(node, ast.Call)] if method is not None else []
    sizes = [word.value for call in calls for word in call.keywords if word.arg == "pipeline_parallel_size"]
    return not (sizes and all(isinstance(size, ast.Constant) and size.value == 1 for size in sizes))


def _supports_pipeline(subject: Subject, cls: Class) -> bool | None:
    """Tell whether vLLM takes a class for one that supports pipelines: by base, and by forward's parameters."""
    lineage = subject.code.lineage(cls)
    forward = lineage.method("forward")
    if "SupportsPP" not in lineage.names:
        return False if lineage.is_complete else None
    if forward is None:
        return None
    arguments = forward[1].args
    names = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
    return "intermediate_tensors" in names or arguments.kwarg is not None


def _judge_relay(subject: Subject) -> Gate | None:
    """Judge whether the states of earlier ranks reach the drafter on the last one."""
    structure = subject.structure
    if structure is None or structure.decoder is None:
        return Gate(_ID, UNKNOWN, "the class that owns the decoder layers cannot be told", _WHEN)
    module = subject.code.module(_V2)
    evidence: tuple[Evidence, ...] = (structure.decoder.evidence,)
    relay = "supports_aux_hidden_states_over_pp"
    owner = subject.code.lineage(structure.decoder).owner(relay)
    if module is not None and any(relay in line for line in module.lines):
        value = getattr(owner.members[relay], "value", None) if owner else None
        if value is not None and getattr(value, "value", False) is True:
            return None
        error = f"{structure.cls.name} does not support eagle3 with pipeline parallelism"
        message = f"{structure.decoder.name} does not hand on the auxiliary states of earlier ranks"
        return Gate(_ID, FAIL, message, "drafter-loaded", evidence, error, hint="use pipeline_parallel_size 1")
    message = "the auxiliary states of earlier pipeline ranks do not reach the drafter in this release"
    return Gate(_ID, FAIL, message, "first-forward", evidence, hint="use pipeline_parallel_size 1")
