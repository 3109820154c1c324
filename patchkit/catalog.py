"""The catalog: targets.toml and the patches beside it, loaded and checked against each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from patchkit.errors import CatalogMissing, CodeRefused, ConfigError, PatchInvalid, UnknownName
from patchkit.header import Header, read_header
from patchkit.heads import NAME, read_heads, recall
from patchkit.patch import Patch
from patchkit.targets import Target, Targets, read_targets


def _read_diff_header(place: Path) -> Header:
    from patchkit.diff_header import read_diff_header

    return read_diff_header(place)


_READERS = {".py": read_header, ".diff": _read_diff_header}
"""What reads the head of a patch file, by the ending of its name."""


class Selection(NamedTuple):
    """The patches that a command is about."""

    ids: tuple[str, ...]
    """Sorted ids, each once."""
    named: frozenset[str]
    """Those that were asked for by their own id, for which not being applicable is a finding."""


@dataclass(frozen=True)
class Catalog:
    """Patches by id, and what targets.toml says."""

    place: Path
    targets: Targets
    headers: Mapping[str, Header]

    def select(self, names: Iterable[str]) -> Selection:
        """Return the patches that the names stand for; no name stands for the default sets."""
        named: set[str] = set()
        ids: set[str] = set()
        for name in tuple(names) or self.targets.default:
            if name in self.headers:
                named.add(name)
            elif name in self.targets.sets:
                ids.update(self.targets.sets[name].patches)
            else:
                raise UnknownName(f"{name!r} is neither a patch nor a set of {self.place}", self._suggest(name))
        return Selection(tuple(sorted(ids | named)), frozenset(named))

    def target_of(self, patch_id: str) -> Target:
        """Return the target that a patch is for."""
        return self.targets.targets[self.headers[patch_id].patch.target]

    def files_of(self, target: str) -> Mapping[str, tuple[str, ...]]:
        """Return the ids of the patches of each file of a target, by path."""
        return self._files.get(target, {})

    @cached_property
    def _files(self) -> dict[str, dict[str, tuple[str, ...]]]:
        files: dict[str, dict[str, tuple[str, ...]]] = {}
        for patch_id, header in sorted(self.headers.items()):
            of_target = files.setdefault(header.patch.target, {})
            for path in header.files:
                of_target[path] = (*of_target.get(path, ()), patch_id)
        return files

    def _suggest(self, name: str) -> str:
        import difflib

        known = [*self.headers, *self.targets.sets]
        close = difflib.get_close_matches(name, known, n=1)
        return f"did you mean {close[0]}?" if close else f"known names: {', '.join(known)}"


def bundled_catalog() -> Path:
    """Return the folder of the catalog that comes with patchkit: in the wheel, else in the repository."""
    inside = Path(__file__).parent / "catalog_data"
    return inside if inside.is_dir() else Path(__file__).parent.parent


def load_catalog(place: Path, *, allow_code: bool = True) -> Catalog:
    """Read a folder with targets.toml and patches/, running none of its code.

    What plans with it later runs the patches in Python; without ``allow_code`` a catalog that has one is refused.
    """
    targets = read_targets(place / "targets.toml")
    headers = _read_headers(place / "patches", read_heads(place / NAME) if place == bundled_catalog() else {})
    code = [header.place.name for header in headers.values() if header.place.suffix != ".diff"]
    if code and not allow_code:
        raise CodeRefused(
            f"{place} has patches in Python, as {code[0]}, and --no-code allows none",
            "read them, then leave --no-code out; or name a catalog of diffs alone with --catalog",
        )
    for header in headers.values():
        _check(header, targets)
    for named_set in targets.sets.values():
        unknown = sorted(set(named_set.patches) - set(headers))
        if unknown:
            raise ConfigError(
                f"{place / 'targets.toml'}: the set {named_set.name} names {unknown[0]}, which is not in patches/",
                "correct targets.toml or add the patch",
            )
    return Catalog(place, targets, headers)


def _read_headers(folder: Path, heads: Mapping[str, Any]) -> dict[str, Header]:
    headers: dict[str, Header] = {}
    for path in sorted(folder.glob("*"), key=lambda path: (path.stem, path.suffix)):
        if path.suffix not in _READERS:
            continue
        if path.stem in headers:
            both = f"{headers[path.stem].place.name} and {path.name}"
            raise PatchInvalid(f"{folder} has both {both}: an id has one file", "rename one of them, or remove it")
        headers[path.stem] = recall(heads, path) or _READERS[path.suffix](path)
    if not headers:
        kinds = " or ".join(_READERS)
        raise CatalogMissing(f"no patches: {folder} holds no {kinds} file", "name another folder with --catalog")
    return headers


def _check(header: Header, targets: Targets) -> None:
    patch = header.patch
    if header.id in targets.sets:
        raise ConfigError(f"{header.id} names both a patch and a set", "rename one of them")
    for name in (patch.target, *patch.requires):
        if name not in targets.targets:
            raise PatchInvalid(f"{header.place}: {name!r} is not a target of targets.toml", "correct the patch file")
    package = targets.targets[patch.target].package
    for path in header.files:
        if not path.startswith(f"{package}/"):
            where = f"{header.place}: line {header.lines[path]}"
            raise PatchInvalid(f"{where}: {path} is not in the package {package}", "correct the patch file")


def load_patch(header: Header) -> Patch:
    """Run a patch file and return its patch with the rewrites.

    The very bytes that the header was read from are run, and no bytecode is written beside them.
    """
    module = ModuleType(header.id)
    module.__file__ = str(header.place)
    try:
        exec(compile(header.source, str(header.place), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise PatchInvalid(f"{header.place} fails to load: {error!r}", "correct the patch file") from error
    patch = module.__dict__.get("patch")
    if not isinstance(patch, Patch) or patch != header.patch or set(patch.rewritings) != set(header.files):
        raise PatchInvalid(f"{header.place}: the patch differs from its head", "write the head as literals only")
    return patch
