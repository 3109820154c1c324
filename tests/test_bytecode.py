from __future__ import annotations

import _imp
import importlib.util
import os
import py_compile
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from patchkit.bytecode import find_bytecode, is_stale

SOURCE = b"x = 1\n"
OTHER = b"x = 2\n"
MODES = py_compile.PycInvalidationMode


def touch(*places: Path) -> list[Path]:
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")
    return list(places)


def test_every_tag_and_level_is_found(tmp_path: Path) -> None:
    cache = tmp_path / "__pycache__"
    found = touch(*(cache / f"core.{tag}.pyc" for tag in ("cpython-311", "cpython-311.opt-1", "cpython-312", "pypy39")))
    touch(
        cache / "core2.cpython-311.pyc", cache / "corecpython.pyc", cache / "core.cpython-311.pyc.123", cache / "core"
    )
    touch(tmp_path / "core.pyc", cache / "deeper" / "core.cpython-311.pyc")
    assert find_bytecode([tmp_path / "core.py"]) == sorted(found)


def test_none_without_a_folder(tmp_path: Path) -> None:
    assert find_bytecode([tmp_path / "core.py"]) == []
    (tmp_path / "__pycache__").write_bytes(b"")
    assert find_bytecode([tmp_path / "core.py"]) == []


def test_prefix_repeats_the_folder(tmp_path: Path) -> None:
    prefix, name = tmp_path / "prefix", "core.cpython-311.pyc"
    beside = tmp_path / "site" / "__pycache__" / name
    below = prefix / (tmp_path / "site").relative_to("/") / name
    touch(beside, below, prefix / name)
    assert find_bytecode([tmp_path / "site" / "core.py"], prefix) == [beside, below]
    assert find_bytecode([tmp_path / "site" / "other.py"], prefix) == []


def test_prefix_is_where_python_looks(tmp_path: Path) -> None:
    (tmp_path / "core.py").write_bytes(SOURCE)
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path / "prefix"), "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", "import core"], cwd=tmp_path, env=environment, check=True)
    (made,) = find_bytecode([tmp_path / "core.py"], tmp_path / "prefix")
    assert made.is_relative_to(tmp_path / "prefix")


def compiled(folder: Path, mode: py_compile.PycInvalidationMode, source: bytes = SOURCE) -> Path:
    (folder / "core.py").write_bytes(source)
    return Path(str(py_compile.compile(str(folder / "core.py"), invalidation_mode=mode, doraise=True)))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_bytecode_of_the_source_is_not_stale(tmp_path: Path, mode: py_compile.PycInvalidationMode) -> None:
    made = compiled(tmp_path, mode)
    assert not is_stale(made, SOURCE, None)
    assert not is_stale(made, SOURCE, int(made.stat().st_mtime))


@pytest.mark.parametrize(
    ("mode", "stale"), [(MODES.UNCHECKED_HASH, True), (MODES.CHECKED_HASH, False), (MODES.TIMESTAMP, False)]
)
def test_bytecode_of_other_source(tmp_path: Path, mode: py_compile.PycInvalidationMode, stale: bool) -> None:
    assert is_stale(compiled(tmp_path, mode, OTHER), SOURCE, None) is stale


@pytest.mark.parametrize(
    ("mode", "later", "stale"),
    [
        (MODES.TIMESTAMP, 0, False),
        (MODES.TIMESTAMP, 1, True),
        (MODES.CHECKED_HASH, 1, False),
        (MODES.UNCHECKED_HASH, 1, False),
    ],
)
def test_bytecode_older_than_the_source(
    tmp_path: Path, mode: py_compile.PycInvalidationMode, later: int, stale: bool
) -> None:
    made = compiled(tmp_path, mode)
    os.utime(made, (1000, 1000))
    assert is_stale(made, SOURCE, 1000 + later) is stale


@pytest.mark.parametrize("size", [0, 4, 15])
def test_bytecode_without_a_whole_header_is_not_loaded(tmp_path: Path, size: int) -> None:
    made = compiled(tmp_path, MODES.UNCHECKED_HASH, OTHER)
    made.write_bytes(made.read_bytes()[:size])
    os.utime(made, (0, 0))
    assert not is_stale(made, SOURCE, 1000)


def unchecked(place: Path, number: int) -> Path:
    """Write the head of an unchecked bytecode file of a Python with some magic number, made from the source."""
    magic = number.to_bytes(2, "little") + b"\r\n"
    place.write_bytes(magic + (0b01).to_bytes(4, "little") + _imp.source_hash(int.from_bytes(magic, "little"), SOURCE))
    return place


def test_bytecode_of_another_python_is_compared_with_its_own_key(tmp_path: Path) -> None:
    own = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")
    made = unchecked(tmp_path / "a.pyc", own + 1)
    assert not is_stale(made, SOURCE, None)
    assert is_stale(made, OTHER, None)
    assert made.read_bytes()[8:] != importlib.util.source_hash(SOURCE)


def test_bytecode_of_a_python_with_another_hash_is_not_vouched_for(tmp_path: Path) -> None:
    own = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")
    made = unchecked(tmp_path / "a.pyc", 3600 if own < 3495 else 3439)
    assert is_stale(made, SOURCE, None)


def test_spellings_of_one_folder_are_found_once(tmp_path: Path) -> None:
    (found,) = touch(tmp_path / "real" / "__pycache__" / "core.cpython-311.pyc")
    (tmp_path / "link").symlink_to("real")
    sources = [tmp_path / "real" / "core.py", tmp_path / "link" / "core.py"]
    assert [place.resolve() for place in find_bytecode(sources)] == [found]
    (below,) = touch(tmp_path / "prefix" / (tmp_path / "link").relative_to("/") / "core.cpython-311.pyc")
    assert below in find_bytecode(sources, tmp_path / "prefix")


def test_absent_or_unreadable_bytecode_is_not_loaded(tmp_path: Path) -> None:
    assert not is_stale(tmp_path / "a.pyc", SOURCE, 1000)
    (tmp_path / "b.pyc").mkdir()
    assert not is_stale(tmp_path / "b.pyc", SOURCE, 1000)


def test_pipe_does_not_block(tmp_path: Path) -> None:
    place = tmp_path / "a.pyc"
    os.mkfifo(place)
    reader = threading.Thread(target=is_stale, args=(place, SOURCE, 1000), daemon=True)
    reader.start()
    reader.join(5)
    is_blocked = reader.is_alive()
    if is_blocked:
        os.close(os.open(place, os.O_WRONLY))
        reader.join()
    assert not is_blocked
