from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from types import FrameType

import pytest

from patchkit.gates.code import Code
from patchkit.gates.module import Class, Lineage
from tests.gates.fragments import write


def read(site: Path, files: dict[str, str]) -> Code:
    return Code([write(site, files)])


def lineage(site: Path, source: str, name: str = "A", **others: str) -> Lineage:
    code = read(site, {"m.py": source} | {f"{module}.py": text for module, text in others.items()})
    return code.lineage(cls(code, "m", name))


def cls(code: Code, module: str, name: str) -> Class:
    found = code.module(module)
    assert found is not None
    return found.classes[name]


def order(found: Lineage) -> list[str]:
    return [other.name for other in found.classes]


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_module_and_package(tmp_path: Path) -> None:
    code = read(tmp_path, {"a/__init__.py": "x = 1\n", "a/b.py": "y = 2\nz = 3\n"})
    package, module = code.module("a"), code.module("a.b")
    assert package is not None and module is not None
    assert (package.name, package.path, package.lines) == ("a", "a/__init__.py", ["x = 1"])
    assert (module.name, module.path, module.lines) == ("a.b", "a/b.py", ["y = 2", "z = 3"])


def test_module_is_read_once(tmp_path: Path) -> None:
    code = read(tmp_path, {"a.py": "class A: pass\n"})
    first = code.module("a")
    (tmp_path / "a.py").unlink()
    assert first is not None and code.module("a") is first
    assert code.module("b") is None
    (tmp_path / "b.py").touch()
    assert code.module("b") is None


@pytest.mark.parametrize(
    "data",
    [
        b"class A(:\n",
        b"x = 1\0\n",
        b"# coding: utf-8\nx = '\xff'\n",
        b"\xff\xfe\x00\x00",
        b"# coding: no-such-thing\n",
        b"x = " + b"(" * 5000,
        b"x = " + b"-" * 100_000 + b"1\n",
    ],
    ids=["syntax", "nul", "bytes", "utf-32", "coding", "brackets", "nesting"],
)
def test_what_is_not_python_is_no_module(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.py").write_bytes(data)
    assert Code([tmp_path]).module("a") is None


def test_source_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"# coding: latin-1\nclass A: x = '\xe9'\n")
    code = Code([tmp_path])
    assert ast.literal_eval(cls(code, "a", "A").members["x"].value) == "é"  # type: ignore[attr-defined]
    assert cls(code, "a", "A").evidence.text == "class A: x = '\ufffd'"


@pytest.mark.parametrize("character", ["\f", "\x1c", "\x85", "\u2028"])
def test_lines_are_those_of_python(tmp_path: Path, character: str) -> None:
    (tmp_path / "a.py").write_text(f"# {character}\nclass A: pass\n", encoding="utf-8")
    assert cls(Code([tmp_path]), "a", "A").evidence.text == "class A: pass"


def test_folder_and_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").mkdir()
    os.mkfifo(tmp_path / "b.py")
    os.mkfifo(tmp_path / "c.py")
    code = read(tmp_path, {"c/__init__.py": "x = 1\n"})
    assert (code.module("a"), code.module("b")) == (None, None)
    package = code.module("c")
    assert package is not None and package.path == "c/__init__.py"


@pytest.mark.parametrize(
    "name", ["", ".", "..outside", "/outside", "a/../../outside", "outside\n", "\0", "\ud800", "x" * 300]
)
def test_name_that_leaves_the_site(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"outside.py": "", "outside\n.py": "", "site/a.py": ""})
    assert Code([tmp_path / "site"]).module(name) is None


def test_first_site_that_can_be_read_is_taken(tmp_path: Path) -> None:
    sites = [tmp_path / name for name in ("none", "pipe", "one", "two")]
    for name in ("one", "two"):
        write(tmp_path / name, {"a.py": f"class {name.title()}: pass\n"})
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "a.py")
    module = Code(sites).module("a")
    assert module is not None and list(module.classes) == ["One"]


