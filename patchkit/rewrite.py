"""Patches folded over one pristine file, each step proved."""

from __future__ import annotations

import ast
import gc
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from patchkit.catalog import Catalog, load_patch
from patchkit.diff import LineRange, changed_lines, split_lines
from patchkit.environment import Environment
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, RewriteUnsound
from patchkit.patch import Patch
from patchkit.record import digest
from patchkit.syntax import parse_quietly

if TYPE_CHECKING:
    import libcst

    from patchkit.patch import Rewriting

_REPORT = "this is a defect of the patch: report it to whoever wrote the catalog"


@dataclass(frozen=True)
class Step:
    """What one patch did to a file."""

    patch_id: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Rewrite:
    """A pristine file and what the patches make of it."""

    before: bytes
    after: bytes
    steps: tuple[Step, ...]
    """Only the patches that changed something: another found what it wants in the file."""

    @property
    def patches(self) -> frozenset[str]:
        """The patches that the file carries afterwards."""
        return frozenset(step.patch_id for step in self.steps)


class Rewriter:
    """Runs the patches of a catalog. This is where LibCST is loaded and the catalog's code is run."""

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self._catalog, self._environment = catalog, environment
        self._patches: dict[str, Patch] = {}
        self._rewrites: dict[tuple[str, str, tuple[str, ...]], Rewrite] = {}

    def fold(self, path: str, pristine: bytes, ids: Collection[str]) -> Rewrite:
        """Apply patches to the pristine bytes of a file in the order of their ids, proving every step."""
        key = (path, digest(pristine), tuple(sorted(ids)))
        if key not in self._rewrites:
            with _collector_paused():
                self._rewrites[key] = self._fold(path, pristine, key[2])
        return self._rewrites[key]

    def restore(self, path: str, data: bytes, ids: Collection[str], pristine_sha256: str) -> Rewrite | None:
        """Take patches back from a patched file; None unless that gives exactly the pristine bytes."""
        from patchkit import cst

        taken = []
        try:
            module = cst.parse(data, path)
            for patch_id in sorted(ids, reverse=True):
                way_back = self._load(patch_id).restorings.get(path)
                restored = module if way_back is None else _call(way_back, module, patch_id)
                if restored is not module:
                    taken.append(patch_id)
                module = restored
            pristine = _bytes_of(module, "the way back")
            if digest(pristine) != pristine_sha256:
                return None
            rewrite = self.fold(path, pristine, taken)
        except PatchError:
            return None
        return rewrite if rewrite.after == data else None

    def _load(self, patch_id: str) -> Patch:
        if patch_id not in self._patches:
            self._patches[patch_id] = load_patch(self._catalog.headers[patch_id])
        return self._patches[patch_id]

    def _fold(self, path: str, pristine: bytes, ids: tuple[str, ...]) -> Rewrite:
        if not ids:
            return Rewrite(pristine, pristine, ())
        from patchkit import cst

        data, module, steps = pristine, cst.parse_exactly(pristine, path), []
        for patch_id in ids:
            after = _run(self._load(patch_id).rewritings[path], module, data, patch_id)
            if after == data:
                continue
            module = self._prove(path, patch_id, data, after)
            steps.append(Step(patch_id, data, after))
            data = after
        if steps:
            _compile(data, path, self._environment)
        return Rewrite(pristine, data, tuple(steps))

    def _prove(self, path: str, patch_id: str, before: bytes, after: bytes) -> libcst.Module:
        """Refuse a rewrite that is not idempotent or that changes more than the nodes that it names."""
        from patchkit import cst

        module = cst.parse(after, path)
        again = _call(self._load(patch_id).rewritings[path], module, patch_id)
        if again is not module and _bytes_of(again, patch_id) != after:
            raise RewriteUnsound(f"{patch_id} changes {path} again when it is applied to its own result", _REPORT)
        within = self._catalog.headers[patch_id].files[path]
        _stays_within(before, after, within, f"{patch_id} changes {path}")
        return module


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: syntax trees are many objects without cycles, all of them needed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(rewriting: Rewriting, module: libcst.Module, data: bytes, patch_id: str) -> bytes:
    """Run a rewrite twice on the tree of some source and return what both runs give."""
    from patchkit import cst

    first, second = _call(rewriting, module, patch_id), _call(rewriting, module, patch_id)
    if not cst.is_same(first, second):
        raise RewriteUnsound(f"{patch_id} gives two different results for the same source", _REPORT)
    return data if first is module else _bytes_of(first, patch_id)


