from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import CatalogMissing, ConfigError
from patchkit.targets import Listing, NamedSet, Target, Targets, read_targets

A, B, C = "a" * 64, "b" * 64, "c" * 64
HEAD = """\
schema = 1
default = ["all"]
"""
TARGET = """
[targets.engine]
package = "engine"
distributions = ["engine", "engine-cpu"]
"""
SET = """
[sets.all]
title = "Everything"
patches = ["one", "two"]
"""
RELEASES = f"""
[releases.engine."1.5"."engine/core.py"]
pristine = "{A}"
one = "{A}"
"one+two" = "{B}"

[releases.engine."1.6"."engine/core.py"]
pristine = "{C}"
"""
ALL = HEAD + TARGET + SET + RELEASES


def read(folder: Path, text: str | bytes) -> Targets:
    place = folder / "targets.toml"
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_targets(place)


def test_everything_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, ALL) == Targets(
        {"engine": Target("engine", "engine", ("engine", "engine-cpu"))},
        {"all": NamedSet("all", "Everything", ("one", "two"))},
        ("all",),
        {
            ("engine", "1.5"): {"engine/core.py": Listing(A, {frozenset({"one"}): A, frozenset({"one", "two"}): B})},
            ("engine", "1.6"): {"engine/core.py": Listing(C, {})},
        },
    )


def test_releases_are_optional(tmp_path: Path) -> None:
    assert read(tmp_path, HEAD + TARGET + SET).releases == {}


def test_line_ends_may_be_crlf(tmp_path: Path) -> None:
    assert read(tmp_path, ALL.replace("\n", "\r\n")) == read(tmp_path, ALL)


def test_distribution_names_are_normalised(tmp_path: Path) -> None:
    found = read(tmp_path, ALL.replace('"engine-cpu"', '"Engine_CPU"'))
    assert found.targets["engine"].distributions == ("engine", "engine-cpu")


def test_listing_is_found_by_pristine_digest(tmp_path: Path) -> None:
    targets = read(tmp_path, ALL)
    assert targets.get_listing("engine", "engine/core.py", C) == Listing(C, {})
    assert targets.get_listing("engine", "engine/core.py", B) is None
    assert targets.get_listing("engine", "engine/other.py", C) is None
    assert targets.get_listing("worker", "engine/core.py", C) is None


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(CatalogMissing, match=r"targets\.toml does not exist$") as caught:
        read_targets(tmp_path / "targets.toml")
    assert "--catalog" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [b"\xff", "schema = 'é'".encode("latin-1"), b"schema =", b"\0", b"schema = 1\nschema = 1\n", b"x = 2024-13-45\n"],
    ids=["not UTF-8", "latin-1", "no TOML", "NUL", "key twice", "no such day"],
)
def test_unreadable_text(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"targets\.toml cannot be read: "):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 100_000, "x = " + "1" * 10_000], ids=["huge nesting", "number of many digits"]
)
def test_hostile_text(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path, text)


def test_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "targets.toml").mkdir()
    with pytest.raises(ConfigError, match=r"targets\.toml cannot be read: .*not a regular file"):
        read_targets(tmp_path / "targets.toml")


WRONG = {
    "no schema": ("schema = 1\n", "", "schema must be 1, beside known keys only (unknown: none)"),
    "newer schema": ("schema = 1", "schema = 2", "schema must be 1"),
    "unknown key": ("schema = 1\n", "schema = 1\nextra = 1\n", "(unknown: extra)"),
    "no default": ('default = ["all"]\n', "", "default must be a list of one or more names"),
    "empty default": ('["all"]', "[]", "default must be a list of one or more names"),
    "default is no list": ('["all"]', '"all"', "default must be a list of one or more names"),
    "default of other things": ('["all"]', "[1]", "default must be a list of one or more names"),
    "default of an unknown set": ('["all"]', '["none"]', "default names the set 'none', which is not in [sets]"),
    "no package": ('package = "engine"\n', "", "targets.engine.package must be the name of a package"),
    "package is a path": ('package = "engine"', 'package = "../engine"', "targets.engine.package must be the name"),
    "package is a number": ('package = "engine"', "package = 1", "targets.engine.package must be the name"),
    "no distributions": ('["engine", "engine-cpu"]', "[]", "targets.engine.distributions must be a list of one or"),
    "no title": ('title = "Everything"\n', "", "sets.all.title must be a sentence"),
    "set without patches": ('["one", "two"]', "[]", "sets.all.patches must be a list of one or more names"),
    "target is no table": (TARGET, "\n[targets]\nengine = 1\n", "targets.engine must be a table"),
    "release of another target": ("[releases.engine", "[releases.other", "releases.other is not one of [targets]"),
    "release is no table": (RELEASES, '\n[releases.engine]\n"1.5" = 1\n', "releases.engine.1.5 must be a table"),
    "releases are no table": (RELEASES, "\n[releases]\nengine = 1\n", "releases.engine must be a table"),
    "file is no table": (RELEASES, '\n[releases.engine."1.5"]\na = 1\n', "releases.engine.1.5.a must be a table"),
    "unquoted version": ('"1.5"."engine/core.py"', '1.5."engine/core.py"', "must be a SHA-256 in hexadecimal"),
    "path that leaves": ('"1.5"."engine/', '"1.5"."../', "releases.engine.1.5.../core.py is not a path below a site"),
    "absolute path": ('"1.5"."engine/', '"1.5"."/etc/', "is not a path below a site folder"),
    "short digest": (f'"{C}"', f'"{C[1:]}"', "engine/core.py.pristine must be a SHA-256 in hexadecimal"),
    "capital digest": (f'"{C}"', f'"{C.upper()}"', "must be a SHA-256 in hexadecimal"),
    "digest and a line end": (f'"{C}"', f'"{C}\\n"', "must be a SHA-256 in hexadecimal"),
    "digest is a number": (f'one = "{A}"', "one = 1", "engine/core.py.one must be a SHA-256 in hexadecimal"),
    "no pristine digest": (f'pristine = "{A}"\n', "", "releases.engine.1.5.engine/core.py needs a pristine digest"),
    "version that is none": ('"1.5"', '"nightly"', "releases.engine.nightly"),
}


@pytest.mark.parametrize(("old", "new", "words"), WRONG.values(), ids=WRONG)
def test_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in ALL
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, ALL.replace(old, new, 1))
    assert caught.value.message.startswith(f"{tmp_path / 'targets.toml'}: ")
    assert words in caught.value.message
    assert caught.value.hint == "correct targets.toml"


@pytest.mark.parametrize("text", ["targets = 1\n", "sets = []\n", "releases = 'x'\n"])
def test_table_that_is_none(tmp_path: Path, text: str) -> None:
    key = text.split()[0]
    with pytest.raises(ConfigError, match=f": {key} must be a table$"):
        read(tmp_path, text + HEAD + (SET if key == "releases" else ""))
