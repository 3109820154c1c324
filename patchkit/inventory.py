"""What is edited in an installed distribution: each file beside RECORD."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import TargetError
from patchkit.findings import Finding, from_error
from patchkit.installation import Installation, read_record, source_digest


@dataclass(frozen=True)
class Inventory:
    """The files of a distribution that are not as RECORD lists them."""

    installation: Installation
    """With every row of RECORD."""
    edited: tuple[str, ...]
    """The Python files of the package that differ: what a patch can change."""
    findings: tuple[Finding, ...]
    """Every other difference, of which a patch can take nothing over."""


def take_inventory(installation: Installation, root: Path | None) -> Inventory:
    """Compare every file of a distribution with RECORD; reads only."""
    whole, listed = read_record(installation, root)
    edited, findings = [], []
    for path in sorted(whole.rows):
        try:
            found = source_digest(whole, path, root)
        except TargetError as error:
            findings.append(from_error(error, file=path))
            continue
        if found == whole.rows[path].sha256:
            continue
        if found is None:
            message = f"{path} is not there, and {whole.distribution} {whole.version} has it"
            findings.append(Finding("file-removed", message, whole.reinstall, None, path))
        elif path.endswith(".py") and path.startswith(f"{whole.target.package}/"):
            edited.append(path)
        else:
            message = f"{path} is not as {whole.distribution} shipped it, and no patch can change it"
            findings.append(Finding("data-edited", message, whole.reinstall, None, path))
    findings += [
        Finding("file-added", f"{path} is in no RECORD of {whole.distribution}", _KEEP, None, path)
        for path in sorted(_files(whole) - listed)
    ]
    return Inventory(whole, tuple(edited), tuple(findings))


UNTAKEN = ("data-edited", "file-added", "file-removed")
"""The codes of the findings of an inventory that keep nothing else from being recorded."""
_KEEP = "no patch creates files: ship it in a distribution of its own, or remove it"


def _files(installation: Installation) -> set[str]:
    """Return every file of the package but bytecode, as RECORD would spell it."""
    return set(_walk(installation.site, installation.site / installation.target.package))


def _walk(site: Path, package: Path) -> Iterator[str]:
    for folder, names, files in os.walk(package):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in files:
            if not name.endswith(".pyc"):
                yield Path(folder, name).relative_to(site).as_posix()
