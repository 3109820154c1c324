from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from patchkit.errors import PatchInvalid
from patchkit.header import Header, read_header
from patchkit.patch import Patch, Upstream
from patchkit.record import digest
from tests.trees import patch_text

TEXT = patch_text(requires='{"worker": ">=1.0"}')


def read(folder: Path, text: str | bytes, name: str = "engine_models") -> Header:
    place = folder / f"{name}.py"
    place.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_header(place)


def test_everything_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT) == Header(
        id="engine_models",
        title="The engine takes another model",
        reason="It does not list it.",
        patch=Patch(
            target="engine",
            versions=">=1.0,<2.0",
            requires={"worker": ">=1.0"},
            symptom="model is refused",
            upstream=Upstream(status="released", fixed_in="2.0"),
        ),
        files={"engine/core.py": ("Engine.start",)},
        source=TEXT.encode(),
        revision=digest(TEXT.encode()),
        place=tmp_path / "engine_models.py",
        lines={
            "engine/core.py": TEXT.splitlines().index('@patch.rewrites("engine/core.py", within=("Engine.start",))') + 1
        },
    )


def test_versions_are_values(tmp_path: Path) -> None:
    header = read(tmp_path, TEXT)
    assert ("1.5" in header.specifier, "2.0" in header.specifier, header.fixed_in) == (True, False, Version("2.0"))
    assert read(tmp_path, patch_text(status="merged", fixed_in="")).fixed_in is None


def test_nothing_is_run(tmp_path: Path) -> None:
    assert read(tmp_path, f"{TEXT}\nimport nothing_of_that_name\nraise SystemExit\n").id == "engine_models"
    assert [path.name for path in tmp_path.iterdir()] == ["engine_models.py"]


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.replace("\n", "\r\n").encode(),
        b"# coding: latin-1\n" + TEXT.replace("refused", "refus\xe9").encode("latin-1"),
        TEXT.rstrip("\n").encode(),
    ],
    ids=["BOM", "CRLF", "latin-1", "no final newline"],
)
def test_bytes_are_read_as_python_reads_them(tmp_path: Path, text: bytes) -> None:
    header = read(tmp_path, text)
    assert (header.title, header.source, header.revision) == ("The engine takes another model", text, digest(text))


def test_several_files(tmp_path: Path) -> None:
    more = '\n\n@staticmethod\n@patch.rewrites("engine/two.py", within=("import", "A.f"))\ndef two(module): ...\n'
    assert read(tmp_path, TEXT + more).files == {
        "engine/core.py": ("Engine.start",),
        "engine/two.py": ("import", "A.f"),
    }


@pytest.mark.parametrize("versions", ["==1.5", "==1.*", ">1,<=1.9", ">=1.0,!=1.2,<2.0"])
def test_ranges_with_both_ends(tmp_path: Path, versions: str) -> None:
    assert read(tmp_path, patch_text(versions=versions)).patch.versions == versions


@pytest.mark.parametrize("status", ["declined", "not-upstreamable"])
def test_status_that_needs_a_reason(tmp_path: Path, status: str) -> None:
    fields = {"status": status, "fixed_in": ""}
    assert read(tmp_path, patch_text(**fields, reason=f"It is {status}: why.")).patch.upstream == Upstream(status)
    with pytest.raises(PatchInvalid, match=f"the reason must say why the patch is {status}, in these words"):
        read(tmp_path, patch_text(**fields))


@pytest.mark.parametrize("name", ["Engine", "engine-models", "1engine", "engine models", "ENGINE", "__"])
def test_name_that_is_no_id(tmp_path: Path, name: str) -> None:
    with pytest.raises(PatchInvalid, match="must be snake_case: it is the id of the patch"):
        read(tmp_path, TEXT, name)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(PatchInvalid, match=r"a\.py cannot be read: No such file"):
        read_header(tmp_path / "a.py")


def test_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.py").mkdir()
    with pytest.raises(PatchInvalid, match=r"a\.py cannot be read: not a regular file"):
        read_header(tmp_path / "a.py")