def _bytes_of(module: libcst.Module, patch_id: str) -> bytes:
    try:
        return module.bytes
    except UnicodeError as error:
        raise RewriteUnsound(f"{patch_id} adds what the file's encoding does not have: {error}", _REPORT) from error
    except Exception as error:
        raise RewriteUnsound(f"{patch_id} gives a tree that cannot be printed: {error}", _REPORT) from error


def _call(rewriting: Rewriting, module: libcst.Module, patch_id: str) -> libcst.Module:
    try:
        return rewriting(module)
    except PatchError:
        raise
    except (Exception, SystemExit) as error:
        raise RewriteUnsound(f"{patch_id} fails with {type(error).__name__}: {error}", _REPORT) from error


def _stays_within(before: bytes, after: bytes, names: tuple[str, ...], what: str) -> None:
    """Refuse a change outside the definitions named; a marker comment may stand above one of them."""
    old = _ranges(before, names, all_there=False) + _blanks(before)
    new = _ranges(after, names, all_there=True) + _blanks(after) + _markers(after)
    for hunk in changed_lines(before, after):
        if not (_covered(hunk.before, old) and _covered(hunk.after, new)):
            line = hunk.after[0]
            raise RewriteUnsound(f"{what} at line {line}, outside {', '.join(names)}", _REPORT)


def _covered(lines: LineRange, ranges: list[LineRange]) -> bool:
    """Tell whether lines lie in one of the ranges, or in several that adjoin."""
    wanted = set(range(*lines))
    for low, high in ranges:
        wanted -= set(range(low, high))
    return not wanted


def _ranges(data: bytes, names: tuple[str, ...], *, all_there: bool) -> list[LineRange]:
    """Return the lines of the definitions named; before the change, one that it adds may be missing."""
    tree, found = parse_quietly(data), []
    for name in names:
        try:
            found += _imports(tree) if name == "import" else [_definition(tree, name)]
        except AnchorNotFound:
            if all_there:
                raise
    return found


def _blanks(data: bytes) -> list[LineRange]:
    """Return the blank lines: which of several equal ones a diff calls changed says nothing."""
    lines = enumerate(split_lines(data), start=1)
    return [(number, number + 1) for number, line in lines if not line.strip()]


def _markers(data: bytes) -> list[LineRange]:
    lines = enumerate(split_lines(data), start=1)
    return [(number, number + 1) for number, line in lines if line.strip().startswith(b"# patchkit: ")]


def _imports(tree: ast.Module) -> list[LineRange]:
    return [
        (node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]


def _definition(tree: ast.Module, dotted: str) -> LineRange:
    scope: ast.AST = tree
    for name in dotted.split("."):
        found = [node for node in _definitions(scope) if node.name == name]
        if len(found) != 1:
            kind = AnchorAmbiguous if found else AnchorNotFound
            raise kind(f"{dotted}: {name} is defined {len(found)} times", _REPORT)
        (node,) = found
        scope = node
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first, (node.end_lineno or first) + 1


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(scope: ast.AST) -> list[_Definition]:
    """Return the definitions directly in a scope, also those under an ``if`` or ``try``."""
    found: list[_Definition] = []
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.append(child)
        elif isinstance(child, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            found += _definitions(child)
    return found


_COMPILE = "import sys; compile(sys.stdin.buffer.read(), sys.argv[1], 'exec', dont_inherit=True)"


def _compile(data: bytes, path: str, environment: Environment) -> None:
    """Refuse source that the target's Python does not compile; asks that Python when it is another version.

    Without an interpreter (a site folder, an image) the grammar of its version is the best that can be asked.
    """
    import subprocess

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if environment.version == sys.version_info[:2]:
                compile(data, path, "exec", dont_inherit=True)
            elif environment.python is None:
                parse_quietly(data, environment.version)
            else:
                command = [environment.python, "-I", "-B", "-W", "ignore", "-c", _COMPILE, path]
                subprocess.run(command, input=data, capture_output=True, timeout=60, check=True)
    except (SyntaxError, ValueError, subprocess.SubprocessError, OSError) as error:
        version = ".".join(map(str, environment.version))
        raise RewriteUnsound(
            f"{path} does not compile for Python {version} once rewritten: {error}", _REPORT
        ) from error
