from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import JournalCorrupt
from patchkit.journal import FOLDER, Applied, Journal, Move, Pending, read_journal, read_object
from patchkit.record import digest

A, B = "a" * 64, "b" * 64
APPLIED = Applied(A, B, {"engine_models": A}, "0.1.0", 1700000000)
LINKED = Applied(B, A, {}, "0.1.0", 0, "../cache/\udcff.py")
PENDING = Pending(
    "0123456789abcdef",
    "/site",
    {"engine/core.py": Move(A, B, None), "engine/b.py": Move(B, A, "b.link")},
    {"engine/core.py": APPLIED},
)
JOURNAL = Journal({"engine/core.py": APPLIED, "engine/b.py": LINKED}, PENDING, "fedcba9876543210")


def write(site: Path, data: bytes | str) -> Path:
    (site / FOLDER).mkdir(exist_ok=True)
    place = site / FOLDER / "journal.json"
    place.write_bytes(data.encode() if isinstance(data, str) else data)
    return place


@pytest.mark.parametrize("journal", [Journal(), Journal({"a.py": APPLIED}), JOURNAL], ids=["empty", "one", "all"])
def test_reads_what_was_written(tmp_path: Path, journal: Journal) -> None:
    write(tmp_path, journal.to_bytes())
    assert read_journal(tmp_path) == journal


def test_text_of_an_empty_journal() -> None:
    assert Journal().to_bytes() == b'{\n "files": {},\n "last": "",\n "pending": null,\n "schema": 1\n}\n'


def test_text_does_not_depend_on_the_order() -> None:
    one, other = (dict.fromkeys(names, APPLIED) for names in (("a", "b"), ("b", "a")))
    assert Journal(one).to_bytes() == Journal(other).to_bytes()


def test_no_journal(tmp_path: Path) -> None:
    assert read_journal(tmp_path) == Journal({}, None, "")
    (tmp_path / FOLDER).mkdir()
    assert read_journal(tmp_path) == Journal()


def test_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_bytes(b"")
    assert read_journal(tmp_path) == Journal()


def refuse(site: Path, words: str) -> None:
    with pytest.raises(JournalCorrupt) as caught:
        read_journal(site)
    place = site / FOLDER / "journal.json"
    assert caught.value.message.startswith(f"{place} cannot be used: ")
    assert words in caught.value.message
    assert caught.value.hint.startswith(f"remove {place}; ")


TEXTS = {
    "empty": (b"", ""),
    "truncated": (JOURNAL.to_bytes()[:-20], ""),
    "not UTF-8": (b'{"schema": "\xff"}', "codec"),
    "NUL": (b"\0" * 9, ""),
    "nesting": (b"[" * 100_000, "recursion"),
    "many digits": (b'{"schema": ' + b"1" * 10_000 + b"}", ""),
    "a list": (b"[]", ""),
    "a string": (b'"schema"', ""),
    "null": (b"null", ""),
    "no keys": (b"{}", "schema"),
    "newer schema": (b'{"schema": 2}', "its schema is 2, not 1"),
}


@pytest.mark.parametrize(("data", "words"), TEXTS.values(), ids=TEXTS)
def test_text_that_is_no_journal(tmp_path: Path, data: bytes, words: str) -> None:
    write(tmp_path, data)
    refuse(tmp_path, words)


FILE = ("files", "engine/core.py")
MOVE = ("pending", "moves", "engine/core.py")
VALUES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "files is a list": (("files",), [], "a table is missing"),
    "files is null": (("files",), None, "a table is missing"),
    "file is text": (FILE, "x", "a table is missing"),
    "written is text": ((*FILE, "written"), "1", "written is not a number"),
    "written is a fraction": ((*FILE, "written"), 1.5, "written is not a number"),
    "patches is a list": ((*FILE, "patches"), ["a"], "a table is missing"),
    "revision is a number": ((*FILE, "patches", "engine_models"), 1, "1 is not a string"),
    "version is null": ((*FILE, "patchkit"), None, "None is not a string"),
    "link is a number": ((*FILE, "link"), 1, "1 is not a string"),
    "digest is short": ((*FILE, "pristine"), A[1:], "is not a digest"),
    "digest is a path": ((*FILE, "pristine"), "../../etc/passwd", "'../../etc/passwd' is not a digest"),
    "digest in capitals": ((*FILE, "sha256"), A.upper(), "is not a digest"),
    "digest with a line end": ((*FILE, "sha256"), f"{A}\n", "is not a digest"),
    "digest is null": ((*FILE, "sha256"), None, "None is not a string"),
    "last is a number": (("last",), 1, "1 is not a string"),
    "pending is text": (("pending",), "x", "a table is missing"),
    "id is a number": (("pending", "id"), 1, "1 is not a string"),
    "id is a path": (("pending", "id"), "x/../../y", "id"),
    "id with a NUL": (("pending", "id"), "x\0", "id"),
    "leader is null": (("pending", "leader"), None, "None is not a string"),
    "moves is a list": (("pending", "moves"), [], "a table is missing"),
    "move is null": (MOVE, None, "a table is missing"),
    "move from no digest": ((*MOVE, "before"), "x", "'x' is not a digest"),
    "move to no digest": ((*MOVE, "after"), 1, "1 is not a string"),
    "move of a numbered link": ((*MOVE, "link"), 1, "1 is not a string"),
    "pending files is a list": (("pending", "files"), [], "a table is missing"),
}


