"""What an interpreter would import; run inside it, so standard library only and old syntax.

The packages are looked up, never imported.
"""

import importlib.util
import json
import os
import sys

MARK = "patchkit-probe:"


def survey(packages):  # type: ignore[no-untyped-def]
    """Return the interpreter's version and paths, and the folder from which it would import each package."""
    path = [entry for entry in sys.path if entry]
    if not getattr(sys.flags, "safe_path", False):
        # What ``python -m`` and ``python -c`` look at first.
        try:
            path.insert(0, os.getcwd())
        except OSError:
            pass  # the working directory is gone
    original, sys.path = sys.path, path
    try:
        found = dict((package, _folder(package)) for package in packages)  # type: ignore[no-untyped-call]
    finally:
        sys.path = original
    return {
        "python": sys.executable,
        "version": list(sys.version_info[:2]),
        "path": path,
        "pycache_prefix": getattr(sys, "pycache_prefix", None),
        "packages": found,
    }


def _folder(package):  # type: ignore[no-untyped-def]
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return list(spec.submodule_search_locations)[0]


if __name__ == "__main__":
    print(MARK + json.dumps(survey(sys.argv[1:])))  # type: ignore[no-untyped-call]
