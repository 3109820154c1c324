"""Damaged input of every kind: only our own errors come out, and no file of the tree is lost."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchkit.cli import run
from tests.trees import Tree, make_tree

WORDS = (
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b"\r",
    b'"',
    b"'''",
    b",,",
    b"../",
    b"/etc/passwd",
    b"\\",
    b"sha256=",
    b"{",
    b"]" * 50,
    b"[" * 2000,
    b"9" * 5000,
    b"1e999",
    b"NaN",
    b"null",
    b"-1",
    b"true",
    b"[[x]]",
    b"= 1\n",
    b"\x1b[31m",
    "\u202e\ud7ff\U0010ffff".encode(),
    b"%s{0}$(x)",
)
"""What parsers trip over."""
FILES = {
    "RECORD": "lib/python3.11/site-packages/engine_cpu-1.5.dist-info/RECORD",
    "METADATA": "lib/python3.11/site-packages/engine_cpu-1.5.dist-info/METADATA",
    "journal": "lib/python3.11/site-packages/.patchkit/journal.json",
    "source": "lib/python3.11/site-packages/engine/core.py",
    "targets": "catalog/targets.toml",
    "patch": "catalog/patches/engine_models.py",
}
CONFIGURATION = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {"model_type": "kimi_k2", "num_hidden_layers": 8, "hidden_size": 64, "vocab_size": 512},
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "media_placeholder_token_id": 9,
}


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with a few edits: something cut out, put in, doubled or turned over."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        put = draw(st.sampled_from(WORDS) | st.binary(max_size=8) | st.just(data[start:end] * 2))
        data = data[:start] + put + data[end:]
    return data


@pytest.fixture(scope="module")
def applied() -> Iterator[Path]:
    """Give a folder with a catalog and a tree that has its patches."""
    with tempfile.TemporaryDirectory() as name:
        tree = make_tree(Path(name))
        assert run([*tree.options(), "apply"]) == 0
        yield Path(name)


def options(folder: Path) -> list[str]:
    return ["--site", str(folder / "lib/python3.11/site-packages"), "--catalog", str(folder / "catalog")]


@pytest.mark.parametrize("kind", FILES)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_file_gives_our_own_errors(applied: Path, kind: str, data: st.DataObject) -> None:
    place = applied / FILES[kind]
    whole = place.read_bytes()
    try:
        place.write_bytes(data.draw(damaged(whole)))
        for verb in (["status"], ["check"], ["diff"], ["revert", "--dry-run"], ["apply", "--dry-run"], ["list"]):
            assert run([*options(applied), *verb]) in (0, 1, 2), verb
    finally:
        place.write_bytes(whole)
    assert run([*options(applied), "check"]) == 0


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_damaged_journal_never_loses_a_file(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        tree = make_tree(Path(name))
        pristine = tree.engine.read_bytes()
        assert run([*tree.options(), "apply"]) == 0
        patched = tree.engine.read_bytes()
        journal = tree.site / ".patchkit/journal.json"
        journal.write_bytes(data.draw(damaged(journal.read_bytes())))
        assert run([*tree.options(), "revert"]) in (0, 1)
        assert tree.engine.read_bytes() in (pristine, patched)


@pytest.mark.parametrize("option", ["--model", "--draft"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_configuration_gives_our_own_errors(tree: Tree, option: str, data: st.DataObject) -> None:
    folder = tree.catalog.parent
    whole, broken = folder / "whole.json", folder / "broken.json"
    whole.write_text(json.dumps(CONFIGURATION))
    broken.write_bytes(data.draw(damaged(json.dumps(CONFIGURATION).encode())))
    other = "--draft" if option == "--model" else "--model"
    words = [option, str(broken), other, str(whole)]
    assert run(["--site", str(tree.site), "preflight", *words]) in (0, 1, 2)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=st.lists(st.sampled_from(WORDS) | st.binary(max_size=200), max_size=30).map(b"".join))
def test_any_log_is_read(tree: Tree, log: bytes) -> None:
    place = tree.catalog.parent / "log"
    place.write_bytes(b"RuntimeError: model is refused\n" + log)
    assert run([*tree.options(), "explain", str(place)]) in (0, 1)
