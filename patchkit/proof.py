"""The entry point of ``vllm.general_plugins`` by which every process of vLLM proves that it has the patched files.

Standard library only, and nothing at all unless PATCHKIT_REQUIRE asks for it. Its value is ``journal``, for all that
patchkit's journal and the marker of a patched wheel list, or ``PATH=SHA256,PATH=SHA256,…``, which ``patchkit-serve``
sets. The runner puts a copy of this file on the path of a target that has no patchkit, so it imports nothing of
patchkit.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import importlib.util
import json
import os
import stat
import sys

VARIABLE = "PATCHKIT_REQUIRE"
MARK = "patchkit proof:"
"""What the line begins with by which a process says that it is proved."""

_LARGEST = 32 * 2**20


class NotProved(RuntimeError):
    """Stop a process whose files are not those that were asked for."""


def verify() -> None:
    """Prove this process, or stop it; do nothing where nothing is asked for."""
    wanted = os.environ.get(VARIABLE)
    if wanted:
        prove(wanted)


def prove(wanted: str) -> str:
    """Compare the files and the loaded modules with what is asked for, and return the digest of the whole set."""
    expected = _from_journal() if wanted == "journal" else _from_text(wanted)
    problems = [problem for path in sorted(expected) for problem in _problems(path, expected[path])]
    if problems or not expected:
        what = "; ".join(problems) or "the journal lists no patched file"
        raise NotProved(
            "patchkit: this server does not run the patched files: %s. It is stopped; run `patchkit check`, then "
            "`patchkit apply`, in the environment of this process (%s)." % (what, sys.executable)
        )
    digest = set_digest(expected)
    sys.stderr.write("%s process %d has %d patched files, digest %s\n" % (MARK, os.getpid(), len(expected), digest))
    sys.stderr.flush()
    return digest


def set_digest(files: dict[str, str]) -> str:
    """Return one digest for a set of files, given the SHA-256 of each by its path."""
    text = "".join("%s %s\n" % (files[path], path) for path in sorted(files))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _problems(path: str, sha256: str) -> list[str]:
    """Return what is wrong with a file, or with the module that was loaded from elsewhere."""
    place = os.path.join(_folder(path), *path.split("/")[1:])
    try:
        found = hashlib.sha256(_read(place)).hexdigest()
    except OSError as error:
        return ["%s cannot be read: %s" % (place, error.strerror)]
    problems = []
    if found != sha256:
        problems.append("%s has SHA-256 %s, not %s" % (place, found, sha256))
    name = path[: -len(".py")].replace("/", ".")
    name = name[: -len(".__init__")] if name.endswith(".__init__") else name
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if loaded is not None and os.path.realpath(loaded) != os.path.realpath(place):
        problems.append("%s is loaded from %s, not from %s" % (name, loaded, place))
    return problems


def _read(place: str) -> bytes:
    """Return the bytes of a regular file of a sane size; a pipe in its place must not hold the server up."""
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise OSError(errno.EINVAL, "not a regular file, or larger than %d bytes" % _LARGEST)
        return file.read()


def _folder(path: str) -> str:
    """Return the folder of the package that a path is in, as this process imports it."""
    package = path.split("/")[0]
    module = sys.modules.get(package)
    folders = list(getattr(module, "__path__", None) or [])
    if not folders:
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            spec = None
        folders = list((spec.submodule_search_locations if spec else None) or [])
    if not folders:
        raise NotProved(
            "patchkit: the package %s is not in this process's environment (%s)" % (package, sys.executable)
        )
    return str(folders[0])


def _from_text(text: str) -> dict[str, str]:
    """Return the files that a value of PATCHKIT_REQUIRE names."""
    found = {}
    for item in text.split(","):
        path, _, sha256 = item.partition("=")
        parts = path.split("/")
        if len(sha256) != 64 or not path.endswith(".py") or ".." in parts or "" in parts or "/" not in path:
            raise NotProved(
                "patchkit: %s has %r, which is not PATH=SHA256; it is `journal`, or what patchkit-serve sets"
                % (VARIABLE, item)
            )
        found[path] = sha256
    return found


def _from_journal() -> dict[str, str]:
    """Return the files that the journal beside vLLM lists, and those that came patched in vLLM's own wheel."""
    site = os.path.dirname(_folder("vllm/__init__.py"))
    markers = sorted(glob.glob(os.path.join(glob.escape(site), "*.dist-info", "patchkit.json")))
    journal = os.path.join(site, ".patchkit", "journal.json")
    found = {}
    for place in markers + ([journal] if os.path.lexists(journal) or not markers else []):
        found.update(_listed_in(place))
    return found


def _listed_in(place: str) -> dict[str, str]:
    try:
        files = json.loads(_read(place).decode("utf-8"))["files"]
        return {path: files[path]["sha256"] for path in files if path.split("/")[0] == "vllm"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotProved("patchkit: %s cannot be read: %s; run `patchkit apply`" % (place, error)) from error
