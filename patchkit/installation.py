"""An installed target: which distribution owns its files, and the files as they are."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from patchkit.environment import Environment
from patchkit.errors import EditableInstall, RecordMalformed, RecordMissing, SourceUnreadable, TargetError
from patchkit.marker import NAME, Marker, hold_against, read_marker
from patchkit.paths import below, inside, is_safe, open_regular, read_regular, resolve_in_root, resolve_within
from patchkit.record import RecordRow, digest, digest_file, list_paths, read_rows
from patchkit.targets import Target, normalise

_SHOWN = 4
"""How many site folders a message names."""


class Installation(NamedTuple):
    """A target in an environment, owned by one distribution."""

    target: Target
    distribution: str
    """Normalised name of the distribution whose RECORD has the files."""
    version: Version
    site: Path
    rows: Mapping[str, RecordRow]
    """RECORD's rows of the files that patches touch, by path."""
    metadata: Path
    """The folder that holds RECORD."""
    marker: Marker = Marker()
    """What a patched wheel says of its files: RECORD then lists them as patched."""

    @property
    def reinstall(self) -> str:
        """The command that brings the files back as their wheel shipped them."""
        return _reinstall(self.distribution, str(self.version))

    @property
    def replace_by_upstream(self) -> str:
        """The command that brings the files back as the upstream wheel of a patched one has them."""
        return _reinstall(self.distribution, self.upstream)

    @property
    def upstream(self) -> str:
        """The version of the upstream wheel: another one than the installed version where the wheel came patched."""
        return self.marker.upstream or str(self.version).partition("+patchkit.")[0].partition(".patchkit.")[0]

    def pristine_of(self, path: str) -> str | None:
        """Return the digest that a file has without patches: RECORD's, or what a patched wheel says it was."""
        if path in self.marker.files:
            return self.marker.files[path].pristine
        return self.rows[path].sha256 if path in self.rows else None


def _reinstall(distribution: str, version: str) -> str:
    return f"pip install --force-reinstall --no-deps {distribution}=={version}"


class Source(NamedTuple):
    """A file as it is on disk."""

    place: Path
    """Its real folder and its name; the file itself may be a link."""
    data: bytes
    sha256: str
    link: str | None
    """Where the link leads, when the file is one."""


class _Candidate(NamedTuple):
    name: str
    place: Path
    site: Path
    root: Path | None

    def read(self, name: str) -> bytes:
        """Return a file of the metadata folder; below a root, no link leads out of it."""
        return read_regular(inside(self.place / name, self.root), follow=self.root is None)

    def has_record(self) -> bool:
        """Tell whether there is a RECORD at all."""
        try:
            self.read("RECORD")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # there is something
        return True