def test_package_comes_before_a_module_of_its_name(tmp_path: Path) -> None:
    module = read(tmp_path, {"a.py": "", "a/__init__.py": ""}).module("a")
    assert module is not None and module.path == "a/__init__.py"


def test_no_site() -> None:
    assert Code([]).module("a") is None


def test_link_of_a_file_is_followed_and_that_of_a_folder_not(tmp_path: Path) -> None:
    write(tmp_path, {"cache/a.py": "class A: pass\n", "site/pkg/b.py": "class B: pass\n"})
    (tmp_path / "site" / "a.py").symlink_to(tmp_path / "cache" / "a.py")
    (tmp_path / "site" / "out").symlink_to(tmp_path / "cache")
    (tmp_path / "site" / "within").symlink_to("pkg")
    code = Code([tmp_path / "site"])
    assert cls(code, "a", "A").evidence.path == "a.py"
    assert code.module("out.a") is None
    assert cls(code, "within.b", "B").evidence.path == "within/b.py"


@pytest.mark.parametrize("target", ["/cache/a.py", "../../../../../../../../../../cache/a.py", "/link/a.py"])
def test_link_of_an_image_leads_to_where_it_does_there(tmp_path: Path, target: str) -> None:
    write(tmp_path, {"image/cache/a.py": "class A: pass\n", "image/site/b.py": ""})
    (tmp_path / "image" / "link").symlink_to("/cache")
    (tmp_path / "image" / "site" / "a.py").symlink_to(target)
    code = Code([tmp_path / "image" / "site"], tmp_path / "image")
    assert cls(code, "a", "A").evidence.text == "class A: pass"


def test_link_of_an_image_does_not_leave_it(tmp_path: Path) -> None:
    write(tmp_path, {"secret.py": "class Secret: pass\n", "image/site/b.py": ""})
    site = tmp_path / "image" / "site"
    (site / "absolute.py").symlink_to(tmp_path / "secret.py")
    (site / "relative.py").symlink_to("../../secret.py")
    (site / "circular.py").symlink_to("circular.py")
    assert Code([site]).module("absolute") is not None
    code = Code([site], tmp_path / "image")
    assert [code.module(name) for name in ("absolute", "relative", "circular")] == [None] * 3


def test_site_outside_the_root_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"image/b.py": "", "model/a.py": ""})
    assert Code([tmp_path / "model"], tmp_path / "image").module("a") is None


REEXPORTS = {
    "pkg/__init__.py": "from .one import One as Renamed, gone\nimport pkg.one as one\nfrom .absent import X\n",
    "pkg/one.py": "from . import two\nfrom pkg.two import Two\nclass One: pass\nAlias = One\nnumber = 1\n",
    "pkg/two.py": "class Two: pass\nSame: type = Two\nPair = (Two,)\n",
    "pkg/loop.py": "from .back import A\nB = C\nC = B\n",
    "pkg/back.py": "from .loop import A\n",
}


@pytest.mark.parametrize(
    ("module", "name", "path"),
    [
        ("pkg.one", "One", "pkg/one.py"),
        ("pkg", "Renamed", "pkg/one.py"),
        ("pkg.one", "Alias", "pkg/one.py"),
        ("pkg.one", "Two", "pkg/two.py"),
        ("pkg.two", "Same", "pkg/two.py"),
        ("pkg.two", "Pair", None),
        ("pkg.one", "number", None),
        ("pkg", "gone", None),
        ("pkg", "one", None),
        ("pkg", "X", None),
        ("pkg", "none", None),
        ("pkg.loop", "A", None),
        ("pkg.loop", "B", None),
    ],
)
def test_name_is_followed(tmp_path: Path, module: str, name: str, path: str | None) -> None:
    code = read(tmp_path, REEXPORTS)
    start = code.module(module)
    assert start is not None
    found = code.find(start, name)
    assert (found.evidence.path if found else None) == path


