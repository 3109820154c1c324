from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from patchkit import proof
from patchkit.proof import NotProved, prove, set_digest, verify

CORE, INIT = b"x = 1\n", b""
JOURNAL = ".patchkit/journal.json"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


FILES = {"vllm/__init__.py": sha(INIT), "vllm/core.py": sha(CORE)}


def text(files: dict[str, str]) -> str:
    return ",".join(f"{path}={digest}" for path, digest in files.items())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a site folder with a little vLLM that can be imported."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_bytes(INIT)
    (tmp_path / "vllm/core.py").write_bytes(CORE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.path_importer_cache.pop(str(tmp_path), None)


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_is_done_where_nothing_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str | None
) -> None:
    monkeypatch.delenv(proof.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(proof.VARIABLE, value)
    verify()
    assert capsys.readouterr() == ("", "")


def test_imports_are_of_the_standard_library_alone() -> None:
    code = "import sys; before = set(sys.modules); import patchkit.proof; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    names = {name.split(".")[0] for name in done.stdout.split()}
    assert names - {"patchkit"} <= sys.stdlib_module_names
    assert {name for name in done.stdout.split() if name.startswith("patchkit")} == {"patchkit", "patchkit.proof"}


def test_copy_runs_alone_from_any_folder(site: Path) -> None:
    (site / "alone").mkdir()
    (site / "alone/patchkit_proof.py").write_bytes(Path(proof.__file__).read_bytes())
    variables = {**os.environ, "PYTHONPATH": f"{site / 'alone'}:{site}", proof.VARIABLE: text(FILES)}
    command = [sys.executable, "-S", "-c", "import patchkit_proof; patchkit_proof.verify()"]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=variables)
    assert done.stderr.endswith(f"2 patched files, digest {set_digest(FILES)}\n")


