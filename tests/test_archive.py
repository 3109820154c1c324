from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

import pytest

from patchkit.archive import copy_member, open_archive, open_wheel, read_member, verify, write_member
from patchkit.errors import PatchkitError, PathEscape, RecordMalformed, RecordMissing, WheelInvalid
from tests.trees import row
from tests.wheelfiles import FILES, contents, write_wheel

META = "engine_cpu-1.5.dist-info"


def look(place: Path) -> None:
    with open_wheel(place) as wheel:
        verify(wheel)


def refused(place: Path, error: type[PatchkitError], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        look(place)
    assert type(caught.value) is error
    assert caught.value.hint


def append(place: Path, name: str, data: bytes = b"", **fields: int) -> None:
    """Add a member to a wheel, as its maker would not."""
    with zipfile.ZipFile(place, "a") as archive:
        info = zipfile.ZipInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        archive.writestr(info, data)


def edit(place: Path, name: str, format_: str, offset: int, value: int) -> None:
    """Change a field of a member's entry in the directory at the end of the archive."""
    data = bytearray(place.read_bytes())
    start = data.rindex(name.encode()) - 46
    struct.pack_into(format_, data, start + offset, value)
    place.write_bytes(data)


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"PK\5\6" + bytes(18), b"text"])
def test_no_archive(tmp_path: Path, data: bytes) -> None:
    place = tmp_path / "engine_cpu-1.5-py3-none-any.whl"
    place.write_bytes(data)
    with pytest.raises((WheelInvalid, RecordMissing)):
        look(place)


