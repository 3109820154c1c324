"""The target's class in vLLM's registry."""

from __future__ import annotations

from patchkit.gates.configuration import config_classes
from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject

_ID, _WHEN = "target-architecture", "configuration"


def judge(subject: Subject) -> Gate:
    """Look for the target's class, and for the class of its configuration."""
    target, known = subject.target, subject.registry.architectures
    said = subject.said(target, "architectures", "model_type")
    if not known:
        return Gate(_ID, UNKNOWN, "vLLM's registry of models cannot be read", _WHEN)
    if not target.architectures:
        return Gate(_ID, UNKNOWN, "the target's config.json names no architecture", _WHEN, said)
    names = " or ".join(target.architectures)
    if subject.architecture is None:
        message = f"vLLM's registry has no {names}; it may still run through Transformers, which is not judged here"
        return Gate(_ID, UNKNOWN, message, _WHEN, said)
    entry = known[subject.architecture]
    if subject.structure is None:
        message = f"{entry.cls} is not in {entry.module}, where the registry says"
        return Gate(_ID, UNKNOWN, message, _WHEN, (entry.evidence,))
    if not target.is_plain and target.remote_code is None and _is_unknown_type(subject):
        message = f"neither vLLM nor Transformers knows model_type {target.model_type}, and the folder brings no code"
        error = f"The checkpoint you are trying to load has model type `{target.model_type}`"
        hint = "install the Transformers that this model asks for"
        return Gate(_ID, FAIL, message, _WHEN, said, error, hint=hint)
    note = "; its configuration may need --trust-remote-code" if target.remote_code is not None else ""
    return Gate(_ID, PASS, f"{subject.architecture} is {entry.cls}{note}", _WHEN, (entry.evidence, *said[:1]))


def _is_unknown_type(subject: Subject) -> bool:
    """Tell whether nothing installed has a configuration class for the target's model_type."""
    is_known = bool(config_classes(subject.registry, subject.target))
    return subject.target.model_type is not None and not is_known and subject.registry.knows_transformers