def find_installation(target: Target, environment: Environment, paths: Collection[str]) -> Installation | None:
    """Return the installation that an interpreter would import from, the first on its path."""
    found = []
    for site in environment.sites:
        candidates = _candidates(site, target, environment.root)
        if candidates:
            found.append((site, candidates))
    if not found:
        return None
    if environment.root is not None and len(found) > 1:
        places = ", ".join(str(site) for site, _ in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
        raise TargetError(f"{target.name} is installed more than once below the root: {places}", "name one with --site")
    site, candidates = found[0]
    return _owner(target, candidates, {*paths, f"{target.package}/__init__.py"})


def find_target(distribution: str, environment: Environment) -> Target | None:
    """Return a target for a distribution that no catalog names, by the one package that its RECORD lists."""
    name = normalise(distribution)
    for site in environment.sites:
        for candidate in _candidates(site, Target(name, "", (name,)), environment.root):
            place = candidate.place / "RECORD"
            try:
                paths = list_paths(candidate.read("RECORD"), str(place))
            except OSError as error:
                raise RecordMissing(f"{place} cannot be read: {error.strerror}", "install it from a wheel") from error
            found = sorted({path.split("/")[0] for path in paths if re.fullmatch(r"[^\W\d]\w*/__init__\.py", path)})
            if len(found) != 1:
                what = f"{len(found)} packages ({', '.join(found[:_SHOWN])})" if found else "no package"
                raise TargetError(f"{name} has {what}, and a target has one", "name another distribution")
            return Target(name, found[0], (name,))
    return None


def _candidates(site: Path, target: Target, root: Path | None) -> list[_Candidate]:
    """Return the metadata folders in a site folder that belong to a target's distributions."""
    try:
        names = sorted(os.listdir(site))
    except OSError as error:
        raise TargetError(f"{site} cannot be listed: {error.strerror}", "run as a user who can read it") from error
    found = []
    for name in names:
        stem, suffix = os.path.splitext(name)
        if suffix in (".dist-info", ".egg-info"):
            distribution = normalise(stem.split("-")[0])
            if distribution in target.distributions:
                found.append(_Candidate(distribution, site / name, site, root))
    return found


def _owner(target: Target, candidates: list[_Candidate], wanted: Collection[str]) -> Installation:
    """Return the one candidate whose RECORD has the files; an alias distribution has none of them."""
    owners = []
    for candidate in candidates:
        marker, rows = _read_metadata(candidate, wanted)
        if rows:
            owners.append((candidate, rows, marker))
    if not owners:
        raise _why_unowned(target, candidates)
    candidate, rows, marker = owners[0]
    for other, other_rows, _ in owners[1:]:
        if other.name == candidate.name:
            raise TargetError(
                f"{candidate.place.name} and {other.place.name} are both in {candidate.site}, and one release is there",
                "pip install --target leaves the old one behind: remove the folder of the release that is gone",
            )
        if other_rows != rows:
            raise TargetError(
                f"{candidate.place.name} and {other.place.name} both list the files of {target.package}, "
                "with different digests",
                f"uninstall both and install one of them: pip uninstall {candidate.name} {other.name}",
            )
    return Installation(target, candidate.name, _version(candidate), candidate.site, rows, candidate.place, marker)


def _read_metadata(candidate: _Candidate, wanted: Collection[str]) -> tuple[Marker, dict[str, RecordRow]]:
    """Return RECORD's rows of the wanted files, and of those that a patched wheel says it has changed."""
    path = f"{candidate.place.name}/{NAME}"
    try:
        data = candidate.read(NAME)
    except (FileNotFoundError, NotADirectoryError):
        return Marker(), _read_record(candidate, wanted)
    except OSError as error:
        raise RecordMalformed(f"{path} cannot be read: {error.strerror}", "run as a user who can read it") from error
    marker = read_marker(data, path)
    rows = _read_record(candidate, {*wanted, *marker.files, path})
    hold_against(marker, data, path, rows)
    del rows[path]
    return marker, rows


def _read_record(candidate: _Candidate, wanted: Collection[str]) -> dict[str, RecordRow]:
    place = candidate.place / "RECORD"
    try:
        data = candidate.read("RECORD")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise RecordMissing(f"{place} cannot be read: {error.strerror}", "run as a user who can read it") from error
    return read_rows(data, wanted, str(place))


def _why_unowned(target: Target, candidates: list[_Candidate]) -> TargetError:
    for candidate in candidates:
        checkout = _editable_checkout(candidate)
        if checkout is not None:
            return EditableInstall(
                f"{candidate.name} is an editable install of {checkout}: there is no RECORD to compare its source with",
                f"patch the checkout with its own version control, or install a wheel of {candidate.name}",
            )
    for candidate in candidates:
        if not candidate.has_record():
            return RecordMissing(
                f"{candidate.place} has no RECORD: nothing says what the files of {target.package} were",
                f"install {candidate.name} from a wheel: pip install --force-reinstall --no-deps {candidate.name}",
            )
    places = ", ".join(candidate.place.name for candidate in candidates)
    return TargetError(
        f"no distribution owns the package {target.package}: {places} lists none of its files",
        f"install one of: {', '.join(target.distributions)}",
    )


def _editable_checkout(candidate: _Candidate) -> str | None:
    try:
        origin = json.loads(candidate.read("direct_url.json"))
        return str(origin["url"]) if origin["dir_info"]["editable"] is True else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _version(candidate: _Candidate) -> Version:
    place = candidate.place / "METADATA"
    try:
        # Only the head is read: the description below it can be long, and may quote such a line.
        head, _, _ = candidate.read("METADATA").replace(b"\r\n", b"\n").partition(b"\n\n")
        (value,) = re.findall(rb"(?m)^Version:[ \t]*(\S+)[ \t]*$", head)
        return Version(value.decode("ascii"))
    except (OSError, ValueError) as error:
        raise RecordMissing(f"{place} gives no valid version: {error}", f"reinstall {candidate.name}") from error


def read_record(installation: Installation, root: Path | None) -> tuple[Installation, frozenset[str]]:
    """Return an installation with every row of RECORD that has a digest, and all paths that RECORD lists."""
    candidate = _Candidate(installation.distribution, installation.metadata, installation.site, root)
    place = str(candidate.place / "RECORD")
    try:
        data = candidate.read("RECORD")
    except OSError as error:
        raise RecordMissing(f"{place} cannot be read: {error.strerror}", installation.reinstall) from error
    paths = list_paths(data, place)
    # What leads out of the site folder, as ../../bin/NAME does, is the installer's own and no source.
    wanted = {path for path, has_digest in paths.items() if has_digest and is_safe(path)}
    return installation._replace(rows=read_rows(data, wanted, place)), frozenset(paths)


def source_digest(installation: Installation, path: str, root: Path | None) -> str | None:
    """Return the digest of a file of any size, or None when it is not there; refuse what is no regular file.

    Of a file that has not the size that RECORD gives nothing is read, and its digest is empty.
    """
    size = installation.rows[path].size
    try:
        place = resolve_within(installation.site, path)
        link = os.readlink(place) if place.is_symlink() else None
        real = place if link is None else _led_to(place, link, root)
        with open_regular(real, follow=link is not None and root is None) as file:
            is_other = size is not None and os.fstat(file.fileno()).st_size != size
            return "" if is_other else digest_file(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceUnreadable(f"{path} cannot be read: {error.strerror}", installation.reinstall) from error


def read_source(installation: Installation, path: str, root: Path | None) -> Source | None:
    """Return a file of an installation, or None when it is not there; refuse what is no regular file."""
    place = resolve_within(installation.site, path)
    try:
        link = os.readlink(place) if place.is_symlink() else None
        data = read_regular(place, follow=False) if link is None else read_link(place, link, root)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SourceUnreadable(f"{place} cannot be read: {error.strerror}", installation.reinstall) from error
    return Source(place, data, digest(data), link)


def read_link(place: Path, link: str, root: Path | None) -> bytes:
    """Return what a link at a place leads to; below a root, as a process inside the root would follow it."""
    return read_regular(_led_to(place, link, root), follow=root is None)


def _led_to(place: Path, link: str, root: Path | None) -> Path:
    if root is None:
        return place.parent / link
    return resolve_in_root(root, link if os.path.isabs(link) else f"{below(place.parent, root)}/{link}")
