from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchkit import catalog as module
from patchkit.catalog import Catalog, Selection, bundled_catalog, load_catalog, load_patch
from patchkit.cli import run
from patchkit.diff import unified_diff
from patchkit.errors import CatalogMissing, CodeRefused, ConfigError, PatchInvalid, UnknownName
from tests.trees import ENGINE, WORKER_PATCH, Tree, patch_text, write_catalog, write_diff

OTHER_SET = '\n[sets.engines]\ntitle = "Engines"\npatches = ["engine_models"]\n'


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return load_catalog(write_catalog(tmp_path, {"engine_models": {}, "worker_unwrap": WORKER_PATCH}, OTHER_SET))


def test_loaded(catalog: Catalog, tmp_path: Path) -> None:
    assert (catalog.place, list(catalog.headers)) == (tmp_path, ["engine_models", "worker_unwrap"])
    assert [header.title for header in catalog.headers.values()] == ["The engine takes another model"] * 2


@pytest.mark.parametrize(
    ("names", "ids", "named"),
    [
        ([], ("engine_models", "worker_unwrap"), set()),
        (["all"], ("engine_models", "worker_unwrap"), set()),
        (["engines"], ("engine_models",), set()),
        (["worker_unwrap"], ("worker_unwrap",), {"worker_unwrap"}),
        (["worker_unwrap", "engines"], ("engine_models", "worker_unwrap"), {"worker_unwrap"}),
        (["all", "engine_models", "engine_models"], ("engine_models", "worker_unwrap"), {"engine_models"}),
    ],
    ids=["default", "set", "other set", "patch", "patch and set", "patch within a set"],
)
def test_selection(catalog: Catalog, names: list[str], ids: tuple[str, ...], named: set[str]) -> None:
    assert catalog.select(iter(names)) == Selection(ids, frozenset(named))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("engine_model", "did you mean engine_models?"),
        ("engine", "did you mean engines?"),
        ("zzz", "known names: engine_models, worker_unwrap, all, engines"),
        ("", "known names: engine_models, worker_unwrap, all, engines"),
    ],
)
def test_unknown_name(catalog: Catalog, tmp_path: Path, name: str, hint: str) -> None:
    with pytest.raises(UnknownName) as caught:
        catalog.select(["all", name])
    assert (caught.value.message, caught.value.hint) == (f"{name!r} is neither a patch nor a set of {tmp_path}", hint)


def test_target_of_a_patch(catalog: Catalog) -> None:
    assert catalog.target_of("worker_unwrap") is catalog.targets.targets["worker"]


def test_files_of_a_target(tmp_path: Path) -> None:
    patches = {"b_second": {}, "a_first": {}, "c_other": {"path": "engine/other.py"}, "worker_unwrap": WORKER_PATCH}
    catalog = load_catalog(write_catalog(tmp_path, patches))
    assert catalog.files_of("engine") == {"engine/core.py": ("a_first", "b_second"), "engine/other.py": ("c_other",)}
    assert catalog.files_of("worker") == {"worker/capture.py": ("worker_unwrap",)}
    assert catalog.files_of("none") == {}


def test_bundled_catalog_of_a_checkout() -> None:
    here = Path(__file__).parent.parent / "patches"
    assert set(load_catalog(bundled_catalog()).headers) == {patch.stem for patch in here.glob("*.py")}


def test_bundled_catalog_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "patchkit" / "catalog.py"))
    assert bundled_catalog() == tmp_path
    (tmp_path / "patchkit" / "catalog_data").mkdir(parents=True)
    assert bundled_catalog() == tmp_path / "patchkit" / "catalog_data"


def test_no_targets(tmp_path: Path) -> None:
    with pytest.raises(CatalogMissing, match=r"^no catalog: .*targets\.toml does not exist$"):
        load_catalog(tmp_path)


@pytest.mark.parametrize("name", [None, "README.md", "folder/a.py"], ids=["nothing", "other files", "deeper"])
def test_no_patches(catalog: Catalog, tmp_path: Path, name: str | None) -> None:
    for place in (tmp_path / "patches").glob("*.py"):
        place.unlink()
    if name:
        (tmp_path / "patches" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "patches" / name).write_text("")
    with pytest.raises(CatalogMissing, match=r"^no patches: .*patches holds no \.py or \.diff file$"):
        load_catalog(tmp_path)


def test_file_that_is_no_patch(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "patches" / "helpers.py").write_text("x = 1\n")
    with pytest.raises(PatchInvalid, match=r"helpers\.py: a docstring must give"):
        load_catalog(tmp_path)


def test_set_of_an_unknown_patch(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "patches" / "worker_unwrap.py").unlink()
    with pytest.raises(ConfigError, match=r"the set all names worker_unwrap, which is not in patches/$"):
        load_catalog(tmp_path)


