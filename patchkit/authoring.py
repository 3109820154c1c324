"""A new patch: its file and its test, in a catalog that is there or in a new one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from patchkit import template
from patchkit.blanks import find_blanks
from patchkit.catalog import Catalog, bundled_catalog
from patchkit.environment import Environment
from patchkit.errors import AlreadyThere, CatalogMissing, ConfigError, FileMissing, PatchInvalid, TargetError
from patchkit.header import parse_header
from patchkit.installation import Installation, find_installation, read_source
from patchkit.report import Created, Report
from patchkit.targets import NamedSet, Target, read_targets

_CLOSE = 3
"""How many close matches a message names."""
_LIKENESS = 0.8
"""How much alike they are: a common folder alone does not do."""


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    id: str
    target: str
    file: str
    """Path below the site folder."""
    symptom: str | None
    versions: str | None
    """Specifier; where there is none, the installed release."""


def open_catalog(place: Path, command: str, *, is_named: bool) -> Catalog:
    """Return the targets of a catalog folder; where a new one is named, those of patchkit's own."""
    if (place / "targets.toml").exists():
        return Catalog(place, read_targets(place / "targets.toml"), {})
    try:
        is_new = is_named and (not place.exists() or not any(place.iterdir()))
    except OSError as error:
        raise ConfigError(f"{place} cannot be read: {error.strerror}", "name another folder with --in") from error
    if not is_new:
        raise CatalogMissing(
            f"{place.absolute()} is no catalog: it has no targets.toml",
            f"name one, or an empty folder for a new one: {command}",
        )
    return Catalog(place, read_targets(bundled_catalog() / "targets.toml"), {})


def write_patch(catalog: Catalog, environment: Environment, wish: Wish) -> Report:
    """Write a patch and its test from the template, and targets.toml for a new catalog; overwrite nothing."""
    target = catalog.targets.targets.get(wish.target)
    if target is None:
        known = ", ".join(catalog.targets.targets)
        raise ConfigError(f"{wish.target!r} is not a target of {catalog.place}", f"known targets: {known}")
    if wish.id in catalog.targets.sets:
        raise ConfigError(f"{wish.id} is the name of a set of {catalog.place}", "give the patch another id")
    if PurePosixPath(wish.file).parts[0] != target.package:
        raise ConfigError(
            f"{wish.file} is not in the package {target.package}", f"give a path as in {target.package}/file.py"
        )
    files = _files(catalog, wish, _versions(wish, target, environment))
    _write(catalog.place, files)
    created = tuple(Created(path, len(find_blanks(text.encode()))) for path, text in files.items())
    return Report("new", True, environment, created=created)


def _versions(wish: Wish, target: Target, environment: Environment) -> str:
    """Return the releases that the patch is for, having seen that the installed one has the file."""
    installation = _find(target, environment, wish.file)
    if installation is None:
        if wish.versions is None:
            raise ConfigError(
                f"{target.name} is not installed here, so nothing says which release the patch is for",
                "give it, as in --versions '>=0.16.0,<0.17.0', or name the environment with --python",
            )
        return wish.versions
    if read_source(installation, wish.file, environment.root) is None:
        raise FileMissing(
            f"{installation.distribution} {installation.version} has no {wish.file}", _suggest(installation, wish.file)
        )
    return wish.versions or f"=={installation.version.public}"  # every build of the release


def _find(target: Target, environment: Environment, file: str) -> Installation | None:
    try:
        return find_installation(target, environment, (file,))
    except TargetError:
        return None  # a checkout, for example: it says nothing of a release


def _suggest(installation: Installation, file: str) -> str:
    """Return the files of the package that are named alike."""
    import difflib

    package = installation.site / installation.target.package
    known = sorted(str(place.relative_to(installation.site)) for place in package.rglob("*.py"))
    close = [path for path in known if PurePosixPath(path).name == PurePosixPath(file).name][:_CLOSE]
    close = close or difflib.get_close_matches(file, known, n=_CLOSE, cutoff=_LIKENESS)
    return f"did you mean {' or '.join(close)}?" if close else f"name a file below {package}"


def _files(catalog: Catalog, wish: Wish, versions: str) -> dict[str, str]:
    """Return what is to be written, by path in the catalog; the patch has a head that the catalog takes."""
    patch = template.patch_text(wish.target, wish.file, versions, wish.symptom)
    path = f"patches/{wish.id}.py"
    try:
        parse_header(patch.encode(), catalog.place / path)
    except PatchInvalid as error:
        raise PatchInvalid(error.message, "correct the option") from error
    files = {path: patch, f"tests/patches/test_{wish.id}.py": template.test_text(wish.id, wish.file)}
    if not (catalog.place / "targets.toml").exists():
        named = NamedSet("all-patches", "Every patch of this catalog", (wish.id,))
        files["targets.toml"] = template.targets_text(named, catalog.targets.targets.values())
    return files


def _write(place: Path, files: dict[str, str]) -> None:
    """Write all files or none; one that is there already is left alone."""
    _refuse_existing(place / path for path in files)
    written: list[Path] = []
    try:
        for path, text in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            with open(place / path, "xb") as file:
                written.append(place / path)
                file.write(text.encode())
    except OSError as error:
        for there in written:
            there.unlink(missing_ok=True)
        raise ConfigError(f"{place / path} cannot be written: {error.strerror}", "nothing was written") from error


def _refuse_existing(places: Iterable[Path]) -> None:
    for place in places:
        if place.exists() or place.is_symlink():
            raise AlreadyThere(f"{place} is there already", "give the patch another id, or move the file away")
