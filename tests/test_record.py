from __future__ import annotations

import base64
import hashlib

import pytest

from patchkit.errors import RecordMalformed
from patchkit.record import RecordRow, digest, read_rows
from tests.trees import row

DATA = b"x = 1\n"
SHA256 = hashlib.sha256(DATA).hexdigest()
VALUE = row("a.py", DATA)[1].removeprefix("sha256=")
ROW = f"a.py,sha256={VALUE},6\n".encode()


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_digest_is_hexadecimal() -> None:
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "text",
    [
        ROW,
        ROW.rstrip(b"\n"),
        ROW.replace(b"\n", b"\r\n"),
        b'"a.py","sha256=%b","6"\n' % VALUE.encode(),
        ROW.replace(b",6", b"=,6"),
        b"\n\n" + ROW + b"\n",
        ROW + ROW,
        b"b.py,md5=AAAA,1\n" + ROW + b"b.py,,\n",
        b"../../../bin/tool,sha256=AAAA,1\n" + ROW,
        b"a/__pycache__/a.cpython-311.pyc,,\n" + ROW + b"a-1.dist-info/RECORD,,\n",
        b"b.py\nc.py,sha256\nd.py,a,b,c,d\n" + ROW,
        b'"a/E=8,N=512.json",sha256=AAAA,1\n' + ROW + "é,,\n".encode(),
    ],
    ids=[
        "as pip writes it",
        "no final newline",
        "CRLF",
        "quoted",
        "padded digest",
        "blank lines",
        "the same row twice",
        "other rows contradict each other",
        "scripts outside",
        "no digest elsewhere",
        "fields missing elsewhere",
        "commas and letters elsewhere",
    ],
)
def test_wanted_row_is_found(text: bytes) -> None:
    assert read_rows(text, {"a.py"}, "RECORD") == {"a.py": RecordRow("a.py", SHA256, 6)}


def test_size_is_optional() -> None:
    assert read_rows(ROW.replace(b",6", b","), {"a.py"}, "RECORD") == {"a.py": RecordRow("a.py", SHA256, None)}


def test_path_with_a_comma() -> None:
    text = b'"a,b.py",sha256=%b,6\n' % VALUE.encode()
    assert read_rows(text, {"a,b.py"}, "RECORD") == {"a,b.py": RecordRow("a,b.py", SHA256, 6)}


def test_digest_with_both_special_letters() -> None:
    raw = b"\xfb\xef\xff" + bytes(29)
    assert encode(raw).startswith("--__")
    assert read_rows(f"a.py,sha256={encode(raw)},".encode(), {"a.py"}, "RECORD")["a.py"].sha256 == raw.hex()


@pytest.mark.parametrize("text", [b"", b"\n", ROW.replace(b"a.py", b"./a.py"), ROW.replace(b"a.py", b"A.py")])
def test_unlisted_path_has_no_row(text: bytes) -> None:
    assert read_rows(text, {"a.py"}, "RECORD") == {}


def test_every_wanted_path_has_its_row() -> None:
    text = ROW + ROW.replace(b"a.py", b"b.py") + ROW.replace(b"a.py", b"c.py")
    assert list(read_rows(text, ["c.py", "a.py"], "RECORD")) == ["a.py", "c.py"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff,,\n" + ROW, "is not a RECORD file: 'utf-8' codec"),
        ("x = 'é'\n".encode("latin-1") + ROW, "is not a RECORD file"),
        (ROW.decode().encode("utf-16"), "is not a RECORD file"),
        (b'"a.py,,\n', "is not a RECORD file: unexpected end of data"),
        (b'"b"b,,\n' + ROW, "is not a RECORD file: ',' expected after"),
        (b"b" * 200_000 + b",,\n" + ROW, "is not a RECORD file: field larger than field limit"),
        (b"a.py\n", "a row for a.py with 1 fields, not 3"),
        (b"a.py,sha256=AAAA\n", "a row for a.py with 2 fields, not 3"),
        (ROW.replace(b"\n", b",x\n"), "a row for a.py with 4 fields, not 3"),
        (b"a.py,,\n", "no digest for a.py; patchkit needs sha256"),
        (b"a.py,,6\n" + ROW, "no digest for a.py"),
        (ROW + b"a.py,,\n", "no digest for a.py"),
        (f"a.py,md5={encode(bytes(16))},6\n".encode(), "a md5 digest for a.py; patchkit needs sha256"),
        (f"a.py,sha512={encode(bytes(64))},6\n".encode(), "a sha512 digest for a.py"),
        (f"a.py,{VALUE},6\n".encode(), "digest for a.py; patchkit needs sha256"),
        (b"a.py,sha256,6\n", "a digest of 0 bytes for a.py, not 32"),
        (b"a.py,sha256=,6\n", "a digest of 0 bytes for a.py, not 32"),
        (f"a.py,sha256={encode(bytes(31))},6\n".encode(), "a digest of 31 bytes for a.py, not 32"),
        (f"a.py,sha256={encode(bytes(64))},6\n".encode(), "a digest of 64 bytes for a.py, not 32"),
        (b"a.py,sha256=A,6\n", "a malformed row for a.py"),
        (f"a.py,sha256={VALUE[:-1]}é,6\n".encode(), "a malformed row for a.py"),
        (f"a.py,sha256={VALUE[:8]}!!!!{VALUE[8:]},6\n".encode(), "for a.py"),
        (f"a.py,sha256={VALUE} ,6\n".encode(), "for a.py"),
        (f"a.py,sha256={SHA256},6\n".encode(), "a digest of 48 bytes for a.py, not 32"),
        (ROW.replace(b",6", b",six"), "a malformed row for a.py"),
        (ROW.replace(b",6", b",6.0"), "a malformed row for a.py"),
        (ROW + ROW.replace(VALUE.encode(), encode(bytes(32)).encode()), "lists a.py twice, with different digests"),
        (ROW + ROW.replace(b",6", b",7"), "lists a.py twice"),
    ],
    ids=[
        "not UTF-8",
        "latin-1",
        "UTF-16",
        "open quote",
        "text after a quote",
        "huge field",
        "path alone",
        "two fields",
        "four fields",
        "no digest",
        "no digest, then one",
        "a digest, then none",
        "md5",
        "sha512",
        "digest without its name",
        "name without a digest",
        "empty digest",
        "short digest",
        "sha512 under another name",
        "truncated letters",
        "letters beyond ASCII",
        "foreign letters in the digest",
        "blank after the digest",
        "hexadecimal digest",
        "size in words",
        "size with a fraction",
        "two digests",
        "two sizes",
    ],
)
def test_refused(text: bytes, words: str) -> None:
    with pytest.raises(RecordMalformed, match=r"^engine/RECORD ") as caught:
        read_rows(text, {"a.py"}, "engine/RECORD")
    assert words in caught.value.message
    assert caught.value.hint == "reinstall the distribution; its RECORD cannot be trusted"
