"""A wheel laid out as an installation, as far as a plan looks at it: a survey then says what it says of any other."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from patchkit.archive import Wheel
from patchkit.catalog import Catalog
from patchkit.errors import TargetError
from patchkit.marker import NAME
from patchkit.record import format_row
from patchkit.targets import Target, normalise


def stage(wheel: Wheel, paths: Collection[str], site: Path) -> None:
    """Write the files that patches touch, and the metadata, into a folder."""
    metadata = [f"{wheel.metadata}/{name}" for name in ("METADATA", "RECORD", NAME)]
    for path in (*paths, *metadata):
        if path in wheel.members and not wheel.members[path].is_dir():
            _write(site / path, wheel.read(path))


def stage_beside(catalog: Catalog, requirements: Collection[str], site: Path) -> None:
    """Let a folder look as if other targets were installed in it, for what patches require is decided by versions."""
    for text in requirements:
        target, name, version = _exact(catalog, text)
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        _write(folder / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n".encode())
        _write(folder / "RECORD", format_row(f"{target.package}/__init__.py", b"") + b"\n")


def _exact(catalog: Catalog, text: str) -> tuple[Target, str, Version]:
    """Return what NAME==VERSION stands for."""
    try:
        requirement = Requirement(text)
        (specifier,) = requirement.specifier
        version = Version(specifier.version)
    except (InvalidRequirement, ValueError) as error:
        raise TargetError(f"{text!r} does not name one version", "write it as NAME==VERSION") from error
    name = normalise(requirement.name)
    for target in catalog.targets.targets.values():
        if name in target.distributions and specifier.operator == "==":
            return target, name, version
    raise TargetError(f"{text!r} is not one version of a target", "write it as NAME==VERSION of vllm or speculators")


def _write(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
