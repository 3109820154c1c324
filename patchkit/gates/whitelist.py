"""The list of targets that a release takes for EAGLE-3 (vllm/config/speculative.py, through 0.21)."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from patchkit.gates.configuration import text_model_type
from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.module import Class
from patchkit.gates.syntax import Function, bound, dotted, strings, walk

_WHEN = "configuration"


def judge(subject: Subject) -> Gate:
    """Compare the text model's model_type with the list, as vLLM does: a substring is enough."""
    module = subject.code.module("vllm.config.speculative")
    cls = module.classes.get("SpeculativeConfig") if module else None
    if cls is None:
        return Gate("whitelist", UNKNOWN, "vLLM's SpeculativeConfig is not where it is looked for", _WHEN)
    listed = _listed(cls)
    strange = _asks_otherwise(cls) if listed is None else None
    if strange is not None:
        message = "targets are refused by their model_type in a way that is not known here"
        return Gate("whitelist", UNKNOWN, message, _WHEN, (cls.module.evidence(strange),))
    if listed is None:
        return Gate("whitelist", PASS, "this release has no such list", _WHEN, (cls.evidence,))
    where, names = listed
    evidence = (cls.module.evidence(where),)
    if names is None:
        return Gate("whitelist", UNKNOWN, "the list is not written as a list of strings", _WHEN, evidence)
    found, said = text_model_type(subject.registry, subject.target)
    if found is None:
        return Gate("whitelist", UNKNOWN, "the model_type of the text model cannot be told", _WHEN, (*evidence, *said))
    matching = next((name for name in names if name in found), None)
    if matching is not None:
        message = f"model_type {found} matches {matching!r}"
        return Gate("whitelist", PASS, message, _WHEN, (*evidence, *said))
    error = (
        f"eagle3 is only supported for {list(names)} models. "
        f"Got self.target_model_config.hf_text_config.model_type={found!r}"
    )
    message = f"model_type {found} contains none of {', '.join(names)}"
    return Gate("whitelist", FAIL, message, _WHEN, (*evidence, *said), error)


def _listed(cls: Class) -> tuple[ast.AST, tuple[str, ...] | None] | None:
    """Return where the list is and what is in it; None where a release has none for EAGLE-3."""
    for method in cls.node.body:
        if not isinstance(method, Function):
            continue
        for node in walk(method):
            if isinstance(node, ast.GeneratorExp) and _asks_model_type(node) and _is_for_eagle3(method):
                source = node.generators[0].iter
                name = source.id if isinstance(source, ast.Name) else ""
                values: list[ast.expr | None] = [*bound(method, name)] if name else [source]
                values = values or [cls.module.assignments.get(name)]
                names = None if _is_changed(method, name) else _all_strings(values)
                return values[0] if values[0] is not None else node, names
    return None


def _is_changed(method: ast.AST, name: str) -> bool:
    """Tell whether a list is added to, or anything else is done with it, after it is bound."""
    for node in walk(method):
        target: ast.expr | None = node.target if isinstance(node, ast.AugAssign) else None
        if isinstance(node, ast.Attribute):
            target = node.value
        if target is not None and dotted(target) == (name,):
            return True
    return False


def _all_strings(values: Sequence[ast.expr | None]) -> tuple[str, ...] | None:
    """Return the members of a list that is bound once and holds nothing but strings."""
    members = getattr(values[0], "elts", [])
    found = strings(values[0]) if len(values) == 1 else ()
    return found if found and len(found) == len(members) else None


def _asks_otherwise(cls: Class) -> ast.AST | None:
    """Return a method that refuses targets by their model_type in a way that is not known here."""
    for method in (node for node in cls.node.body if isinstance(node, Function)):
        nodes = list(walk(method))
        if _is_for_others(method):
            continue
        names = {dotted(node)[-2:] for node in nodes if isinstance(node, ast.Attribute)}
        words = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        if ("hf_text_config", "model_type") in names and any("only supported for" in word for word in words):
            return method
    return None


def _asks_model_type(node: ast.GeneratorExp) -> bool:
    """Tell whether a generator asks for a name in hf_text_config.model_type."""
    test = node.elt
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.In)
        and dotted(test.comparators[0])[-2:] == ("hf_text_config", "model_type")
    )


def _methods(method: ast.AST) -> list[tuple[str, ...]]:
    """Return the speculative methods that a method asks for, test by test; nothing for a test that is not known."""
    tests = [node for node in walk(method) if isinstance(node, ast.Compare) and dotted(node.left) == ("self", "method")]
    return [strings(test.comparators[0]) if isinstance(test.ops[0], ast.Eq | ast.In) else () for test in tests]


def _is_for_eagle3(method: ast.AST) -> bool:
    """Tell whether a method asks whether the speculative method is eagle3."""
    return any("eagle3" in names for names in _methods(method))


def _is_for_others(method: ast.AST) -> bool:
    """Tell whether a method asks for speculative methods, and eagle3 is none of them."""
    asked = _methods(method)
    return bool(asked) and all(names and "eagle3" not in names for names in asked)
