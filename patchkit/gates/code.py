"""Installed packages as syntax: where a name leads, and what a class inherits. Nothing of them is ever run."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchkit.errors import PatchkitError, PathEscape
from patchkit.gates.module import Class, Lineage, Module
from patchkit.gates.syntax import dotted, leaf, split_lines
from patchkit.paths import read_regular, resolve_in_root, resolve_within
from patchkit.syntax import parse_quietly

_MAX_STEPS = 30
"""How many re-exports and bases are followed from one name; hostile source may go round in circles."""
_CLOSED = ("torch", "typing", "typing_extensions", "abc", "collections", "enum", "builtins", "contextlib")
"""Packages whose classes have none of the attributes that the gates ask about."""


@dataclass
class Code:
    """The packages of an environment, read as they are on disk."""

    sites: Sequence[Path]
    root: Path | None = None
    lazy: Callable[[str, str], Class | None] | None = None
    package: str = ""
    """The package that these modules are in by name, for a folder that is no site folder."""
    behind: Code | None = None
    """What has the modules outside of the package."""
    _modules: dict[str, Module | None] = field(default_factory=dict)
    _lineages: dict[ast.ClassDef, Lineage] = field(default_factory=dict)

    def module(self, name: str) -> Module | None:
        """Return a module by its dotted name; None when it is not there or is not Python."""
        if self.behind and not name.startswith(f"{self.package}."):
            return self.behind.module(name)
        if name not in self._modules:
            stem = name.removeprefix(f"{self.package}.").replace(".", "/")
            found = (self._parse(name, path) for path in (f"{stem}/__init__.py", f"{stem}.py"))
            self._modules[name] = next((module for module in found if module), None)
        return self._modules[name]

    @property
    def label(self) -> str:
        """Return what stands before a path when it is shown."""
        return f"{self.sites[0]}/" if self.package else ""

    def find(self, module: Module, name: str) -> Class | None:
        """Return the class that a name means in a module, through re-exports."""
        for _ in range(_MAX_STEPS):
            reader = module.reader or self
            if name in module.classes:
                return module.classes[name]
            if name in module.imports:
                source, original = module.imports[name]
                following = reader.module(source)
                if original is None or following is None:
                    return None
                module, name = following, original
            elif isinstance(value := module.assignments.get(name), ast.Name):
                name = value.id
            else:
                return reader.lazy(module.name, name) if reader.lazy else None
        return None

    def resolve(self, module: Module, expression: ast.expr | None) -> Class | None:
        """Return the class that an expression names in a module."""
        parts = dotted(leaf(expression)) if expression is not None else ()
        if len(parts) < 2:
            return self.find(module, parts[0]) if parts else None
        first, *rest = parts
        source, original = module.imports.get(first, ("", None))
        name = ".".join([source, *([original] if original else []), *rest[:-1]])
        owner = (module.reader or self).module(name) if source else None
        return self.find(owner, rest[-1]) if owner else None

    def lineage(self, cls: Class) -> Lineage:
        """Return a class with all its bases, in Python's own order as far as they are found."""
        return self._lineage(cls, ())

    def _lineage(self, cls: Class, below: tuple[ast.ClassDef, ...]) -> Lineage:
        """Return the lineage of a class that these classes come from; one of them again is no base that can be."""
        if cls.node in self._lineages:
            return self._lineages[cls.node]
        names, chains = {cls.name}, []
        unread: dict[ast.expr, Class] = {}
        for base in cls.node.bases:
            names.update(dotted(leaf(base))[-1:])
            found = self.resolve(cls.module, base)
            if found is not None and found.node not in (*below, cls.node) and len(below) < _MAX_STEPS:
                above = self._lineage(found, (*below, cls.node))
                chains.append(list(above.classes))
                names |= above.names
                unread |= {expression: owner for owner, expression in above.unread}
            elif found is not None or not _is_closed(cls.module, base):
                unread[base] = cls
        made = Lineage((cls, *_merge(chains)), frozenset(names), tuple((owner, base) for base, owner in unread.items()))
        self._lineages[cls.node] = made
        return made

    def _parse(self, name: str, path: str) -> Module | None:
        data = None
        for site in self.sites:
            try:
                data = self.read(site, path)
                break
            except (OSError, PatchkitError):
                continue
        if data is None:
            return None
        try:
            tree = parse_quietly(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return Module(name, path, split_lines(data.decode("utf-8", "replace")), tree, self)

    def read(self, site: Path, path: str) -> bytes:
        """Return the bytes of a site folder's file, also where an installer linked it into its cache."""
        place = resolve_within(site, path)
        if self.root is None:
            return read_regular(place)
        root = os.path.realpath(self.root)
        if not place.is_relative_to(root):
            raise PathEscape(f"{place} is not below {root}")
        return read_regular(resolve_in_root(self.root, str(place.relative_to(root))), follow=False)


def _is_closed(module: Module, base: ast.expr) -> bool:
    """Tell whether a base that is not read has nothing that a gate asks about."""
    parts = dotted(leaf(base))
    if not parts:
        return False
    if parts[0] in ("object", "Exception"):
        return True
    return module.imports.get(parts[0], ("", None))[0].split(".")[0] in _CLOSED


def _merge(chains: list[list[Class]]) -> list[Class]:
    """Merge the orders of bases: a class comes before its own bases, and before what is named after it."""
    merged: list[Class] = []
    chains = [chain for chain in chains if chain]
    while chains:
        heads = [chain[0] for chain in chains]
        tails = {other.node for chain in chains for other in chain[1:]}
        head = next((head for head in heads if head.node not in tails), heads[0])
        merged.append(head)
        chains = [[other for other in chain if other.node is not head.node] for chain in chains]
        chains = [chain for chain in chains if chain]
    return merged
