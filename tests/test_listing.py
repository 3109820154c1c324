from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from patchkit.catalog import Catalog, load_catalog
from patchkit.environment import Environment
from patchkit.errors import AnchorNotFound, ConfigError, PatchkitError, RecordMalformed, TargetError
from patchkit.listing import MARK, list_file, list_wheel, merge, to_toml, write
from patchkit.record import digest
from patchkit.rewrite import Rewriter
from patchkit.targets import Listing, Targets
from tests.trees import ENGINE, row, write_catalog

PATH = "engine/core.py"
TWO = {"old": "return None", "new": "return 2", "within": "Engine.stop"}
OLD = {"versions": ">=0.5,<1.0", "fixed_in": "1.0"}
A, B = "a" * 64, "b" * 64
ENVIRONMENT = Environment(None, (3, 10), ())


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return load_catalog(write_catalog(tmp_path / "catalog", {"one": {}, "two": TWO, "older": OLD}))


def wheel(folder: Path, files: dict[str, str], name: str = "engine_cpu-1.5", record: str | None = None) -> Path:
    """Write a wheel that lists the files truly, unless its RECORD is given."""
    place = folder / f"{name}-py3-none-any.whl"
    rows = "".join(f"{','.join(row(path, text.encode()))}\n" for path, text in files.items())
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{name}.dist-info/RECORD", rows if record is None else record)
    return place


def folded(catalog: Catalog, text: str, *ids: str) -> str:
    return digest(Rewriter(catalog, ENVIRONMENT).fold(PATH, text.encode(), ids).after)


def test_every_set_of_patches_is_listed(tmp_path: Path, catalog: Catalog) -> None:
    release, files = list_wheel(catalog, wheel(tmp_path, {"engine/__init__.py": "", PATH: ENGINE}), ENVIRONMENT)
    sets = [("one",), ("two",), ("one", "two")]
    patched = {frozenset(ids): folded(catalog, ENGINE, *ids) for ids in sets}
    assert release == ("engine", "1.5")
    assert files == {PATH: Listing(digest(ENGINE.encode()), patched)}
    assert len({files[PATH].pristine, *patched.values()}) == 4


def test_patch_that_changes_nothing_is_listed_alone(tmp_path: Path, catalog: Catalog) -> None:
    text = ENGINE.replace('["llama", "qwen"]', "['llama', 'qwen', 'kimi']")
    _, files = list_wheel(catalog, wheel(tmp_path, {PATH: text}), ENVIRONMENT)
    assert files[PATH].patched == {
        frozenset({"one"}): files[PATH].pristine,
        frozenset({"two"}): folded(catalog, text, "two"),
    }


@pytest.mark.parametrize(("version", "ids"), [("0.9", ["older"]), ("1.9rc1", ["one"]), ("2.0", []), ("3.0", [])])
def test_patches_of_the_release_are_listed(tmp_path: Path, catalog: Catalog, version: str, ids: list[str]) -> None:
    text = ENGINE.replace("return None", "return 2")
    release, files = list_wheel(catalog, wheel(tmp_path, {PATH: text}, f"engine-{version}"), ENVIRONMENT)
    assert release == ("engine", version)
    assert [patches for patches in files[PATH].patched if patches != {"two"}] == [frozenset({name}) for name in ids]


def test_version_is_normalised(tmp_path: Path, catalog: Catalog) -> None:
    release, _ = list_wheel(catalog, wheel(tmp_path, {PATH: ENGINE}, "Engine-1.5.RC1+CPU"), ENVIRONMENT)
    assert release == ("engine", "1.5rc1+cpu")


def test_release_without_the_file(tmp_path: Path, catalog: Catalog) -> None:
    assert list_wheel(catalog, wheel(tmp_path, {"engine/b.py": ""}), ENVIRONMENT) == (("engine", "1.5"), {})


