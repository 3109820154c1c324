"""The head of a diff patch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from patchkit.diff_header import read_diff_header
from patchkit.errors import PatchInvalid
from patchkit.header import Header
from patchkit.patch import Patch, Upstream
from patchkit.record import digest
from tests.trees import DIFF, ENGINE, write_diff

BODY = """\
diff --git a/engine/core.py b/engine/core.py
index 0123abc..4567def 100644
--- a/engine/core.py
+++ b/engine/core.py
@@ -2,3 +2,3 @@ class Engine:
     def start(self):
-        models = ["llama", "qwen"]
+        models = ["llama", "qwen", "kimi"]
         return models
"""


def read(folder: Path, body: str | bytes = BODY, head: str = DIFF, name: str = "engine_models") -> Header:
    return read_diff_header(write_diff(folder, name, body, head))


def test_everything_is_read(tmp_path: Path) -> None:
    head = DIFF.replace("[upstream]", '[requires]\nworker = ">=1.0"\n\n[upstream]\nissue = "a/b#1"\npull = "a/b#2"')
    found = read(tmp_path, head=head)
    assert found == Header(
        id="engine_models",
        title="The engine takes another model",
        reason="It does not list it.",
        patch=Patch(
            target="engine",
            versions=">=1.0,<2.0",
            requires={"worker": ">=1.0"},
            symptom="model is refused",
            upstream=Upstream(status="released", issue="a/b#1", pull="a/b#2", fixed_in="2.0"),
        ),
        files={"engine/core.py": ()},
        source=(head + BODY).encode(),
        revision=digest((head + BODY).encode()),
        place=tmp_path / "patches/engine_models.diff",
        lines={"engine/core.py": len(head.splitlines()) + 3},
    )


@pytest.mark.parametrize(
    "body",
    [
        BODY.partition("index")[2].partition("\n")[2],
        BODY[BODY.index("---") :],
        "Index: engine/core.py\n" + "=" * 67 + "\n" + BODY[BODY.index("---") :],
        BODY.replace("a/engine/core.py\n+++", "a/engine/core.py\t2026-01-01 00:00:00\n+++"),
        BODY + "\n\n",
    ],
    ids=["git", "bare", "svn", "with a date", "blank lines after it"],
)
def test_diffs_of_many_tools(tmp_path: Path, body: str) -> None:
    assert list(read(tmp_path, body).files) == ["engine/core.py"]


def test_several_files(tmp_path: Path) -> None:
    found = read(tmp_path, BODY + BODY.replace("core", "other"))
    assert list(found.files) == ["engine/core.py", "engine/other.py"]


@pytest.mark.parametrize(
    "head",
    ["\ufeff" + DIFF, DIFF.replace('"It does not list it."', '"""\nIt does not:\nno list.\n"""'), f"# x\n{DIFF}"],
)
def test_text_of_the_head(tmp_path: Path, head: str) -> None:
    assert read(tmp_path, head=head).reason.startswith("It does not")


@pytest.mark.parametrize("tool", [["git", "apply", "-p1"], ["patch", "-p1", "-i"]])
def test_other_tools_skip_the_head(tmp_path: Path, tool: list[str]) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/core.py").write_text(ENGINE)
    place = write_diff(tmp_path, "engine_models", BODY)
    subprocess.run([*tool, str(place)], cwd=tmp_path, check=True, capture_output=True)
    assert '"kimi"' in (tmp_path / "engine/core.py").read_text()


HEADS = {
    "no TOML": ('title = "', "title: ", "the text above the diff is not TOML: "),
    "key twice": ("target =", 'title = "x"\ntarget =', "is not TOML: "),
    "no title": ('title = "The engine takes another model"\n', "", "title must be a string that is not empty"),
    "title a number": ('"The engine takes another model"', "1", "title must be a string that is not empty"),
    "no reason": ('"It does not list it."', '" "', "reason must be a string that is not empty"),
    "no target": ('target = "engine"\n', "", "'target'"),
    "target a list": ('"engine"', "[]", "target must be a string that is not empty"),
    "unknown field": ("target =", 'author = "x"\ntarget =', "author is no field of a Patch; there are "),
    "unknown field of upstream": ("fixed_in", "fixed", "fixed is no field of a Upstream; there are "),
    "no status": ('status = "released"\n', "", "'status'"),
    "unknown status": ('"released"', '"done"', "upstream needs a status, one of unreported, "),
    "status a list": ('"released"', "[]", "upstream needs a status, one of unreported, "),
    "upstream a word": ("[upstream]\n", 'upstream = "x"\n[other]\n', "upstream must be a table"),
    "requires a word": ("symptom =", 'requires = "x"\nsymptom =', "requires must map target names to specifiers"),
    "open range": (",<2.0", "", "needs both ends, as in '>=0.16,<0.17'"),
    "reaches into the fix": ("<2.0", "<3.0", "reaches into fixed_in 2.0"),
}


@pytest.mark.parametrize(("old", "new", "words"), HEADS.values(), ids=HEADS)
def test_head_that_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in DIFF
    with pytest.raises(PatchInvalid) as caught:
        read(tmp_path, head=DIFF.replace(old, new, 1))
    assert caught.value.message.startswith(f"{tmp_path / 'patches/engine_models.diff'}: ")
    assert words in caught.value.message


# With the number of the line before the one that is named.
NO_PATH = "is not the path of a .py file below a site folder"
BODIES = {
    "created": ("--- a/engine/core.py", "--- /dev/null", 12, "a patch cannot create or delete a file"),
    "deleted": ("+++ b/engine/core.py", "+++ /dev/null", 12, "a patch cannot create or delete a file"),
    "new file mode": ("index 0", "new file mode 100644\nindex 0", 11, "'new file mode 100644' is not part of a change"),
    "deleted mode": ("index 0", "deleted file mode 100644\nindex 0", 11, "'deleted file mode 100644' is not part"),
    "mode": ("index 0", "old mode 100644\nnew mode 100755\nindex 0", 11, "'old mode 100644' is not part"),
    "rename": ("index 0", "rename from engine/a.py\nindex 0", 11, "'rename from engine/a.py' is not part"),
    "renamed": ("--- a/engine/core.py", "--- a/engine/old.py", 12, "cannot rename 'engine/old.py' to 'engine/core.py'"),
    "binary": ("index 0", "GIT binary patch\nindex 0", 11, "'GIT binary patch' is not part"),
    "binary files": ("index 0", "Binary files a/x and b/x differ\nindex 0", 11, "'Binary files a/x and b/x differ'"),
    "link": ("100644\n", "120000\n", 11, "'index 0123abc..4567def 120000' is not part"),
    "prose": (BODY[-22:], BODY[-22:] + "2.39.0\n", 19, "'2.39.0' is not part"),
    "absolute": ("core.py\n@@", "core.py\n@@", 12, f"'/engine/core.py' {NO_PATH}"),
    "parent": ("core.py\n@@", "core.py\n@@", 12, f"'../engine/core.py' {NO_PATH}"),
    "backslash": ("core.py\n@@", "core.py\n@@", 12, f"'x\\\\engine/core.py' {NO_PATH}"),
    "no prefix": ("a/engine/core.py\n+", "engine/core.py\n+", 12, "the names must begin with a/ and b/"),
    "quoted": ("a/engine/core.py\n+", '"a/engine/core.py"\n+', 12, "the names must begin with a/ and b/"),
    "other ending": ("core.py\n@@", "core.py\n@@", 12, f"'engine/core.pyx' {NO_PATH}"),
    "CRLF": ("core.py\n@@", "core.py\n@@", 12, f"'engine/core.py\\r' {NO_PATH}"),
    "no hunk": (BODY[BODY.index("@@") :], "", 10, "no file is named, by a line `--- a/PATH`"),
    "twice": (BODY, BODY + BODY, 21, "engine/core.py is changed twice; put all its hunks together"),
}
RENAMED = {
    "absolute": "/engine/core.py",
    "parent": "../engine/core.py",
    "backslash": "x\\engine/core.py",
    "other ending": "engine/core.pyx",
    "CRLF": "engine/core.py\r",
}


@pytest.mark.parametrize("name", BODIES)
def test_diff_that_is_refused(tmp_path: Path, name: str) -> None:
    old, new, line, words = BODIES[name]
    assert old in BODY
    body = BODY.replace(old, new, 1)
    if name in RENAMED:
        other = RENAMED[name]
        body = body.replace("--- a/engine/core.py", f"--- a/{other}").replace("+++ b/engine/core.py", f"+++ b/{other}")
    with pytest.raises(PatchInvalid) as caught:
        read(tmp_path, body)
    assert caught.value.message.startswith(f"{tmp_path / 'patches/engine_models.diff'}: line {line + 1}: ")
    assert words in caught.value.message


def test_file_without_a_diff(tmp_path: Path) -> None:
    with pytest.raises(PatchInvalid, match="there is no diff in it: no line begins with `--- `"):
        read(tmp_path, "")


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(PatchInvalid, match=r"a\.diff cannot be read: No such file"):
        read_diff_header(tmp_path / "a.diff")


def test_name_that_is_no_id(tmp_path: Path) -> None:
    with pytest.raises(PatchInvalid, match="must be snake_case: it is the id of the patch"):
        read(tmp_path, name="engine-models")
