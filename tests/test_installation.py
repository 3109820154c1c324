from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from packaging.version import Version

from patchkit.environment import Environment
from patchkit.errors import EditableInstall, PathEscape, RecordMalformed, RecordMissing, SourceUnreadable, TargetError
from patchkit.installation import (
    Installation,
    Source,
    _Candidate,
    find_installation,
    normalise,
    read_link,
    read_record,
    read_source,
)
from patchkit.record import RecordRow, digest
from patchkit.targets import Target
from tests.trees import ENGINE, install, row

TARGET = Target("engine", "engine", ("engine", "engine-cpu"))
PATH = "engine/core.py"
FILES = {"engine/__init__.py": "", PATH: ENGINE}


def environment(*sites: Path, root: Path | None = None) -> Environment:
    return Environment(None, (3, 11), sites, root=root)


def find(*sites: Path, root: Path | None = None) -> Installation | None:
    return find_installation(TARGET, environment(*sites, root=root), [PATH])


def found(*sites: Path, root: Path | None = None) -> Installation:
    installation = find(*sites, root=root)
    assert installation is not None
    return installation


@pytest.mark.parametrize("name", ["Engine_CPU", "engine.cpu", "engine--cpu", "ENGINE-cpu", "engine-_.cpu"])
def test_names_are_compared_as_pep_503_does(name: str) -> None:
    assert normalise(name) == "engine-cpu"


