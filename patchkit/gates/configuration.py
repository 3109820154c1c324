"""What a checkpoint's configuration object has, told from its keys and its class's source."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from patchkit.gates.checkpoint import Checkpoint
from patchkit.gates.code import Code
from patchkit.gates.module import SHOWN, Class, Evidence, Lineage
from patchkit.gates.registry import PRETRAINED, Registry
from patchkit.gates.syntax import dotted, strings, walk

_BASES = [(name,) for name in PRETRAINED]
_FOLDER = "folder-of-the-model"
"""The package of a model's own modules, by a name that no installed one can have."""
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def config_classes(registry: Registry, checkpoint: Checkpoint) -> list[Class]:
    """Return the classes that may stand behind a config.json: one, or two where the folder brings code of its own."""
    if checkpoint.is_plain:
        return []
    known = registry.config(checkpoint.model_type) if checkpoint.model_type else None
    own = _remote(registry.code, checkpoint)
    is_of_vllm = known is not None and known.module.name.startswith("vllm.")
    return [cls for cls in (known, None if is_of_vllm else own) if cls is not None]


def has_attribute(
    registry: Registry, checkpoint: Checkpoint, classes: Sequence[Class], path: Sequence[str]
) -> tuple[bool | None, tuple[Evidence, ...]]:
    """Tell whether the configuration object has an attribute, by a path of names; None where it cannot be told.

    ``classes`` are those that may stand behind the whole configuration.
    """
    keys: Any = checkpoint.config
    for depth, name in enumerate(path):
        if isinstance(keys, Mapping) and name in keys:
            if depth == len(path) - 1:
                number, text = checkpoint.line(name)
                return True, (Evidence(str(checkpoint.place), number, text),)
            keys = keys[name]
        elif checkpoint.is_plain:
            return False, ()
        elif depth == len(path) - 1:
            return _in_classes(registry.code, classes, name)
        else:
            keys = {}
        classes = [part for cls in classes for part in [_part(registry, cls, name)] if part is not None]
    return None, ()


def text_model_type(registry: Registry, checkpoint: Checkpoint) -> tuple[str | None, tuple[Evidence, ...]]:
    """Return the model_type of the text model's configuration, as vLLM finds it; None where it cannot be told."""
    classes = config_classes(registry, checkpoint)
    parts = [part for cls in classes for part in [_part(registry, cls, "text_config")] if part is not None]
    thinker = checkpoint.config.get("thinker_config")
    if isinstance(thinker, dict):
        return _said(checkpoint, thinker.get("text_config"), is_inner=True)
    if checkpoint.text_key is not None:
        found = _said(checkpoint, checkpoint.text, is_inner=True)
        return found if found[0] is not None else _of_class(registry, parts)
    if any(_of_class(registry, [part])[0] for part in parts):
        # A multimodal model whose config.json is flat; code of the folder's own may well make no such part then.
        is_certain = all(cls.module.name.startswith(("vllm.", "transformers.")) for cls in classes)
        return _of_class(registry, parts) if is_certain else (None, ())
    if any(_overrides(registry, cls, "get_text_config") for cls in classes):
        return None, ()
    return _said(checkpoint, checkpoint.config, is_inner=False)


def _said(checkpoint: Checkpoint, keys: object, *, is_inner: bool) -> tuple[str | None, tuple[Evidence, ...]]:
    """Return the model_type that a part of a config.json gives, with its line."""
    found = keys.get("model_type") if isinstance(keys, Mapping) else None
    if not isinstance(found, str):
        return None, ()
    said = enumerate(checkpoint.lines, 1)
    lines = [number for number, line in said if '"model_type"' in line and f'"{found}"' in line]
    number = lines[-1 if is_inner else 0] if lines else 1
    text = checkpoint.lines[number - 1].strip()[:SHOWN] if lines else ""
    return found, (Evidence(str(checkpoint.place), number, text),)


