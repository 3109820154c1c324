from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.catalog import Catalog, load_catalog
from patchkit.cli import run
from patchkit.page import becomes, escaped, span, to_markdown
from patchkit.targets import Listing
from tests.support import CATALOG
from tests.trees import WORKER_PATCH, Tree, patch_text, write_catalog

ENGINE_PAGE = """\
### `engine_models`

The engine takes another model.

- Cures: `model is refused`
- For: engine `>=1.0,<2.0`
- Files: `engine/core.py`
- Upstream: released in 2.0
- Sets: `all`

It does not list it.
"""


def test_page_of_a_listed_catalog(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "list", "--markdown"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert ENGINE_PAGE in out
    assert "`all`, meant when no name is given: Everything.\n\n- [`engine_models`](#engine_models)\n" in out
    assert (
        "### Releases of engine\n\nWith digests: 1.5.\n\n| patch | 1.5 |\n| --- | --- |\n"
        "| [`engine_models`](#engine_models) | applicable |\n"
    ) in out


def test_page_without_releases(tmp_path: Path) -> None:
    page = to_markdown(load_catalog(write_catalog(tmp_path, {"engine_models": {}})))
    assert "### Releases" not in page
    assert page.endswith(ENGINE_PAGE)


def test_markdown_and_json(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "list", "--markdown", "--json"]) == 2
    assert "--markdown and --json exclude each other" in capsys.readouterr().err


def test_page_of_a_catalog_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--catalog", str(tmp_path), "list", "--markdown"]) == 1
    assert "catalog-missing" in capsys.readouterr().err


def with_releases(catalog: Catalog, **files: dict[str, Listing]) -> Catalog:
    releases = {("engine", version.lstrip("v").replace("_", ".")): listed for version, listed in files.items()}
    return replace(catalog, targets=catalog.targets._replace(releases=releases))


def test_matrix(tmp_path: Path) -> None:
    name, path, zero, one = "engine_models", "engine/core.py", "0" * 64, "1" * 64
    catalog = with_releases(
        load_catalog(write_catalog(tmp_path, {name: {}})),
        v0_9={path: Listing(zero, {})},
        v1_0={path: Listing(zero, {frozenset({name}): one})},
        v1_1={path: Listing(one, {frozenset({name}): zero})},
        v1_2={path: Listing(zero, {frozenset({name}): zero})},
        v1_3={path: Listing(zero, {frozenset({"other"}): zero})},
        v1_4={},
        v2_0={path: Listing(zero, {})},
        v2_1={},
    )
    row = "| – | applicable | upstream | not listed | upstream | upstream\\* |"
    assert f"| patch | 0.9 | 1.0 to 1.1 | 1.2 | 1.3 to 1.4 | 2.0 | 2.1 |\n{'| --- ' * 7}|\n" in to_markdown(catalog)
    assert f"| [`{name}`](#{name}) {row}\n" in to_markdown(catalog)


def test_what_is_said_of_a_patch(tmp_path: Path) -> None:
    text = patch_text(requires='{"worker": ">=1.0,<2.0"}', symptom="a `b` c", title="Take *all* | _x_ a_b `c_d`")
    text = text.replace('fixed_in="2.0"', 'fixed_in="2.0", issue="own-er/na.me_x#12", pull="see the <list>"')
    place = write_catalog(tmp_path, {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    (place / "patches/engine_models.py").write_text(text)
    page = to_markdown(load_catalog(place))
    assert "\nTake \\*all\\* \\| \\_x\\_ a_b `c_d`.\n" in page
    assert "- Cures: `` a `b` c ``\n" in page
    assert "- For: engine `>=1.0,<2.0`, only with worker `>=1.0,<2.0`\n" in page
    link = "[issue own-er/na.me_x\\#12](https://github.com/own-er/na.me_x/issues/12)"
    assert f"- Upstream: released in 2.0, {link}, pull see the \\<list\\>\n" in page


def test_patch_in_no_set_with_nothing_upstream(tmp_path: Path) -> None:
    place = write_catalog(tmp_path, {"engine_models": {}})
    alone = patch_text(status="unreported", fixed_in="")
    (place / "patches/alone.py").write_text(alone)
    page = to_markdown(load_catalog(place))
    assert "- Upstream: unreported\n- Sets: none\n" in page


def test_own_catalog_has_every_patch_and_every_release() -> None:
    page = to_markdown(CATALOG)
    assert re.findall(r"^### `(.*)`$", page, re.MULTILINE) == list(CATALOG.headers)
    for header in CATALOG.headers.values():
        assert header.patch.symptom in page
        assert all(f"`{path}`" in page for path in header.files)
    assert all(version in page for _, version in CATALOG.targets.releases)
    assert "not listed |" not in page
    assert "https://github.com/vllm-project/vllm/issues/31254" in page
    assert "https://github.com/vllm-project/vllm/pull/36361" in page


def test_escaped_keeps_code() -> None:
    assert escaped("`a*b` * `") == r"`a*b` \* \`"


def test_words() -> None:
    assert span(["1.0", "1.1"]) == "1.0 to 1.1"
    assert becomes(CATALOG, "vllm", "0.16.0", "kimi_k25_image_token") == "apply"
