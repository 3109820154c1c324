"""Bytecode files of a module: which Python would load although they come from other source."""

from __future__ import annotations

import _imp
import os
from collections.abc import Iterable
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from patchkit.paths import inside, read_regular, real

_HEADER = 16
_CHECKED, _HASHED = 0b10, 0b01
_NEW_HASH = 3495  # magic number of the first release of Python 3.11


def find_bytecode(sources: Iterable[Path], pycache_prefix: Path | None = None, root: Path | None = None) -> list[Path]:
    """Return the bytecode files of a source file, of every tag and optimisation level.

    The sources are the spellings of one path: below a pycache prefix (PYTHONPYCACHEPREFIX) Python repeats the absolute
    folder of the source as ``sys.path`` spells it, links unresolved. Below a root no link leads out of it.
    """
    found: dict[Path, Path] = {}
    for source in sources:
        folders = [source.parent / "__pycache__"]
        if pycache_prefix is not None:
            folders.append(pycache_prefix / source.parent.relative_to(source.parent.anchor))
        for folder in (inside(folder, root) for folder in folders):
            found.update({real(place): place for place in _bytecode_in(folder, source.stem)})
    return list(found.values())


def _bytecode_in(folder: Path, stem: str) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in names if name.startswith(f"{stem}.") and name.endswith(".pyc")]


def is_stale(bytecode: Path, source: bytes, written: int | None) -> bool:
    """Tell whether Python would load a bytecode file that was not compiled from this source.

    ``written`` is when the source was put in place, in seconds since the epoch, where the journal knows it: bytecode
    that is older cannot come from it, even when it names the same size and modification time (cpython#121376).
    Format: PEP 552.
    """
    try:
        header = read_regular(bytecode)[:_HEADER]
        made = int(bytecode.stat().st_mtime)
    except OSError:
        return False
    if len(header) < _HEADER:
        return False
    flags = int.from_bytes(header[4:8], "little")
    if flags & _HASHED:
        return not flags & _CHECKED and header[8:] != _source_hash(header[:4], source)
    return written is not None and made < written


def _source_hash(magic: bytes, source: bytes) -> bytes | None:
    """Return the hash that a Python version gives a source; None when ours hashes otherwise (3.11 changed it)."""
    if (_number(magic) < _NEW_HASH) != (_number(MAGIC_NUMBER) < _NEW_HASH):
        return None
    return _imp.source_hash(int.from_bytes(magic, "little"), source)


def _number(magic: bytes) -> int:
    return int.from_bytes(magic[:2], "little")
