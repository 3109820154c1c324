"""Public failures of tools that patch installed packages, each as a test; the issue it was seen in stands above it."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import py_compile
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchkit.cli import run
from tests.faults import armed, fail
from tests.trees import ENGINE, WORKER, WORKER_PATCH, Tree, install, list_digests, snapshot, write_catalog
from tests.users import IS_ROOT, NOBODY, command_of_nobody


def codes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the finding codes of the last --json run."""
    return [finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]]


def rewrite_version(tree: Tree, version: str) -> None:
    """Reinstall the engine as another release with the same files."""
    for metadata in (*tree.site.glob("engine_cpu-*"), *tree.site.glob("engine-*")):
        for file in metadata.iterdir():
            file.unlink()
        metadata.rmdir()
    install(tree.site, "engine-cpu", version, {"engine/__init__.py": "", "engine/core.py": ENGINE})


# --- silently not applied ---


# NeMo-RL#4155, genesis-vllm-patches#12, Hyperloom#1157
def test_anchor_gone_after_a_version_bump_is_an_error(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    moved = ENGINE.replace("models =", "known =").replace("return models", "return known")
    install(tree.site, "engine-cpu", "1.5", {"engine/__init__.py": "", "engine/core.py": moved})
    before = snapshot(tree.site)
    assert run([*tree.options(), "apply", "--allow-unlisted", "--json"]) == 1
    assert codes(capsys) == ["anchor-not-found"]
    assert snapshot(tree.site) == before


# patch-package#51, patch-package#366
@pytest.mark.parametrize("verb", ["list", "status", "diff", "apply", "revert", "check"])
def test_folder_of_patches_not_copied_is_an_error(
    tree: Tree, tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--catalog", str(tmp_path / "nowhere"), "--site", str(tree.site), "--json", verb]) == 1
    assert codes(capsys) == ["catalog-missing"]
    for patch in (tree.catalog / "patches").iterdir():
        patch.unlink()
    assert run([*tree.options(), "--json", verb]) == 1
    assert codes(capsys) == ["catalog-missing"]


# patch-package-py 0.2.1, patch-package#143, composer-patches#626
def test_failed_patch_does_not_read_as_applied(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.engine.write_text(ENGINE.replace("qwen", "qwen2"))
    assert run([*tree.options(), "apply", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [patch["state"] for patch in report["patches"]] == ["foreign", "pristine"]
    assert report["written"] is False


# patch-package#314, pnpm#8528
def test_another_version_is_a_finding_not_a_warning(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.engine.write_text("other = 1\n")
    rewrite_version(tree, "2.5")
    tree.engine.write_text("other = 1\n")
    install(tree.site, "engine-cpu", "0.5", {"engine/__init__.py": "", "engine/core.py": "other = 1\n"})
    for metadata in tree.site.glob("engine_cpu-2.5*"):
        for file in metadata.iterdir():
            file.unlink()
        metadata.rmdir()
    assert run([*tree.options(), "check", "engine_models", "--json"]) == 1
    assert codes(capsys) == ["not-applicable", "nothing-applicable"]


# Hyperloom#572
@pytest.mark.parametrize("version", ["1.5rc1", "1.6.dev3+g123abc", "1.5+cu129", "0.1.dev1+gabc", "2.0rc1"])
def test_rc_and_dev_builds_with_the_same_files_are_patched(tree: Tree, version: str) -> None:
    rewrite_version(tree, version)
    assert run([*tree.options(), "apply", "engine_models"]) == 0
    assert "kimi" in tree.engine.read_text()


# genesis-vllm-patches: a wrong writability probe
def test_no_write_is_probed_it_is_tried(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_args, **_kwargs: False)
    assert run([*tree.options(), "apply"]) == 0


# club-3090#1013
def test_file_that_moved_is_missing_not_fixed(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.engine.rename(tree.site / "engine/moved.py")
    for verb in ("check", "apply"):
        assert run([*tree.options(), verb, "engine_models", "--json"]) == 1
        assert codes(capsys) == ["missing-file"]


# club-3090#1013: the other side: past the release with the fix the file may have gone
def test_file_that_moved_after_the_fix_is_upstream(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite_version(tree, "2.0")
    tree.engine.unlink()
    install(tree.site, "engine-cpu", "2.0", {"engine/__init__.py": "", "engine/moved.py": ENGINE})
    assert run([*tree.options(), "check", "engine_models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["patches"][0]["state"] == "upstream"


# --- wrong or double ---


# GNU patch --batch
def test_second_run_changes_nothing(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    applied = snapshot(tree.site)
    assert run([*tree.options(), "apply"]) == 0
    assert snapshot(tree.site) == applied


# ServerlessLLM#228, NeMo-RL#3913: applied at build and again in the entrypoint, on a read-only file system
def test_second_run_needs_no_lock(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    applied = snapshot(tree.site)
    with armed(tree.site, None, fail(errno.EROFS)) as fault:
        assert run([*tree.options(), "apply"]) == 0
    assert snapshot(tree.site) == applied
    assert fault.steps < 20  # it only reads: nothing is created, renamed or flushed


# NeMo-RL#4155: two patchers, one file
def test_edit_of_another_patcher_is_refused_and_kept(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    edited = tree.engine.read_text().replace("return None", "return 1")
    tree.engine.write_text(edited)
    capsys.readouterr()
    for verb in ("apply", "revert", "check"):
        assert run([*tree.options(), verb, "--json"]) == 1
        assert "foreign-edit" in codes(capsys)
    assert tree.engine.read_text() == edited
    assert "language_model" in tree.worker.read_text()


# dynamo#13616: upstream merged one part of the fix
def test_part_fixed_upstream_gets_only_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site-packages"
    fixed = ENGINE.replace('["llama", "qwen"]', "['llama', 'qwen', 'kimi']")
    files = {"engine/__init__.py": "", "engine/core.py": fixed, "engine/other.py": ENGINE}
    install(site, "engine", "1.5", files)
    catalog = write_catalog(tmp_path / "catalog", {"engine_models": {}})
    patch = catalog / "patches/engine_models.py"
    text = patch.read_text()
    second = text[text.index("@patch.rewrites") :].replace("engine/core.py", "engine/other.py")
    patch.write_text(text + "\n\n" + second.replace("def re", "def other_re"))
    options = ["--site", str(site), "--catalog", str(catalog), "--json"]
    assert run([*options, "apply", "--allow-unlisted"]) == 0
    states = {file["path"]: file["state"] for file in json.loads(capsys.readouterr().out)["patches"][0]["files"]}
    assert states == {"engine/core.py": "upstream", "engine/other.py": "applied"}
    assert (site / "engine/core.py").read_text() == fixed
    assert "patchkit: engine_models" in (site / "engine/other.py").read_text()
    assert run([*options, "check"]) == 0
    assert run([*options, "revert"]) == 0
    assert (site / "engine/other.py").read_text() == ENGINE


# patch-package#557
def test_revised_patch_leaves_the_tree_stale_until_applied_again(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*tree.options(), "apply"]) == 0
    write_catalog(tree.catalog, {"engine_models": {"new": "models = ['kimi']"}, "worker_unwrap": WORKER_PATCH})
    capsys.readouterr()
    assert run([*tree.options(), "check", "--json"]) == 1
    assert codes(capsys) == ["stale"]
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    assert "models = ['kimi']" in tree.engine.read_text()
    assert run([*tree.options(), "check"]) == 0
    assert run([*tree.options(), "revert"]) == 0
    assert tree.engine.read_text() == ENGINE


# gpustack/runner#179, Hyperloom#1521
def test_editable_checkout_is_refused(tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkout = tmp_path / "checkout"
    for metadata in (*tree.site.glob("engine_cpu-*"), *tree.site.glob("engine-*")):
        (metadata / "RECORD").write_text(f"{metadata.name}/METADATA,,\r\n__editable__.engine.pth,,\r\n")
        (metadata / "direct_url.json").write_text(
            json.dumps({"url": checkout.as_uri(), "dir_info": {"editable": True}})
        )
    assert run([*tree.options(), "apply", "--json"]) == 1
    assert codes(capsys) == ["editable-install"]
    assert run([*tree.options(), "apply", "worker_unwrap"]) == 0
    assert run([*tree.options(), "revert"]) == 0


def patchkit(arguments: list[str], cwd: Path, path: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run patchkit in a process of its own, with PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("VIRTUAL_ENV", None)
    command = [sys.executable, "-m", "patchkit", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


# vllm#2634, vllm#1814: PYTHONPATH or the working directory shadows the copy that is checked
def test_copy_that_shadows_is_a_finding(tree: Tree, tmp_path: Path) -> None:
    options = ["--catalog", str(tree.catalog), "--json"]
    assert patchkit([*options, "apply"], tmp_path, [tree.site]).returncode == 0
    assert patchkit([*options, "check"], tmp_path, [tree.site]).returncode == 0
    checkout = tmp_path / "checkout"
    (checkout / "engine").mkdir(parents=True)
    (checkout / "engine/__init__.py").write_text("")
    for cwd, path in ((tmp_path, [checkout, tree.site]), (checkout, [tree.site])):
        done = patchkit([*options, "check"], cwd, path)
        (finding,) = json.loads(done.stdout)["findings"]
        assert (done.returncode, finding["code"]) == (1, "shadowed")
        assert str(checkout / "engine") in finding["message"]


# NeMo-RL: a "pristine" fixture that was already patched
def test_patched_file_without_a_journal_is_recognised(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    patched = tree.engine.read_bytes(), tree.worker.read_bytes()
    assert run([*tree.options(), "revert"]) == 0
    tree.engine.write_bytes(patched[0])
    tree.worker.write_bytes(patched[1])
    capsys.readouterr()
    assert run([*tree.options(), "check", "--json"]) == 0
    assert run([*tree.options(), "revert"]) == 0
    assert (tree.engine.read_text(), tree.worker.read_text()) == (ENGINE, WORKER)


# --- half done ---


# patch-package#450, GNU patch, composer-patches#305
def test_second_file_that_fails_takes_the_first_back(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(tree.site)
    tree.worker.write_text("other = 1\n")
    assert run([*tree.options(), "apply", "--json"]) == 1
    assert codes(capsys) == ["foreign-edit"]
    tree.worker.write_text(WORKER)
    assert snapshot(tree.site) == before


# black#2479
@pytest.mark.skipif(not IS_ROOT, reason="mounting needs root")
def test_full_disk_empties_no_file(tree: Tree, tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)], capture_output=True).returncode:
        pytest.skip("this system mounts no tmpfs")
    try:
        subprocess.run(["cp", "-a", str(tree.site), str(mount / "site-packages")], check=True)
        filler = mount / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 512)
        before = snapshot(mount / "site-packages")
        options = ["--site", str(mount / "site-packages"), "--catalog", str(tree.catalog)]
        assert run([*options, "apply"]) == 1
        assert snapshot(mount / "site-packages") == before
        filler.unlink()
        assert run([*options, "apply"]) == 0
    finally:
        subprocess.run(["umount", str(mount)], check=True)


# composer-patches#637
@pytest.mark.parametrize(
    "arguments", [["status"], ["diff"], ["check"], ["apply", "--dry-run"], ["revert", "--dry-run"]]
)
def test_reading_verbs_write_nothing(tree: Tree, arguments: list[str]) -> None:
    def marks() -> dict[str, tuple[int, int]]:
        places = [tree.site, *tree.site.rglob("*"), *tree.catalog.rglob("*")]
        return {str(place): (place.lstat().st_mtime_ns, place.lstat().st_ino) for place in places}

    before = marks()
    run([*tree.options(), *arguments])
    assert marks() == before


# uv#2304, uv#2467
def test_empty_metadata_folder_of_an_interrupted_install_is_passed_over(tree: Tree) -> None:
    (tree.site / "engine-1.4.dist-info").mkdir()
    assert run([*tree.options(), "apply"]) == 0


# uv#2304: and when it is all there is, it is an error
def test_empty_metadata_folder_alone_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site-packages"
    (site / "engine-1.4.dist-info").mkdir(parents=True)
    catalog = write_catalog(tmp_path / "catalog", {"engine_models": {}})
    assert run(["--site", str(site), "--catalog", str(catalog), "--json", "check"]) == 1
    assert codes(capsys) == ["record-missing"]


# --- the file system ---


# uv#10579, uv#15700
def test_hard_link_in_a_cache_stays_pristine(tree: Tree, tmp_path: Path) -> None:
    cache = tmp_path / "cache.py"
    cache.hardlink_to(tree.engine)
    assert run([*tree.options(), "apply"]) == 0
    assert cache.read_text() == ENGINE
    assert "kimi" in tree.engine.read_text()


# nemo-platform#1056: environments of links to one copy
def test_link_to_a_shared_copy_becomes_private_and_comes_back(tree: Tree, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    shared.write_text(ENGINE)
    tree.engine.unlink()
    tree.engine.symlink_to(shared)
    before = snapshot(tree.site)
    assert run([*tree.options(), "apply"]) == 0
    assert not tree.engine.is_symlink()
    assert shared.read_text() == ENGINE
    assert run([*tree.options(), "revert", "engine_models"]) == 0
    assert tree.engine.is_symlink()
    assert run([*tree.options(), "revert"]) == 0
    assert snapshot(tree.site) == before


def test_link_whose_copy_has_changed_comes_back_as_a_file(tree: Tree, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    shared.write_text(ENGINE)
    tree.engine.unlink()
    tree.engine.symlink_to(shared)
    assert run([*tree.options(), "apply"]) == 0
    shared.write_text("other = 1\n")
    assert run([*tree.options(), "revert"]) == 0
    assert not tree.engine.is_symlink()
    assert tree.engine.read_text() == ENGINE


def test_package_that_is_a_link_out_of_the_site_folder_is_refused(
    tree: Tree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree.site / "engine").rename(tmp_path / "elsewhere")
    (tree.site / "engine").symlink_to(tmp_path / "elsewhere")
    assert run([*tree.options(), "apply", "--json"]) == 1
    assert codes(capsys) == ["path-escape"]
    assert (tmp_path / "elsewhere/core.py").read_text() == ENGINE


# ansible#3878, git apply: mode and owner are kept
@pytest.mark.parametrize("mode", [0o640, 0o755, 0o4755])
def test_mode_and_owner_are_kept(tree: Tree, mode: int) -> None:
    if IS_ROOT:
        os.chown(tree.engine, NOBODY, NOBODY)
    tree.engine.chmod(mode)
    before = tree.engine.stat()
    for verb in ("apply", "revert"):
        assert run([*tree.options(), verb]) == 0
        after = tree.engine.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_extended_attributes_are_kept(tree: Tree) -> None:
    try:
        os.setxattr(tree.engine, "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no user attributes")
    assert run([*tree.options(), "apply"]) == 0
    assert os.getxattr(tree.engine, "user.note") == b"kept"


def as_nobody(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run patchkit as another user, who can read and not write."""
    for place in (cwd, *cwd.parents):
        place.chmod(place.stat().st_mode | 0o055)
    return subprocess.run(command_of_nobody(arguments), cwd=cwd, capture_output=True, text=True, timeout=60)


# NeMo-RL#3913, nemo-platform#1056
@pytest.mark.skipif(not IS_ROOT, reason="becoming another user needs root")
def test_another_user_checks_and_is_refused_to_write(tree: Tree, tmp_path: Path) -> None:
    reading = as_nobody([*tree.options(), "--json", "status"], tmp_path)
    assert json.loads(reading.stdout)["patches"][0]["state"] == "pristine"
    before = snapshot(tree.site)
    refused = as_nobody([*tree.options(), "--json", "apply"], tmp_path)
    assert refused.returncode == 1
    assert [finding["code"] for finding in json.loads(refused.stdout)["findings"]] == ["write-failed"]
    assert snapshot(tree.site) == before
    assert run([*tree.options(), "apply"]) == 0
    for verb in ("check", "apply", "status", "diff"):
        assert as_nobody([*tree.options(), verb], tmp_path).returncode == 0, verb


# a path that leaves the package
@pytest.mark.parametrize("path", ["../engine/core.py", "/etc/passwd.py", "engine/../../x.py"])
def test_patch_for_a_path_outside_is_refused(tree: Tree, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_catalog(tree.catalog, {"engine_models": {"path": path}, "worker_unwrap": WORKER_PATCH})
    assert run([*tree.options(), "apply", "--json"]) == 1
    assert codes(capsys) == ["patch-invalid"]


# --- Python ---


@pytest.fixture
def bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python write bytecode, whatever the caller's environment says."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def models(site: Path) -> list[str]:
    """Return what the installed engine, run by a fresh interpreter, knows."""
    code = "from engine.core import Engine; print(' '.join(Engine().start()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=True)
    return done.stdout.split()


# cpython#121376, uv#2297
@pytest.mark.usefixtures("bytecode")
@pytest.mark.parametrize("optimize", ["", 1, 2])
def test_unchecked_bytecode_does_not_hide_the_patch(tree: Tree, optimize: str | int) -> None:
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    cached = importlib.util.cache_from_source(str(tree.engine), optimization=optimize)
    py_compile.compile(str(tree.engine), cfile=cached, invalidation_mode=mode)
    assert run([*tree.options(), "apply"]) == 0
    assert not Path(cached).exists()
    assert models(tree.site) == ["llama", "qwen", "kimi"]
    py_compile.compile(str(tree.engine), cfile=cached, invalidation_mode=mode)
    assert run([*tree.options(), "check"]) == 0  # unchecked, and from this very source
    assert run([*tree.options(), "revert"]) == 0
    assert models(tree.site) == ["llama", "qwen"]


@pytest.mark.usefixtures("bytecode")
def test_stale_unchecked_bytecode_is_a_finding(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    cached = importlib.util.cache_from_source(str(tree.engine))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(tree.engine), cfile=cached, invalidation_mode=mode)
    stale = Path(cached).read_bytes()
    assert run([*tree.options(), "apply"]) == 0
    Path(cached).parent.mkdir(exist_ok=True)
    Path(cached).write_bytes(stale)
    assert models(tree.site) == ["llama", "qwen"]
    capsys.readouterr()
    assert run([*tree.options(), "check", "--json"]) == 1
    assert codes(capsys) == ["stale-bytecode"]


# cpython#121376: same size, same second
@pytest.mark.usefixtures("bytecode")
def test_bytecode_older_than_the_patch_is_a_finding(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    cached = Path(importlib.util.cache_from_source(str(tree.engine)))
    py_compile.compile(str(tree.engine), cfile=str(cached))
    assert run([*tree.options(), "check"]) == 0
    old = time.time() - 3600
    os.utime(cached, (old, old))
    capsys.readouterr()
    assert run([*tree.options(), "check", "--json"]) == 1
    assert codes(capsys) == ["stale-bytecode"]


@pytest.mark.usefixtures("bytecode")
def test_bytecode_below_a_prefix_is_dropped(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = tmp_path / "prefix"
    monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tree.site)])
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    cached = Path(str(py_compile.compile(str(tree.engine), invalidation_mode=mode)))
    assert cached.is_relative_to(prefix)
    assert run(["--catalog", str(tree.catalog), "apply"]) == 0
    assert not cached.exists()


def test_file_keeps_another_second_when_it_is_replaced_at_once(tree: Tree) -> None:
    now = time.time()
    for verb in ("apply", "revert", "apply"):
        os.utime(tree.engine, (now, now))
        before = int(tree.engine.stat().st_mtime)
        assert run([*tree.options(), verb]) == 0
        assert int(tree.engine.stat().st_mtime) != before


# pip#12645
def test_missing_record_is_an_error(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    (tree.site / "engine_cpu-1.5.dist-info/RECORD").unlink()
    for verb in ("check", "apply", "revert"):
        assert run([*tree.options(), verb, "--json"]) == 1
        assert "record-missing" in codes(capsys)
    assert tree.engine.read_text() == ENGINE


# patch-package#191, bump-pydantic#169
def test_line_ends_are_kept(tree: Tree) -> None:
    windows = ENGINE.replace("\n", "\r\n").encode()
    install(tree.site, "engine-cpu", "1.5", {"engine/__init__.py": "", "engine/core.py": windows})
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    data = tree.engine.read_bytes()
    assert b"kimi" in data
    assert data.count(b"\n") == data.count(b"\r\n")
    assert run([*tree.options(), "revert"]) == 0
    assert tree.engine.read_bytes() == windows


# a marker on line 1 pushes the coding line away or goes before a byte order mark
@pytest.mark.parametrize(
    "data",
    [
        "\N{BYTE ORDER MARK}".encode() + ENGINE.encode(),
        b"# -*- coding: latin-1 -*-\n" + ENGINE.encode() + "# \xe9\n".encode("latin-1"),
        ENGINE.rstrip("\n").encode(),
    ],
    ids=["byte order mark", "coding line", "no final line feed"],
)
def test_encoding_marks_are_kept(tree: Tree, data: bytes) -> None:
    install(tree.site, "engine-cpu", "1.5", {"engine/__init__.py": "", "engine/core.py": data})
    assert run([*tree.options(), "apply", "--allow-unlisted"]) == 0
    patched = tree.engine.read_bytes()
    assert patched.splitlines()[0] == data.splitlines()[0]
    compile(patched, "core.py", "exec")
    assert run([*tree.options(), "revert"]) == 0
    assert tree.engine.read_bytes() == data


# socket-patch's advisory: a reinstall takes the patch away
def test_reinstall_is_seen_and_patched_again(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(tree.site)
    assert run([*tree.options(), "apply"]) == 0
    tree.engine.write_text(ENGINE)
    capsys.readouterr()
    assert run([*tree.options(), "check", "--json"]) == 1
    assert codes(capsys) == ["not-applied"]
    assert run([*tree.options(), "apply"]) == 0
    assert run([*tree.options(), "check"]) == 0
    assert run([*tree.options(), "revert"]) == 0
    assert snapshot(tree.site) == before


# NeMo-RL: several workers of one node patch at the same moment
def test_many_processes_patch_one_tree(tree: Tree) -> None:
    before = snapshot(tree.site)
    command = [sys.executable, "-m", "patchkit", *tree.options()]
    for verb in ("apply", "revert"):
        running = [
            subprocess.Popen([*command, verb], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(6)
        ]
        for process in running:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
        assert run([*tree.options(), "check"]) == (0 if verb == "apply" else 1)
    assert snapshot(tree.site) == before


def test_modes_are_ordinary_files(tree: Tree) -> None:
    assert run([*tree.options(), "apply"]) == 0
    assert stat.S_ISREG(tree.engine.lstat().st_mode)
    assert not [place for place in tree.site.rglob("*") if ".patchkit-" in place.name]


def test_lists_of_digests_are_of_what_is_installed(tree: Tree, tmp_path: Path) -> None:
    other = write_catalog(tmp_path / "other", {"engine_models": {}, "worker_unwrap": WORKER_PATCH})
    list_digests(other, tree.site, {"engine": "1.5", "worker": "1.5"})
    assert (other / "targets.toml").read_text() == (tree.catalog / "targets.toml").read_text()
