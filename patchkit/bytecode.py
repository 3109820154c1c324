"""Bytecode files of a module: which Python would load although they come from other source."""

from __future__ import annotations

import _imp
import os
from pathlib import Path

_HEADER = 16
_CHECKED, _HASHED = 0b10, 0b01


def find_bytecode(source: Path, pycache_prefix: Path | None = None) -> list[Path]:
    """Return the bytecode files of a source file, of every tag and optimisation level.

    Below a pycache prefix (PYTHONPYCACHEPREFIX) Python repeats the absolute folder of the source.
    """
    folders = [source.parent / "__pycache__"]
    if pycache_prefix is not None:
        folders.append(pycache_prefix / source.parent.relative_to(source.parent.anchor))
    found = []
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        found += [folder / name for name in names if name.startswith(f"{source.stem}.") and name.endswith(".pyc")]
    return found


def is_stale(bytecode: Path, source: bytes, written: int | None) -> bool:
    """Tell whether Python would load a bytecode file that was not compiled from this source.

    ``written`` is when the source was put in place, in seconds since the epoch, where the journal knows it: bytecode
    that is older cannot come from it, even when it names the same size and modification time (cpython#121376).
    Format: PEP 552.
    """
    try:
        with bytecode.open("rb") as file:
            header = file.read(_HEADER)
            made = int(os.fstat(file.fileno()).st_mtime)
    except OSError:
        return False
    if len(header) < _HEADER:
        return False
    flags = int.from_bytes(header[4:8], "little")
    if flags & _HASHED:
        key = int.from_bytes(header[:4], "little")
        return not flags & _CHECKED and header[8:] != _imp.source_hash(key, source)
    return written is not None and made < written