@pytest.mark.parametrize(
    ("name", "fields", "error", "words"),
    [
        ("engines", {}, ConfigError, "^engines names both a patch and a set$"),
        ("other", {"target": "none"}, PatchInvalid, r"other\.py: 'none' is not a target of targets\.toml$"),
        ("other", {"requires": '{"none": ">=1"}'}, PatchInvalid, r"other\.py: 'none' is not a target"),
        (
            "other",
            {"path": "worker/core.py"},
            PatchInvalid,
            r"other\.py: line \d+: worker/core\.py is not in the package engine$",
        ),
        ("other", {"path": "engine.py"}, PatchInvalid, r": line \d+: engine\.py is not in the package engine$"),
        ("other", {"path": "engine_alias/a.py"}, PatchInvalid, "is not in the package engine$"),
    ],
    ids=["set of that name", "unknown target", "requires an unknown one", "other package", "module", "longer name"],
)
def test_patch_that_does_not_fit(
    catalog: Catalog, tmp_path: Path, name: str, fields: dict[str, str], error: type[Exception], words: str
) -> None:
    (tmp_path / "patches" / f"{name}.py").write_text(patch_text(**fields))
    with pytest.raises(error, match=words):
        load_catalog(tmp_path)


def test_patch_is_run_from_the_bytes_that_were_read(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "patches" / "engine_models.py").write_text("raise ValueError\n")
    before = set(sys.modules)
    patch = load_patch(catalog.headers["engine_models"])
    assert (patch, set(patch.rewritings)) == (catalog.headers["engine_models"].patch, {"engine/core.py"})
    assert (tmp_path / "patches" / "__pycache__").exists() is False
    assert "engine_models" not in set(sys.modules) - before


FAILS = {
    "raises": "raise ValueError('broken')",
    "imports what is not there": "import nothing_of_that_name",
    "does not compile": "return 1",
    "gives up": "raise SystemExit(0)",
}
DIFFERS = {
    "bound to something else": "patch = 1",
    "taken away": "del patch",
    "another file": '@patch.rewrites("engine/b.py" + "", within=("A",))\nasync def b(module): ...',
    "a file less": "patch.rewritings.clear()",
    "bound again": "first = patch\npatch = Patch(target='engine', versions='>=0,<9', symptom='x', "
    "upstream=Upstream(status='merged'))\npatch.rewritings.update(first.rewritings)",
}


@pytest.mark.parametrize("code", FAILS.values(), ids=FAILS)
def test_patch_that_fails(tmp_path: Path, code: str) -> None:
    catalog = write_catalog(tmp_path, {"engine_models": {}})
    with (tmp_path / "patches" / "engine_models.py").open("a") as file:
        file.write(f"\n{code}\n")
    with pytest.raises(PatchInvalid, match=r"engine_models\.py fails to load: "):
        load_patch(load_catalog(catalog).headers["engine_models"])


@pytest.mark.parametrize("code", DIFFERS.values(), ids=DIFFERS)
def test_patch_that_differs_from_its_head(tmp_path: Path, code: str) -> None:
    catalog = write_catalog(tmp_path, {"engine_models": {}})
    with (tmp_path / "patches" / "engine_models.py").open("a") as file:
        file.write(f"\n{code}\n")
    with pytest.raises(PatchInvalid, match=r"engine_models\.py: the patch differs from its head$"):
        load_patch(load_catalog(catalog).headers["engine_models"])


def test_catalog_with_code_is_refused_where_none_is_allowed(tmp_path: Path) -> None:
    write_catalog(tmp_path, {"engine_models": {}})
    assert load_catalog(tmp_path).headers
    with pytest.raises(CodeRefused, match=r"has patches in Python, as engine_models\.py, and --no-code allows none"):
        load_catalog(tmp_path, allow_code=False)


@pytest.mark.parametrize("before", [True, False])
def test_no_code_of_a_catalog_is_run(
    tree: Tree, tmp_path: Path, before: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    trap = tree.catalog / "patches/trap.py"
    ran = tmp_path / "ran"
    trap.write_text(f"{patch_text()}\nopen({str(ran)!r}, 'w')\n")

    def words(*verb: str) -> list[str]:
        return [*tree.options(), "--no-code", *verb] if before else [*tree.options(), *verb, "--no-code"]

    for verb in ("list", "status", "diff", "check", "apply", "revert", "record"):
        assert run(words(verb)) == 1, verb
        assert capsys.readouterr().err.startswith("code-refused: ")
    assert not ran.exists()
    for place in (tree.catalog / "patches").iterdir():
        place.unlink()
    hunk = unified_diff("engine/core.py", ENGINE.encode(), ENGINE.replace('"qwen"', '"qwen", "kimi"').encode())
    write_diff(tree.catalog, "engine_models", hunk)
    targets = (tree.catalog / "targets.toml").read_text().partition("# Written by")[0]
    (tree.catalog / "targets.toml").write_text(targets.replace(', "worker_unwrap"', ""))
    assert run(words("apply", "--allow-unlisted")) == 0
    assert run(words("check")) == 0
    assert run(words("revert")) == 0
    assert tree.engine.read_text() == ENGINE
