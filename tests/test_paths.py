from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from patchkit.errors import PathEscape
from patchkit.paths import is_safe, read_regular, resolve_in_root, resolve_within


@pytest.mark.parametrize("path", ["a.py", "a/b.py", ".a", "...", "a b.py", "a,b", "é.py", "a/..b/c", "a:b", "a\\b"])
def test_safe(path: str) -> None:
    assert is_safe(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "/",
        "/a",
        "//a",
        "../a",
        "a/../b",
        "a/..",
        "./a",
        "a/./b",
        "a/",
        "a//b",
        "a\0b",
        "a\nb",
        "a\x1b[31m",
        "a\u202eb",
        "a\udcff",
    ],
)
def test_unsafe(path: str) -> None:
    assert not is_safe(path)


def test_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\r\n\xff\0")
    assert read_regular(tmp_path / "a") == b"\r\n\xff\0"


def test_link_is_followed_unless_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"text")
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "link") == b"text"
    with pytest.raises(OSError, match="link") as caught:
        read_regular(tmp_path / "link", follow=False)
    assert caught.value.errno in (errno.ELOOP, errno.EMLINK)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "a")


def test_folder_is_refused_and_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = _next_descriptor()
    for _ in range(50):
        with pytest.raises(OSError, match=r"directory|regular"):
            read_regular(tmp_path)
    assert _next_descriptor() < before + 25


def _next_descriptor() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path / "a")


def test_device_does_not_answer() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(Path("/dev/zero"))


def test_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("a")
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(tmp_path / "a")


def test_giant_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(32 * 2**20)
    assert len(read_regular(tmp_path / "a")) == 32 * 2**20
    with (tmp_path / "a").open("ab") as file:
        file.write(b"x")
    with pytest.raises(OSError, match="larger than 33554432 bytes") as caught:
        read_regular(tmp_path / "a")
    assert caught.value.errno == errno.EFBIG


def test_within_gives_the_real_folder(tmp_path: Path) -> None:
    (tmp_path / "lib" / "pkg").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "lib" / "other").symlink_to("pkg")
    real = Path(os.path.realpath(tmp_path))
    assert resolve_within(tmp_path / "lib64", "pkg/a.py") == real / "lib" / "pkg" / "a.py"
    assert resolve_within(tmp_path / "lib", "other/a.py") == real / "lib" / "pkg" / "a.py"
    assert resolve_within(tmp_path / "lib", "a.py") == real / "lib" / "a.py"


def test_within_leaves_the_file_itself_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to("/etc/passwd")
    assert resolve_within(tmp_path, "a.py") == Path(os.path.realpath(tmp_path)) / "a.py"


@pytest.mark.parametrize("path", ["../a.py", "/etc/passwd", "a/../../b.py", "", ".", "a\0.py"])
def test_within_refuses_a_name_that_leaves(tmp_path: Path, path: str) -> None:
    with pytest.raises(PathEscape, match="is not a path below"):
        resolve_within(tmp_path, path)


@pytest.mark.parametrize("target", ["../outside", "/", "..", "../sites"], ids=["beside", "root", "parent", "prefix"])
def test_within_refuses_a_link_that_leaves(tmp_path: Path, target: str) -> None:
    for name in ("site", "sites", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "pkg").symlink_to(target)
    with pytest.raises(PathEscape, match=r"^pkg/a\.py leads out of .* through a link, to "):
        resolve_within(tmp_path / "site", "pkg/a.py")


ROOT_LINKS = {"etc/link": "/opt/real", "etc/up": "../../../opt/real", "etc/rel": "real", "opt/chain": "/etc/link"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("opt/a", "opt/a"),
        ("/opt/a", "opt/a"),
        ("./opt//a/", "opt/a"),
        ("../../opt/a", "opt/a"),
        ("opt/../../..", "."),
        ("opt/../etc/a", "etc/a"),
        ("etc/link", "opt/real"),
        ("etc/link/a", "opt/real/a"),
        ("etc/link/../a", "opt/a"),
        ("etc/up/a", "opt/real/a"),
        ("etc/rel", "etc/real"),
        ("opt/chain/a", "opt/real/a"),
        ("gone/a", "gone/a"),
        ("", "."),
    ],
)
def test_in_root(tmp_path: Path, path: str, expected: str) -> None:
    for name in ("opt/real", "etc/real"):
        (tmp_path / name).mkdir(parents=True)
    for name, target in ROOT_LINKS.items():
        (tmp_path / name).symlink_to(target)
    assert resolve_in_root(tmp_path, path) == Path(os.path.realpath(tmp_path), expected)


def test_in_root_refuses_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("/a")
    with pytest.raises(PathEscape, match=r"^a/c has too many links below"):
        resolve_in_root(tmp_path, "a/c")


def test_in_root_follows_forty_links(tmp_path: Path) -> None:
    for number in range(41):
        (tmp_path / f"l{number}").symlink_to(f"l{number + 1}")
    assert resolve_in_root(tmp_path, "l1") == Path(os.path.realpath(tmp_path), "l41")
    with pytest.raises(PathEscape, match=r"^l0 has too many links"):
        resolve_in_root(tmp_path, "l0")
