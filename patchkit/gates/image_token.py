"""Where a proposer looks for the image token of a multimodal target (``load_model`` in vllm/v1/spec_decode)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from patchkit.gates.configuration import config_classes, has_attribute
from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.model_runner import model_runner
from patchkit.gates.module import Class, Evidence, Module
from patchkit.gates.structure import Structure
from patchkit.gates.syntax import Function, bound, dotted, statements, strings, walk

_WHEN = "target-loaded"
_PROPOSERS = ("vllm.v1.spec_decode.llm_base_proposer", "vllm.v1.spec_decode.eagle")
_ATTRIBUTE = "image_token_index"


@dataclass(frozen=True)
class Chain:
    """The statement that gives the drafter's configuration its image token, by the target's class."""

    module: Module
    node: ast.If
    method: Function
    """The proposer's method that holds it."""

    @property
    def names(self) -> frozenset[str]:
        """Return the classes that have a branch of their own."""
        tests = [node.test for node in walk(ast.Module([self.node], [])) if isinstance(node, ast.If)]
        return frozenset(name for test in tests for name in _names(test) or ())


def find_chain(subject: Subject) -> Chain | None:
    """Return the chain of the installed release; None where no proposer has one."""
    for module in filter(None, map(subject.code.module, _PROPOSERS)):
        for cls in module.classes.values():
            for method in (node for node in cls.node.body if isinstance(node, Function)):
                for node in statements(method):
                    if isinstance(node, ast.If) and _names(node.test) is not None and _value(node.body) is not None:
                        return Chain(module, node, method)
    return None


def judge(subject: Subject) -> Gate:
    """Follow the chain for the target's class, and look for the attribute that it reads."""
    structure = subject.structure
    if structure is None:
        return Gate("image-token", UNKNOWN, "the target's class is not known", _WHEN)
    if not structure.is_multimodal:
        message = f"{structure.cls.name} is not multimodal, so it is not asked for an image token"
        verdict = PASS if structure.lineage.is_complete else UNKNOWN
        return Gate("image-token", verdict, message, _WHEN, (structure.cls.evidence,))
    runner, said = model_runner(subject)
    if runner == "v2":
        message = "model runner v2 does not ask for it; v1 may, where VLLM_USE_V2_MODEL_RUNNER=0 or Triton is missing"
        return Gate("image-token", PASS, message, _WHEN, said)
    if not any(map(subject.code.module, _PROPOSERS)):
        return Gate("image-token", UNKNOWN, "vLLM's proposer is not where it is looked for", _WHEN)
    chain = find_chain(subject)
    modules = filter(None, map(subject.code.module, _PROPOSERS)) if chain is None else ()
    strange = next(filter(None, map(_mention, modules)), None)
    if strange is not None:
        message = "the proposer asks in a way that is not known here"
        return Gate("image-token", UNKNOWN, message, _WHEN, (strange,))
    if chain is None:
        return Gate("image-token", PASS, "this release's proposer does not ask for it", _WHEN)
    gate = follow(subject, structure, chain)
    if gate.verdict == FAIL and runner == "either":
        message = f"{gate.message}: so with model runner v1; v2 does not ask, and the start decides which one runs"
        return Gate("image-token", UNKNOWN, message, _WHEN, (*gate.evidence, *said))
    return gate


def _mention(module: Module) -> Evidence | None:
    """Return where a module names the attribute, if it does."""
    nodes = [node for node in walk(module.tree) if isinstance(node, ast.Attribute) and node.attr == _ATTRIBUTE]
    return module.evidence(nodes[0]) if nodes else None


def follow(subject: Subject, structure: Structure, chain: Chain, classes: Sequence[Class] | None = None) -> Gate:
    """Return the verdict of the branch that a class takes; ``classes`` are those of its configuration, where known."""
    if classes is None:
        classes = config_classes(subject.registry, structure.checkpoint)
    branch = _branch(chain.node, structure.cls.name)
    value = _value(branch) if branch is not None else None
    if branch is None or value is None:
        evidence = (chain.module.evidence(chain.node),)
        return Gate("image-token", UNKNOWN, "the proposer asks in a way that is not known here", _WHEN, evidence)
    evidence = (chain.module.evidence(value),)
    path = dotted(value)
    prefix = _config_path(structure)
    if path[:2] != ("target_model", "config") or prefix is None:
        return Gate("image-token", UNKNOWN, "what the proposer reads is not known here", _WHEN, evidence)
    found, said = has_attribute(subject.registry, structure.checkpoint, classes, (*prefix, *path[2:]))
    name = ".".join(path[2:])
    if found:
        return Gate("image-token", PASS, f"{structure.cls.name}: config.{name} is there", _WHEN, (*evidence, *said))
    if found is None:
        message = f"{structure.cls.name}: the proposer reads config.{name}, and whether it is there cannot be told"
        return Gate("image-token", UNKNOWN, message, _WHEN, (*evidence, *said))
    owner = classes[0].name if classes else "PretrainedConfig"
    error = f"AttributeError: '{owner}' object has no attribute '{path[-1]}'"
    message = f"{structure.cls.name}: the proposer reads config.{name}, and {owner} has no {path[-1]}"
    return Gate("image-token", FAIL, message, _WHEN, (*evidence, *said), error)


def _names(test: ast.expr) -> tuple[str, ...] | None:
    """Return the class names that a test asks for; None where it asks something else."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.In | ast.Eq):
        return None
    called = dotted(test.left.func) if isinstance(test.left, ast.Call) else ()
    return strings(test.comparators[0]) if called[-1:] == ("get_model_name",) else None


def _branch(node: ast.If, name: str) -> list[ast.stmt] | None:
    """Return the statements that run for a class; None where a test on the way is not known."""
    while True:
        names = _names(node.test)
        if names is None:
            return None
        if name in names:
            return node.body
        if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
            return node.orelse
        node = node.orelse[0]


def _value(body: list[ast.stmt]) -> ast.expr | None:
    """Return what the image token of the drafter's configuration is bound to in a branch."""
    for node in body:
        if isinstance(node, ast.Assign) and dotted(node.targets[0])[-2:] == ("config", _ATTRIBUTE):
            return node.value
    return None


def _config_path(structure: Structure) -> tuple[str, ...] | None:
    """Return what a model keeps as its ``config``, as a path from the whole configuration."""
    found = structure.lineage.assigned("config")
    if found is None:
        return None
    (method, value), *rest = found[1]
    parts = dotted(value)
    if rest or not parts:
        return None
    while parts and "hf_config" not in parts:
        values = [dotted(other) for other in bound(method, parts[0])]
        if len(values) != 1 or values[0][:1] == parts[:1]:
            return None
        parts = (*values[0], *parts[1:]) if values[0] else ()
    return parts[parts.index("hf_config") + 1 :] if parts else None