def test_package_is_asked_for_a_name_that_it_does_not_bind(tmp_path: Path) -> None:
    code = read(tmp_path, REEXPORTS)
    two = cls(code, "pkg.two", "Two")
    asked: list[tuple[str, str]] = []

    def lazy(package: str, name: str) -> Class | None:
        asked.append((package, name))
        return two

    code.lazy = lazy
    package = code.module("pkg")
    assert package is not None
    assert code.find(package, "gone") is two
    assert code.find(package, "X") is None
    assert asked == [("pkg.one", "gone")]


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("One", "One"),
        ("Two[int]", "Two"),
        ("Two[int][str]", "Two"),
        ("two.Two", "Two"),
        ("two.Two[int]", "Two"),
        ("two.none", None),
        ("unknown.Two", None),
        ("absent.Two", None),
        ("pkg.two.Two", "Two"),
        ("pkg.absent.Two", None),
        ("One()", None),
        ("'One'", None),
    ],
)
def test_expression_is_resolved(tmp_path: Path, expression: str, name: str | None) -> None:
    source = "import absent, pkg\nfrom pkg import two\nfrom pkg.one import One\nfrom pkg.two import Two\n"
    code = read(tmp_path, REEXPORTS | {"m.py": source})
    module = code.module("m")
    assert module is not None
    found = code.resolve(module, ast.parse(expression, mode="eval").body)
    assert (found.name if found else None) == name


def test_module_itself_is_resolved_and_nothing_is_not(tmp_path: Path) -> None:
    code = read(tmp_path, REEXPORTS)
    package = code.module("pkg")
    assert package is not None
    found = code.resolve(package, ast.parse("one.One", mode="eval").body)
    assert found is not None and found.name == "One"
    assert code.resolve(package, None) is None


def test_type_arguments_may_be_many(tmp_path: Path) -> None:
    assert order(lineage(tmp_path, "class B: pass\nclass A(B" + "[0]" * 1500 + "): pass\n")) == ["A", "B"]


@pytest.mark.parametrize(
    ("bases", "names", "is_complete"),
    [
        ("", "A", True),
        ("object", "A object", True),
        ("Exception", "A Exception", True),
        ("nn.Module", "A Module", True),
        ("Protocol", "A Protocol", True),
        ("Generic[T]", "A Generic", True),
        ("typing.Protocol[T]", "A Protocol", True),
        ("abc.ABC", "A ABC", True),
        ("Linear", "A Linear", True),
        ("Enum", "A Enum", True),
        ("OrderedDict", "A OrderedDict", True),
        ("ContextDecorator", "A ContextDecorator", True),
        ("builtins.dict", "A dict", True),
        ("Self", "A Self", True),
        ("torchvision.Model", "A Model", False),
        ("Unknown", "A Unknown", False),
        ("other.Unknown", "A Unknown", False),
        ("other.Unknown[T]", "A Unknown", False),
        ("make()", "A", False),
        ("*bases", "A", False),
        ("nn.Module, Unknown", "A Module Unknown", False),
        ("nn.Module, metaclass=Unknown", "A Module", True),
    ],
)
def test_bases_that_are_not_read(tmp_path: Path, bases: str, names: str, is_complete: bool) -> None:
    head = """
        import abc, builtins, other, torchvision, typing
        from collections import OrderedDict
        from contextlib import ContextDecorator
        from enum import Enum
        from torch import nn
        from torch.nn import Linear
        from typing import Generic, Protocol
        from typing_extensions import Self
        """
    found = lineage(tmp_path, f"{dedent(head)}class A({bases}): pass\n")
    assert (order(found), found.names, found.is_complete) == (["A"], set(names.split()), is_complete)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class B: pass\nclass A(B): pass", "A B"),
        ("class C: pass\nclass B(C): pass\nclass A(B): pass", "A B C"),
        ("class D: pass\nclass B(D): pass\nclass C(D): pass\nclass A(B, C): pass", "A B C D"),
        ("class D: pass\nclass C: pass\nclass B(D): pass\nclass A(B, C): pass", "A B D C"),
        ("class B: pass\nclass C: pass\nclass D(B, C): pass\nclass E(C, B): pass\nclass A(D, E): pass", "A D E B C"),
        ("class B: pass\nclass A(B[int]): pass", "A B"),
    ],
    ids=["one", "chain", "diamond", "two", "contradiction", "arguments"],
)
def test_order_of_bases(tmp_path: Path, source: str, expected: str) -> None:
    found = lineage(tmp_path, source)
    assert (order(found), found.is_complete) == (expected.split(), True)