@pytest.mark.parametrize(
    "text",
    [b"def f(:\n", b"x = '\xe9'\n", b"# coding: nope\n", b"\0", b"x = " + b"(" * 100_000, b"x = " + b"-" * 100_000],
    ids=["syntax", "not UTF-8", "unknown coding", "NUL", "nesting", "long chain"],
)
def test_text_that_does_not_parse(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(PatchInvalid, match=r"engine_models\.py does not parse: "):
        read(tmp_path, text)


DECORATOR = '@patch.rewrites("engine/core.py", within=("Engine.start",))'
UPSTREAM = 'upstream=Upstream(status="released", fixed_in="2.0")'
LITERAL = "must be a literal"
BOTH_ENDS = "needs both ends, as in '>=0.16,<0.17'"
NO_PATH = "is not the path of a .py file below a site folder"
DOTTED = "within must be a tuple of dotted names"
WRONG = {
    "no docstring": ('"""The engine takes another model\n\nIt does not list it.\n"""', "", "a docstring must give"),
    "no reason": ("\n\nIt does not list it.\n", "", "a docstring must give a title, a blank line and the reason"),
    "no patch": ("patch = Patch(", "other = Patch(", "there must be one `patch = Patch(…)` at the top level"),
    "annotated patch": ("patch = Patch(", "patch: Patch = Patch(", "there must be one `patch = Patch(…)`"),
    "patch under an if": ("patch = Patch(", "if True: patch = Patch(", "there must be one `patch = Patch(…)`"),
    "more than a call": ("\n)\n\n\n@patch", "\n) or None\n\n\n@patch", "engine_models.py: "),
    "attribute of a call": ("\n)\n\n\n@patch", "\n).copy\n\n\n@patch", "engine_models.py: "),
    "position": ("Patch(\n", "Patch(\n'engine', ", "Patch(…): arguments must be given by keyword"),
    "unknown field": ('target="engine"', 'target="engine", title="x"', "Patch(…): "),
    "field left out": ('    symptom="model is refused",\n', "", "'symptom'"),
    "unpacked fields": ('target="engine"', '**{"target": "engine"}', "Patch(…): "),
    "computed value": ('target="engine"', "target=NAME", f"target {LITERAL}"),
    "called value": ('target="engine"', "target=name()", f"target {LITERAL}"),
    "format string": ('target="engine"', 'target=f"{1}"', f"target {LITERAL}"),
    "key that cannot be one": ('{"worker": ">=1.0"}', '{[]: ">=1.0"}', "requires"),
    "empty target": ('target="engine"', 'target=""', "target must be a string that is not empty"),
    "target is a number": ('target="engine"', "target=1", "target must be a string that is not empty"),
    "empty symptom": ('symptom="model is refused"', 'symptom=""', "symptom must be a string that is not empty"),
    "no lower end": (">=1.0,<2.0", "<2.0", BOTH_ENDS),
    "no upper end": (">=1.0,<2.0", ">=1.0", BOTH_ENDS),
    "not equal": (">=1.0,<2.0", "!=1.0", BOTH_ENDS),
    "no specifier": (">=1.0,<2.0", "1.0 to 2.0", "versions: "),
    "requires is a list": ('{"worker": ">=1.0"}', '["worker"]', "requires must map target names to specifiers"),
    "requires no specifier": ('">=1.0"}', '"new"}', "requires['worker']: "),
    "requires nothing": ('">=1.0"}', "None}", "requires['worker']: "),
    "unknown status": (
        'status="released"',
        'status="fixed"',
        "upstream needs a status, one of unreported, reported, proposed",
    ),
    "no upstream": (UPSTREAM, "upstream=None", "upstream needs a status, one of unreported"),
    "upstream by position": (UPSTREAM, 'upstream=Upstream("merged")', "Upstream(…): arguments must be given by"),
    "unknown field of upstream": ('fixed_in="2.0"', 'fixed="2.0"', "Upstream(…): "),
    "released in none": (', fixed_in="2.0"', "", "upstream.fixed_in is needed when the status is released"),
    "fixed in no version": ('fixed_in="2.0"', 'fixed_in="soon"', "upstream.fixed_in: "),
    "fixed in a number": ('fixed_in="2.0"', "fixed_in=2", "fixed_in"),
    "fixed inside the range": ('fixed_in="2.0"', 'fixed_in="1.9"', "versions '>=1.0,<2.0' reaches into fixed_in 1.9"),
    "fixed in a pre-release": ('fixed_in="2.0"', 'fixed_in="1.9rc1"', "reaches into fixed_in 1.9rc1"),
    "fixed before the range": ('fixed_in="2.0"', 'fixed_in="0.9"', "reaches into fixed_in 0.9"),
    "fixed in a hole of the range": (
        '">=1.0,<2.0"',
        '">=1.0,!=2.0,<3.0"',
        "versions '>=1.0,!=2.0,<3.0' reaches into fixed_in 2.0",
    ),
    "no rewrite": (DECORATOR, "", "at least one function must be decorated with @patch.rewrites"),
    "rewrite in a class": (f"{DECORATOR}\n", f"class A:\n  {DECORATOR}\n  def f(): ...\n", "at least one function"),
    "one file twice": (DECORATOR, f"{DECORATOR}\ndef f(): ...\n\n{DECORATOR}", "engine/core.py is rewritten twice"),
    "path that leaves": ('"engine/core.py", w', '"../core.py", w', f"'../core.py' {NO_PATH}"),
    "absolute path": ('"engine/core.py", w', '"/engine/core.py", w', f"'/engine/core.py' {NO_PATH}"),
    "path of data": ('"engine/core.py", w', '"engine/core.so", w', f"'engine/core.so' {NO_PATH}"),
    "path by keyword": ('("engine/core.py", w', '(path="engine/core.py", w', f"None {NO_PATH}"),
    "path and more": ('"engine/core.py", w', '"engine/core.py", 1, w', f"None {NO_PATH}"),
    "computed path": ('("engine/core.py", w', "(PATH, w", f"path {LITERAL}"),
    "path is a number": ('("engine/core.py", w', "(1, w", f"1 {NO_PATH}"),
    "within is left out": (', within=("Engine.start",)', "", DOTTED),
    "within is empty": ('within=("Engine.start",)', "within=()", DOTTED),
    "within is a string": ('within=("Engine.start",)', 'within="Engine.start"', DOTTED),
    "within is numbers": ('within=("Engine.start",)', "within=(1,)", DOTTED),
    "within is computed": ('within=("Engine.start",)', "within=NAMES", f"within {LITERAL}"),
}


@pytest.mark.parametrize(("old", "new", "words"), WRONG.values(), ids=WRONG)
def test_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in TEXT
    with pytest.raises(PatchInvalid) as caught:
        read(tmp_path, TEXT.replace(old, new, 1))
    assert caught.value.message.startswith(f"{tmp_path / 'engine_models.py'}: ")
    assert words in caught.value.message
    assert caught.value.hint == "correct the patch file"