def _of_class(registry: Registry, parts: Sequence[Class]) -> tuple[str | None, tuple[Evidence, ...]]:
    """Return the model_type that a configuration class gives its objects."""
    for part in parts:
        owner = registry.code.lineage(part).owner("model_type")
        value = getattr(owner.members["model_type"], "value", None) if owner else None
        if owner and any(strings(value)):
            return strings(value)[0], (owner.module.evidence(owner.members["model_type"]),)
    return None, ()


def _overrides(registry: Registry, cls: Class, name: str) -> bool:
    """Tell whether a configuration class has its own way for something that Transformers' base does."""
    owner = registry.code.lineage(cls).owner(name)
    return owner is not None and owner.name not in PRETRAINED


def _in_classes(code: Code, classes: Sequence[Class], name: str) -> tuple[bool | None, tuple[Evidence, ...]]:
    """Tell whether an object of a configuration class has an attribute that its keys do not give."""
    verdicts: set[bool | None] = set()
    evidence: list[Evidence] = []
    for cls in classes:
        lineage = code.lineage(cls)
        if lineage.has(name) or name in _mapped(lineage.classes):
            owner = lineage.owner(name)
            evidence.append(owner.module.evidence(owner.members[name]) if owner else cls.evidence)
            verdicts.add(True)
        else:
            evidence.append(cls.evidence)
            verdicts.add(False if _is_closed(lineage) else None)
    return (verdicts.pop() if len(verdicts) == 1 else None), tuple(evidence)


def _is_closed(lineage: Lineage) -> bool:
    """Tell whether every base is read up to Transformers' own base, which has no attribute that a gate asks about."""
    return all(owner.name in PRETRAINED or dotted(base)[-1:] in _BASES for owner, base in lineage.unread)


def _mapped(classes: Sequence[Class]) -> set[str]:
    """Return the names that configuration classes give to other attributes."""
    found: set[str] = set()
    for cls in classes:
        value = getattr(cls.members.get("attribute_map"), "value", None)
        if isinstance(value, ast.Dict):
            found.update(word for key in value.keys if key is not None for word in strings(key))
    return found


def _part(registry: Registry, cls: Class, name: str) -> Class | None:
    """Return the class of a part of a configuration, as its class's source says."""
    lineage = registry.code.lineage(cls)
    for owner in lineage.classes:
        table = getattr(owner.members.get("sub_configs"), "value", None)
        for key, value in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
            if key is not None and strings(key) == (name,):
                found = registry.code.resolve(owner.module, value)
                if found is not None and found.name != "AutoConfig":
                    return found
        for node in walk(owner.node):
            if isinstance(node, ast.Call) and _spreads(node, name):
                found = registry.code.resolve(owner.module, node.func)
                if found is not None:
                    return found
            if _is_default_type(node, name):
                return registry.config(strings(node.args[1])[0])  # type: ignore[attr-defined]
    return None


def _spreads(call: ast.Call, name: str) -> bool:
    """Tell whether a call has ``**NAME`` among its arguments."""
    return any(keyword.arg is None and dotted(keyword.value)[-1:] == (name,) for keyword in call.keywords)


def _is_default_type(node: ast.AST, name: str) -> bool:
    """Tell whether a node is ``NAME.get("model_type", "default")``."""
    return (
        isinstance(node, ast.Call)
        and dotted(node.func)[-2:] == (name, "get")
        and len(node.args) == 2
        and strings(node.args[0]) == ("model_type",)
        and bool(strings(node.args[1]))
    )


def _remote(code: Code, checkpoint: Checkpoint) -> Class | None:
    """Return the configuration class that a model's folder brings; its source is read, never run."""
    module_name, _, name = (checkpoint.remote_code or "").rpartition(".")
    if not _SIMPLE.fullmatch(module_name) or not _SIMPLE.fullmatch(name):
        return None
    local = Code([checkpoint.folder], package=_FOLDER, behind=code)
    module = local.module(f"{_FOLDER}.{module_name}")
    return local.find(module, name) if module else None