def test_unread_bases_come_with_the_class_that_names_them(tmp_path: Path) -> None:
    found = lineage(tmp_path, "class B(Far, make()): pass\nclass A(B, Near[int]): pass\n")
    unread = [(owner.name, ast.unparse(base)) for owner, base in found.unread]
    assert unread == [("B", "Far"), ("B", "make()"), ("A", "Near[int]")]


def test_order_is_that_of_python(tmp_path: Path) -> None:
    bases = {"O": "", "X": "O", "Y": "O", "Z": "X, Y", "W": "Y", "A": "Z, W"}
    source = "".join(f"class {name}({of}): pass\n" for name, of in bases.items())
    names: dict[str, type] = {}
    exec(source, names)
    assert order(lineage(tmp_path, source)) == [base.__name__ for base in names["A"].__mro__[:-1]]


def test_lineage_is_made_once(tmp_path: Path) -> None:
    code = read(tmp_path, {"m.py": "class A: pass\n"})
    assert code.lineage(cls(code, "m", "A")) is code.lineage(cls(code, "m", "A"))


def test_bases_in_a_circle_end(tmp_path: Path) -> None:
    found = lineage(tmp_path, "from n import B\nclass A(B): pass\n", n="from m import A\nclass B(A): pass\n")
    assert (set(order(found)), found.names, found.is_complete) == ({"A", "B"}, {"A", "B"}, False)
    assert order(found)[0] == "A"


def test_base_of_itself_ends(tmp_path: Path) -> None:
    found = lineage(tmp_path, "class A(A):\n    x = 1\n")
    owner = found.owner("x")
    assert owner is not None and owner.evidence.line == 1
    assert (found.names, found.is_complete) == ({"A"}, False)


def chain(length: int) -> str:
    links = "".join(f"class C{number}(C{number + 1}): pass\n" for number in range(length - 1))
    return f"{links}class C{length - 1}: pass\n"


def test_long_chain_of_bases(tmp_path: Path) -> None:
    found = lineage(tmp_path, chain(31), "C0")
    assert (order(found), found.is_complete) == ([f"C{number}" for number in range(31)], True)


def test_chain_of_bases_is_cut(tmp_path: Path) -> None:
    found = lineage(tmp_path, chain(40), "C0")
    assert (order(found), found.is_complete) == ([f"C{number}" for number in range(31)], False)


@pytest.mark.parametrize(
    "source",
    [
        "class A(A, A): pass\n",
        "class A(B, C): pass\nclass B(A, C): pass\nclass C(A, B): pass\n",
        "class A(B0, C0): pass\n"
        + "".join(f"class B{n}(B{n + 1}, C{n + 1}): pass\nclass C{n}(B{n + 1}): pass\n" for n in range(40)),
    ],
    ids=["twice", "circle", "lattice"],
)
def test_bases_that_branch_end_soon(tmp_path: Path, source: str) -> None:
    with at_most(1):
        assert order(lineage(tmp_path, source))[0] == "A"


def test_modules_of_a_folder_are_in_a_package_of_their_own(tmp_path: Path) -> None:
    installed = read(tmp_path / "site", {"base.py": "class Base: there = 1\n"})
    write(tmp_path / "model", {"base.py": "class Base: here = 1\n"})
    source = "import base\nfrom .base import Base\nclass A(Base): pass\nclass B(base.Base): pass\n"
    write(tmp_path / "model", {"m.py": source})
    code = Code([tmp_path / "model"], package="model-folder", behind=installed)
    module = code.module("model-folder.m")
    assert module is not None and code.module("m") is None
    own, other = (installed.lineage(module.classes[name]) for name in "AB")
    assert (own.has("here"), own.has("there")) == (True, False)
    assert (other.has("here"), other.has("there")) == (False, True)
    assert module.classes["A"].evidence.path == f"{tmp_path}/model/m.py"
