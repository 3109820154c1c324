"""Which class stands behind an architecture or a model_type, as the installed vLLM and Transformers name them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from patchkit.gates.code import Code
from patchkit.gates.module import Class, Evidence
from patchkit.gates.syntax import constant, strings

_MODELS = "vllm.model_executor.models"
_CONFIGS = "vllm.transformers_utils.configs"
_AUTO = ("transformers.models.auto.auto_mappings", "transformers.models.auto.configuration_auto")
_MODELING = ("transformers.models.auto.modeling_auto",)
PRETRAINED = frozenset({"PretrainedConfig", "PreTrainedConfig"})
"""The base of every configuration class; it has no attribute of its own that a gate asks about."""


@dataclass(frozen=True)
class Entry:
    """One architecture of vLLM's registry."""

    module: str
    cls: str
    evidence: Evidence
    is_multimodal: bool
    """Whether the registry lists it among the multimodal models."""


@dataclass
class Registry:
    """The names that vLLM and Transformers know."""

    code: Code
    _configs: dict[str, Class | None] = field(default_factory=dict)
    _asked: set[tuple[str, str]] = field(default_factory=set)
    """The names that packages are being asked for; one that asks for the same name again has no answer."""

    def __post_init__(self) -> None:
        """Let names be found that vLLM's and Transformers' packages import only when they are asked for."""
        self.code.lazy = self._lazy

    @cached_property
    def architectures(self) -> Mapping[str, Entry]:
        """Return vLLM's architectures, by name; empty where its registry cannot be read."""
        module = self.code.module(f"{_MODELS}.registry")
        found: dict[str, Entry] = {}
        for name, value in module.assignments.items() if module else ():
            if name.endswith("_MODELS") and isinstance(value, ast.Dict):
                for key, item in zip(value.keys, value.values, strict=True):
                    words = strings(item)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and len(words) == 2:
                        evidence = module.evidence(key)  # type: ignore[union-attr]
                        found[key.value] = Entry(*words, evidence, "MULTIMODAL" in name)
        return found

    def model(self, architecture: str) -> Class | None:
        """Return the class of an architecture."""
        entry = self.architectures.get(architecture)
        if entry is None:
            return None
        module = self.code.module(entry.module if "." in entry.module else f"{_MODELS}.{entry.module}")
        return self.code.find(module, entry.cls) if module else None

    def config(self, model_type: str) -> Class | None:
        """Return the configuration class of a model_type: vLLM's own, else that of Transformers."""
        if model_type not in self._configs:
            self._configs[model_type] = self._own_config(model_type) or self._transformers_config(model_type)
        return self._configs[model_type]

    def text_architecture(self, model_type: str) -> str | None:
        """Return the architecture that vLLM gives an inner text model whose configuration names none.

        From 0.28 it takes the name that Transformers has for the model_type; before, it takes none.
        """
        module = self.code.module("vllm.config.vllm")
        table = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
        is_asked = module is not None and any(table in line for line in module.lines)
        return self._table(table, _MODELING).get(model_type) if is_asked else None

    def model_types(self, architecture: str) -> tuple[str, ...]:
        """Return the model types of an architecture, as Transformers pairs them."""
        return tuple(sorted(self._paired.get(architecture, ())))

    @cached_property
    def _paired(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for module in filter(None, map(self.code.module, _MODELING)):
            for name, value in module.assignments.items():
                for model_type, architecture in _pairs(value) if name.endswith("_MAPPING_NAMES") else ():
                    found.setdefault(architecture, set()).add(model_type)
        return found

    @property
    def knows_transformers(self) -> bool:
        """Tell whether Transformers' own list of model types could be read."""
        return bool(self._transformers_names)

    def _own_config(self, model_type: str) -> Class | None:
        module = self.code.module("vllm.transformers_utils.config")
        value = module.assignments.get("_CONFIG_REGISTRY") if module else None
        name = dict(_pairs(value)).get(model_type) if value is not None else None
        package = self.code.module(_CONFIGS)
        return self.code.find(package, name) if package and name else None

    def _lazy(self, package: str, name: str) -> Class | None:
        """Return a class of a package that names its modules in a table."""
        if (package, name) in self._asked:
            return None
        self._asked.add((package, name))
        try:
            return self._from_table(package, name)
        finally:
            self._asked.discard((package, name))

    def _from_table(self, package: str, name: str) -> Class | None:
        if package == _CONFIGS:
            module = self.code.module(package)
            table = module.assignments.get("_CLASS_TO_MODULE") if module else None
            where = dict(_pairs(table)).get(name) if table is not None else None
            module = self.code.module(where) if where else None
            return module.classes.get(name) if module else None
        if package == "transformers" and name in PRETRAINED:
            module = self.code.module("transformers.configuration_utils")
            return module.classes.get(name) if module else None
        model_type = self._transformers_types.get(name) if package == "transformers" else None
        return self._transformers_config(model_type) if model_type else None

    @cached_property
    def _transformers_types(self) -> dict[str, str]:
        return {name: model_type for model_type, name in self._transformers_names.items()}

    @cached_property
    def _transformers_names(self) -> dict[str, str]:
        return self._table("CONFIG_MAPPING_NAMES", _AUTO)

    @cached_property
    def _transformers_modules(self) -> dict[str, str]:
        return self._table("SPECIAL_MODEL_TYPE_TO_MODULE_NAME", _AUTO)

    def _table(self, name: str, modules: tuple[str, ...]) -> dict[str, str]:
        """Return what is put into one of Transformers' tables, in whichever way."""
        found: dict[str, str] = {}
        for module in filter(None, map(self.code.module, modules)):
            for node in module.tree.body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                value = getattr(node, "value", None)
                if isinstance(node, ast.Expr) and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                    target = value.func.value if value.func.attr == "update" else None
                if isinstance(target, ast.Name) and target.id == name and value is not None:
                    found.update(_pairs(value))
        return found

    def _transformers_config(self, model_type: str) -> Class | None:
        name = self._transformers_names.get(model_type)
        if name is None:
            return None
        folder = self._transformers_modules.get(model_type, model_type).replace("-", "_")
        package = self.code.module(f"transformers.models.{folder}.configuration_{folder}")
        return self.code.find(package, name) if package else None


def _pairs(value: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the pairs of string literals in a dict, a list of pairs, keywords, or a call around any of them."""
    found: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(value, ast.Dict):
        found = [(key, item) for key, item in zip(value.keys, value.values, strict=True) if key is not None]
    elif isinstance(value, ast.List | ast.Tuple):
        tuples = [element.elts for element in value.elts if isinstance(element, ast.Tuple)]
        found = [(pair[0], pair[1]) for pair in tuples if len(pair) == 2]
    elif isinstance(value, ast.Call):
        for argument in (*value.args, *(keyword.value for keyword in value.keywords if keyword.arg is None)):
            yield from _pairs(argument)
        named = [keyword for keyword in value.keywords if keyword.arg is not None]
        found = [(ast.Constant(keyword.arg), keyword.value) for keyword in named]
    for key, item in found:
        name, value_of_it = constant(key), constant(item)
        if name is not None and value_of_it is not None:
            yield name, value_of_it
