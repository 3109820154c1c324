"""targets.toml: what can be patched, the named sets, and the digests of each release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import tomli
from packaging.version import InvalidVersion, Version

from patchkit.errors import CatalogMissing, ConfigError
from patchkit.paths import is_safe, read_regular

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
"""Of a target, a set or a distribution: it stands in command lines, completions and reports."""
_SHA256 = re.compile(r"[0-9a-f]{64}")

PatchSet = frozenset[str]
"""Ids of the patches that a file carries."""


class Target(NamedTuple):
    """A package that can be patched, and the distributions that ship it."""

    name: str
    package: str
    """Name that is imported; the first part of every path."""
    distributions: tuple[str, ...]
    """Normalised distribution names, any of which may own the files."""


class NamedSet(NamedTuple):
    """Patches that belong together."""

    name: str
    title: str
    patches: tuple[str, ...]


class Listing(NamedTuple):
    """The digests that one file of a release has, by the set of patches it carries."""

    pristine: str
    patched: Mapping[PatchSet, str]
    """Digest after each listed set; equal to ``pristine`` where the release already has what the patch brings."""


class Targets(NamedTuple):
    """All of targets.toml."""

    targets: Mapping[str, Target]
    sets: Mapping[str, NamedSet]
    default: tuple[str, ...]
    """Names of the sets that are meant when none is named."""
    releases: Mapping[tuple[str, str], Mapping[str, Listing]]
    """Listings by (target, version), then by path."""

    def get_listing(self, target: str, path: str, pristine: str) -> Listing | None:
        """Return the listing of a file by the digest of its pristine bytes, whatever the version string says."""
        for (name, _), files in self.releases.items():
            listing = files.get(path)
            if name == target and listing is not None and listing.pristine == pristine:
                return listing
        return None

    def get_patched_listing(self, target: str, path: str, patched: str) -> Listing | None:
        """Return the listing of a file by the digest that it has with some set of patches."""
        for (name, _), files in self.releases.items():
            listing = files.get(path)
            if name == target and listing is not None and patched in listing.patched.values():
                return listing
        return None


def normalise(name: str) -> str:
    """Return a distribution name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_targets(path: Path) -> Targets:
    """Read and check targets.toml."""
    try:
        document = tomli.loads(read_regular(path).decode("utf-8"))
    except FileNotFoundError as error:
        raise CatalogMissing(
            f"no catalog: {path} does not exist", "name a folder that holds targets.toml and patches/ with --catalog"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", "correct the file or name another --catalog") from error
    return _Reader(path).targets(document)


class _Reader:
    """Turns the parsed document into values, naming the key of whatever is wrong."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def targets(self, document: dict[str, object]) -> Targets:
        unknown = sorted(set(document) - {"schema", "default", "targets", "sets", "releases"})
        if unknown or document.get("schema") != 1:
            raise self._error("schema", f"must be 1, beside known keys only (unknown: {', '.join(unknown) or 'none'})")
        self._check_names(document)
        targets = {name: self._target(name, table) for name, table in self._tables(document, "targets")}
        sets = {name: self._set(name, table) for name, table in self._tables(document, "sets")}
        default = self._strings(document, "default", "default")
        for name in default:
            if name not in sets:
                raise self._error("default", f"names the set {name!r}, which is not in [sets]")
        return Targets(targets, sets, default, dict(self._releases(document, targets)))

    def _check_names(self, document: dict[str, object]) -> None:
        for key in ("targets", "sets"):
            for name, _ in self._tables(document, key):
                if not _NAME.fullmatch(name):
                    raise self._error(key, f"has {name!r}, which is not a name of letters, digits, '.', '_' and '-'")

    def _target(self, name: str, table: dict[str, object]) -> Target:
        where = f"targets.{name}"
        package = table.get("package")
        if not isinstance(package, str) or not package.isidentifier():
            raise self._error(f"{where}.package", "must be the name of a package")
        distributions = self._strings(table, "distributions", where)
        for distribution in distributions:
            if not _NAME.fullmatch(distribution):
                raise self._error(f"{where}.distributions", f"has {distribution!r}, which names no distribution")
        return Target(name, package, tuple(map(normalise, distributions)))

    def _set(self, name: str, table: dict[str, object]) -> NamedSet:
        title = table.get("title")
        if not isinstance(title, str) or not title.isprintable():
            raise self._error(f"sets.{name}.title", "must be a sentence")
        return NamedSet(name, title, self._strings(table, "patches", f"sets.{name}"))

    def _releases(
        self, document: dict[str, object], targets: dict[str, Target]
    ) -> list[tuple[tuple[str, str], dict[str, Listing]]]:
        found = []
        for name, versions in self._tables(document, "releases"):
            if name not in targets:
                raise self._error(f"releases.{name}", "is not one of [targets]")
            for version, files in self._tables(versions, None, f"releases.{name}"):
                where = f"releases.{name}.{version}"
                if not _is_version(version):
                    raise self._error(where, "is not a version")
                listed = {path: self._listing(path, row, where) for path, row in self._tables(files, None, where)}
                found.append(((name, version), listed))
        return found

    def _listing(self, path: str, table: dict[str, object], where: str) -> Listing:
        where = f"{where}.{path}"
        if not is_safe(path):
            raise self._error(where, "is not a path below a site folder")
        digests: dict[str, str] = {}
        for key, value in table.items():
            if not isinstance(value, str) or not _SHA256.fullmatch(value):
                raise self._error(f"{where}.{key}", "must be a SHA-256 in hexadecimal")
            digests[key] = value
        if "pristine" not in digests:
            raise self._error(where, "needs a pristine digest")
        pristine = digests.pop("pristine")
        return Listing(pristine, {frozenset(key.split("+")): value for key, value in digests.items()})

    def _tables(
        self, table: dict[str, object], key: str | None, where: str = ""
    ) -> list[tuple[str, dict[str, object]]]:
        inner = table if key is None else table.get(key, {})
        where = key or where
        if not isinstance(inner, dict):
            raise self._error(where, "must be a table")
        for name, value in inner.items():
            if not isinstance(value, dict):
                raise self._error(f"{where}.{name}", "must be a table")
        return list(inner.items())

    def _strings(self, table: dict[str, object], key: str, where: str) -> tuple[str, ...]:
        value = table.get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise self._error(f"{where}.{key}" if where != key else key, "must be a list of one or more names")
        return tuple(value)

    def _error(self, key: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._path}: {key} {problem}", "correct targets.toml")


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
