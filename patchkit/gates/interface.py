"""The EAGLE-3 interface of the target's class, and the auxiliary hidden states that its decoder gives."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property

from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.module import Class, Evidence, Lineage
from patchkit.gates.structure import Structure
from patchkit.gates.syntax import Function, dotted, walk

_INTERFACE = "SupportsEagle3"
_MIXIN = "EagleModelMixin"
_SETTER = "set_aux_hidden_state_layers"
DEFAULTS = ("get_eagle3_default_aux_hidden_state_layers", "get_eagle3_aux_hidden_state_layers")


def judge_interface(subject: Subject) -> Gate:
    """Ask for the interface as ``isinstance`` with a runtime-checkable Protocol does: by base, else by members."""
    structure, when = subject.structure, "drafter-loaded"
    if structure is None:
        return Gate("interface", UNKNOWN, "the target's class is not known", when)
    if not subject.uses_aux_hidden_states:
        message = "the drafter takes no auxiliary hidden states, so the interface is not asked for"
        return Gate("interface", PASS, message, when, _settings(subject))
    module = subject.code.module("vllm.model_executor.models.interfaces")
    protocol = subject.code.find(module, _INTERFACE) if module else None
    if protocol is None:
        return Gate("interface", UNKNOWN, f"this vLLM has no {_INTERFACE}", when)
    evidence = (protocol.evidence, structure.cls.evidence)
    if _INTERFACE in structure.lineage.names:
        return Gate("interface", PASS, f"{structure.cls.name} is a {_INTERFACE}", when, evidence)
    members = {name for cls in subject.code.lineage(protocol).classes for name in cls.members}
    missing = sorted(name for name in members if not name.startswith("_") and not structure.lineage.has(name))
    if not missing:
        return Gate("interface", PASS, f"{structure.cls.name} has every member of {_INTERFACE}", when, evidence)
    if not structure.lineage.is_complete:
        message = f"a base of {structure.cls.name} cannot be read, so its members are not all known"
        return Gate("interface", UNKNOWN, message, when, evidence)
    error = "Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested"
    message = f"{structure.cls.name} is no {_INTERFACE}: it has no {', '.join(missing)}"
    return Gate("interface", FAIL, message, when, evidence, error)


def judge_capture(subject: Subject) -> Gate:
    """Ask whether the decoder's forward gives auxiliary hidden states, and whether the target's class can set them."""
    structure, when = subject.structure, "first-forward"
    if not subject.uses_aux_hidden_states:
        return Gate("capture", PASS, "the drafter takes no auxiliary hidden states", when, _settings(subject))
    if structure is None or structure.decoder is None:
        way = " → ".join(step.cls for step in structure.steps) if structure else "the target's class is not known"
        return Gate("capture", UNKNOWN, f"the class that owns the decoder layers cannot be told: {way}", when)
    capture = Capture(subject, structure, structure.decoder)
    evidence = capture.evidence
    if not capture.is_there:
        if not capture.lineage.is_complete:
            return Gate("capture", UNKNOWN, f"a base of {structure.decoder.name} cannot be read", when, evidence)
        error = "ValueError: too many values to unpack (expected 2)"
        message = f"{structure.decoder.name}.forward gives no auxiliary hidden states"
        return Gate("capture", FAIL, message, when, evidence, error)
    if capture.needs_mixin and _MIXIN not in capture.lineage.names:
        error = "AssertionError: Model instance must inherit from EagleModelMixin to set auxiliary layers"
        message = f"{structure.decoder.name} is no {_MIXIN}, which the interface's own setter wants"
        return Gate("capture", FAIL, message, "drafter-loaded", evidence, error)
    return Gate("capture", PASS, f"{structure.decoder.name} gives auxiliary hidden states", when, evidence)


def _settings(subject: Subject) -> tuple[Evidence, ...]:
    return subject.said(subject.draft, "use_aux_hidden_state") if subject.draft else ()


@dataclass
class Capture:
    """How a decoder captures states: which ids it takes, told from its source."""

    subject: Subject
    structure: Structure
    decoder: Class

    @cached_property
    def lineage(self) -> Lineage:
        """Return the decoder's class with its bases."""
        return self.subject.code.lineage(self.decoder)

    @cached_property
    def _forward(self) -> tuple[Class, Function] | None:
        return self.lineage.method("forward")

    @cached_property
    def is_there(self) -> bool:
        """Tell whether forward looks at auxiliary layers: by a test on their ids, or through the mixin."""
        return self.by_mixin or bool(self._tests)

    @cached_property
    def by_mixin(self) -> bool:
        """Tell whether the mixin's own method captures the states."""
        return any(isinstance(node, ast.Call) and _is_capture(node) for node in self._nodes)

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        """Return the nodes of forward and of the methods of ``self`` that it calls."""
        if self._forward is None:
            return []
        nodes = list(walk(self._forward[1]))
        place = self.lineage.classes.index(self._forward[0]) + 1
        if any(isinstance(node, ast.Attribute) and node.attr == "forward" and _is_super(node.value) for node in nodes):
            above = next((cls for cls in self.lineage.classes[place:] if "forward" in cls.members), None)
            nodes += list(walk(above.members["forward"])) if above else []
        for name in {dotted(node.func) for node in nodes if isinstance(node, ast.Call)}:
            found = self.lineage.method(name[1]) if len(name) == 2 and name[0] == "self" else None
            nodes += list(walk(found[1])) if found and found[0].name != _MIXIN else []
        return nodes

    @cached_property
    def _tests(self) -> list[ast.Compare]:
        """Return the tests whether a layer's number is among the auxiliary ones."""
        return [
            node
            for node in self._nodes
            if isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.In)
            and dotted(node.comparators[0])[-1:] == ("aux_hidden_state_layers",)
        ]

    @property
    def takes_first(self) -> bool:
        """Tell whether id 0, the state that enters the first layer, can be given."""
        if self.by_mixin:
            return True
        lefts = [dotted(test.left) for test in self._tests]
        if any(left[-1:] == ("start_layer",) for left in lefts):
            return True
        blocks = [node for node in self._nodes if isinstance(node, ast.If) and node.test in self._tests]
        plain = [block for block in blocks if isinstance(getattr(block.test, "left", None), ast.Name)]
        # The first layer has no residual yet: a capture that does not ask for that cannot add it.
        return any(not _uses(block, "residual") or _asks_for_none(block, "residual") for block in plain)

    @property
    def takes_last(self) -> bool:
        """Tell whether an id equal to the number of layers gives the state that leaves the last one."""
        if self.by_mixin:
            return True
        lefts = [test.left for test in self._tests]
        return any(isinstance(left, ast.BinOp) or dotted(left)[-1:] == ("end_layer",) for left in lefts)

    @property
    def is_strict(self) -> bool:
        """Tell whether ids that cannot be given are refused at the start."""
        return any(isinstance(node, ast.Raise) for _, method in self._setters for node in walk(method))

    @cached_property
    def _setters(self) -> list[tuple[Class, Function]]:
        """Return the methods that set the ids, from the model down to the decoder."""
        lineages = [self.structure.lineage]
        if self.structure.language_model is not None:
            lineages.append(self.subject.code.lineage(self.structure.language_model))
        found: list[tuple[Class, Function]] = []
        for lineage in (*lineages, self.lineage):
            method = lineage.method(_SETTER)
            if method is None or any(method[1] is other for _, other in found):
                continue
            found.append(method)
            if not any(isinstance(node, ast.Attribute) and node.attr == _SETTER for node in walk(method[1])):
                break
        return found

    @property
    def needs_mixin(self) -> bool:
        """Tell whether the ids are set through the interface's own method, which wants the mixin."""
        return any(
            cls.name == _INTERFACE and any(isinstance(node, ast.Assert) for node in walk(method))
            for cls, method in self._setters
        )

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Return the line that captures, or the line of forward where none does."""
        if self._forward is None:
            return (self.decoder.evidence,)
        owner, method = self._forward
        calls = [node for node in self._nodes if isinstance(node, ast.Call) and _is_capture(node)]
        node = next(iter([*self._tests, *calls]), method)
        return (owner.module.evidence(node),)


def _is_super(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and dotted(expression.func) == ("super",)


def _is_capture(call: ast.Call) -> bool:
    """Tell whether a call is that of the mixin's own method."""
    return dotted(call.func)[-1:] == ("_maybe_add_hidden_state",)


def _uses(node: ast.AST, name: str) -> bool:
    return any(isinstance(found, ast.Name) and found.id == name for found in walk(node))


def _asks_for_none(node: ast.AST, name: str) -> bool:
    """Tell whether a name is compared with None below a node."""
    tests = [found for found in walk(node) if isinstance(found, ast.Compare) and dotted(found.left) == (name,)]
    return any(isinstance(test.ops[0], ast.Is | ast.IsNot) for test in tests)
