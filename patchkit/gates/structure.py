"""How a model is built: the way from the class that vLLM loads to the module that owns the decoder layers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from patchkit.gates.checkpoint import Checkpoint
from patchkit.gates.code import Code
from patchkit.gates.module import Class, Evidence, Lineage
from patchkit.gates.registry import Registry
from patchkit.gates.syntax import Function, bound, dotted, returned, strings, walk

_MAX_DEPTH = 8
_MAX_STEPS = 2000
"""How many expressions are looked at for one attribute."""
_REGISTERED = "init_vllm_registered_model"
_MARK = "_mark_language_model"


@dataclass(frozen=True)
class Step:
    """One attribute on the way, and the class of what it holds."""

    attribute: str
    """Empty for the model itself."""
    cls: str
    evidence: Evidence


@dataclass
class Structure:
    """A model's classes, as far as its source says what they are."""

    code: Code
    registry: Registry
    checkpoint: Checkpoint
    cls: Class
    _steps: int = 0

    @cached_property
    def lineage(self) -> Lineage:
        """Return the model's class with its bases."""
        return self.code.lineage(self.cls)

    @property
    def is_multimodal(self) -> bool:
        """Tell whether vLLM takes the model for a multimodal one."""
        return "SupportsMultiModal" in self.lineage.names

    @cached_property
    def language_attribute(self) -> str | None:
        """Return the attribute that ``get_language_model()`` gives; empty for the model itself, None if not known."""
        if not self.is_multimodal:
            return ""
        method = self.lineage.method("get_language_model")
        if method is not None and method[0].name != "SupportsMultiModal":
            values = returned(method[1])
            parts = dotted(values[0]) if len(values) == 1 else ()
            return ".".join(parts[1:]) if parts[:1] == ("self",) else None
        for cls in self.lineage.classes:
            names = _marked(cls)
            if names:
                return names[0] if len(names) == 1 else None
        return None

    @cached_property
    def language_model(self) -> Class | None:
        """Return the class of the language model, the model's own where it is no multimodal one."""
        if self.language_attribute is None:
            return None
        return self._follow(self.cls, self.language_attribute)

    @cached_property
    def decoder(self) -> Class | None:
        """Return the class that owns the decoder layers."""
        language = self.language_model
        if language is None:
            return None
        inner = self.attribute(language, "model")
        return inner if inner is not None else (language if self.code.lineage(language).has("layers") else None)

    @property
    def has_inner_model(self) -> bool | None:
        """Tell whether the language model has an attribute ``model``; None where its class is not known."""
        if self.language_model is None:
            return None
        lineage = self.code.lineage(self.language_model)
        return True if lineage.has("model") else (False if lineage.is_complete else None)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Return the way from the model to its layers, as far as it is known."""
        found = [Step("", self.cls.name, self.cls.evidence)]
        if self.language_attribute and self.language_model is not None:
            found.append(Step(self.language_attribute, self.language_model.name, self.language_model.evidence))
        if self.language_model is not None and self.decoder is not None:
            if self.decoder.node is not self.language_model.node:
                found.append(Step("model", self.decoder.name, self.decoder.evidence))
            layers = self.code.lineage(self.decoder).assigned("layers")
            if layers is not None:
                owner, values = layers
                found.append(Step("layers", "decoder layers", owner.module.evidence(values[0][1])))
        return tuple(found)

    def attribute(self, cls: Class, name: str) -> Class | None:
        """Return the class of what an instance holds under a name; None where the source does not say it alone."""
        self._steps = 0
        candidates = list(self._values(cls, name))
        distinct = {None if found is None else found.node: found for found in candidates}
        return next(iter(distinct.values())) if len(distinct) == 1 else None

    def _follow(self, cls: Class | None, path: str) -> Class | None:
        for name in path.split(".") if path else ():
            cls = self.attribute(cls, name) if cls is not None else None
        return cls

    def _values(self, cls: Class, name: str) -> Iterator[Class | None]:
        """Yield the class of each value that an attribute of ``self`` is bound to, None for one not known."""
        lineage = self.code.lineage(cls)
        found = lineage.assigned(name)
        if found is None:
            yield None
            return
        owner, values = found
        for method, value in values:
            yield from self._classes(lineage, owner, method, value, 0)

    def _classes(
        self, lineage: Lineage, owner: Class, method: Function, value: ast.expr, depth: int
    ) -> Iterator[Class | None]:
        """Yield the class of each object that an expression in a method may give."""
        self._steps += 1
        if depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            yield None
        elif isinstance(value, ast.IfExp):
            yield from self._classes(lineage, owner, method, value.body, depth + 1)
            yield from self._classes(lineage, owner, method, value.orelse, depth + 1)
        elif isinstance(value, ast.Name):
            others = list(bound(method, value.id))
            for other in others:
                yield from self._classes(lineage, owner, method, other, depth + 1)
            if not others:
                yield None
        elif isinstance(value, ast.Call) and dotted(value.func)[-1:] == (_REGISTERED,):
            yield from self._registered(method, value)
        elif isinstance(value, ast.Call):
            yield from self._called(lineage, owner, method, value.func, depth)
        else:
            yield None

    def _called(
        self, lineage: Lineage, owner: Class, method: Function, func: ast.expr, depth: int
    ) -> Iterator[Class | None]:
        """Yield the class of each object that calling a class, a parameter or a method of ``self`` gives."""
        parts = dotted(func)
        if len(parts) == 2 and parts[0] == "self":
            found = lineage.method(parts[1])
            if found is not None:
                for other in returned(found[1]):
                    yield from self._classes(lineage, found[0], found[1], other, depth + 1)
                return
            holder = lineage.owner(parts[1])
            constant = getattr(holder.members[parts[1]], "value", None) if holder else None
            yield self.code.resolve(holder.module, constant) if holder else None
            return
        default = _default(method, parts[0]) if len(parts) == 1 else None
        yield self.code.resolve(owner.module, default if default is not None else func)

    def _registered(self, method: Function, call: ast.Call) -> Iterator[Class | None]:
        """Yield the class that vLLM takes for an inner model: named in the call, else by the checkpoint."""
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        named = keywords.get("architectures")
        lists = list(bound(method, named.id)) if isinstance(named, ast.Name) else [named]
        literals = [strings(value) for value in lists if value is not None]
        own = self.checkpoint.text.get("architectures") if self.checkpoint.text_key else None
        if literals and all(literals):
            for names in literals:
                yield self._first(names)
        elif isinstance(own, list) and own:
            yield self._first(tuple(name for name in own if isinstance(name, str)))
        else:
            # Some wrappers write the name of the text model's class into a configuration that leaves it out.
            written = [strings(node.value) for node in walk(method) if _is_architectures(node)]  # type: ignore[attr-defined]
            model_type = self.checkpoint.text.get("model_type") if self.checkpoint.text_key else None
            named_by_type = self.registry.text_architecture(model_type) if isinstance(model_type, str) else None
            yield from map(self._first, written or [(named_by_type or "",)])

    def _first(self, names: tuple[str, ...]) -> Class | None:
        return next((cls for cls in map(self.registry.model, names) if cls is not None), None)


def _marked(cls: Class) -> list[str]:
    """Return the attributes that are bound inside a block that marks the language model."""
    found: list[str] = []
    for node in walk(cls.node):
        calls = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
        if any(isinstance(call, ast.Call) and dotted(call.func)[-1:] == (_MARK,) for call in calls):
            for inner in walk(node):
                for target in inner.targets if isinstance(inner, ast.Assign) else ():
                    parts = dotted(target)
                    if len(parts) == 2 and parts[0] == "self" and parts[1] not in found:
                        found.append(parts[1])
    return found


def _is_architectures(node: ast.AST) -> bool:
    """Tell whether a node binds the architectures of a configuration to names."""
    target = dotted(node.targets[0]) if isinstance(node, ast.Assign) else ()
    return len(target) > 1 and target[-1] == "architectures" and bool(strings(node.value))  # type: ignore[attr-defined]


def _default(method: Function, name: str) -> ast.expr | None:
    """Return the default of a parameter."""
    arguments = method.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments.defaults)),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next((value for argument, value in pairs if argument.arg == name and value is not None), None)
