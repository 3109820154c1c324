"""Which multimodal classes of a release would stop at the image token, whatever their checkpoint."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.image_token import find_chain, follow
from patchkit.gates.interface import judge_interface
from patchkit.gates.module import Class, Evidence
from patchkit.gates.registry import PRETRAINED
from patchkit.gates.structure import Structure
from patchkit.gates.syntax import dotted, walk


@dataclass(frozen=True)
class ModelRow:
    """What the proposer does to one multimodal class."""

    architecture: str
    cls: str
    interface: str
    """Verdict of the interface: ``pass``, ``fail`` or ``unknown``."""
    image_token: str
    """Verdict of the image token, as model runner v1 asks for it and the class of the configuration answers."""
    message: str
    evidence: tuple[Evidence, ...]

    @property
    def would_die(self) -> bool:
        """Tell whether the class says that it takes EAGLE-3 and still stops at the image token."""
        return self.interface == PASS and self.image_token == FAIL


def judge_models(subject: Subject) -> Iterator[ModelRow]:
    """Yield every multimodal class of the registry, by architecture."""
    chain = find_chain(subject)
    for name, entry in sorted(subject.registry.architectures.items()):
        cls = subject.registry.model(name) if entry.is_multimodal else None
        if cls is None:
            continue
        structure = Structure(subject.code, subject.registry, subject.target, cls)
        asked = Subject(subject.code, subject.registry, subject.target)
        asked.structure = structure
        gate = Gate("image-token", PASS, "this release's proposer does not ask for it", "target-loaded")
        if chain is not None and (structure.is_multimodal or not structure.lineage.is_complete):
            classes = _config_classes(subject, name, cls)
            gate = follow(subject, structure, chain, classes)
            if gate.verdict != PASS and (not classes or cls.name in chain.names):
                why = "the class of its configuration is not known" if not classes else "config.json must bring it"
                gate = Gate("image-token", UNKNOWN, f"{gate.message}; {why}", "target-loaded", gate.evidence)
        interface = judge_interface(asked).verdict
        yield ModelRow(name, cls.name, interface, gate.verdict, gate.message, gate.evidence)


def _config_classes(subject: Subject, architecture: str, cls: Class) -> list[Class]:
    """Return the class of a model's configuration: as vLLM's own code says, else as Transformers pairs them."""
    found: dict[ast.ClassDef, Class] = {}
    for node in walk(cls.module.tree):
        named: ast.expr | None = None
        if isinstance(node, ast.Call) and dotted(node.func)[-1:] == ("get_hf_config",) and node.args:
            named = node.args[0]
        elif isinstance(node, ast.AnnAssign) and dotted(node.target) in (("config",), ("self", "config")):
            named = node.annotation
        resolved = subject.code.resolve(cls.module, named)
        if resolved is not None and resolved.name not in PRETRAINED:
            found[resolved.node] = resolved
    # One module may hold several models; the class of the configuration is then told by its name.
    named_alike = [other for other in found.values() if other.name == f"{architecture.partition('For')[0]}Config"]
    if len(found) == 1 or named_alike:
        return named_alike or list(found.values())
    paired = map(subject.registry.config, subject.registry.model_types(architecture))
    return [known for known in paired if known is not None]
