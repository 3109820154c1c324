"""The listed digests of a release, made from its wheel: the maintainers' side of targets.toml."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from patchkit.catalog import Catalog
from patchkit.environment import Environment
from patchkit.errors import ConfigError, RecordMissing, TargetError
from patchkit.record import digest, read_rows
from patchkit.rewrite import Rewriter
from patchkit.targets import Listing, Target, Targets

MARK = "# Written by `patchkit digests --write WHEEL …`: all below this line.\n"

Release = tuple[str, str]
"""Target and version."""


def list_wheel(catalog: Catalog, wheel: Path, environment: Environment) -> tuple[Release, dict[str, Listing]]:
    """Return the digests of every file of a wheel that a patch of the catalog is for."""
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
        with zipfile.ZipFile(wheel) as archive:
            target = _target(catalog, name, wheel)
            return (target.name, str(version)), _listings(catalog, target, version, archive, environment)
    except (
        InvalidWheelFilename,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        RuntimeError,
        LookupError,
    ) as error:
        raise TargetError(f"{wheel} is not a wheel: {error}", "download one: pip download --no-deps NAME") from error


def merge(targets: Targets, found: Iterable[tuple[Release, dict[str, Listing]]]) -> Targets:
    """Return targets.toml with more releases; two wheels of one release must agree."""
    releases = {release: dict(files) for release, files in targets.releases.items()}
    fresh: dict[Release, dict[str, Listing]] = {}
    for release, files in found:
        if fresh.setdefault(release, files) != files:
            raise ConfigError(
                f"two wheels of {' '.join(release)} differ", "list them as two releases, or leave one out"
            )
    return replace(targets, releases={**releases, **fresh})


def to_toml(targets: Targets) -> str:
    """Return the releases as the generated part of targets.toml."""
    lines = [MARK]
    for (target, version), files in sorted(
        targets.releases.items(), key=lambda item: (item[0][0], Version(item[0][1]))
    ):
        for path, listing in sorted(files.items()):
            lines.append(f'\n[releases.{target}."{version}"."{path}"]\npristine = "{listing.pristine}"\n')
            lines += [f'{_key(patches)} = "{sha256}"\n' for patches, sha256 in _ordered(listing.patched)]
    return "".join(lines)


def write(catalog: Catalog, targets: Targets) -> None:
    """Replace the generated part of the catalog's targets.toml."""
    place = catalog.place / "targets.toml"
    written_by_hand = place.read_text("utf-8").partition(MARK)[0].rstrip("\n")
    place.write_text(f"{written_by_hand}\n\n{to_toml(targets)}", "utf-8")


def _target(catalog: Catalog, distribution: str, wheel: Path) -> Target:
    for target in catalog.targets.targets.values():
        if distribution in target.distributions:
            return target
    raise TargetError(f"{wheel} is of {distribution}, which is no target's", "add it to [targets] in targets.toml")


def _listings(
    catalog: Catalog, target: Target, version: Version, archive: zipfile.ZipFile, environment: Environment
) -> dict[str, Listing]:
    records = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    if len(records) != 1:
        raise RecordMissing(f"{archive.filename} has {len(records)} RECORD files, not 1", "download the wheel again")
    record = records[0]
    files = catalog.files_of(target.name)
    rows = read_rows(archive.read(record), files, f"{archive.filename}: {record}")
    listings = {}
    for path in sorted(rows):
        data = archive.read(path)
        if digest(data) != rows[path].sha256:
            raise TargetError(f"{path} differs from the RECORD of {archive.filename}", "download the wheel again")
        ids = [name for name in files[path] if catalog.headers[name].specifier.contains(version, prereleases=True)]
        listings[path] = Listing(digest(data), _patched(Rewriter(catalog, environment), path, data, ids))
    return listings


def _patched(rewriter: Rewriter, path: str, pristine: bytes, ids: list[str]) -> Mapping[frozenset[str], str]:
    """Return the digest after every set of patches; a patch that changes nothing has that of the pristine file."""
    found: dict[frozenset[str], str] = {}
    for size in range(1, len(ids) + 1):
        for patches in combinations(ids, size):
            rewrite = rewriter.fold(path, pristine, patches)
            if rewrite.patches == frozenset(patches) or size == 1:
                found[frozenset(patches)] = digest(rewrite.after)
    return found


def _key(patches: frozenset[str]) -> str:
    name = "+".join(sorted(patches))
    return name if len(patches) == 1 else f'"{name}"'


def _ordered(patched: Mapping[frozenset[str], str]) -> list[tuple[frozenset[str], str]]:
    return sorted(patched.items(), key=lambda item: (len(item[0]), sorted(item[0])))
