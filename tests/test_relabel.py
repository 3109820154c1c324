from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from patchkit.archive import open_wheel
from patchkit.errors import RecordMalformed, RecordMissing, WheelInvalid
from patchkit.proof import set_digest
from patchkit.relabel import (
    patched_metadata,
    patched_name,
    patched_record,
    patched_stem,
    patched_version,
    renamed,
)
from tests.trees import row
from tests.wheelfiles import FILES, METADATA, write_wheel

DIGESTS = {"engine/core.py": "ab" * 32}
LABEL = set_digest(DIGESTS)[:12]
NEW = Version("1.5+patchkit.0")


@pytest.mark.parametrize(
    ("version", "patched"),
    [
        ("0.16.0", f"0.16.0+patchkit.{LABEL}"),
        ("0.16.0+cu129", f"0.16.0+cu129.patchkit.{LABEL}"),
        ("1!0.16rc1.post2.dev3", f"1!0.16rc1.post2.dev3+patchkit.{LABEL}"),
    ],
)
def test_label_follows_what_is_there(version: str, patched: str) -> None:
    assert str(patched_version(Version(version), DIGESTS)) == patched


def test_label_that_is_a_number_is_written_as_versions_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchkit.relabel.set_digest", lambda digests: "000000000012" + "a" * 52)
    version = patched_version(Version("1"), DIGESTS)
    assert str(version) == "1+patchkit.12" == str(Version(str(version)))


def test_names(tmp_path: Path) -> None:
    place = write_wheel(tmp_path, version="1.5.RC1", tags="7-cp38-abi3-manylinux_2_28_x86_64")
    with open_wheel(place) as wheel:
        assert patched_name(wheel, NEW) == "engine_cpu-1.5+patchkit.0-7-cp38-abi3-manylinux_2_28_x86_64.whl"
        stem = patched_stem(wheel, NEW)
        assert stem == "engine_cpu-1.5+patchkit.0"
        paths = [f"{wheel.stem}.dist-info/WHEEL", f"{wheel.stem}.data/scripts/x", f"{wheel.stem}.other/x", "engine/a"]
        assert [renamed(wheel, path, stem) for path in paths] == [
            f"{stem}.dist-info/WHEEL",
            f"{stem}.data/scripts/x",
            *paths[2:],
        ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_version_in_the_head_of_metadata(tmp_path: Path, end: str) -> None:
    text = METADATA.replace("\n", end)
    with open_wheel(write_wheel(tmp_path, metadata=text)) as wheel:
        assert patched_metadata(wheel, NEW).decode() == text.format(name="engine_cpu", version=NEW)


def test_metadata_without_a_body(tmp_path: Path) -> None:
    with open_wheel(write_wheel(tmp_path, metadata="Name: engine_cpu\nversion:   1.5.0")) as wheel:
        assert patched_metadata(wheel, NEW) == b"Name: engine_cpu\nversion:   1.5+patchkit.0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Name: engine\n\nVersion: 1.5\n", "none"),
        ("Version: 1.6\n", "1.6"),
        ("Version: new\n", "new"),
        ("Version: é\n", r"\\xc3\\xa9|é"),
        ("Version: 1.5\nVersion: 1.5\n", "1.5, 1.5"),
    ],
)
def test_metadata_of_another_version(tmp_path: Path, text: str, said: str) -> None:
    words = rf"is of 1\.5, and its METADATA gives the version {said}"
    with open_wheel(write_wheel(tmp_path, metadata=text)) as wheel, pytest.raises(WheelInvalid, match=words):
        patched_metadata(wheel, NEW)


def test_no_metadata(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    place.write_bytes(place.read_bytes().replace(b"/METADATA", b"/METADATO"))
    with open_wheel(place) as wheel, pytest.raises(RecordMissing, match="has no METADATA"):
        patched_metadata(wheel, NEW)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows_that_change(tmp_path: Path, end: str) -> None:
    path = "engine/configs/E=8,N=512.json"
    with open_wheel(write_wheel(tmp_path, {**FILES, "engine_cpu-1.5.data/scripts/x": b"x"}, end=end)) as wheel:
        before = wheel.read(f"{wheel.metadata}/RECORD").decode()
        after = patched_record(wheel, "engine_cpu-2", {path: b"new"}, {"engine_cpu-2.dist-info/m": b"m"}).decode()
    changed = before.replace("engine_cpu-1.5", "engine_cpu-2").replace(
        ",".join(row(path, FILES[path])[1:]), ",".join(row(path, b"new")[1:])
    )
    *rows, own = changed.splitlines(keepends=True)
    assert after == "".join([*rows, ",".join(row("engine_cpu-2.dist-info/m", b"m")) + end, own])
    assert f'"{path}",sha256=' in after


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("engine/gone.py", "sha256=AAAA", "1")], "lists 'engine/gone.py', which the wheel does not hold"),
        ([("../../bin/x", "", "")], r"lists '\.\./\.\./bin/x', which the wheel does not hold"),
        ([()], "has a row that is none"),
        ([("a\nb", "", "")], "has a row that is none"),
        ([("engine_cpu-1.5.dist-info/RECORD", "", "")], "does not list itself once"),
    ],
)
def test_row_of_nothing(tmp_path: Path, rows: list[tuple[str, ...]], words: str) -> None:
    with open_wheel(write_wheel(tmp_path, more_rows=rows)) as wheel, pytest.raises(RecordMalformed, match=words):
        patched_record(wheel, "engine_cpu-2", {}, {})