def test_right_files_give_one_line_and_the_digest_that_the_runner_knows(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(proof.VARIABLE, text(FILES))
    verify()
    line = f"patchkit proof: process {os.getpid()} has 2 patched files, digest {set_digest(FILES)}\n"
    assert capsys.readouterr() == ("", line)
    assert prove(text(dict(reversed(FILES.items())))) == set_digest(FILES)


def test_digest_of_a_set_tells_paths_and_contents() -> None:
    first, second = FILES
    assert set_digest(FILES) == sha(f"{FILES[first]} {first}\n{FILES[second]} {second}\n".encode())
    assert len({set_digest(FILES), set_digest({first: FILES[first]}), set_digest({**FILES, first: "0" * 64})}) == 3


def test_package_is_not_imported_to_be_proved(site: Path) -> None:
    prove(text(FILES))
    assert "vllm" not in sys.modules


def test_modules_that_are_loaded_are_proved_too(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm.core  # type: ignore[import-not-found]

    assert prove(text(FILES)) == set_digest(FILES)
    monkeypatch.setattr(vllm.core, "__file__", None)
    assert prove(text(FILES)) == set_digest(FILES)


def test_every_problem_is_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm
    import vllm.core

    (site / "vllm/core.py").write_text("x = 2\n")
    other = str(site / "elsewhere.py")
    monkeypatch.setattr(vllm.core, "__file__", other)
    monkeypatch.setattr(vllm, "__file__", other)
    with pytest.raises(NotProved) as refused:
        prove(text(FILES | {"vllm/gone.py": sha(b"")}))
    words = str(refused.value)
    assert words.startswith("patchkit: this server does not run the patched files: ")
    assert f"vllm is loaded from {other}, not from {site}/vllm/__init__.py; " in words
    assert f"{site}/vllm/core.py has SHA-256 {sha(b'x = 2' + bytes([10]))}, not {sha(CORE)}; " in words
    assert f"vllm.core is loaded from {other}, not from {site}/vllm/core.py; " in words
    assert f"{site}/vllm/gone.py cannot be read: No such file or directory. It is stopped" in words
    assert sys.executable in words


def test_module_of_the_package_from_elsewhere_is_where_its_files_are_looked_for(site: Path, tmp_path: Path) -> None:
    module = ModuleType("vllm")
    module.__path__ = [str(tmp_path / "other/vllm")]
    sys.modules["vllm"] = module
    with pytest.raises(NotProved, match=r"other/vllm/core.py cannot be read"):
        prove(text({"vllm/core.py": sha(CORE)}))


@pytest.mark.parametrize(
    "item",
    [
        "vllm/core.py",
        "vllm/core.py=",
        "vllm/core.py=abc",
        "vllm/core.so=" + "0" * 64,
        "/vllm/core.py=" + "0" * 64,
        "../vllm/core.py=" + "0" * 64,
        "vllm/../../core.py=" + "0" * 64,
        "vllm//core.py=" + "0" * 64,
        "=" + "0" * 64,
        "Journal",
        text(FILES) + ",",
    ],
)
def test_value_that_is_no_list_of_files_is_refused(site: Path, item: str) -> None:
    with pytest.raises(NotProved, match=r"PATCHKIT_REQUIRE has .* which is not PATH=SHA256"):
        prove(item)


@pytest.mark.parametrize("path", ["absent_package/core.py", "sys/core.py"])
def test_package_that_is_not_there_is_named(site: Path, path: str) -> None:
    with pytest.raises(NotProved, match=rf"the package {path.split('/')[0]} is not in this process's environment"):
        prove(text({path: sha(CORE)}))


@pytest.mark.parametrize("path", ["core.py", "absent.package/core.py", "./core.py", "__main__/core.py"])
def test_name_that_cannot_be_looked_up_is_refused_in_words(
    site: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = None
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(NotProved):
        prove(text({path: sha(CORE)}))


def test_journal_lists_what_is_proved(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / ".patchkit").mkdir()
    files = {path: {"sha256": digest} for path, digest in FILES.items()}
    (site / JOURNAL).write_text(json.dumps({"files": files | {"speculators/x.py": {"sha256": "0" * 64}}}))
    assert prove("journal") == set_digest(FILES)
    (site / "vllm/core.py").write_text("changed\n")
    with pytest.raises(NotProved, match=r"vllm/core.py has SHA-256"):
        prove("journal")


def test_journal_without_files_proves_nothing(site: Path) -> None:
    (site / ".patchkit").mkdir()
    (site / JOURNAL).write_text('{"files": {}}')
    with pytest.raises(NotProved, match="the journal lists no patched file"):
        prove("journal")


@pytest.mark.parametrize(
    "journal", [None, b"", b"\xff", b"[]", b"{}", b'{"files": {"vllm/core.py": {}}}', b'{"files": {"vllm/x.py": 1}}']
)
def test_journal_that_cannot_be_read_is_named(site: Path, journal: bytes | None) -> None:
    (site / ".patchkit").mkdir()
    if journal is not None:
        (site / JOURNAL).write_bytes(journal)
    with pytest.raises(NotProved, match=r"\.patchkit/journal\.json cannot be read: .*; run `patchkit apply`"):
        prove("journal")


def test_patched_wheel_lists_what_is_proved(site: Path) -> None:
    for name, path in (("vllm", "vllm/core.py"), ("speculators", "speculators/x.py")):
        (site / f"{name}-1.dist-info").mkdir()
        marker = site / f"{name}-1.dist-info" / "patchkit.json"
        marker.write_text(json.dumps({"files": {path: {"sha256": FILES.get(path, "0" * 64)}}}))
    assert prove("journal") == set_digest({"vllm/core.py": FILES["vllm/core.py"]})
    (site / ".patchkit").mkdir()
    (site / JOURNAL).write_text(json.dumps({"files": {"vllm/__init__.py": {"sha256": FILES["vllm/__init__.py"]}}}))
    assert prove("journal") == set_digest(FILES)
    (site / JOURNAL).write_text("")
    with pytest.raises(NotProved, match=r"journal\.json cannot be read"):
        prove("journal")


def test_marker_of_a_patched_wheel_that_cannot_be_read_is_named(site: Path) -> None:
    (site / "vllm-1.dist-info" / "patchkit.json").mkdir(parents=True)
    with pytest.raises(NotProved, match=r"vllm-1\.dist-info/patchkit\.json cannot be read: "):
        prove("journal")


def test_syntax_is_that_of_an_old_python() -> None:
    ast.parse(Path(proof.__file__).read_text("utf-8"), feature_version=(3, 7))


def test_pipe_in_the_place_of_the_journal_does_not_hold_a_server_up(site: Path) -> None:
    (site / ".patchkit").mkdir(exist_ok=True)
    os.mkfifo(site / ".patchkit/journal.json")
    with pytest.raises(NotProved, match="not a regular file"):
        prove("journal")
