"""One file replaced by another."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from patchkit.replacement import stage, swap, sync_folder, write_whole


def failing(code: int):
    def fail(*_args: object, **_kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a file with something in it."""
    (tmp_path / "a.py").write_text("old")
    return tmp_path / "a.py"


def test_staged_file_waits_beside_and_is_swapped_in(place: Path) -> None:
    temporary = place.with_name(".a")
    stage(place, temporary, b"new", None)
    assert (place.read_text(), temporary.read_text()) == ("old", "new")
    swap(temporary, place)
    assert place.read_text() == "new"
    assert not temporary.exists()


def test_staging_never_follows_what_lies_in_its_way(place: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    (tmp_path / ".a").symlink_to("other")
    with pytest.raises(FileExistsError):
        stage(place, tmp_path / ".a", b"new", None)
    assert (tmp_path / "other").read_text() == "other"


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.EOPNOTSUPP])
def test_file_system_without_attributes(place: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "listxattr", failing(code))
    stage(place, place.with_name(".a"), b"new", None)
    assert place.with_name(".a").read_text() == "new"


def test_attributes_that_cannot_be_read_stop_the_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listxattr", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        stage(place, place.with_name(".a"), b"new", None)


def test_attribute_that_the_new_file_has_already_is_not_set(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listxattr", lambda *_: ["security.label"])
    monkeypatch.setattr(os, "getxattr", lambda *_: b"same")
    monkeypatch.setattr(os, "setxattr", failing(errno.EPERM))
    stage(place, place.with_name(".a"), b"new", None)
    assert place.with_name(".a").read_text() == "new"


def test_folder_that_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    sync_folder(tmp_path)  # a file system that does not know how
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        sync_folder(tmp_path)


def test_whole_file_or_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.with_name(".a.py.new").write_text("left by a killed run")
    write_whole(place, b"new")
    assert sorted(os.listdir(place.parent)) == ["a.py"]
    monkeypatch.setattr(os, "replace", failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        write_whole(place, b"newer")
    assert place.read_text() == "new"
    assert sorted(os.listdir(place.parent)) == ["a.py"]
