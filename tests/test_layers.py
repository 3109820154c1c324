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
PACKAGES = ("patchkit", "patchkit.fleet", "patchkit.formats", "patchkit.gates", "patchkit.runner", "patchkit.verbs")
VERBS = tuple(f"verbs.{path.stem}" for path in (PACKAGE / "verbs").glob("[a-z]*.py"))
LAYERS = (
    ("blanks", "errors"),
    ("cores", "paths", "probe", "proof", "syntax"),
    ("bytecode", "findings", "record", "targets", "tree", "patch", "diff"),
    ("archive", "cst", "extent", "template", "header", "journal"),
    ("edits", "environment", "relabel", "text"),
    ("arguments", "diff_header", "download", "marker"),
    ("heads", "installation"),
    ("catalog",),
    ("codemod", "hunks", "inventory", "pristine", "stage"),
    ("page", "rewrite", "symptoms"),
    ("testing",),
    ("gates.syntax",),
    ("gates.module",),
    ("gates.code", "gates.mistral"),
    ("gates.checkpoint", "gates.registry"),
    ("gates.configuration", "gates.structure"),
    ("gates.gate",),
    ("gates.interface", "gates.model_runner", "gates.plugins", "gates.target", "gates.whitelist"),
    ("gates.image_token", "gates.layers"),
    ("gates.drafter", "gates.models"),
    ("gates.parallel", "gates.sharing"),
    ("gates.preflight",),
    ("gates.verdict",),
    ("facts", "listing"),
    ("survey",),
    ("refusals",),
    ("plan",),
    ("lock", "replacement", "inspection"),
    ("recording", "subject", "transaction"),
    ("report",),
    ("authoring", "diagnosis", "orders", "screen", "statement", "wheel"),
    ("actions", "adoption", "gates.view", "recorder"),
    ("fleet.beacon", "fleet.channel", "fleet.nodes", "fleet.parcel", "fleet.post"),
    ("fleet.cluster", "fleet.told", "fleet.work"),
    ("fleet.agreement", "fleet.process", "fleet.report", "fleet.sharing"),
    ("fleet.rollout", "fleet.view"),
    ("fleet.run",),
    ("fleet.guard",),
    ("wording",),
    ("formats.highlight", "formats.results"),
    ("formats.sides",),
    ("formats.github", "formats.junit", "formats.page", "formats.sarif"),
    ("render",),
    ("runner.extra", "runner.gpus", "runner.keeper", "runner.log", "runner.metrics"),
    ("runner.client", "runner.command"),
    ("runner.comparison", "runner.launch"),
    ("runner.picture", "runner.serve"),
    ("runner.bench",),
    ("completion", "manual"),
    ("boundary", "options"),
    VERBS,
    ("cli", "serve_cli"),
    ("__main__",),
)


def imports(module: str) -> set[str]:
    """Return the modules of patchkit that a module imports, wherever in its code."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in PACKAGES:
            found.update(f"{node.module}.{name.name}".removeprefix("patchkit.") for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("patchkit."):
            found.add(str(node.module).removeprefix("patchkit."))
    return found


def modules() -> dict[str, Path]:
    """Return every module's file by its name below the package."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    return {str(path.relative_to(PACKAGE).with_suffix("")).replace("/", "."): path for path in paths}


def test_every_module_has_a_layer() -> None:
    assert set(modules()) == {module for layer in LAYERS for module in layer}


@pytest.mark.parametrize("number", range(len(LAYERS)))
def test_imports_go_downwards(number: int) -> None:
    below = {module for layer in LAYERS[:number] for module in layer}
    for module in LAYERS[number]:
        assert imports(module) <= below, module


@pytest.mark.parametrize(
    ("library", "owner"),
    [
        ("rich", {"screen"}),
        ("click", {"boundary", "cli", "completion", "manual", "options", "serve_cli", *VERBS}),
        ("ray", {"fleet.cluster"}),
        ("pygments", {"formats.highlight"}),
    ],
)
def test_library_has_one_owner(library: str, owner: set[str]) -> None:
    def uses(path: Path) -> bool:
        nodes = ast.walk(ast.parse(path.read_text()))
        names = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
        nodes = ast.walk(ast.parse(path.read_text()))
        names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
        return any(name.split(".")[0] == library for name in names)

    assert {name for name, path in modules().items() if uses(path)} == owner


def test_no_module_is_longer_than_300_lines() -> None:
    long = {name for name, path in modules().items() if len(path.read_text().splitlines()) > 300}
    assert long == set()


@pytest.mark.parametrize("verb", ["check", "status", "list"])
def test_reading_an_applied_listed_tree_loads_no_parser_and_no_tables(tree: Tree, verb: str) -> None:
    assert run([*tree.options(), "apply"]) == 0
    code = (
        "import sys; from patchkit.cli import run; code = run(sys.argv[1:]); "
        "heavy = {'libcst', 'rich', 'unidiff', 'difflib', 'subprocess'} & set(sys.modules); "
        "sys.exit(f'{code} {sorted(heavy)}')"
    )
    done = subprocess.run([sys.executable, "-c", code, *tree.options(), verb], capture_output=True, text=True)
    assert done.stderr == "0 []\n"
