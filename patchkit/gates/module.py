"""A module and its classes as syntax."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from patchkit.gates.syntax import Function, dotted, statements, top_level, walk

SHOWN = 200
"""How much of a line is shown, in characters."""


@dataclass(frozen=True)
class Evidence:
    """A line that shows why a verdict is what it is."""

    path: str
    """Path below the site folder, or the place of a model's file."""
    line: int
    """Number of the line, from 1."""
    text: str
    """The line itself."""


class Reader(Protocol):
    """What reads modules, and finds what one of them imports."""

    lazy: Callable[[str, str], Class | None] | None
    """Finds a class that a package gives only when it is asked for it, by the package's name and the class's."""

    @property
    def label(self) -> str:
        """Return what stands before a path when it is shown."""

    def module(self, name: str) -> Module | None:
        """Return a module by its dotted name; None when it is not there or is not Python."""


@dataclass(frozen=True, eq=False)
class Module:
    """A module's syntax."""

    name: str
    path: str
    """Path below the site folder."""
    lines: Sequence[str]
    tree: ast.Module
    reader: Reader | None = None

    @cached_property
    def classes(self) -> dict[str, Class]:
        """Return the classes at the top level, by name."""
        return {node.name: Class(self, node) for node in top_level(self.tree.body) if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str | None]]:
        """Return what is imported anywhere: name → (module, name in it or None for the module itself).

        What a function imports for itself does not hide what the module imports under the same name.
        """
        found: dict[str, tuple[str, str | None]] = {}
        for node in (*statements(self.tree), *top_level(self.tree.body)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0],
                        None,
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = (self._absolute(node), alias.name)
        return found

    @cached_property
    def assignments(self) -> dict[str, ast.expr]:
        """Return what names are bound to at the top level."""
        found: dict[str, ast.expr] = {}
        for node in top_level(self.tree.body):
            if isinstance(node, ast.Assign):
                found.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                found[node.target.id] = node.value
        return found

    def evidence(self, node: ast.AST) -> Evidence:
        """Return the line on which a node begins."""
        line = int(getattr(node, "lineno", 1))
        text = self.lines[line - 1].strip()[:SHOWN] if line <= len(self.lines) else ""
        return Evidence(f"{self.reader.label if self.reader else ''}{self.path}", line, text)

    def _absolute(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that an import is from."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        keep = len(parts) - node.level + self.path.endswith("/__init__.py")
        return ".".join([*parts[: max(keep, 0)], *([node.module] if node.module else [])])


@dataclass(frozen=True, eq=False)
class Class:
    """A class's syntax, with the module that it stands in."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """Return the name that ``__class__.__name__`` gives."""
        return self.node.name

    @property
    def evidence(self) -> Evidence:
        """Return the line of the ``class`` statement."""
        return self.module.evidence(self.node)

    @cached_property
    def members(self) -> dict[str, ast.stmt]:
        """Return what the body of the class binds, by name."""
        found: dict[str, ast.stmt] = {}
        for node in self.node.body:
            if isinstance(node, Function | ast.ClassDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign):
                found.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = node
        return found

    @cached_property
    def assigned(self) -> dict[str, list[tuple[Function, ast.expr]]]:
        """Return what methods bind to ``self``: name → (method, value) of each assignment."""
        found: dict[str, list[tuple[Function, ast.expr]]] = {}
        for method in (node for node in self.node.body if isinstance(node, Function)):
            for node in walk(method):
                if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                    continue
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for part in (part for target in targets for part in getattr(target, "elts", [target])):
                    name = dotted(part)
                    if len(name) == 2 and name[0] == "self":
                        found.setdefault(name[1], []).append((method, node.value))
        return found


@dataclass(frozen=True)
class Lineage:
    """A class with its bases, in the order in which Python looks for an attribute."""

    classes: tuple[Class, ...]
    names: frozenset[str]
    """Names of all of them, with those of the bases whose source was not found."""
    unread: tuple[tuple[Class, ast.expr], ...]
    """The bases whose source was not found, each with the class that names it."""

    @property
    def is_complete(self) -> bool:
        """Tell whether every base was found, so that what is not in one of these classes is nowhere."""
        return not self.unread

    def owner(self, name: str) -> Class | None:
        """Return the first class whose body binds a name."""
        return next((cls for cls in self.classes if name in cls.members), None)

    def method(self, name: str) -> tuple[Class, Function] | None:
        """Return the method that a call on an instance runs."""
        cls = self.owner(name)
        node = cls.members[name] if cls else None
        return (cls, node) if cls and isinstance(node, Function) else None

    def assigned(self, name: str) -> tuple[Class, list[tuple[Function, ast.expr]]] | None:
        """Return what the first class that binds an attribute of ``self`` binds it to."""
        return next(((cls, cls.assigned[name]) for cls in self.classes if name in cls.assigned), None)

    def has(self, name: str) -> bool:
        """Tell whether an instance has an attribute, as far as these classes say."""
        return self.owner(name) is not None or self.assigned(name) is not None
