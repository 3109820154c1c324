from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from patchkit.gates.module import Class, Evidence, Lineage, Module


def parse(text: str, name: str = "pkg.mod", path: str = "pkg/mod.py") -> Module:
    text = dedent(text).lstrip("\n")
    return Module(name, path, text.splitlines(), ast.parse(text))


def only(text: str) -> Class:
    return parse(text).classes["A"]


def test_classes_at_the_top_level() -> None:
    module = parse("""
        class A: pass
        if x:
            class B: pass
        def f():
            class C: pass
        class A: value = 1
        """)
    assert {name: cls.evidence.line for name, cls in module.classes.items()} == {"A": 6, "B": 3}
    assert module.classes["A"].module is module


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a", {"a": ("a", None)}),
        ("import a.b as c", {"c": ("a.b", None)}),
        ("import a, b as c", {"a": ("a", None), "c": ("b", None)}),
        ("from a.b import c, d as e", {"c": ("a.b", "c"), "e": ("a.b", "d")}),
        ("from . import c", {"c": ("pkg", "c")}),
        ("from .b import c", {"c": ("pkg.b", "c")}),
        ("from ..b import c", {"c": ("b", "c")}),
        ("from ....b import c", {"c": ("b", "c")}),
        ("from .... import c", {"c": ("", "c")}),
        ("from a import *", {"*": ("a", "*")}),
        ("def f():\n    from a import b", {"b": ("a", "b")}),
        ("if TYPE_CHECKING:\n    import a", {"a": ("a", None)}),
        ("x = 1", {}),
    ],
)
def test_imports(source: str, expected: dict[str, tuple[str, str | None]]) -> None:
    assert parse(source).imports == expected


def test_import_of_a_submodule_binds_the_package() -> None:
    assert parse("import a.b").imports == {"a": ("a", None)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from . import c", ("pkg.sub", "c")),
        ("from .b import c", ("pkg.sub.b", "c")),
        ("from .. import c", ("pkg", "c")),
    ],
)
def test_imports_of_a_package(source: str, expected: tuple[str, str]) -> None:
    assert parse(source, "pkg.sub", "pkg/sub/__init__.py").imports == {"c": expected}


def test_assignments_at_the_top_level() -> None:
    module = parse("""
        a = b = 1
        c: int = 2
        d: int
        e.f = 3
        g.h: int = 4
        i, j = 5, 6
        if x:
            a = 7
        class A:
            k = 8
        """)
    found = {name: ast.unparse(value) for name, value in module.assignments.items()}
    assert found == {"a": "7", "b": "1", "c": "2"}


def test_evidence_is_the_line_where_a_node_begins() -> None:
    module = parse("x = 1\n\n  \nif y:\n    class A:\n        pass")
    assert module.classes["A"].evidence == Evidence("pkg/mod.py", 5, "class A:")


def test_evidence_of_what_has_no_line() -> None:
    assert parse("x = 1").evidence(ast.Load()) == Evidence("pkg/mod.py", 1, "x = 1")
    assert parse("").evidence(ast.Load()) == Evidence("pkg/mod.py", 1, "")


def test_evidence_past_the_last_line_has_no_text() -> None:
    module = Module("m", "m.py", ["a"], ast.parse("a\nb"))
    assert module.evidence(module.tree.body[1]) == Evidence("m.py", 2, "")


def test_class_has_its_name() -> None:
    cls = only("class A: pass")
    assert cls.name == "A"
    assert cls.evidence == Evidence("pkg/mod.py", 1, "class A: pass")


def test_members() -> None:
    cls = only("""
        class A:
            '''Text.'''
            a = b = 1
            c: int = 2
            d: int
            e, f = 3, 4
            g.h = 5
            i.j: int = 6
            def k(self): self.l = 7
            async def m(self): pass
            class N: pass
            if x:
                o = 8
        """)
    found = {name: type(node).__name__ for name, node in cls.members.items()}
    kinds = {"a": "Assign", "b": "Assign", "c": "AnnAssign", "d": "AnnAssign"}
    assert found == kinds | {"k": "FunctionDef", "m": "AsyncFunctionDef", "N": "ClassDef"}


def test_assigned_by_methods() -> None:
    cls = only("""
        class A:
            self.z = 0
            def f(self):
                self.a = 1
                self.b: int = 2
                self.c: int
                self.d, (self.e), other = 3
                self.f = self.a = 4
                self.g.h = 5
                x.y = 6
                [self.i, *self.j] = 7
                def inner():
                    self.k = 8
            async def g(self):
                self.a = 9
        """)
    found = {
        name: [(method.name, ast.unparse(value)) for method, value in values] for name, values in cls.assigned.items()
    }
    assert found == {
        "a": [("f", "1"), ("f", "4"), ("g", "9")],
        "b": [("f", "2")],
        "d": [("f", "3")],
        "e": [("f", "3")],
        "f": [("f", "4")],
        "i": [("f", "7")],
        "k": [("f", "8")],
    }


LINE = """
class A(B):
    first = 1
    def method(self):
        self.own = 1
class B:
    first = second = 2
    method = None
    def other(self):
        self.own = 2
        self.far = 3
"""


def lineage() -> Lineage:
    classes = parse(LINE).classes
    return Lineage((classes["A"], classes["B"]), frozenset({"A", "B"}), ())


def test_lineage_is_complete_where_every_base_was_read() -> None:
    cls = only("class A(B): pass")
    assert lineage().is_complete
    assert not Lineage((cls,), frozenset({"A", "B"}), ((cls, cls.node.bases[0]),)).is_complete


@pytest.mark.parametrize(
    ("name", "owner"), [("first", "A"), ("second", "B"), ("method", "A"), ("other", "B"), ("own", None), ("no", None)]
)
def test_first_class_that_binds_a_name(name: str, owner: str | None) -> None:
    found = lineage().owner(name)
    assert (found.name if found else None) == owner


def test_method_of_an_instance() -> None:
    found = lineage().method("other")
    assert found is not None
    assert (found[0].name, found[1].name, found[1].lineno) == ("B", "other", 8)


@pytest.mark.parametrize("name", ["first", "no"])
def test_what_is_no_method(name: str) -> None:
    assert lineage().method(name) is None


@pytest.mark.parametrize(("name", "owner", "value"), [("own", "A", "1"), ("far", "B", "3")])
def test_first_class_whose_methods_bind_an_attribute(name: str, owner: str, value: str) -> None:
    found = lineage().assigned(name)
    assert found is not None
    assert (found[0].name, [ast.unparse(bound) for _, bound in found[1]]) == (owner, [value])


def test_attribute_that_no_method_binds() -> None:
    assert lineage().assigned("first") is None


@pytest.mark.parametrize(("name", "has"), [("first", True), ("other", True), ("far", True), ("no", False)])
def test_instance_has_what_body_or_method_binds(name: str, has: bool) -> None:
    assert lineage().has(name) is has


def test_import_of_a_function_does_not_hide_the_module_s_own() -> None:
    module = parse("""
        from a import C
        def f():
            from b import C, D
        """)
    assert module.imports == {"C": ("a", "C"), "D": ("b", "D")}
