"""Imports go downwards only, and a verb loads only what it needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from patchkit.cli import run
from tests.trees import Tree

PACKAGE = Path(__file__).parent.parent / "patchkit"
LAYERS = (
    ("errors",),
    ("paths", "probe", "syntax"),
    ("bytecode", "findings", "record", "targets", "cst", "patch", "diff"),
    ("edits", "header", "environment", "journal"),
    ("arguments", "installation", "catalog"),
    ("rewrite", "symptoms"),
    ("facts", "listing"),
    ("survey",),
    ("plan",),
    ("lock", "replacement", "inspection", "report"),
    ("transaction",),
    ("actions",),
    ("render",),
    ("cli",),
    ("__main__",),
)


def imports(module: str) -> set[str]:
    """Return the modules of patchkit that a module imports, wherever in its code."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "patchkit":
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("patchkit."):
            found.add(str(node.module).split(".")[1])
    return found


def test_every_module_has_a_layer() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert modules == {module for layer in LAYERS for module in layer}


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_imports_go_downwards(number: int) -> None:
    below = {module for layer in LAYERS[:number] for module in layer}
    for module in LAYERS[number]:
        assert imports(module) <= below, module


@pytest.mark.parametrize(("library", "owner"), [("rich", {"render"}), ("click", {"cli"}), ("filelock", {"lock"})])
def test_library_has_one_owner(library: str, owner: set[str]) -> None:
    def uses(path: Path) -> bool:
        nodes = ast.walk(ast.parse(path.read_text()))
        names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
        nodes = ast.walk(ast.parse(path.read_text()))
        names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
        return any(name.split(".")[0] == library for name in names)

    assert {path.stem for path in PACKAGE.glob("*.py") if uses(path)} == owner


def test_no_module_is_longer_than_300_lines() -> None:
    long = {path.name for path in PACKAGE.glob("*.py") if len(path.read_text().splitlines()) > 300}
    assert long == set()


@pytest.mark.parametrize("verb", ["check", "status", "list"])
def test_reading_an_applied_listed_tree_loads_no_parser_and_no_tables(tree: Tree, verb: str) -> None:
    assert run([*tree.options(), "apply"]) == 0
    code = (
        "import sys; from patchkit.cli import run; code = run(sys.argv[1:]); "
        "heavy = {'libcst', 'rich', 'unidiff', 'filelock', 'difflib', 'subprocess'} & set(sys.modules); "
        "sys.exit(f'{code} {sorted(heavy)}')"
    )
    done = subprocess.run([sys.executable, "-c", code, *tree.options(), verb], capture_output=True, text=True)
    assert done.stderr == "0 []\n"
