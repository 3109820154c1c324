"""The head of a patch file: what it says about itself, checked; that of a Python file is read from its syntax."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeGuard

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from patchkit.blanks import find_blanks
from patchkit.errors import PatchInvalid
from patchkit.patch import STATUSES, Patch, Upstream
from patchkit.paths import is_safe, read_regular
from patchkit.record import digest
from patchkit.syntax import parse_quietly

_REFERENCE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)", re.ASCII)


class Header(NamedTuple):
    """What a patch file says about itself."""

    id: str
    """Stem of the file."""
    title: str
    """First line of the docstring."""
    reason: str
    """Rest of the docstring."""
    patch: Patch
    files: Mapping[str, tuple[str, ...]]
    """The dotted paths that may change, by path of the file below the site folder; empty for a diff: its own lines."""
    source: bytes
    revision: str
    """SHA-256 of the patch file, hexadecimal."""
    place: Path
    lines: Mapping[str, int] = {}
    """Numbers of the lines on which the patch file names the files, by path."""

    @property
    def specifier(self) -> SpecifierSet:
        """The releases that the patch is for."""
        return as_specifier(self.patch.versions)

    @property
    def fixed_in(self) -> Version | None:
        """The first release that has the fix."""
        fixed_in = self.patch.upstream.fixed_in
        return _as_version(fixed_in) if fixed_in else None

    @property
    def issue_url(self) -> str:
        """The address of the report upstream; empty where there is none."""
        return _address(self.patch.upstream.issue, "issues")

    @property
    def pull_url(self) -> str:
        """The address of the fix upstream; empty where there is none."""
        return _address(self.patch.upstream.pull, "pull")


def read_header(place: Path) -> Header:
    """Read and check the head of one patch file."""
    return parse_header(read_patch_file(place), place)


def parse_header(source: bytes, place: Path) -> Header:
    """Read and check the head of a patch file from its bytes."""
    try:
        tree = parse_quietly(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PatchInvalid(f"{place} does not parse: {error}", "correct the patch file") from error
    return _Reader(place, tree).header(source)


def find_blank(header: Header) -> PatchInvalid | None:
    """Return the refusal of a patch that is not filled in yet; the others of its catalog stay of use."""
    blanks = find_blanks(header.source)
    if not blanks:
        return None
    test = f", then run its test: pytest tests/patches/test_{header.id}.py" if header.place.suffix == ".py" else ""
    words = "; ".join(f"line {line}: {words}" for line, words in blanks)
    return PatchInvalid(f"{header.place} is not filled in yet: {words}", f"fill it in{test}")


def read_patch_file(place: Path) -> bytes:
    """Return the bytes of a patch file of any kind."""
    try:
        return read_regular(place)
    except OSError as error:
        raise PatchInvalid(f"{place} cannot be read: {error.strerror}", "mend the catalog") from error


def invalid(place: Path, problem: str) -> PatchInvalid:
    """Return the refusal of a patch file."""
    return PatchInvalid(f"{place}: {problem}", "correct the patch file")


def checked(
    place: Path,
    title: str,
    reason: str,
    patch: Patch,
    files: Mapping[str, tuple[str, ...]],
    source: bytes,
    lines: Mapping[str, int],
) -> Header:
    """Return the header of a patch file of any kind, whose values are checked here."""
    if not place.stem.isidentifier() or not place.stem.islower():
        raise invalid(place, "the name of the file must be snake_case: it is the id of the patch")
    title, reason = title.strip(), reason.strip()
    if not title.isprintable():
        raise invalid(place, f"the title {title!r} must be one line without control characters")
    _check(place, patch, reason)
    return Header(place.stem, title, reason, patch, files, source, digest(source), place, lines)


def _check(place: Path, patch: Patch, reason: str) -> None:
    for name in ("target", "versions", "symptom"):
        if not isinstance(getattr(patch, name), str) or not getattr(patch, name):
            raise invalid(place, f"{name} must be a string that is not empty")
    operators = {part.operator for part in _specifier(place, patch.versions, "versions")}
    if not ("==" in operators or (operators & {">=", ">"} and operators & {"<", "<="})):
        raise invalid(place, f"versions {patch.versions!r} needs both ends, as in '>=0.16,<0.17'")
    if not isinstance(patch.requires, Mapping):
        raise invalid(place, "requires must map target names to specifiers")
    for name, value in patch.requires.items():
        _specifier(place, value, f"requires[{name!r}]")
    _check_upstream(place, patch, reason)


def _check_upstream(place: Path, patch: Patch, reason: str) -> None:
    upstream = patch.upstream
    if getattr(upstream, "status", None) not in STATUSES:
        raise invalid(place, f"upstream needs a status, one of {', '.join(STATUSES)}")
    if not all(isinstance(value, str) for value in upstream):
        raise invalid(place, "the fields of Upstream must be strings")
    if upstream.status in STATUSES[-2:] and upstream.status not in reason:
        raise invalid(place, f"the reason must say why the patch is {upstream.status}, in these words")
    if not upstream.fixed_in:
        if upstream.status == "released":
            raise invalid(place, "upstream.fixed_in is needed when the status is released")
        return
    try:
        reaches = _reaches(patch.versions, upstream.fixed_in)
    except InvalidVersion as error:
        raise invalid(place, f"upstream.fixed_in: {error}") from error
    if reaches:
        raise invalid(place, f"versions {patch.versions!r} reaches into fixed_in {upstream.fixed_in}")


def _specifier(place: Path, value: object, name: str) -> SpecifierSet:
    try:
        return as_specifier(str(value))
    except InvalidSpecifier as error:
        raise invalid(place, f"{name}: {error}") from error


@functools.lru_cache(256)
def as_specifier(text: str) -> SpecifierSet:
    """Return a specifier, one object for one text: the patches of a catalog are for a few ranges."""
    return SpecifierSet(text)


_as_version = functools.lru_cache(256)(Version)


@functools.lru_cache(256)
def _reaches(versions: str, fixed_in: str) -> bool:
    """Tell whether a range holds the release with the fix, or ends after it."""
    specifier, fixed = as_specifier(versions), _as_version(fixed_in)
    ends = [part for part in specifier if part.operator in ("<", "<=", "==") and "*" not in part.version]
    return specifier.contains(fixed, prereleases=True) or bool(ends and _lowest(ends) > fixed)


def _lowest(ends: list[Specifier]) -> Version:
    return min(_as_version(end.version) for end in ends)


class _Reader:
    def __init__(self, place: Path, tree: ast.Module) -> None:
        self._place, self._tree = place, tree
        self._lines: dict[str, int] = {}

    def header(self, source: bytes) -> Header:
        title, _, reason = (ast.get_docstring(self._tree) or "").partition("\n")
        if not title.strip() or not reason.strip():
            raise self._error("a docstring must give a title, a blank line and the reason")
        patch = self._patch()
        return checked(self._place, title, reason, patch, self._files(), source, self._lines)

    def _patch(self) -> Patch:
        for node in self._tree.body:
            if isinstance(node, ast.Assign) and [getattr(target, "id", None) for target in node.targets] == ["patch"]:
                if not _calls(node.value, "Patch"):
                    break
                return self._build(Patch, node.value, upstream=Upstream)
        raise self._error("there must be one `patch = Patch(…)` at the top level")

    def _build(self, kind: type[Patch] | type[Upstream], call: ast.Call, **inner: type[Upstream]) -> Patch:
        values: dict[str, object] = {}
        for keyword in call.keywords:
            name, value = str(keyword.arg), keyword.value
            if name in inner and isinstance(value, ast.Call):
                values[name] = self._build(inner[name], value)
            else:
                values[name] = self._literal(value, name)
        try:
            if call.args:
                raise TypeError("arguments must be given by keyword")
            return kind(**values)  # type: ignore[arg-type, return-value]
        except TypeError as error:
            raise self._error(f"line {call.lineno}: {kind.__name__}(…): {error}") from error

    def _literal(self, node: ast.expr, name: str) -> object:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise self._error(f"line {node.lineno}: {name} must be a literal") from error

    def _files(self) -> dict[str, tuple[str, ...]]:
        files: dict[str, tuple[str, ...]] = {}
        for node in self._tree.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            for decorator in node.decorator_list:
                if _calls(decorator, "patch.rewrites"):
                    path, within = self._decoration(decorator)
                    if path in files:
                        raise self._error(f"line {node.lineno}: {path} is rewritten twice")
                    files[path], self._lines[path] = within, decorator.lineno
        if not files:
            raise self._error('at least one function must be decorated with @patch.rewrites("path", within=(…,))')
        return files

    def _decoration(self, call: ast.Call) -> tuple[str, tuple[str, ...]]:
        path = self._literal(call.args[0], "path") if len(call.args) == 1 else None
        if not isinstance(path, str) or not is_safe(path) or not path.endswith(".py"):
            raise self._error(f"line {call.lineno}: {path!r} is not the path of a .py file below a site folder")
        within = next((self._literal(k.value, "within") for k in call.keywords if k.arg == "within"), None)
        if not isinstance(within, tuple) or not within or not all(isinstance(name, str) for name in within):
            raise self._error(f"line {call.lineno}: within must be a tuple of dotted names")
        return path, within

    def _error(self, problem: str) -> PatchInvalid:
        return invalid(self._place, problem)


def _calls(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    owner, _, own = name.rpartition(".")
    if isinstance(node.func, ast.Attribute):
        return node.func.attr == own and isinstance(node.func.value, ast.Name) and node.func.value.id == owner
    return isinstance(node.func, ast.Name) and node.func.id == name


def _address(reference: str, kind: str) -> str:
    """Return the address of ``owner/repository#number``; anything else leads nowhere."""
    found = _REFERENCE.fullmatch(reference)
    return f"https://github.com/{found[1]}/{kind}/{found[2]}" if found else ""
