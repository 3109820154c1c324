from __future__ import annotations

import json

import pytest

from patchkit.errors import RecordMalformed
from patchkit.journal import Applied
from patchkit.marker import Marker, hold_against, read_marker
from patchkit.record import RecordRow, digest

A, B = "a" * 64, "b" * 64
MARKER = Marker("1.5", {"engine/core.py": Applied(A, B, {"engine_models": "r"}, "0.1.0", 0)})
DATA = MARKER.to_bytes("engine-cpu", "1.5+patchkit.0")
PATH = "engine_cpu-1.5.dist-info/patchkit.json"


def test_what_is_written_is_read() -> None:
    assert read_marker(DATA, PATH) == MARKER
    document = json.loads(DATA)
    assert (document["distribution"], document["version"]) == ("engine-cpu", "1.5+patchkit.0")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        DATA.replace(b'"schema": 1', b'"schema": 2'),
        DATA.replace(A.encode(), b"A"),
        DATA.replace(b"engine/core.py", b"../core.py"),
        DATA.replace(b'"upstream"', b'"downstream"'),
        DATA.replace(b'"1.5"', b'"1.5; reboot"'),
        DATA.replace(b'"1.5"', b"1.5"),
        b'{"schema": 1, "upstream": "1", "patchkit": "1", "files": {"a.py": 1}}',
        b'{"schema": 1, "upstream": "1", "patchkit": "1", "files": []}',
    ],
)
def test_marker_that_is_none(data: bytes) -> None:
    with pytest.raises(RecordMalformed, match=r"patchkit\.json cannot be used: "):
        read_marker(data, PATH)


def rows(marker: str, file: str | None) -> dict[str, RecordRow]:
    found = {PATH: RecordRow(PATH, marker, None)}
    return found if file is None else {**found, "engine/core.py": RecordRow("engine/core.py", file, None)}


def test_record_says_the_same() -> None:
    hold_against(MARKER, DATA, PATH, rows(digest(DATA), B))


@pytest.mark.parametrize("listed", [{}, rows(A, B)], ids=["not listed", "another digest"])
def test_marker_that_is_not_as_record_lists_it(listed: dict[str, RecordRow]) -> None:
    with pytest.raises(RecordMalformed, match=r"patchkit\.json is not as RECORD lists it$"):
        hold_against(MARKER, DATA, PATH, listed)


@pytest.mark.parametrize("file", [None, A])
def test_file_of_which_record_says_another_thing(file: str | None) -> None:
    with pytest.raises(RecordMalformed, match=r"and RECORD contradict each other about engine/core\.py$"):
        hold_against(MARKER, DATA, PATH, rows(digest(DATA), file))
