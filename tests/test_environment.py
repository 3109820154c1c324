from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from patchkit import environment as module
from patchkit.environment import Environment, find_environment
from patchkit.errors import EnvironmentInvalid

OWN = (sys.version_info[0], sys.version_info[1])


@pytest.fixture(autouse=True)
def _no_active_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def folders(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)
    return [Path(os.path.realpath(root), name) for name in names]


def script(place: Path, text: str) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return str(place)


def launch(place: Path) -> str:
    return script(place, f'exec "{sys.executable}" "$@"')


def test_own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path, "probed", "probed-1.dist-info")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_environment(None, None, None, ["probed", "absent"])
    assert (found.python, found.version, found.root) == (sys.executable, OWN, None)
    assert found.imported == {"probed": tmp_path / "probed", "absent": None}
    assert tmp_path in found.sites


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_active_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    launch(tmp_path / "venv" / "bin" / "python")
    folders(tmp_path, "path/probed")
    monkeypatch.setenv(variable, str(tmp_path / "venv"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    found = find_environment(None, None, None, ["probed"])
    assert found.version == OWN
    assert found.imported == {"probed": tmp_path / "path" / "probed"}


def test_active_environment_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").symlink_to(sys.prefix)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "own"))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "none"))
    assert find_environment(None, None, None, []).python == sys.executable


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
@pytest.mark.parametrize("name", ["venv", "x" * 300], ids=["absent", "too long a name"])
def test_active_environment_without_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / name))
    with pytest.raises(EnvironmentInvalid, match=rf"^{variable} names .*, which has no bin/python$") as caught:
        find_environment(None, None, None, [])
    assert caught.value.hint == f"unset {variable}, or name one with --python"


def test_named_python_comes_before_the_active_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    folders(tmp_path, "work/probed", "work/probed.egg-info")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "prefix"))
    found = find_environment(launch(tmp_path / "python"), None, None, ["probed"])
    assert found.imported == {"probed": Path.cwd() / "probed"}
    assert (found.sites[0], found.pycache_prefix) == (Path.cwd(), tmp_path / "prefix")


def test_output_of_others_is_passed_over(tmp_path: Path) -> None:
    python = script(tmp_path / "python", f'echo hello; printf "\\377\\n"; exec "{sys.executable}" "$@"')
    assert find_environment(python, None, None, []).version == OWN


@pytest.mark.parametrize("name", ["absent", "folder", "text", "a\0b"])
def test_python_that_cannot_be_run(tmp_path: Path, name: str) -> None:
    folders(tmp_path, "folder")
    (tmp_path / "text").write_text("")
    with pytest.raises(EnvironmentInvalid, match="cannot be run: ") as caught:
        find_environment(str(tmp_path / name), None, None, [])
    assert caught.value.hint == "name a working Python interpreter with --python"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 0", r"did not answer \(exit 0\): it printed nothing$"),
        ("echo first >&2; echo last >&2; exit 3", r"did not answer \(exit 3\): last$"),
        ("printf 'bad \\377' >&2", r"did not answer \(exit 0\): bad \ufffd$"),
        ("echo 'patchkit-probe:{}'; exit 1", r"did not answer \(exit 1\): it printed nothing$"),
        ("echo 'patchkit-probe:{}'", "makes no sense"),
        ("echo 'patchkit-probe:{'", "makes no sense"),
        ("echo 'patchkit-probe:[]'", "makes no sense"),
        ('echo \'patchkit-probe:{"version": 3, "path": 1, "packages": 1, "pycache_prefix": 1}\'', "makes no sense"),
    ],
    ids=["silent", "error", "error not in UTF-8", "failure", "no keys", "no JSON", "a list", "other kinds"],
)
def test_python_that_does_not_answer(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(EnvironmentInvalid, match=words):
        find_environment(script(tmp_path / "python", text), None, None, [])


def test_python_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.2)
    with pytest.raises(EnvironmentInvalid, match=r"did not answer within 0\.2 seconds$"):
        find_environment(script(tmp_path / "python", "exec sleep 60"), None, None, [])


