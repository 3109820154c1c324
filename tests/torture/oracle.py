"""Real releases as the oracle: each patch is tried on every file of a wheel, and changes only those that it names."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from patchkit import cst
from patchkit.catalog import load_catalog, load_patch
from patchkit.errors import PatchError
from patchkit.patch import Patch
from tests.support import CATALOG


@dataclass(frozen=True)
class Tried:
    """What became of the patches of a target on all files of a wheel."""

    files: int
    tries: int
    changed: frozenset[tuple[str, str]]
    """(patch, path) of each file that was changed."""
    strange: frozenset[str]
    """Files that LibCST does not take; no patch names one."""

    def __str__(self) -> str:
        """Return the figures."""
        return f"{self.tries} tries on {self.files} files changed {len(self.changed)}, all of them named"


def hold(wheel: Path, target: str, version: str) -> Tried:
    """Try the patches of a target on a release of it, and assert that they change nothing but what they name."""
    ids = [patch_id for patch_id, header in CATALOG.headers.items() if header.patch.target == target]
    tried = try_all(wheel, CATALOG.targets.targets[target].package, ids)
    assert tried.changed <= named(ids, version), tried.changed - named(ids, version)
    assert tried.changed
    assert not tried.strange & {path for patch_id in ids for path in CATALOG.headers[patch_id].files}
    return tried


def try_all(wheel: Path, package: str, ids: Collection[str]) -> Tried:
    """Try each patch, with each of its rewrites, on every Python file of a package."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [name for name in archive.namelist() if name.startswith(f"{package}/") and name.endswith(".py")]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(partial(_try, wheel, tuple(sorted(ids))), paths, chunksize=20))
    changed = frozenset((patch_id, path) for path, names in zip(paths, found, strict=True) for patch_id in names or ())
    strange = frozenset(path for path, names in zip(paths, found, strict=True) if names is None)
    return Tried(len(paths), len(paths) * len(ids), changed, strange)


def named(ids: Collection[str], version: str) -> frozenset[tuple[str, str]]:
    """Return (patch, path) of every file that the patches say they are for in a release."""
    headers = [CATALOG.headers[patch_id] for patch_id in ids]
    fitting = [header for header in headers if header.specifier.contains(version, prereleases=True)]
    return frozenset((header.id, path) for header in fitting for path in header.files)


@cache
def _patch(patch_id: str) -> Patch:
    return load_patch(load_catalog(CATALOG.place).headers[patch_id])


@cache
def _archive(wheel: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(wheel)


def _try(wheel: Path, ids: tuple[str, ...], path: str) -> list[str] | None:
    """Return the patches that change a file; None where it cannot be parsed."""
    try:
        module = cst.parse(_archive(wheel).read(path), path)
    except PatchError:
        return None
    return [patch_id for patch_id in ids if _changes(_patch(patch_id), module)]


def _changes(patch: Patch, module: cst.cst.Module) -> bool:
    for rewriting in patch.rewritings.values():
        try:
            if rewriting(module) is not module:
                return True
        except PatchError:
            continue
    return False
