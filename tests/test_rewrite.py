"""Rewrites and the proofs that each must pass."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import libcst as cst
import pytest

from patchkit import cores
from patchkit.catalog import load_catalog
from patchkit.codemod import Codemod
from patchkit.environment import Environment
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchInvalid, RewriteUnsound, UnexpectedShape
from patchkit.record import digest
from patchkit.rewrite import Rewriter
from patchkit.targets import Listing
from tests.trees import ENGINE, write_catalog

OWN = Environment(sys.executable, sys.version_info[:2], ())
FIRST = '''\
"""Title

Reason.
"""

from __future__ import annotations

import random

import libcst as cst

from patchkit.patch import Patch, Upstream

patch = Patch(target="engine", versions="==1.0", symptom="x", upstream=Upstream(status="unreported"))


@patch.rewrites("engine/core.py", within=(WITHIN,))
def rewrite(module: cst.Module) -> cst.Module:
'''


def rewriter(tmp_path: Path, body: str, within: str = '"Engine.start"', environment: Environment = OWN) -> Rewriter:
    """Return a rewriter for a catalog of one patch whose rewrite has this body."""
    write_catalog(tmp_path, {"engine_models": {}})
    indented = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    (tmp_path / "patches/engine_models.py").write_text(FIRST.replace("WITHIN", within) + indented)
    return Rewriter(load_catalog(tmp_path), environment)


def substitute(old: str, new: str) -> str:
    """Return the body of a rewrite that replaces text."""
    return f"return cst.parse_module(module.code.replace({old!r}, {new!r}))"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('return cst.parse_module(module.code.replace(\'"qwen"\', \'"qwen", "qwen"\'))', "again when it is applied"),
        ("return cst.parse_module(module.code.replace('llama', str(random.random())))", "two different results"),
        ("return 1 / 0", "fails with ZeroDivisionError"),
        ("return module.bodies", "fails with AttributeError"),
        ("return None", "gives NoneType, not a Module"),
        (substitute("return None", "return 0"), "changes engine/core.py outside Engine.start, at: return 0$"),
        (substitute('models = ["llama", "qwen"]', "break"), "does not compile for Python"),
    ],
)
def test_unsound_rewrite_is_refused(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises(RewriteUnsound, match=words):
        rewriter(tmp_path, body).fold("engine/core.py", ENGINE.encode(), {"engine_models"})


COUNTED = "calls = sys.__dict__.setdefault('calls', []); calls.append(module); "


def listed(made: Rewriter, sha256: str) -> Rewriter:
    """Return a rewriter for the same catalog that has a digest for the engine with its patch."""
    digests = Listing(digest(ENGINE.encode()), {frozenset({"engine_models"}): sha256})
    targets = made.catalog.targets._replace(releases={("engine", "1.0"): {"engine/core.py": digests}})
    return Rewriter(replace(made.catalog, targets=targets), OWN)


def test_listed_digest_stands_for_the_second_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[cst.Module] = []
    monkeypatch.setattr(sys, "calls", calls, raising=False)
    made = rewriter(tmp_path, f"import sys; {COUNTED}\n{substitute('qwen', 'kimi')}")
    after = made.fold("engine/core.py", ENGINE.encode(), {"engine_models"}).after
    assert len(calls) == 3  # twice, and once more over the result
    del calls[:]
    assert listed(made, digest(after)).fold("engine/core.py", ENGINE.encode(), {"engine_models"}).after == after
    assert len(calls) == 2
    del calls[:]
    assert listed(made, "0" * 64).fold("engine/core.py", ENGINE.encode(), {"engine_models"}).after == after
    assert len(calls) == 5  # it is not as listed, so that says nothing, and all is proved anew


def test_listed_digest_is_no_excuse_for_chance(tmp_path: Path) -> None:
    made = rewriter(tmp_path, "return cst.parse_module(module.code.replace('llama', str(random.random())))")
    with pytest.raises(RewriteUnsound, match="two different results"):
        listed(made, "0" * 64).fold("engine/core.py", ENGINE.encode(), {"engine_models"})


@pytest.mark.parametrize(
    ("environment", "sound"),
    [
        (Environment(sys.executable, (3, 3), ()), False),
        (Environment(None, (3, 7), ()), False),
        (Environment(None, (3, 9), ()), True),
        (Environment("/nowhere/python", (3, 9), ()), False),
    ],
    ids=["its interpreter refuses", "its grammar refuses", "its grammar accepts", "its interpreter is not there"],
)
def test_result_must_compile_for_the_target(tmp_path: Path, environment: Environment, sound: bool) -> None:
    new = "if (models := []): pass" if sound or environment.python is None else "break"
    old = 'models = ["llama", "qwen"]'
    made = rewriter(tmp_path, substitute(old, new), environment=environment)
    if sound:
        assert made.fold("engine/core.py", ENGINE.encode(), {"engine_models"}).patches == {"engine_models"}
        return
    version = ".".join(map(str, environment.version))
    with pytest.raises(RewriteUnsound, match=f"does not compile for Python {version}"):
        made.fold("engine/core.py", ENGINE.encode(), {"engine_models"})


def test_other_interpreter_compiles(tmp_path: Path) -> None:
    made = rewriter(tmp_path, substitute('"qwen"', '"kimi"'), environment=Environment(sys.executable, (3, 3), ()))
    assert made.fold("engine/core.py", ENGINE.encode(), {"engine_models"}).patches == {"engine_models"}


IMPORTING = "import os\n\n\nclass Engine:\n    def start(self):\n        return 1\n"


def test_imports_may_change_where_that_is_said(tmp_path: Path) -> None:
    body = substitute("import os\n", "import os\nimport sys\n") + " if 'import sys' not in module.code else module"
    after = rewriter(tmp_path, body, '"import"').fold("engine/core.py", IMPORTING.encode(), {"engine_models"}).after
    assert after == IMPORTING.replace("import os\n", "import os\nimport sys\n").encode()
    with pytest.raises(RewriteUnsound, match="outside Engine"):
        rewriter(tmp_path, body, '"Engine"').fold("engine/core.py", IMPORTING.encode(), {"engine_models"})


def test_marker_may_stand_above_a_definition_and_its_decorators(tmp_path: Path) -> None:
    source = "@first\n@second\nclass Engine:\n    x = 1\n"
    new = "# patchkit: engine_models\n@first\n@second\nclass Engine(object):"
    body = substitute("@first\n@second\nclass Engine:", new)
    after = rewriter(tmp_path, body, '"Engine"').fold("engine/core.py", source.encode(), {"engine_models"}).after
    assert after.startswith(new.encode())


@pytest.mark.parametrize(
    ("source", "error"),
    [("def start(): pass\n", AnchorNotFound), (ENGINE + ENGINE, AnchorAmbiguous)],
)
def test_definition_that_may_change_must_be_there_once(tmp_path: Path, source: str, error: type[Exception]) -> None:
    body = "return module if '# x' in module.code else cst.parse_module(module.code + '# x\\n')"
    with pytest.raises(error, match=r"^Engine: (not found|found 2 times)$"):
        rewriter(tmp_path, body).fold("engine/core.py", source.encode(), {"engine_models"})


HELPER = "\n\n# patchkit: engine_models\ndef helper(models):\n    return models\n"
ADDING = f"return module if 'helper' in module.code else cst.parse_module(module.code + {HELPER!r})"


@pytest.mark.parametrize("within", ['"helper"', '"Engine.start", "helper"', '"helper", "Engine"'])
def test_definition_that_is_named_may_be_added(tmp_path: Path, within: str) -> None:
    made = rewriter(tmp_path, ADDING, within)
    after = made.fold("engine/core.py", ENGINE.encode(), {"engine_models"}).after
    assert after == (ENGINE + HELPER).encode()
    assert made.fold("engine/core.py", after, {"engine_models"}).patches == frozenset()


def test_method_that_is_named_may_be_added(tmp_path: Path) -> None:
    old, new = "    def stop(self):", "    def pause(self):\n        return None\n\n    def stop(self):"
    body = f"return module if 'pause' in module.code else cst.parse_module(module.code.replace({old!r}, {new!r}))"
    after = rewriter(tmp_path, body, '"Engine.pause"').fold("engine/core.py", ENGINE.encode(), {"engine_models"}).after
    assert after == ENGINE.replace(old, new).encode()


@pytest.mark.parametrize(
    ("body", "within", "error", "words"),
    [
        (ADDING, '"Engine.start"', RewriteUnsound, r"outside Engine\.start, at: "),
        (ADDING, '"helper", "other"', AnchorNotFound, "^other: not found$"),
        (ADDING, '"helper", "Engine.other"', AnchorNotFound, r"^Engine\.other: not found$"),
        (ADDING.replace(" + ", " * 2 + "), '"helper"', RewriteUnsound, "outside helper, at: "),
        (ADDING.replace(" + ", " + 2 * "), '"helper"', AnchorAmbiguous, "^helper: found 2 times$"),
        (
            "return module.with_changes(body=cst.parse_module('x = 1\\n').body)",
            '"Engine"',
            AnchorNotFound,
            "^Engine: not found$",
        ),
    ],
    ids=["not named", "another named", "another method named", "more added", "added twice", "taken out"],
)
def test_definition_that_is_named_must_be_there_after(
    tmp_path: Path, body: str, within: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        rewriter(tmp_path, body, within).fold("engine/core.py", ENGINE.encode(), {"engine_models"})


def test_definition_that_is_named_must_not_be_there_twice_before(tmp_path: Path) -> None:
    once = ENGINE.partition("    def stop")[0]
    body = f"return cst.parse_module({once!r})"
    with pytest.raises(AnchorAmbiguous, match=r"^Engine: found 2 times$"):
        rewriter(tmp_path, body).fold("engine/core.py", (ENGINE + ENGINE).encode(), {"engine_models"})


def test_definition_under_a_condition_is_found(tmp_path: Path) -> None:
    source = "try:\n    import torch\nexcept ImportError:\n    torch = None\nif torch:\n    pass\nelse:\n"
    source += "".join(f"    {line}\n" for line in ENGINE.splitlines())
    made = rewriter(tmp_path, substitute('"qwen"', '"kimi"'))
    assert b"kimi" in made.fold("engine/core.py", source.encode(), {"engine_models"}).after


@pytest.mark.parametrize(
    "source", [b"x = 1\n\x0cy = 2\n", b"x = 1\r\ny = 2\nz=1\r"], ids=["form feed", "mixed line ends"]
)
def test_source_that_does_not_print_back_is_refused(tmp_path: Path, source: bytes) -> None:
    with pytest.raises(UnexpectedShape, match="does not print back byte for byte"):
        rewriter(tmp_path, "return module").fold("engine/core.py", source, {"engine_models"})


def test_patch_that_fails_to_load_is_refused(tmp_path: Path) -> None:
    rewriter(tmp_path, "return module")
    patch = tmp_path / "patches/engine_models.py"
    patch.write_text(patch.read_text() + "\n\nraise RuntimeError('no')\n")
    made = Rewriter(load_catalog(tmp_path), OWN)
    with pytest.raises(PatchInvalid, match=r"fails to load: RuntimeError\('no'\)"):
        made.fold("engine/core.py", ENGINE.encode(), {"engine_models"})


def test_fold_of_nothing_is_the_pristine_file(tmp_path: Path) -> None:
    rewrite = rewriter(tmp_path, "return module").fold("engine/core.py", b"not python (", ())
    assert (rewrite.after, rewrite.patches) == (b"not python (", frozenset())


@pytest.mark.parametrize("enabled", [True, False])
def test_collector_is_as_it_was(tmp_path: Path, enabled: bool) -> None:
    made = rewriter(tmp_path, "return module")
    (gc.enable if enabled else gc.disable)()
    try:
        made.fold("engine/core.py", ENGINE.encode(), {"engine_models"})
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


@pytest.mark.parametrize("restore", ["yes", ""])
def test_restore_gives_the_pristine_file_or_nothing(tmp_path: Path, restore: str) -> None:
    catalog = load_catalog(write_catalog(tmp_path, {"engine_models": {"restore": restore}}))
    made = Rewriter(catalog, OWN)
    pristine = ENGINE.encode()
    patched = made.fold("engine/core.py", pristine, {"engine_models"}).after
    found = made.restore("engine/core.py", patched, {"engine_models"}, digest(pristine))
    assert (found.before if found else None) == (pristine if restore else None)
    edited = patched.replace(b"return None", b"return 0")
    assert made.restore("engine/core.py", edited, {"engine_models"}, digest(pristine)) is None
    assert made.restore("engine/core.py", b"x = (", {"engine_models"}, digest(pristine)) is None


def test_letter_that_the_encoding_lacks_is_refused(tmp_path: Path) -> None:
    source = b"# -*- coding: latin-1 -*-\n" + ENGINE.encode()
    made = rewriter(
        tmp_path,
        "new = module.code.replace('llama', chr(0x20AC))\nreturn module.with_changes(body=cst.parse_module(new).body)",
    )
    with pytest.raises(RewriteUnsound, match="what the file's encoding does not have"):
        made.fold("engine/core.py", source, {"engine_models"})


def test_tree_that_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    body = "method = find_definition(module, 'Engine.start')\nbody = method.body.with_changes(body=(None,))\n"
    body = "from patchkit.cst import find_definition, replace\n" + body
    made = rewriter(tmp_path, body + "return replace(module, method, method.with_changes(body=body))")
    with pytest.raises(RewriteUnsound, match="gives a tree that cannot be printed"):
        made.fold("engine/core.py", ENGINE.encode(), {"engine_models"})


@pytest.mark.parametrize(
    "body", ["raise AnchorNotFound('not here')", substitute("qwen", "kimi")], ids=["refused", "other"]
)
def test_way_back_counts_only_where_the_patch_leads_from_there(tmp_path: Path, body: str) -> None:
    rewriter(tmp_path, body.replace("raise ", "from patchkit.errors import AnchorNotFound\nraise "))
    patch = tmp_path / "patches/engine_models.py"
    way_back = f"\n\n@patch.restores('engine/core.py')\ndef restore(module):\n    return cst.parse_module({ENGINE!r})\n"
    patch.write_text(patch.read_text() + way_back)
    made = Rewriter(load_catalog(tmp_path), OWN)
    assert made.restore("engine/core.py", b"x = 1\n", {"engine_models"}, digest(ENGINE.encode())) is None


@pytest.mark.parametrize("place", ["title", "code"])
def test_patch_that_is_not_filled_in_is_refused(tmp_path: Path, place: str) -> None:
    body = "return module  # <fill in: the rewrite>" if place == "code" else "return module"
    folder = rewriter(tmp_path, body)
    if place == "title":
        patch = tmp_path / "patches/engine_models.py"
        patch.write_text(patch.read_text().replace("Title", "<fill in: the title>"))
        folder = Rewriter(load_catalog(tmp_path), OWN)
    with pytest.raises(PatchInvalid, match=r"engine_models\.py is not filled in yet: line \d+: the "):
        folder.fold("engine/core.py", ENGINE.encode(), {"engine_models"})


def test_files_folded_ahead_are_as_those_folded_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where one of them is refused, which is told when it is asked for."""
    monkeypatch.setattr(cores, "count", lambda: 2)
    large = "# a remark that makes the file long\n" * 1000
    sources = [f"{ENGINE}x = {number}\n{large}".encode() for number in range(3)] + [f"x = (\n{large}".encode()]
    one, other = (rewriter(tmp_path, substitute('"qwen"', '"kimi"')) for _ in range(2))
    one.fold_ahead(("engine/core.py", source, {"engine_models"}) for source in sources)
    monkeypatch.setattr(Codemod, "rewrite", None)  # nothing is left to do
    ahead = [one.fold("engine/core.py", source, {"engine_models"}) for source in sources[:3]]
    monkeypatch.undo()
    assert ahead == [other.fold("engine/core.py", source, {"engine_models"}) for source in sources[:3]]
    assert [step.after for rewrite in ahead for step in rewrite.steps] == [rewrite.after for rewrite in ahead]
    with pytest.raises(UnexpectedShape, match="does not parse"):
        one.fold("engine/core.py", sources[3], {"engine_models"})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("source", [f"{ENGINE}# short\n", ENGINE + "# long\n" * 9999], ids=["short", "alone"])
def test_nothing_is_folded_ahead_where_it_does_not_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr("patchkit.rewrite.run_apart", None)
    rewriter(tmp_path, "return module").fold_ahead([("engine/core.py", source.encode(), {"engine_models"})])