def test_folders_with_distributions_are_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path, "lib/a-1.dist-info", "work", "empty")
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "code.zip").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "work")
    path = [str(tmp_path / name) for name in ("empty", "lib64", "lib", "absent", "code.zip", "lib/../lib", "x" * 300)]
    monkeypatch.setattr(sys, "path", [*path, *sys.path])
    found = find_environment(None, None, None, [])
    assert [site for site in found.sites if site.is_relative_to(tmp_path) and site != Path.cwd()] == [
        tmp_path / "lib64"
    ]


def test_folder_that_only_has_a_journal_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, unused = tmp_path / "left", tmp_path / "unused"
    (left / ".patchkit").mkdir(parents=True)
    (unused / ".patchkit").mkdir(parents=True)
    (left / ".patchkit" / "journal.json").write_text("{}")
    monkeypatch.setattr(sys, "path", [str(left), str(unused)])
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    assert find_environment(None, None, None, []).sites == (left,)


def test_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path, "lib/python3.9/site-packages")
    monkeypatch.chdir(tmp_path)
    found = find_environment(None, Path("lib/python3.9/site-packages"), None, ["engine"])
    assert found == Environment(None, (3, 9), (Path.cwd() / "lib/python3.9/site-packages",))


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("lib/python3.12/site-packages", (3, 12)),
        ("lib/python3.13t/site-packages", (3, 13)),
        ("usr/lib/python3/dist-packages", OWN),
        ("site", OWN),
        ("python3.8/venv/lib/python3.10/site-packages", (3, 10)),
    ],
    ids=["plain", "free-threaded", "Debian", "any folder", "below another version"],
)
def test_version_of_a_site(tmp_path: Path, name: str, version: tuple[int, int]) -> None:
    (site,) = folders(tmp_path, name)
    assert find_environment(None, site, None, []).version == version


@pytest.mark.parametrize("name", ["absent", "file", "x" * 300], ids=["absent", "file", "too long a name"])
def test_site_that_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(EnvironmentInvalid, match=f"{name} is not a folder$") as caught:
        find_environment(None, tmp_path / name, None, [])
    assert "--site" in caught.value.hint
    with pytest.raises(EnvironmentInvalid, match=f"{name} is not a folder$") as caught:
        find_environment(None, None, tmp_path / name, [])
    assert "--root" in caught.value.hint


def test_root(tmp_path: Path) -> None:
    sites = folders(
        tmp_path,
        "opt/venv/lib/python3.12/site-packages",
        "usr/lib/python3/dist-packages",
        "usr/local/lib/python3.11/site-packages",
    )
    folders(tmp_path, "opt/venv/lib/python3.12/site-packages/a/site-packages", "usr/sys/dist-packages")
    folders(tmp_path, "proc/1/site-packages", "sys/site-packages", "dev/site-packages", "outside/real")
    (tmp_path / "opt" / "site-packages").symlink_to(tmp_path / "outside" / "real")
    (tmp_path / "opt" / "link").symlink_to("/")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "site-packages").write_bytes(b"")
    found = find_environment(None, None, tmp_path, ["engine"])
    sites.insert(2, Path(os.path.realpath(tmp_path)) / "usr/sys/dist-packages")
    assert set(found.sites) == set(sites)
    assert found == Environment(None, (3, 12), found.sites, root=Path(os.path.realpath(tmp_path)))


def test_root_through_a_link(tmp_path: Path) -> None:
    (site,) = folders(tmp_path, "image/lib/python3.9/site-packages")
    (tmp_path / "link").symlink_to("image")
    found = find_environment(None, None, tmp_path / "link", [])
    assert (found.root, found.sites, found.version) == (site.parents[2], (site,), (3, 9))


def test_root_without_a_site(tmp_path: Path) -> None:
    folders(tmp_path, "usr/lib/python3.11")
    with pytest.raises(EnvironmentInvalid, match=r"^no site-packages folder below ") as caught:
        find_environment(None, None, tmp_path, [])
    assert caught.value.hint == "name the folder itself with --site"