def test_installation(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.5+cpu", {**FILES, "engine/other.py": ""})
    data = ENGINE.encode()
    assert find(tmp_path) == Installation(
        TARGET,
        "engine",
        Version("1.5+cpu"),
        tmp_path,
        {
            "engine/__init__.py": RecordRow("engine/__init__.py", digest(b""), 0),
            PATH: RecordRow(PATH, digest(data), len(data)),
        },
        tmp_path / "engine-1.5+cpu.dist-info",
    )
    assert found(tmp_path).reinstall == "pip install --force-reinstall --no-deps engine==1.5+cpu"


@pytest.mark.parametrize("names", [[], ["engine-2.0.dist-info.txt", "engine_other-1.dist-info", "engine"]])
def test_not_installed(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    assert find(tmp_path) is None
    assert find() is None


def test_alias_beside_the_owner(tmp_path: Path) -> None:
    install(tmp_path, "engine", "9.9", {"engine_alias.py": ""})
    install(tmp_path, "engine-cpu", "1.5", FILES)
    assert (found(tmp_path).distribution, found(tmp_path).version) == ("engine-cpu", Version("1.5"))


def test_name_as_its_author_spells_it(tmp_path: Path) -> None:
    install(tmp_path, "Engine.CPU", "1.5", FILES)
    assert found(tmp_path).distribution == "engine-cpu"


def test_first_folder_wins(tmp_path: Path) -> None:
    install(tmp_path / "b", "engine", "1.5", FILES)
    install(tmp_path / "c", "engine", "1.6", FILES)
    (tmp_path / "a").mkdir()
    assert found(*(tmp_path / name for name in "abc")).site == tmp_path / "b"


def test_two_folders_below_a_root(tmp_path: Path) -> None:
    install(tmp_path / "b", "engine", "1.5", FILES)
    install(tmp_path / "c", "engine", "1.6", FILES)
    with pytest.raises(TargetError, match=r"^engine is installed more than once below the root: .*/b, .*/c$"):
        find(tmp_path / "b", tmp_path / "c", root=tmp_path)
    assert found(tmp_path / "b", root=tmp_path).version == Version("1.5")


@pytest.mark.parametrize("name", ["absent", "file"])
def test_folder_that_cannot_be_listed(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TargetError, match=rf"/{name} cannot be listed: "):
        find(tmp_path / name)


def test_two_owners_that_agree(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.5", FILES)
    install(tmp_path, "engine-cpu", "1.5", FILES)
    assert found(tmp_path).version == Version("1.5")


def test_two_owners_that_differ(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.5", FILES)
    install(tmp_path, "engine-cpu", "1.5", {**FILES, PATH: "other"})
    words = r"engine-1\.5\.dist-info and engine_cpu-1\.5\.dist-info both list the files of engine, with different"
    with pytest.raises(TargetError, match=words) as caught:
        find(tmp_path)
    assert caught.value.hint == "uninstall both and install one of them: pip uninstall engine engine-cpu"


def test_metadata_of_two_releases(tmp_path: Path) -> None:
    for version in ("1.5", "1.6"):
        install(tmp_path, "engine", version, FILES)
    words = r"engine-1\.5\.dist-info and engine-1\.6\.dist-info are both in .*, and one release is there"
    with pytest.raises(TargetError, match=words) as caught:
        find_installation(TARGET, environment(tmp_path), {PATH})
    assert caught.value.hint.endswith("remove the folder of the release that is gone")


def test_owner_of_nothing(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.5", {"engine_alias.py": ""})
    with pytest.raises(
        TargetError, match=r"^no distribution owns the package engine: engine-1\.5\.dist-info lists none"
    ):
        find(tmp_path)


def test_no_record(tmp_path: Path) -> None:
    (install(tmp_path, "engine", "1.5", FILES) / "RECORD").unlink()
    with pytest.raises(RecordMissing, match=r"engine-1\.5\.dist-info has no RECORD: nothing says what"):
        find(tmp_path)


@pytest.mark.parametrize("is_folder", [True, False])
def test_egg_info(tmp_path: Path, is_folder: bool) -> None:
    place = tmp_path / "engine-1.5-py3.11.egg-info"
    place.mkdir() if is_folder else place.write_bytes(b"")
    with pytest.raises(RecordMissing, match=r"egg-info has no RECORD"):
        find(tmp_path)


def test_record_that_cannot_be_read(tmp_path: Path) -> None:
    record = install(tmp_path, "engine", "1.5", FILES) / "RECORD"
    record.unlink()
    os.mkfifo(record)
    with pytest.raises(RecordMissing, match=r"engine-1\.5\.dist-info/RECORD cannot be read: not a regular file$"):
        find(tmp_path)


def test_record_that_contradicts_itself(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.5", FILES, rows=[row(PATH, b"other")])
    with pytest.raises(RecordMalformed, match=r"engine-1\.5\.dist-info/RECORD lists engine/core\.py twice"):
        find(tmp_path)


def test_editable_install(tmp_path: Path) -> None:
    origin = {"url": "file:///src/engine", "dir_info": {"editable": True}}
    metadata = install(tmp_path, "engine", "1.5", {"__editable__.engine.pth": "/src/engine\n"})
    (metadata / "direct_url.json").write_text(json.dumps(origin))
    with pytest.raises(
        EditableInstall, match=r"^engine is an editable install of file:///src/engine: there is no RECORD"
    ):
        find(tmp_path)


@pytest.mark.parametrize(
    "origin",
    [
        b'{"url": "https://host/engine.whl", "archive_info": {}}',
        b'{"url": "file:///src", "dir_info": {}}',
        b'{"url": "file:///src", "dir_info": {"editable": false}}',
        b'{"dir_info": {"editable": true}}',
        b'{"url": "file:///src", "dir_info": []}',
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_origin_that_is_not_editable(tmp_path: Path, origin: bytes) -> None:
    metadata = install(tmp_path, "engine", "1.5", {"engine_alias.py": ""})
    (metadata / "direct_url.json").write_bytes(origin)
    with pytest.raises(TargetError, match=r"^no distribution owns the package engine"):
        find(tmp_path)


HEAD = b"Metadata-Version: 2.1\nName: engine\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + b"Version: 1.5\n\nText\n\nVersion: 9\n",
        HEAD + b"Version:\t1.5 \n",
        (HEAD + b"Version: 1.5\n\nText\nVersion: 9\n").replace(b"\n", b"\r\n"),
    ],
    ids=["quoted below", "blanks", "CRLF"],
)
def test_version(tmp_path: Path, text: bytes) -> None:
    (install(tmp_path, "engine", "0", FILES) / "METADATA").write_bytes(text)
    assert found(tmp_path).version == Version("1.5")


@pytest.mark.parametrize(
    "text",
    [None, b"", HEAD, HEAD + b"Version: 1\nVersion: 2\n", HEAD + b"Version: new\n", HEAD + b"Version: 1\xff\n"],
    ids=["absent", "empty", "none", "two", "no version", "not ASCII"],
)
def test_no_version(tmp_path: Path, text: bytes | None) -> None:
    place = install(tmp_path, "engine", "1.5", FILES) / "METADATA"
    place.unlink() if text is None else place.write_bytes(text)
    with pytest.raises(RecordMissing, match=r"engine-1\.5\.dist-info/METADATA gives no valid version: ") as caught:
        find(tmp_path)
    assert caught.value.hint == "reinstall engine"


@pytest.mark.parametrize("name", ["RECORD", "METADATA"])
def test_no_metadata_is_read_outside_a_root(tmp_path: Path, name: str) -> None:
    metadata = install(tmp_path / "image" / "site-packages", "engine", "1.5", FILES)
    (metadata / name).rename(tmp_path / name)
    (metadata / name).symlink_to(tmp_path / name)
    with pytest.raises(TargetError):
        find(tmp_path / "image" / "site-packages", root=tmp_path / "image")


def test_source(tmp_path: Path) -> None:
    install(tmp_path, "engine", "1.5", {**FILES, PATH: b"x\r\n\xff"})
    place = Path(os.path.realpath(tmp_path)) / PATH
    assert read_source(found(tmp_path), PATH, None) == Source(place, b"x\r\n\xff", digest(b"x\r\n\xff"), None)


def test_source_behind_a_link(tmp_path: Path) -> None:
    install(tmp_path / "site", "engine", "1.5", FILES)
    place = Path(os.path.realpath(tmp_path)) / "site" / PATH
    place.rename(tmp_path / "cached.py")
    place.symlink_to("../../cached.py")
    source = read_source(found(tmp_path / "site"), PATH, None)
    assert source == Source(place, ENGINE.encode(), digest(ENGINE.encode()), "../../cached.py")


@pytest.mark.parametrize("kind", ["absent", "no folder", "dangling"])
def test_source_that_is_not_there(tmp_path: Path, kind: str) -> None:
    install(tmp_path, "engine", "1.5", FILES)
    (tmp_path / PATH).unlink()
    if kind == "dangling":
        (tmp_path / PATH).symlink_to("gone.py")
    if kind == "no folder":
        (tmp_path / "engine" / "__init__.py").unlink()
        (tmp_path / "engine").rmdir()
        (tmp_path / "engine").write_bytes(b"")
    assert read_source(found(tmp_path), PATH, None) is None


@pytest.mark.parametrize("kind", ["pipe", "folder", "circle"])
def test_source_that_is_no_file(tmp_path: Path, kind: str) -> None:
    install(tmp_path, "engine", "1.5", FILES)
    place = tmp_path / PATH
    place.unlink()
    {"pipe": os.mkfifo, "folder": os.mkdir, "circle": lambda path: path.symlink_to("core.py")}[kind](place)
    with pytest.raises(SourceUnreadable, match=r"engine/core\.py cannot be read: ") as caught:
        read_source(found(tmp_path), PATH, None)
    assert caught.value.hint == "pip install --force-reinstall --no-deps engine==1.5"


def test_source_that_lies_elsewhere(tmp_path: Path) -> None:
    install(tmp_path / "site", "engine", "1.5", FILES)
    (tmp_path / "site" / "engine").rename(tmp_path / "shared")
    (tmp_path / "site" / "engine").symlink_to("../shared")
    with pytest.raises(PathEscape, match="leads out of"):
        read_source(found(tmp_path / "site"), PATH, None)


@pytest.mark.parametrize("link", ["/cache/a.py", "../../cache/a.py", "../../../../../../../../cache/a.py", "up.py"])
def test_links_below_a_root_stay_there(tmp_path: Path, link: str) -> None:
    root = Path(os.path.realpath(tmp_path))
    for name in ("cache", "site/engine"):
        (root / name).mkdir(parents=True)
    (root / "cache" / "a.py").write_bytes(b"inside")
    (root / "site" / "engine" / "up.py").symlink_to("/site/../cache/a.py")
    assert read_link(root / "site" / PATH, link, root) == b"inside"


def test_links_without_a_root(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"text")
    assert read_link(tmp_path / "b.py", "a.py", None) == read_link(tmp_path / "b.py", str(tmp_path / "a.py"), None)


def test_source_below_a_root_is_not_read_outside(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path)) / "image"
    install(root / "site-packages", "engine", "1.5", FILES)
    place = root / "site-packages" / PATH
    place.rename(tmp_path / "outside.py")
    place.symlink_to(tmp_path / "outside.py")
    assert read_source(found(root / "site-packages", root=root), PATH, root) is None
    assert read_source(found(root / "site-packages"), PATH, None) is not None


def test_record_that_has_gone(tmp_path: Path) -> None:
    metadata = install(tmp_path, "engine", "1.5", FILES)
    installation = found(tmp_path)
    whole, paths = read_record(installation, None)
    assert set(installation.rows) < set(whole.rows) < paths
    (metadata / "RECORD").unlink()
    with pytest.raises(RecordMissing, match=r"RECORD cannot be read: No such file or directory$"):
        read_record(installation, None)


def test_record_that_is_no_file_is_there(tmp_path: Path) -> None:
    metadata = tmp_path / "engine-1.5.dist-info"
    (metadata / "RECORD").mkdir(parents=True)
    assert _Candidate("engine", metadata, tmp_path, None).has_record()
    (metadata / "RECORD").rmdir()
    assert not _Candidate("engine", metadata, tmp_path, None).has_record()
