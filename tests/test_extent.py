"""What a rewrite may change, and what not."""

from __future__ import annotations

from textwrap import dedent

import libcst
import pytest

from patchkit.cst import code_of
from patchkit.extent import find_stray
from tests.support import parse

SOURCE = """
# about the file
import os

# about A
@one
class A(Base):
    x = 1

    # about f
    def f(self):
        return 1

    if x:
        def g(self):
            return 2
    else:
        y = 2
    # the end of A

try:
    import sys
except (ImportError, OSError):
    sys = None
match x:
    case 1:
        z = 3
def h(): return 4
# the end
"""


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return 1", "return 9", ("A.f",)),
        ("return 1", "return 9", ("A",)),
        ("return 2", "return 9", ("A.g",)),
        ("return 4", "return 9", ("A.f", "h")),
        ("A(Base)", "A(Base, Other)", ("A",)),
        ("@one", "@one\n@two", ("A",)),
        ("import os", "import os\nfrom a import b", ("import",)),
        ("import os", "import os as o", ("import", "h")),
        ("def h()", "def added():\n    pass\n\n# patchkit: one\ndef h()", ("added",)),
        ("    # about f", "    def added(self): pass\n\n    # about f", ("A.added",)),
        ("    # about f", "    # patchkit: one\n    # about f", ("h",)),
        ("    x = 1\n", "    x = 1\n\n\n", ("h",)),
        ("# about the file", "# about the file\n# patchkit: one", ("h",)),
        ("# the end\n", "# the end\n# patchkit: one\n", ("h",)),
    ],
)
def test_change_inside(old: str, new: str, names: tuple[str, ...]) -> None:
    assert find_stray(parse(SOURCE), parse(SOURCE.replace(old, new)), names) is None


@pytest.mark.parametrize(
    ("old", "new", "names", "stray"),
    [
        ("return 1", "return 9", ("A.g", "h"), "return 9"),
        ("return 1", "return 9", ("f",), "return 9"),
        ("return 1", "return 9", ("B.f", "A.f.f"), "return 9"),
        ("return 4", "return 9", ("A",), "return 9"),
        ("x = 1", "x = 1  # why", ("A.f",), "x = 1  # why"),
        ("x = 1", "x = 2", ("A.f",), "x = 2"),
        ("x = 1\n", "x = 1\n    w = 3\n", ("A.f",), "w = 3"),
        ("y = 2", "y = 3", ("A.g",), "y = 3"),
        ("y = 2\n", "y = 2\n        y\n", ("A.g",), "y"),
        ("if x", "if y", ("A.g",), "if y:"),
        ("    else:\n        y = 2\n", "", ("A.g",), "y = 2"),
        ("A(Base)", "A(Base, Other)", ("A.f",), "class A(Base, Other):"),
        ("@one", "@one\n@two", ("A.f",), "@one"),
        ("# about f", "# about it", ("A.f",), "# about it"),
        ("    # about f\n", "", ("A.f",), "if x:"),
        ("# about A", "# about it", ("A.f",), "# about it"),
        ("# the end of A", "# the end", ("A.f",), "x = 1"),
        ("# the end\n", "", ("A.f",), "# about the file"),
        ("# about the file", "# about", ("import",), "# about"),
        ("import os", "import os\nb = 1", ("import",), "b = 1"),
        ("import os", "import os; b = 1", ("import",), "import os; b = 1"),
        ("import os", "import osx", ("A",), "import osx"),
        ("import sys", "import sysx", ("import",), "import sysx"),
        ("ImportError, ", "", ("A",), "except (OSError):"),
        ("    sys = None", "    sys = 0", ("A",), "sys = 0"),
        ("case 1", "case 2", ("A",), "case 2:"),
        ("z = 3", "z = 4", ("A",), "z = 4"),
        ("def h(): return 4\n", "", ("A",), "def h(): return 4"),
        ("def h(): return 4\n", "h = 4\n", ("A",), "h = 4"),
        ("def h(): return 4\n", "def h():\n    return 4\n", ("A",), "return 4"),
    ],
)
def test_change_outside(old: str, new: str, names: tuple[str, ...], stray: str) -> None:
    before = parse(SOURCE)
    found = find_stray(before, parse(SOURCE.replace(old, new)), names)
    assert found is not None
    lines = [line.strip() for line in code_of(found).splitlines() if line.strip()]
    assert stray in lines


def test_other_line_ends_are_a_change() -> None:
    before = parse(SOURCE)
    assert isinstance(find_stray(before, before.with_changes(default_newline="\r\n"), ("A",)), libcst.Module)


def test_same_tree_is_not_looked_into() -> None:
    broken = libcst.Module(body=(None,))  # type: ignore[arg-type]
    assert find_stray(broken, broken, ()) is None
    assert find_stray(parse(dedent(SOURCE)), parse(SOURCE), ()) is None
