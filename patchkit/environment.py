"""The environment that is examined: an interpreter's, a site folder, or a mounted image's."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from patchkit import probe
from patchkit.errors import EnvironmentInvalid
from patchkit.journal import FOLDER

_TIMEOUT = 60
_SITE_NAMES = ("site-packages", "dist-packages")
_NOT_ON_DISK = ("proc", "sys", "dev")


class Environment(NamedTuple):
    """Where to look for distributions, and what would be imported from there."""

    python: str | None
    """The interpreter, where one was asked."""
    version: tuple[int, int]
    """Python version that the source is for."""
    sites: tuple[Path, ...]
    """Folders in the order in which the interpreter looks at them."""
    root: Path | None = None
    """Root folder of a mounted image, out of which no link is followed."""
    pycache_prefix: Path | None = None
    imported: Mapping[str, Path | None] = {}
    """The folder from which each package would be imported, where an interpreter was asked."""


def find_environment(python: str | None, site: Path | None, root: Path | None, packages: Iterable[str]) -> Environment:
    """Return the environment that the options name; without options the active one, else patchkit's own."""
    if site is not None:
        return _from_site(site)
    if root is not None:
        return _from_root(root, packages)
    executable = python or _active_python()
    if executable is None or os.path.abspath(executable) == sys.executable:
        return _from_answer(probe.survey(packages))  # type: ignore[no-untyped-call]
    return ask_interpreter(executable, packages)


def _active_python() -> str | None:
    """Return the interpreter of the active virtual or conda environment, unless it is our own."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if not prefix:
            continue
        if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
            return None
        python = Path(prefix, "bin", "python")
        if not os.path.exists(python):
            raise EnvironmentInvalid(
                f"{variable} names {prefix}, which has no bin/python", f"unset {variable}, or name one with --python"
            )
        return str(python)
    return None


def ask_interpreter(executable: str, packages: Iterable[str]) -> Environment:
    """Return the environment of an interpreter, which is run to say where it looks."""
    import subprocess

    source = Path(probe.__file__).read_text("utf-8")
    command = [executable, "-B", "-c", source, *packages]
    hint = "name a working Python interpreter with --python"
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT, stdin=subprocess.DEVNULL, check=False)
    except (OSError, ValueError) as error:
        raise EnvironmentInvalid(f"{executable} cannot be run: {error}", hint) from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentInvalid(f"{executable} did not answer within {_TIMEOUT} seconds", hint) from error
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if done.returncode == 0 and line.startswith(probe.MARK):
            try:
                return _from_answer(json.loads(line[len(probe.MARK) :]))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise EnvironmentInvalid(f"{executable} gave an answer that makes no sense: {error!r}", hint) from error
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it printed nothing"]
    raise EnvironmentInvalid(f"{executable} did not answer (exit {done.returncode}): {words[0]}", hint)


def _from_answer(answer: Mapping[str, Any]) -> Environment:
    major, minor = answer["version"]
    prefix = answer["pycache_prefix"]
    return Environment(
        python=str(answer["python"]),
        version=(int(major), int(minor)),
        sites=_folders(Path(entry) for entry in answer["path"]),
        pycache_prefix=Path(prefix) if prefix else None,
        imported={name: Path(folder) if folder else None for name, folder in answer["packages"].items()},
    )


def _folders(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the folders that hold distributions, each real folder once (lib64 is often a link to lib).

    One whose last distribution was uninstalled while it was patched still holds a journal.
    """
    seen: dict[str, Path] = {}
    for path in paths:
        holds_distribution = any(name.endswith((".dist-info", ".egg-info")) for name in _names(path))
        if holds_distribution or os.path.isfile(path / FOLDER / "journal.json"):
            seen.setdefault(os.path.realpath(path), Path(os.path.abspath(path)))
    return tuple(seen.values())


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []  # Python finds nothing there either


def _from_site(site: Path) -> Environment:
    if not os.path.isdir(site):
        raise EnvironmentInvalid(f"{site} is not a folder", "name a site-packages folder with --site")
    return Environment(None, _version_in(site), (Path(os.path.abspath(site)),))


def _from_root(root: Path, packages: Iterable[str]) -> Environment:
    """Find the site folders of a mounted image; nothing of it is run."""
    if not os.path.isdir(root):
        raise EnvironmentInvalid(f"{root} is not a folder", "name the root folder of a mounted image with --root")
    real = Path(os.path.realpath(root))
    sites = tuple(_find_sites(real))
    if not sites:
        raise EnvironmentInvalid(f"no site-packages folder below {root}", "name the folder itself with --site")
    return Environment(None, _version_below(real, sites, tuple(packages)), sites, root=real)


def _find_sites(root: Path) -> Iterator[Path]:
    """Yield every site folder below a root, following no link and looking into none of them."""
    for folder, names, _ in os.walk(root):
        names.sort()
        if Path(folder) == root:
            names[:] = [name for name in names if name not in _NOT_ON_DISK]
        found = [name for name in names if name in _SITE_NAMES and not Path(folder, name).is_symlink()]
        if "conda-meta" in names and "pkgs" in names:
            names.remove("pkgs")  # what conda's environments are copied from, not one of them
        names[:] = [name for name in names if name not in found]
        yield from (Path(folder, name) for name in found)


def _version_below(root: Path, sites: Sequence[Path], packages: Collection[str]) -> tuple[int, int]:
    """Return the Python version of the site folder with a target's package, else of the first that names one.

    An image has others: Debian's /usr/lib/python3/dist-packages, which names none, stands first.
    """
    holding = [site for site in sites if any(os.path.lexists(site / package) for package in packages)]
    versions = (_named_version(site.relative_to(root)) for site in (*holding, *sites))
    return next((version for version in versions if version), sys.version_info[:2])


def _version_in(site: Path) -> tuple[int, int]:
    """Return the Python version in a site folder's path, else our own."""
    return _named_version(site) or sys.version_info[:2]


def _named_version(site: Path) -> tuple[int, int] | None:
    found = re.findall(r"python(\d+)\.(\d+)", str(site))
    return (int(found[-1][0]), int(found[-1][1])) if found else None
