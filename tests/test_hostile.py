"""Trees that mean harm: swapped links, files that are none, journals of other users, names that forge a report."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from patchkit.cli import run
from patchkit.diff import unified_diff
from patchkit.record import digest
from patchkit.transaction import Transaction
from tests.trees import ENGINE, Tree, install, make_tree, snapshot, write_catalog, write_diff
from tests.users import IS_ROOT, NOBODY, command_of_nobody

SITE = "lib/python3.11/site-packages"

# --- links that are swapped while patchkit works ---

SWAP = """
import ctypes, os, sys
exchange = ctypes.CDLL(None, use_errno=True).renameat2
one, other = (os.fsencode(place) for place in sys.argv[1:])
print("swapping", flush=True)
while True:
    exchange(-100, one, -100, other, 2)
"""
"""A process that exchanges two names as fast as it can; each is there at every moment."""


@contextmanager
def swapping(place: Path, link: Path) -> Iterator[None]:
    """Exchange a place with a link all the while, and leave it as it was."""
    kept = place.lstat().st_ino
    command = [sys.executable, "-c", SWAP, str(place), str(link)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"swapping\n"
            yield
        finally:
            process.kill()
    if place.lstat().st_ino != kept and link.lstat().st_ino == kept:
        ctypes.CDLL(None).renameat2(-100, os.fsencode(place), -100, os.fsencode(link), 2)


def marks(folder: Path) -> dict[str, tuple[int, int]]:
    """Return what changes with whatever is made, written, renamed or removed in a folder, also if it is taken back."""
    places = {str(place): place.lstat() for place in (folder, *folder.rglob("*"))}
    return {place: (status.st_ino, status.st_ctime_ns) for place, status in places.items()}


def attack(
    options: list[str], outside: Path, place: Path, link: Path, patches: Sequence[str] = (), times: int = 20
) -> None:
    """Apply and revert while a place is swapped for a link to an outside that looks the same; nothing there changes."""
    before = marks(outside)
    with swapping(place, link):
        for number in range(times):
            assert run([*options, ("apply", "revert")[number % 2], *patches]) in (0, 1)
            assert marks(outside) == before, number
    assert marks(outside) == before


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return tmp_path / "outside"


def test_folder_that_is_swapped_for_a_link_leads_no_write_out(tree: Tree, outside: Path, tmp_path: Path) -> None:
    shutil.copytree(tree.site, outside)
    before = snapshot(tree.site)
    link = tmp_path / "link"
    link.symlink_to(outside / "engine")
    attack(tree.options(), outside, tree.site / "engine", link)
    assert run([*tree.options(), "apply"]) == 0
    assert run([*tree.options(), "revert"]) == 0
    assert snapshot(tree.site) == before


def test_file_that_is_swapped_for_a_link_leads_no_write_out(tree: Tree, outside: Path, tmp_path: Path) -> None:
    shutil.copytree(tree.site, outside)
    link = tmp_path / "link"
    link.symlink_to(outside / "engine/core.py")
    attack(tree.options(), outside, tree.engine, link)
    assert tree.engine.is_symlink() or tree.engine.read_text() == ENGINE or "kimi" in tree.engine.read_text()


def test_journal_folder_that_is_swapped_for_a_link_leads_no_write_out(
    tree: Tree, outside: Path, tmp_path: Path
) -> None:
    assert run([*tree.options(), "apply", "worker_unwrap"]) == 0  # so that the folder stays
    shutil.copytree(tree.site / ".patchkit", outside)
    link = tmp_path / "link"
    link.symlink_to(outside)
    attack(tree.options(), outside, tree.site / ".patchkit", link, ["engine_models"])


@pytest.mark.parametrize("path", [SITE, "lib", f"{SITE}/engine", f"{SITE}/engine/core.py"])
def test_image_whose_folders_are_swapped_leads_no_write_out(
    tree: Tree, outside: Path, tmp_path: Path, path: str
) -> None:
    image = tmp_path / "image"
    image.mkdir()
    shutil.copytree(tmp_path / "lib", outside / "lib")
    (tmp_path / "lib").rename(image / "lib")
    link = image / "link"
    link.symlink_to(outside / path)
    attack(["--root", str(image), "--catalog", str(tree.catalog)], outside, image / path, link)


def test_bytecode_behind_a_link_stays_and_its_file_is_not_patched(
    tree: Tree, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside.mkdir()
    victim = outside / f"core.{sys.implementation.cache_tag}.pyc"
    victim.write_bytes(b"somebody else's")
    (tree.site / "engine/__pycache__").symlink_to(outside)
    assert run([*tree.options(), "apply", "--json"]) == 1
    assert [one["code"] for one in json.loads(capsys.readouterr().out)["findings"]] == ["path-escape"]
    assert tree.engine.read_text() == ENGINE
    assert victim.exists()
    victim.unlink()
    assert run([*tree.options(), "apply"]) == 0
    victim.write_bytes(b"somebody else's")
    assert run([*tree.options(), "revert"]) == 1
    assert victim.exists()


def test_bytecode_behind_a_link_that_appears_meanwhile_stays(tree: Tree, outside: Path) -> None:
    outside.mkdir()
    victim = outside / "core.cpython-311.pyc"
    victim.touch()
    (tree.site / "engine/__pycache__").symlink_to(outside)
    Transaction([tree.site], None)._drop_bytecode(tree.site, tree.engine)
    assert victim.exists()


# --- other users ---


def codes(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]]


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_nobody_else_can_write_what_patchkit_keeps(tree: Tree, umask: int) -> None:
    tree.engine.chmod(0o640)
    before = os.umask(umask)
    try:
        assert run([*tree.options(), "apply"]) == 0
    finally:
        os.umask(before)
    kept = [tree.site / ".patchkit", *(tree.site / ".patchkit").rglob("*")]
    assert not [place for place in kept if place.stat().st_mode & 0o022]
    copies = [place for place in (tree.site / ".patchkit/objects").iterdir() if place.read_text() == ENGINE]
    assert [place.stat().st_mode & 0o007 for place in copies] == [0]  # as the file that it is a copy of


@pytest.mark.skipif(not IS_ROOT, reason="giving files away needs root")
@pytest.mark.parametrize("name", ["journal.json", "objects", ""])
def test_journal_of_another_user_does_not_count(tree: Tree, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*tree.options(), "apply"]) == 0
    os.chown(tree.site / ".patchkit" / name, NOBODY, NOBODY)
    for verb in ("check", "apply", "revert"):
        capsys.readouterr()
        assert run([*tree.options(), verb, "--json"]) == 1
        assert "journal-corrupt" in codes(capsys)
    tree.site.chmod(0o777)  # then it could have been written by anybody, and everything else, too
    assert run([*tree.options(), "check"]) == 0
    tree.site.chmod(0o755)
    os.chown(tree.site, NOBODY, NOBODY)
    assert run([*tree.options(), "check"]) == 0


@pytest.mark.parametrize("name", ["journal.json", "objects", ""])
def test_journal_that_more_can_write_than_the_tree_does_not_count(
    tree: Tree, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*tree.options(), "apply"]) == 0
    place = tree.site / ".patchkit" / name
    place.chmod(place.stat().st_mode | 0o020)
    capsys.readouterr()
    assert run([*tree.options(), "check", "--json"]) == 1
    assert codes(capsys) == ["journal-corrupt"]
    tree.site.chmod(0o775)
    assert run([*tree.options(), "check"]) == 0


def test_unfinished_run_that_another_user_wrote_is_not_taken_back(tree: Tree) -> None:
    """A journal decides which bytes come back where: those of whoever wrote it."""
    assert run([*tree.options(), "apply"]) == 0
    patched = tree.engine.read_text()
    folder = tree.site / ".patchkit"
    evil = b"import os\n"
    (folder / "objects" / digest(evil)).write_bytes(evil)
    journal = json.loads((folder / "journal.json").read_text())
    move = {"before": digest(evil), "after": digest(patched.encode()), "link": None}
    journal["pending"] = {
        "id": "0" * 16,
        "leader": str(tree.site),
        "moves": {"engine/core.py": move},
        "files": journal["files"],
    }
    (folder / "journal.json").write_text(json.dumps(journal))
    (folder / "journal.json").chmod(0o666)
    for verb in ("apply", "revert"):
        assert run([*tree.options(), verb]) == 1
        assert tree.engine.read_text() == patched


def as_nobody(tree: Tree, verb: str) -> subprocess.CompletedProcess[str]:
    """Run patchkit as another user."""
    command = command_of_nobody([*tree.options(), verb])
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")


@pytest.fixture
def open_tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    """Give a tree below a folder that everybody may pass through."""
    place = Path("/tmp") / f"patchkit-test-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        yield make_tree(place)
    finally:
        shutil.rmtree(place)


@pytest.mark.skipif(not IS_ROOT, reason="becoming another user needs root")
def test_what_root_applied_its_owner_takes_back(open_tree: Tree) -> None:
    for place in (open_tree.site, *open_tree.site.rglob("*")):
        os.lchown(place, NOBODY, NOBODY)
    before = snapshot(open_tree.site)
    assert run([*open_tree.options(), "apply"]) == 0
    assert {place.lstat().st_uid for place in open_tree.site.rglob("*")} == {NOBODY}
    for verb, code in (("check", 0), ("revert", 0), ("apply", 0), ("check", 0)):
        done = as_nobody(open_tree, verb)
        assert done.returncode == code, done.stderr
    assert run([*open_tree.options(), "revert"]) == 0
    assert snapshot(open_tree.site) == before


@pytest.mark.skipif(not IS_ROOT, reason="becoming another user needs root")
def test_bytecode_that_only_root_may_remove_stops_its_owner(open_tree: Tree) -> None:
    for place in (open_tree.site, *open_tree.site.rglob("*")):
        os.lchown(place, NOBODY, NOBODY)
    cache = open_tree.site / "engine/__pycache__"
    cache.mkdir(mode=0o755)
    (cache / "core.cpython-311.pyc").touch()
    before = snapshot(open_tree.site)
    done = as_nobody(open_tree, "apply")
    assert done.stderr.startswith("write-failed: nothing was changed"), done.stderr
    assert snapshot(open_tree.site) == before
    assert run([*open_tree.options(), "apply"]) == 0


@pytest.mark.skipif(not IS_ROOT, reason="becoming another user needs root")
def test_folder_that_everybody_can_write(open_tree: Tree) -> None:
    """Another user may make files there, but none for root: an owner who cannot be kept is a write that fails."""
    for place in (open_tree.site, *open_tree.site.rglob("*")):
        if place.is_dir():
            place.chmod(0o777)
    before = snapshot(open_tree.site)
    done = as_nobody(open_tree, "apply")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("write-failed: nothing was changed")
    assert snapshot(open_tree.site) == before
    assert run([*open_tree.options(), "apply"]) == 0
    assert as_nobody(open_tree, "check").returncode == 0
    assert as_nobody(open_tree, "revert").returncode == 1
    assert run([*open_tree.options(), "check"]) == 0


def test_link_to_what_runs_as_its_owner_becomes_an_ordinary_file(tree: Tree, tmp_path: Path) -> None:
    shared = tmp_path / "shared.py"
    shared.write_text(ENGINE)
    shared.chmod(0o6755)
    tree.engine.unlink()
    tree.engine.symlink_to(shared)
    assert run([*tree.options(), "apply"]) == 0
    assert stat.S_IMODE(tree.engine.lstat().st_mode) == 0o755


def test_immutable_file_stops_it_all(tree: Tree) -> None:
    if subprocess.run(["chattr", "+i", str(tree.worker)], capture_output=True).returncode:
        pytest.skip("this file system has no immutable files")
    try:
        assert run([*tree.options(), "apply"]) == 1
        assert tree.engine.read_text() == ENGINE
    finally:
        subprocess.run(["chattr", "-i", str(tree.worker)], check=True)
    assert run([*tree.options(), "apply"]) == 0


# --- files that are none, and files without an end ---


def pipe(place: Path) -> None:
    os.mkfifo(place)


def listener(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(place.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/{place.name}")
        finally:
            os.close(here)


def zeros(place: Path) -> None:
    place.symlink_to("/dev/zero")


def circle(place: Path) -> None:
    place.symlink_to(place.name)


def giant(place: Path) -> None:
    with place.open("wb") as file:
        file.truncate(100 * 2**30)


KINDS: tuple[Callable[[Path], None], ...] = (pipe, listener, Path.mkdir, zeros, circle, giant)
METADATA = "lib/python3.11/site-packages/engine_cpu-1.5.dist-info"
PLACES = (
    f"{METADATA}/RECORD",
    f"{METADATA}/METADATA",
    f"{METADATA}/patchkit.json",
    f"{METADATA}/entry_points.txt",
    f"{METADATA}/direct_url.json",
    f"{SITE}/.patchkit",
    f"{SITE}/.patchkit/journal.json",
    f"{SITE}/.patchkit/lock",
    f"{SITE}/.patchkit/objects",
    f"{SITE}/.patchkit/.journal.json.new",
    f"{SITE}/engine",
    f"{SITE}/engine/core.py",
    f"{SITE}/engine/__pycache__",
    f"{SITE}/engine/__pycache__/core.cpython-311.pyc",
    "catalog/targets.toml",
    "catalog/patches",
    "catalog/patches/engine_models.py",
    "catalog/patches/other.diff",
    "config.json",
    "server.log",
    "engine_cpu-1.5-py3-none-any.whl",
)


class Hanging(BaseException):
    """Say that something hangs, whatever errors it takes for its own."""


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """Fail what hangs."""

    def stop(*_: object) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("path", PLACES)
def test_what_is_no_file_neither_hangs_nor_fills_the_memory(
    tree: Tree, tmp_path: Path, path: str, kind: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert run([*tree.options(), "apply"]) == 0
    place = tmp_path / path
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    try:
        kind(place)
    except OSError as error:
        pytest.skip(f"this file system has none: {error}")
    wheel, log, model = (str(tmp_path / PLACES[number]) for number in (-1, -2, -3))
    verbs = (
        ["list"], ["status"], ["check"], ["diff"], ["statement"], ["apply"], ["revert"], ["record", "--wheel", wheel],
        ["explain", log], ["preflight", "--model", model], ["digests", wheel], ["wheel", wheel, "-o", str(tmp_path)],
    )  # fmt: skip
    with in_time(30):
        for verb in verbs:
            assert run([*tree.options(), *verb]) in (0, 1), verb
    assert "Traceback" not in capsys.readouterr().err


def test_archive_that_says_its_directory_is_giant(tmp_path: Path, tree: Tree) -> None:
    place = tmp_path / "engine_cpu-1.5-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("engine/core.py", ENGINE)
    data = bytearray(place.read_bytes())
    end = data.rindex(b"PK\5\6")
    size, start = 3 * 2**30, int.from_bytes(data[end + 16 : end + 20], "little")
    data[end + 12 : end + 16] = size.to_bytes(4, "little")
    with place.open("wb") as file:
        file.write(data[:start])
        file.seek(start + size)
        file.write(data[end:])
    code = (
        "import re, sys; from patchkit.cli import run; code = run(sys.argv[1:]); "
        # getrusage's is at least what the process had that started this one
        "peak = int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]); "
        "sys.exit(code if peak < 400_000 else 9)"
    )
    for verb in (["digests", str(place)], ["wheel", str(place)], ["record", "--wheel", str(place)]):
        done = subprocess.run([sys.executable, "-c", code, *tree.options(), *verb], capture_output=True, text=True)
        assert done.returncode in (0, 1), (verb, done.stderr)


# --- names that would forge a report ---

EVIL = (
    "\x1b]0;owned\x07\x1b[2J\r\ncheck: 2 patches in place\n::set-output name=ok::yes\n"
    "\u202e<script>alert(1)</script>\u2028"
)


VERBS = ("status", "check", "preflight", "list", "explain", "record", "diff", "apply", "revert")


def lines_of(text: str) -> list[str]:
    """Return the lines of an output in which nothing is raw but line feeds and tabs."""
    assert not [char for char in text if not (char.isprintable() or char in "\n\t")]
    return text.split("\n")


def evil_trees(tree: Tree, tmp_path: Path) -> Iterator[list[str]]:
    """Yield command lines, each with harm in something else that is shown."""
    options = ["--site", str(tree.site), "--catalog"]
    package = tree.site / "engine"
    (package / EVIL.replace("/", "|")).touch()
    yield [*tree.options(), "record"]
    log = tmp_path / "log"
    log.write_text(f"{EVIL}model is refused{EVIL}\n", "utf-8", newline="")
    yield [*tree.options(), "explain", str(log)]
    yield [*tree.options(), "explain", str(tmp_path / EVIL.replace("/", "|"))]
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"architectures": [EVIL], "model_type": EVIL}))
    install(tree.site, "vllm", "0.16.0", {"vllm/__init__.py": "", "vllm/model_executor/models/registry.py": ""})
    yield [*tree.options(), "preflight", "--model", str(model)]
    moved = tmp_path / EVIL.replace("/", "|")
    shutil.copytree(tree.site, moved)
    yield ["--site", str(moved), "--catalog", str(tree.catalog), "status"]
    yield ["--site", str(moved), "--catalog", str(tree.catalog), "check"]
    yield ["--root", str(moved / "none"), "--catalog", str(tree.catalog), "status"]
    yield [*options, str(moved), "list"]
    words = {"title": EVIL, "reason": EVIL, "symptom": EVIL, "issue": EVIL}
    for title in (EVIL, "One line <script>alert(1)</script>"):
        quoted = {name: json.dumps(value) for name, value in (words | {"title": title}).items()}
        head = "title = {title}\nreason = {reason}\ntarget = 'engine'\nversions = '>=1.0,<2.0'\nsymptom = {symptom}\n"
        head += "[upstream]\nstatus = 'released'\nfixed_in = '2.0'\nissue = {issue}\n"
        hunk = unified_diff("engine/core.py", ENGINE.encode(), ENGINE.replace("qwen", "kimi").encode())
        evil = write_catalog(tmp_path / "evil", {"engine_models": {}})
        write_diff(evil, "evil", hunk, head.format(**quoted))
        for verb in ("list", "status", "check", "diff", "apply", "revert"):
            yield [*options, str(evil), verb]
    yield [*options, str(evil), "list", "--markdown"]
    yield [*options, str(evil), "status", EVIL]
    text = (evil / "targets.toml").read_text()
    for before, after in (
        ("[sets.all]", f"[sets.{json.dumps(EVIL)}]"),
        ('title = "Everything"', f"title = {json.dumps(EVIL)}"),
        ("[targets.worker]", f"[targets.{json.dumps(EVIL)}]"),
        ('"engine-cpu"]', f'"engine-cpu", {json.dumps(EVIL)}]'),
    ):
        (evil / "targets.toml").write_text(text.replace(before, after))
        yield [*options, str(evil), "status"]
        yield [*options, str(evil), "status", "nothing"]


@pytest.mark.parametrize("form", ["text", "json", "junit", "sarif", "github"])
def test_no_name_reaches_a_report_raw(
    tree: Tree, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for command in evil_trees(tree, tmp_path):
        verb = next(word for word in command if word in VERBS)
        options = [] if form == "text" else ["--format", form] if verb in ("check", "preflight") else ["--json"]
        capsys.readouterr()
        assert run([*command, *options]) in (0, 1, 2), command
        out, err = capsys.readouterr()
        for line in (*lines_of(out if verb != "diff" else ""), *lines_of(err)):
            is_forged = line.startswith(("check: 2 patches", "::set-output"))
            assert not is_forged or "--markdown" in command, command  # there the reason is a text of its own
        if (options == ["--json"] and out) or (form == "sarif" and out):
            json.loads(out)
        elif form == "junit" and options and out:
            ElementTree.fromstring(out)
        elif form == "github" and options:
            assert all(line.startswith(("::error ", "::notice ", "::warning ")) for line in out.splitlines())
    if summary.exists():
        lines_of(summary.read_text())
        assert "<script" not in summary.read_text()


def test_page_of_a_hostile_catalog_runs_nothing(tree: Tree, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    commands = list(evil_trees(tree, tmp_path))
    write_catalog(tmp_path / "evil", {"engine_models": {}})
    *_, command = [words for words in commands if words[-1] == "diff"]
    run([*command, "evil", "--allow-unlisted", "--html", str(page)])
    text = page.read_text()
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    lines_of(text)


# --- RECORD ---


def test_record_that_leads_out_is_read_past(tree: Tree, tmp_path: Path) -> None:
    """Installers list ../../bin/NAME; what no patch names is never opened."""
    os.mkfifo(tmp_path / "trap")
    rows = [(path, "sha256=" + "A" * 43, "1") for path in (f"{tmp_path}/trap", "../../../trap", "engine/../../x.py")]
    install(tree.site, "engine-cpu", "1.5", {"engine/__init__.py": "", "engine/core.py": ENGINE}, rows=rows)
    with in_time(30):
        for verb in ("apply", "check", "record", "revert"):
            assert run([*tree.options(), verb]) == 0, verb
    assert stat.S_ISFIFO((tmp_path / "trap").stat().st_mode)


def test_names_that_differ_in_case_only_are_two_files(tree: Tree) -> None:
    (tree.site / "engine/Core.py").write_text(ENGINE)
    assert run([*tree.options(), "apply"]) == 0
    assert (tree.site / "engine/Core.py").read_text() == ENGINE
