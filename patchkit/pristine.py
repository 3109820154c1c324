"""Pristine files out of the wheel of what is installed: one that is given, or one that pip downloads."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from patchkit.archive import UNREADABLE, open_archive, read_member
from patchkit.download import brought
from patchkit.environment import Environment
from patchkit.errors import WheelInvalid
from patchkit.installation import Installation
from patchkit.record import digest


def read_pristine(
    installation: Installation, paths: Collection[str], wheel: Path | None, environment: Environment
) -> dict[str, bytes]:
    """Return the bytes that RECORD lists for some files; a wheel counts only if it has exactly these."""
    if not paths:
        return {}
    requirement = f"{installation.distribution}=={installation.upstream}"
    with brought(str(wheel or requirement), environment) as place:
        return _read(installation, paths, place)


def _read(installation: Installation, paths: Collection[str], wheel: Path) -> dict[str, bytes]:
    hint = f"name the wheel of {installation.distribution} {installation.version} with --wheel"
    found = {}
    try:
        with open_archive(wheel) as archive:
            for path in paths:
                found[path] = read_member(archive, path)
    except KeyError as error:
        raise WheelInvalid(f"{wheel.name} does not have {path}", hint) from error
    except UNREADABLE as error:
        raise WheelInvalid(f"{wheel} is not a wheel: {error}", hint) from error
    for path, data in found.items():
        if digest(data) != installation.rows[path].sha256:
            what = f"{installation.distribution} {installation.version}"
            raise WheelInvalid(f"{path} of {wheel.name} is not what RECORD of {what} lists", hint)
    return found
