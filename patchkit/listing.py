"""The listed digests of a release, made from its wheel: the maintainers' side of targets.toml."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from patchkit.archive import UNREADABLE, open_archive, read_member
from patchkit.catalog import Catalog
from patchkit.environment import Environment
from patchkit.errors import ConfigError, RecordMissing, TargetError
from patchkit.record import digest, read_rows
from patchkit.rewrite import Rewriter
from patchkit.targets import Listing, Target, Targets

MARK = "# Written by `patchkit digests --write WHEEL …`: all below this line.\n"

_FEW = 4
"""Up to so many patches on a file, every set of them is listed."""

Release = tuple[str, str]
"""Target and version."""


def list_wheel(catalog: Catalog, wheel: Path, environment: Environment) -> tuple[Release, dict[str, Listing]]:
    """Return the digests of every file of a wheel that a patch of the catalog is for."""
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
        with open_archive(wheel) as archive:
            target = _target(catalog, name, wheel)
            return (target.name, str(version)), _listings(catalog, target, version, wheel, archive, environment)
    except (InvalidWheelFilename, *UNREADABLE) as error:
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
    return targets._replace(releases={**releases, **fresh})


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
    catalog: Catalog,
    target: Target,
    version: Version,
    wheel: Path,
    archive: zipfile.ZipFile,
    environment: Environment,
) -> dict[str, Listing]:
    records = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", name)]
    if len(records) != 1:
        raise RecordMissing(f"{wheel} has {len(records)} RECORD files, not 1", "download the wheel again")
    record = records[0]
    files = catalog.files_of(target.name)
    rows = read_rows(read_member(archive, record), files, f"{wheel}: {record}")
    listings = {}
    for path in sorted(rows):
        data = read_member(archive, path)
        if digest(data) != rows[path].sha256:
            raise TargetError(f"{path} differs from the RECORD of {wheel}", "download the wheel again")
        ids = [name for name in files[path] if catalog.headers[name].specifier.contains(version, prereleases=True)]
        listings[path] = list_file(catalog, path, data, ids, environment)
    return listings


def list_file(catalog: Catalog, path: str, pristine: bytes, ids: Sequence[str], environment: Environment) -> Listing:
    """Return the digest of a pristine file, and that after each set of patches that is listed."""
    rewriter, patched = Rewriter(catalog, environment), {}
    for patches in _listed_sets(catalog, ids):
        rewrite = rewriter.fold(path, pristine, patches)
        # A patch that changes nothing has the digest of the pristine file.
        if rewrite.patches == patches or len(patches) == 1:
            patched[patches] = digest(rewrite.after)
    return Listing(digest(pristine), patched)


def _listed_sets(catalog: Catalog, ids: Sequence[str]) -> set[frozenset[str]]:
    """Return the sets of patches whose digests are listed: every set of a few; of many each alone and the whole ones.

    A whole set is what is for some listed release of the other targets, of all patches or of a named set.
    """
    if len(ids) <= _FEW:
        return {frozenset(patches) for size in range(1, len(ids) + 1) for patches in combinations(ids, size)}
    selections = [frozenset(ids), *(frozenset(ids) & set(named.patches) for named in catalog.targets.sets.values())]
    whole = {wanted & fitting for wanted in selections for fitting in _fitting(catalog, ids)}
    return {frozenset({name}) for name in ids} | (whole - {frozenset()})


def _fitting(catalog: Catalog, ids: Sequence[str]) -> set[frozenset[str]]:
    """Return which patches fit together to each choice of listed releases of the targets that they require."""
    needs = {name: catalog.headers[name].patch.requires for name in ids}
    others = sorted({target for required in needs.values() for target in required})
    versions = [
        [None, *(version for target, version in catalog.targets.releases if target == other)] for other in others
    ]
    return {
        frozenset(
            name
            for name, required in needs.items()
            if all(_is_met(specifier, dict(zip(others, chosen))[target]) for target, specifier in required.items())
        )
        for chosen in product(*versions)
    }


def _is_met(specifier: str, version: str | None) -> bool:
    return version is not None and SpecifierSet(specifier).contains(version, prereleases=True)


def _key(patches: frozenset[str]) -> str:
    name = "+".join(sorted(patches))
    return name if len(patches) == 1 else f'"{name}"'


def _ordered(patched: Mapping[frozenset[str], str]) -> list[tuple[frozenset[str], str]]:
    return sorted(patched.items(), key=lambda item: (len(item[0]), sorted(item[0])))