def test_release_without_the_anchor(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(AnchorNotFound, match=r"^Engine: not found$"):
        list_wheel(catalog, wheel(tmp_path, {PATH: "x = 1\n"}), ENVIRONMENT)


def test_record_of_a_vendored_distribution_is_not_that_of_the_wheel(tmp_path: Path, catalog: Catalog) -> None:
    files = {"engine/_vendor/a-1.dist-info/RECORD": "", PATH: ENGINE}
    _, found = list_wheel(catalog, wheel(tmp_path, files), ENVIRONMENT)
    assert list(found) == [PATH]


@pytest.mark.parametrize("name", ["engine.whl", "engine-1.5.zip", "engine-new-py3-none-any.whl", "engine-1.5.tar.gz"])
def test_name_that_is_no_wheel(tmp_path: Path, catalog: Catalog, name: str) -> None:
    with pytest.raises(TargetError, match=rf"{name} is not a wheel: "):
        list_wheel(catalog, tmp_path / name, ENVIRONMENT)


@pytest.mark.parametrize("data", [None, b"", b"PK\3\4 and more"], ids=["absent", "empty", "no archive"])
def test_file_that_is_no_wheel(tmp_path: Path, catalog: Catalog, data: bytes | None) -> None:
    place = tmp_path / "engine-1.5-py3-none-any.whl"
    if data is not None:
        place.write_bytes(data)
    with pytest.raises(TargetError, match=r"any\.whl is not a wheel: ") as caught:
        list_wheel(catalog, place, ENVIRONMENT)
    assert caught.value.hint == "download one: pip download --no-deps NAME"


def test_wheel_of_another_project(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(TargetError, match=r"is of engine-gpu, which is no target's$"):
        list_wheel(catalog, wheel(tmp_path, {PATH: ENGINE}, "engine_gpu-1.5"), ENVIRONMENT)


def test_wheel_that_differs_from_its_record(tmp_path: Path, catalog: Catalog) -> None:
    place = wheel(tmp_path, {PATH: ENGINE}, record=",".join(row(PATH, b"other")))
    with pytest.raises(TargetError, match=r"^engine/core\.py differs from the RECORD of .*any\.whl$"):
        list_wheel(catalog, place, ENVIRONMENT)


def test_wheel_with_a_broken_record(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(RecordMalformed, match=r"any\.whl: engine_cpu-1\.5\.dist-info/RECORD has no digest for"):
        list_wheel(catalog, wheel(tmp_path, {PATH: ENGINE}, record=f"{PATH},,\n"), ENVIRONMENT)


def test_wheel_without_a_record(tmp_path: Path, catalog: Catalog) -> None:
    place = tmp_path / "engine-1.5-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(PATH, ENGINE)
    with pytest.raises(PatchkitError, match="RECORD"):
        list_wheel(catalog, place, ENVIRONMENT)


def test_wheel_that_lacks_a_file_of_its_record(tmp_path: Path, catalog: Catalog) -> None:
    place = wheel(tmp_path, {}, record=",".join(row(PATH, ENGINE.encode())))
    with pytest.raises(PatchkitError, match=r"engine/core\.py"):
        list_wheel(catalog, place, ENVIRONMENT)


def test_wheel_whose_bytes_are_damaged(tmp_path: Path, catalog: Catalog) -> None:
    place = wheel(tmp_path, {PATH: ENGINE})
    data = bytearray(place.read_bytes())
    start = data.index(PATH.encode()) + len(PATH)
    data[start : start + 20] = b"\xff" * 20
    place.write_bytes(data)
    with pytest.raises(PatchkitError):
        list_wheel(catalog, place, ENVIRONMENT)


ONE, OTHER = {PATH: Listing(A, {frozenset({"one"}): B})}, {PATH: Listing(B, {})}


def targets(catalog: Catalog) -> Targets:
    return catalog.targets._replace(releases={("engine", "1.5"): ONE, ("engine", "1.6"): ONE})


def test_fresh_releases_replace_listed_ones(catalog: Catalog) -> None:
    found = [(("engine", "1.6"), OTHER), (("engine", "1.7"), OTHER), (("engine", "1.7"), dict(OTHER))]
    merged = merge(targets(catalog), found)
    assert merged.releases == {("engine", "1.5"): ONE, ("engine", "1.6"): OTHER, ("engine", "1.7"): OTHER}
    assert merged.sets == catalog.targets.sets


def test_two_wheels_of_a_release_that_differ(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"^two wheels of engine 1\.6 differ$"):
        merge(targets(catalog), [(("engine", "1.6"), OTHER), (("engine", "1.6"), ONE)])


def test_text_is_in_order(catalog: Catalog) -> None:
    both = {frozenset({"two", "one"}): B, frozenset({"two"}): A, frozenset({"one"}): B}
    releases = {("worker", "1.0"): {}, ("engine", "1.10"): OTHER, ("engine", "1.9"): {PATH: Listing(A, both)}}
    assert to_toml(catalog.targets._replace(releases=releases)) == (
        f'{MARK}\n[releases.engine."1.9"."engine/core.py"]\npristine = "{A}"\n'
        f'one = "{B}"\ntwo = "{A}"\n"one+two" = "{B}"\n'
        f'\n[releases.engine."1.10"."engine/core.py"]\npristine = "{B}"\n'
    )


def test_written_part_is_replaced_and_the_rest_kept(catalog: Catalog) -> None:
    place = catalog.place / "targets.toml"
    by_hand = f"# by hand: é\n{place.read_text('utf-8')}"
    place.write_text(by_hand, "utf-8")
    for _ in range(2):
        write(catalog, targets(catalog))
        assert place.read_text("utf-8") == f"{by_hand.rstrip()}\n\n{to_toml(targets(catalog))}"
        assert load_catalog(catalog.place).targets == targets(catalog)
    write(catalog, catalog.targets)
    assert place.read_text("utf-8") == f"{by_hand.rstrip()}\n\n{MARK}"


COUNTED = "def capture(model):\n" + "".join(f"    a{number} = 0\n" for number in range(5)) + "    return model\n"
NEEDS = {1: '{"engine": ">=1.0,<1.6"}', 2: '{"engine": ">=1.6,<2.0"}'}


def test_of_many_patches_each_and_the_whole_sets_are_listed(tmp_path: Path) -> None:
    fields = {
        f"p{number}": {
            "target": "worker",
            "path": "worker/capture.py",
            "within": "capture",
            "old": f"a{number} = 0",
            "new": f"a{number} = 1",
            "requires": NEEDS.get(number, "{}"),
        }
        for number in range(5)
    }
    releases = "".join(f'\n[releases.engine."{version}"]\n' for version in ("1.5", "1.7", "2.1"))
    many = load_catalog(write_catalog(tmp_path / "many", fields, releases))
    listing = list_file(many, "worker/capture.py", COUNTED.encode(), sorted(fields), ENVIRONMENT)
    alone = {frozenset({name}) for name in fields}
    free = frozenset({"p0", "p3", "p4"})
    # For engine 1.5, for engine 1.7, and for an engine that none is for or that is not there.
    assert set(listing.patched) == {*alone, free | {"p1"}, free | {"p2"}, free}
    assert len({listing.pristine, *listing.patched.values()}) == 1 + len(listing.patched)