@pytest.mark.parametrize(("keys", "value", "words"), VALUES.values(), ids=VALUES)
def test_value_of_another_kind(tmp_path: Path, keys: tuple[str, ...], value: Any, words: str) -> None:
    document = json.loads(JOURNAL.to_bytes())
    table = document
    for key in keys[:-1]:
        table = table[key]
    assert keys[-1] in table
    table[keys[-1]] = value
    write(tmp_path, json.dumps(document))
    refuse(tmp_path, words)


KEYS = [("files",), ("pending",), ("last",), *((*FILE, key) for key in ("pristine", "sha256", "patches", "link"))]
KEYS += [(*FILE, "written"), (*FILE, "patchkit"), *(("pending", key) for key in ("id", "leader", "moves", "files"))]
KEYS += [(*MOVE, key) for key in ("before", "after", "link")]


@pytest.mark.parametrize("keys", KEYS, ids=".".join)
def test_key_left_out(tmp_path: Path, keys: tuple[str, ...]) -> None:
    document = json.loads(JOURNAL.to_bytes())
    table = document
    for key in keys[:-1]:
        table = table[key]
    del table[keys[-1]]
    write(tmp_path, json.dumps(document))
    refuse(tmp_path, keys[-1])


@pytest.mark.parametrize("path", ["../a.py", "/etc/passwd", "a/../../b", "", "a\0", "./a"])
@pytest.mark.parametrize("keys", [("files",), ("pending", "moves"), ("pending", "files")], ids=".".join)
def test_path_that_leaves(tmp_path: Path, keys: tuple[str, ...], path: str) -> None:
    document = json.loads(JOURNAL.to_bytes())
    table = document
    for key in keys:
        table = table[key]
    table[path] = table.pop("engine/core.py")
    write(tmp_path, json.dumps(document))
    refuse(tmp_path, f"{path!r} is not a path below the site folder")


def test_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", Journal().to_bytes())
    (tmp_path / FOLDER).symlink_to("elsewhere/.patchkit")
    refuse(tmp_path, "is a link")


def test_objects_that_are_a_link(tmp_path: Path) -> None:
    write(tmp_path, Journal().to_bytes())
    (tmp_path / FOLDER / "objects").symlink_to(tmp_path)
    refuse(tmp_path, "is a link")


def test_journal_that_is_a_link(tmp_path: Path) -> None:
    write(tmp_path, b"").rename(tmp_path / "journal.json")
    (tmp_path / FOLDER / "journal.json").symlink_to("../journal.json")
    refuse(tmp_path, "link")


def test_pipe_in_its_place(tmp_path: Path) -> None:
    write(tmp_path, b"").unlink()
    os.mkfifo(tmp_path / FOLDER / "journal.json")
    refuse(tmp_path, "not a regular file")


def test_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "journal.json").mkdir(parents=True)
    refuse(tmp_path, "not a regular file")


def test_object(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER / "objects"
    folder.mkdir(parents=True)
    (folder / digest(b"text")).write_bytes(b"text")
    (folder / A).write_bytes(b"other text")
    (folder / digest(b"link")).symlink_to(digest(b"text"))
    os.mkfifo(folder / B)
    assert read_object(tmp_path, digest(b"text")) == b"text"
    assert [read_object(tmp_path, name) for name in (A, B, digest(b"link"), digest(b"none"))] == [None] * 4
