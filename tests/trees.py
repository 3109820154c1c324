"""Builders: a little site-packages with true RECORD files, and a catalog for it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from patchkit.catalog import load_catalog
from patchkit.environment import Environment
from patchkit.listing import list_file, to_toml

ENGINE = """\
class Engine:
    def start(self):
        models = ["llama", "qwen"]
        return models

    def stop(self):
        return None
"""
WORKER = """\
def capture(model):
    return model.model
"""
PATCH = '''\
"""{title}

{reason}
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_definition, find_one, is_code, replace, statements
from patchkit.edits import mark, unmark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="{target}",
    versions="{versions}",
    requires={requires},
    symptom="{symptom}",
    upstream=Upstream(status="{status}", fixed_in="{fixed_in}"),
)


@patch.rewrites("{path}", within=("{within}",))
def rewrite(module: cst.Module) -> cst.Module:
    function = find_definition(module, "{within}")
    if "{new}" in module.code:
        return module
    line = find_one(function, cst.SimpleStatementLine, lambda node: is_code(node, """{old}"""), "{within}: the line")
    (new,) = statements("""{new}""")
    return replace(module, line, mark(new.with_changes(leading_lines=line.leading_lines), __name__))
'''
RESTORE = '''

@patch.restores("{path}")
def restore(module: cst.Module) -> cst.Module:
    line = find_one(module, cst.SimpleStatementLine, lambda node: is_code(node, """{new}"""), "{within}: the line")
    (old,) = statements("""{old}""")
    return replace(module, line, old.with_changes(leading_lines=unmark(line, __name__).leading_lines))
'''
DEFAULTS = {
    "title": "The engine takes another model",
    "reason": "It does not list it.",
    "target": "engine",
    "versions": ">=1.0,<2.0",
    "requires": "{}",
    "symptom": "model is refused",
    "status": "released",
    "fixed_in": "2.0",
    "path": "engine/core.py",
    "within": "Engine.start",
    "old": 'models = ["llama", "qwen"]',
    "new": "models = ['llama', 'qwen', 'kimi']",
}
DIFF = """\
title = "The engine takes another model"
reason = "It does not list it."
target = "engine"
versions = ">=1.0,<2.0"
symptom = "model is refused"

[upstream]
status = "released"
fixed_in = "2.0"

"""
"""The head of a diff patch."""
TARGETS = """\
schema = 1
default = ["all"]

[targets.engine]
package = "engine"
distributions = ["engine", "engine-cpu"]

[targets.worker]
package = "worker"
distributions = ["worker"]

[sets.all]
title = "Everything"
patches = [{patches}]
"""


def row(path: str, data: bytes) -> tuple[str, str, str]:
    """Return a row of RECORD for a file."""
    value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return path, f"sha256={value}", str(len(data))


def install(
    site: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    *,
    rows: list[tuple[str, str, str]] | None = None,
) -> Path:
    """Install a distribution as pip does and return its metadata folder.

    RECORD has CRLF line ends, quoted paths, rows without a digest and rows that lead out of the site folder.
    """
    metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
    contents = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
    contents[f"{metadata.name}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nText\n".encode()
    )
    contents[f"{metadata.name}/INSTALLER"] = b"pip\n"
    contents[f"data_of_{name}/configs/E=8,N=512.json"] = b"{}"
    for path, data in contents.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    all_rows = [
        ("../../../bin/tool", "sha256=AAAA", "1"),
        *(row(path, data) for path, data in contents.items()),
        (f"{name}/__pycache__/core.cpython-311.pyc", "", ""),
        (f"{metadata.name}/RECORD", "", ""),
        *(rows or []),
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(all_rows)
    (metadata / "RECORD").write_bytes(text.getvalue().encode())
    return metadata


def snapshot(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return every file, link and folder below a root with its mode, owner and bytes; bytecode aside."""
    found = {}
    for folder, names, files in os.walk(root):
        if "__pycache__" in names:
            names.remove("__pycache__")
        for name in (*names, *files):
            place = Path(folder, name)
            status = place.lstat()
            data = os.readlink(place).encode() if place.is_symlink() else place.read_bytes() if place.is_file() else b""
            found[str(place.relative_to(root))] = (status.st_mode, status.st_uid, status.st_gid, data)
    return found


@dataclass(frozen=True)
class Tree:
    """An environment with two distributions, and a catalog of two patches for them."""

    site: Path
    catalog: Path
    engine: Path
    worker: Path

    def options(self) -> list[str]:
        """Return the command-line options that name both."""
        return ["--site", str(self.site), "--catalog", str(self.catalog)]


def patch_text(**fields: str) -> str:
    """Return the text of a patch file; a field ``restore`` of "" leaves out the way back."""
    values = {**DEFAULTS, **fields}
    return PATCH.format(**values) + (RESTORE.format(**values) if values.get("restore", "yes") else "")


def write_catalog(place: Path, patches: Mapping[str, Mapping[str, str]], extra: str = "") -> Path:
    """Write a catalog folder."""
    (place / "patches").mkdir(parents=True, exist_ok=True)
    for name, fields in patches.items():
        (place / "patches" / f"{name}.py").write_text(patch_text(**fields))
    names = ", ".join(f'"{name}"' for name in patches)
    (place / "targets.toml").write_text(dedent(TARGETS).format(patches=names) + extra)
    return place


def write_diff(catalog: Path, patch_id: str, diff: str | bytes, head: str = DIFF) -> Path:
    """Write a diff patch into a catalog folder."""
    place = catalog / "patches" / f"{patch_id}.diff"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(head.encode() + (diff.encode() if isinstance(diff, str) else diff))
    return place


WORKER_PATCH = {
    "target": "worker",
    "path": "worker/capture.py",
    "within": "capture",
    "old": "return model.model",
    "new": "return getattr(model, 'language_model', model).model",
    "symptom": "has no attribute 'model'",
}


def list_digests(catalog: Path, site: Path, versions: Mapping[str, str]) -> None:
    """List the digests of the installed files in a catalog's targets.toml, as from their wheels."""
    loaded = load_catalog(catalog)
    environment = Environment(None, (3, 10), ())
    releases = {}
    for target, version in versions.items():
        listings = {}
        for path, ids in loaded.files_of(target).items():
            data = (site / path).read_bytes()
            listings[path] = list_file(loaded, path, data, ids, environment)
        releases[target, version] = listings
    text = (catalog / "targets.toml").read_text() + to_toml(loaded.targets._replace(releases=releases))
    (catalog / "targets.toml").write_text(text)


def make_tree(folder: Path) -> Tree:
    """Make two pristine, listed distributions: the engine, by engine-cpu beside an alias, and the worker."""
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    engine = {"engine/__init__.py": "", "engine/core.py": ENGINE}
    install(site, "engine-cpu", "1.5", engine)
    install(site, "engine", "1.5", {"engine_alias/__init__.py": ""})
    install(site, "worker", "1.5", {"worker/__init__.py": "", "worker/capture.py": WORKER})
    catalog = write_catalog(folder / "catalog", {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    list_digests(catalog, site, {"engine": "1.5", "worker": "1.5"})
    return Tree(site, catalog, site / "engine/core.py", site / "worker/capture.py")