@pytest.mark.parametrize("name", ["engine.whl", "engine-new-py3-none-any.whl", "engine-1.5-py3-none-any.zip"])
def test_name_that_is_no_wheel(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    write_wheel(tmp_path).rename(place)
    refused(place, WheelInvalid, rf"{name} is not a wheel: ")


def test_no_file(tmp_path: Path) -> None:
    refused(tmp_path / "engine_cpu-1.5-py3-none-any.whl", WheelInvalid, "is not a wheel: .*No such file")


def test_pipe_does_not_block(tmp_path: Path) -> None:
    place = tmp_path / "engine_cpu-1.5-py3-none-any.whl"
    os.mkfifo(place)
    refused(place, WheelInvalid, "not a regular file")


@pytest.mark.parametrize(
    "name", ["../out.py", "/etc/passwd", "engine/../../x", "engine//x", "./x", "a\\b", "a\nb", "x\x1b"]
)
def test_name_that_leads_out_of_the_wheel(tmp_path: Path, name: str) -> None:
    place = write_wheel(tmp_path)
    append(place, name)
    refused(place, PathEscape, "is not a path that a wheel may hold")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_member_twice(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    append(place, "engine/core.py", b"other")
    refused(place, WheelInvalid, "engine/core.py is there twice")


def test_name_with_a_null(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    append(place, "engine/core.pyXevil")
    place.write_bytes(place.read_bytes().replace(b"core.pyXevil", b"core.py\0evil"))
    refused(place, WheelInvalid, "has a name that tools read in different ways")


def test_encrypted_member(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    edit(place, "engine/core.py", "<H", 8, 1)
    refused(place, WheelInvalid, "'engine/core.py' is encrypted")


@pytest.mark.parametrize(("offset", "value"), [(6, 45), (10, 14)], ids=["zip64", "lzma"])
def test_feature_that_wheels_do_without(tmp_path: Path, offset: int, value: int) -> None:
    place = write_wheel(tmp_path)
    edit(place, "engine/core.py", "<H", offset, value)
    refused(place, WheelInvalid, "needs a feature of the ZIP format")


def test_members_that_overlap(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    edit(place, "engine/core.py", "<L", 42, 10)
    refused(place, WheelInvalid, "overlaps another member")


def test_directory_and_header_name_another_member(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    data = place.read_bytes()
    place.write_bytes(data.replace(b"engine/core.py", b"engine/bore.py", 1))
    refused(place, WheelInvalid, r"engine/core.py cannot be read: File name in directory")


def test_broken_bytes(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    data = bytearray(place.read_bytes())
    start = data.index(b"engine/native.so") + len("engine/native.so")
    data[start : start + 4] = b"\xff\xff\xff\xff"
    place.write_bytes(data)
    refused(place, WheelInvalid, "engine/native.so cannot be read: ")


def test_broken_record(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    data = bytearray(place.read_bytes())
    start = data.index(f"{META}/RECORD".encode()) + len(f"{META}/RECORD")
    data[start : start + 4] = b"\xff\xff\xff\xff"
    place.write_bytes(data)
    refused(place, WheelInvalid, "RECORD cannot be read: ")


def test_record_that_is_too_large_to_be_read(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    edit(place, f"{META}/RECORD", "<L", 24, 2**30)
    refused(place, WheelInvalid, "RECORD has 1073741824 bytes, too many to be read")


def test_no_record(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    place.write_bytes(place.read_bytes().replace(b"/RECORD", b"/RECORX"))
    refused(place, RecordMissing, "has 0 RECORD files, not 1")


def test_two_records(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    append(place, "other-1.dist-info/RECORD")
    refused(place, RecordMissing, "has 2 RECORD files, not 1")


@pytest.mark.parametrize("stem", ["engine_cpu-1.6", "engine-1.5", "engine_cpu-new", "engine"])
def test_metadata_of_another_wheel(tmp_path: Path, stem: str) -> None:
    refused(write_wheel(tmp_path, stem=stem), WheelInvalid, f"has the metadata of {stem}, and its name says engine-cpu")


@pytest.mark.parametrize("suffix", ["jws", "p7s"])
def test_signature(tmp_path: Path, suffix: str) -> None:
    place = write_wheel(tmp_path)
    append(place, f"{META}/RECORD.{suffix}")
    refused(place, WheelInvalid, f"RECORD.{suffix}: a signature of RECORD, which is not true of a patched wheel")


def test_file_that_record_does_not_list(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    append(place, "engine/extra.py")
    refused(place, RecordMalformed, "does not list engine/extra.py, which the wheel holds")


def test_digest_that_is_another(tmp_path: Path) -> None:
    rows = [row(path, b"{}" + data[2:] if path.endswith(".so") else data) for path, data in FILES.items()]
    refused(write_wheel(tmp_path, rows=rows), RecordMalformed, r"engine/native.so differs from the RECORD of ")


def test_size_that_is_another(tmp_path: Path) -> None:
    rows = [(*row(path, data)[:2], str(len(data) + 1)) for path, data in FILES.items()]
    refused(
        write_wheel(tmp_path, rows=rows), RecordMalformed, r"engine/__init__.py has 0 bytes, and RECORD of .* says 1"
    )


def test_row_without_a_size(tmp_path: Path) -> None:
    with open_wheel(write_wheel(tmp_path)) as wheel:
        rows = [(*row(name, wheel.read(name))[:2], "") for name in wheel.members if not name.endswith("RECORD")]
    look(write_wheel(tmp_path, rows=rows))


def test_folders_have_no_row(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    append(place, "engine/empty/")
    look(place)


def test_right_wheel(tmp_path: Path) -> None:
    with open_wheel(write_wheel(tmp_path, version="1.5.RC1", tags="1-py3-none-any")) as wheel:
        assert (wheel.name, str(wheel.version), wheel.stem) == ("engine-cpu", "1.5rc1", "engine_cpu-1.5.RC1")
        assert set(verify(wheel)) == set(wheel.members) - {"engine_cpu-1.5.RC1.dist-info/RECORD"}


@pytest.mark.parametrize("flags", [0, 8], ids=["sizes in the header", "sizes behind the bytes"])
def test_members_are_copied_as_they_are(tmp_path: Path, flags: int) -> None:
    place = write_wheel(tmp_path)
    if flags:
        place = with_descriptors(place)
    out = tmp_path / "out.zip"
    with open_wheel(place) as wheel, zipfile.ZipFile(out, "w") as archive:
        for name, info in wheel.members.items():
            if name == "engine/core.py":
                write_member(info, archive, "engine/score.py", b"new")
            else:
                copy_member(wheel, info, archive, name.replace(META, "other"))
    before, after = contents(place), contents(out)
    assert list(after) == [name.replace(META, "other").replace("core.py", "score.py") for name in before]
    assert after.pop("engine/score.py") == b"new"
    assert list(after.values()) == [data for name, data in before.items() if name != "engine/core.py"]
    with zipfile.ZipFile(place) as one, zipfile.ZipFile(out) as other:
        assert other.testzip() is None
        for old, new in zip(one.infolist(), other.infolist()):
            assert (old.date_time, old.external_attr, old.compress_type) == (
                new.date_time,
                new.external_attr,
                new.compress_type,
            )
            assert new.flag_bits & 8 == 0


def with_descriptors(place: Path) -> Path:
    """Write a wheel anew to a stream that cannot be wound back: sizes then stand behind the bytes."""

    class Stream:
        def __init__(self, file: object) -> None:
            self.write, self.flush = file.write, file.flush  # type: ignore[attr-defined]

    other = place.with_name("other") / place.name
    other.parent.mkdir()
    with zipfile.ZipFile(place) as archive, other.open("wb") as file, zipfile.ZipFile(Stream(file), "w") as fresh:  # type: ignore[call-overload]
        for info in archive.infolist():
            fresh.writestr(info, archive.read(info))
    with zipfile.ZipFile(other) as archive:
        assert all(info.flag_bits & 8 for info in archive.infolist())
    return other


def test_member_that_ends_too_soon(tmp_path: Path) -> None:
    with open_wheel(write_wheel(tmp_path)) as wheel, zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
        info = wheel.members["engine/core.py"]
        info.compress_size = 10**6
        with pytest.raises(EOFError, match=r"engine/core\.py ends too soon"):
            copy_member(wheel, info, archive, "x")


def test_directory_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    place = write_wheel(tmp_path)
    data = bytearray(place.read_bytes())
    end, size = data.rindex(b"PK\5\6"), 40 * 2**20
    start = struct.unpack_from("<L", data, end + 16)[0]
    struct.pack_into("<L", data, end + 12, size)
    with place.open("wb") as file:
        file.write(data[:start])
        file.seek(start + size)
        file.write(data[end:])
    refused(place, WheelInvalid, "its directory is too large")


def test_member_that_is_larger_than_it_says(tmp_path: Path) -> None:
    place = tmp_path / "one.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("RECORD", bytes(33 * 2**20))
    with open_archive(place) as opened, pytest.raises(zipfile.BadZipFile, match="it is too large"):
        read_member(opened, "RECORD")
    edit(place, "RECORD", "<L", 24, 10)
    with open_archive(place) as opened, pytest.raises(zipfile.BadZipFile, match="Bad CRC"):
        read_member(opened, "RECORD")
