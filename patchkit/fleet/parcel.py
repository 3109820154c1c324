"""What is shipped to the nodes: patchkit, what it needs there, and the catalog."""

from __future__ import annotations

import io
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution, version
from pathlib import Path

from packaging.requirements import Requirement

from patchkit.targets import normalise

_UNUSED = frozenset({"click", "pygments", "rich"})
"""What patchkit needs only where a person reads what it says."""
_FOR_SPEED = frozenset({"tomli"})
"""What is compiled only for speed, and does without on any machine."""
_COMPILED = (".so", ".pyd")
_OWN = Path(__file__).parent.parent


def pack(catalog: Path) -> bytes:
    """Return an archive with pure Python, compiled modules for machines like this, and the catalog."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6, strict_timestamps=False) as archive:
        for name, place in sorted({**dict(_own()), **dict(_needed()), **dict(_catalog(catalog))}.items()):
            archive.write(place, name)
        metadata = f"Metadata-Version: 2.1\nName: patchkit\nVersion: {version('patchkit')}\n"
        archive.writestr(f"pure/patchkit-{version('patchkit')}.dist-info/METADATA", metadata)
    return out.getvalue()


def _own() -> Iterator[tuple[str, Path]]:
    for place in _OWN.rglob("*.py"):
        yield f"pure/patchkit/{place.relative_to(_OWN)}", place


def _catalog(folder: Path) -> Iterator[tuple[str, Path]]:
    yield "catalog/targets.toml", folder / "targets.toml"
    for place in (folder / "patches").glob("*"):
        if place.is_file():
            yield f"catalog/patches/{place.name}", place


def _needed() -> Iterator[tuple[str, Path]]:
    for found in closure(["patchkit"]):
        files = [file for file in found.files or () if ".." not in file.parts and "tests" not in file.parts]
        if normalise(found.metadata["Name"]) in _FOR_SPEED:
            files = [file for file in files if file.suffix not in _COMPILED]
        is_native = any(file.suffix in _COMPILED for file in files)
        folder = f"native/{sysconfig.get_config_var('EXT_SUFFIX')}" if is_native else "pure"
        for file in files:
            place = Path(str(found.locate_file(file)))
            if file.suffix != ".pyc" and place.is_file():
                yield f"{folder}/{file}", place


def closure(names: Iterable[str]) -> list[Distribution]:
    """Return the installed distributions that some need, directly or not, but for what nodes do not use."""
    found: dict[str, Distribution] = {}
    given = set(map(normalise, names))
    pending = [*given]
    while pending:
        for text in distribution(pending.pop()).requires or ():
            requirement = Requirement(text)
            name = normalise(requirement.name)
            is_meant = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_meant and name not in _UNUSED and name not in given and name not in found:
                found[name] = distribution(name)
                pending.append(name)
    return list(found.values())
