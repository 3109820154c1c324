"""A builder of little wheels, right ones and wrong ones."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.trees import ENGINE, row

FILES = {
    "engine/__init__.py": b"",
    "engine/core.py": ENGINE.encode(),
    "engine/configs/E=8,N=512.json": b"{}",
    "engine/native.so": bytes(range(256)) * 64,
}
METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: 9 is not meant here\n"


def write_wheel(
    folder: Path,
    files: Mapping[str, bytes] = FILES,
    *,
    name: str = "engine_cpu",
    version: str = "1.5",
    metadata: str = METADATA,
    rows: Sequence[tuple[str, ...]] | None = None,
    more_rows: Sequence[tuple[str, ...]] = (),
    stem: str = "",
    end: str = "\n",
    tags: str = "py3-none-any",
) -> Path:
    """Write a wheel and return its place; ``rows`` replaces RECORD's, ``more_rows`` stand before its own."""
    stem = stem or f"{name}-{version}"
    members = {
        **files,
        f"{stem}.dist-info/METADATA": metadata.format(name=name, version=version).encode(),
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tags}\n".encode(),
    }
    record = f"{stem}.dist-info/RECORD"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    writer.writerows([row(path, data) for path, data in members.items()] if rows is None else rows)
    writer.writerows([*more_rows, (record, "", "")])
    place = folder / f"{name}-{version}-{tags}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place, "w") as archive:
        for number, (path, data) in enumerate({**members, record: text.getvalue().encode()}.items()):
            info = zipfile.ZipInfo(path, (2020 + number, 2, 3, 4, 6, 8))
            info.compress_type = zipfile.ZIP_STORED if path.endswith(".json") else zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            archive.writestr(info, data)
    return place


def contents(place: Path) -> dict[str, bytes]:
    """Return what a wheel holds, by name."""
    with zipfile.ZipFile(place) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}
