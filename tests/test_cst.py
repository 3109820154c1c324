from __future__ import annotations

import re
import textwrap

import libcst
import pytest

from patchkit import cst
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, UnexpectedShape
from patchkit.tree import is_same
from tests.support import parse


def names(root: libcst.CSTNode) -> list[str]:
    return [node.value for node in cst.find_all(root, libcst.Name)]


EXACT = {
    "empty": b"",
    "no final newline": b"x = 1",
    "CRLF": b"if x:\r\n    y = 1\r\n",
    "BOM": b"\xef\xbb\xbfx = 1\n",
    "latin-1": b"# coding: latin-1\nx = '\xe9'\n",
    "UTF-8": "x = 'é'  # \u2028\n".encode(),
    "tabs": b"if x:\n\ty = 1\n",
    "form feed between": b"x = 1\n\x0c\ny = 2\n",
    "invalid escape": b"x = '\\d'\n",
}
UNPARSED = {
    "syntax": b"def f(:\n",
    "not UTF-8": b"x = '\xe9'\n",
    "unknown coding": b"# coding: nope\nx = 1\n",
    "coding that is no text": b"# coding: rot13\nx = 1\n",
    "UTF-16": "x = 1\n".encode("utf-16"),
    "NUL": b"x = 1\0\n",
    "huge nesting": b"x = " + b"(" * 100_000 + b")" * 100_000,
    "deep blocks": b"".join(b" " * depth + b"if x:\n" for depth in range(200)) + b" " * 200 + b"y\n",
    "long chain": b"x = " + b"-" * 100_000 + b"1\n",
    "LibCST alone refuses": b"class A:\n\n\\\n  pass\n",
}


@pytest.mark.parametrize("data", EXACT.values(), ids=EXACT)
def test_parsed_source_prints_back(data: bytes) -> None:
    assert cst.parse_exactly(data, "a.py").bytes == data


@pytest.mark.parametrize("data", UNPARSED.values(), ids=UNPARSED)
def test_source_that_does_not_parse(data: bytes) -> None:
    with pytest.raises(UnexpectedShape, match=r"^a\.py does not parse: ") as caught:
        cst.parse(data, "a.py")
    assert "newer patchkit" in caught.value.hint


@pytest.mark.parametrize("data", [b"\x0cx = 1\n", b"x = 1\ry = 2\r"], ids=["form feed", "carriage returns"])
def test_source_that_does_not_print_back(data: bytes) -> None:
    assert cst.parse(data, "a.py").bytes != data
    with pytest.raises(UnexpectedShape, match=r"^a\.py does not print back byte for byte$"):
        cst.parse_exactly(data, "a.py")


def test_panic_of_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(data: bytes) -> None:
        raise type("PanicException", (BaseException,), {})("index out of bounds")

    monkeypatch.setattr(libcst, "parse_module", panic)
    with pytest.raises(UnexpectedShape, match=r"^a\.py makes LibCST's parser panic: index out of bounds$"):
        cst.parse(b"x = 1\n", "a.py")


def test_interrupt_of_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(libcst, "parse_module", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cst.parse(b"x = 1\n", "a.py")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a = b + c.d\nif e:\n    f(g)\n", "abcdefg"),
        ("@a\ndef b(c): d\n", "bcda"),
        ("a if b else c\n", "bac"),
    ],
    ids=["statements", "decorator", "conditional"],
)
def test_all_are_found_an_outer_one_first(code: str, expected: str) -> None:
    assert names(parse(code)) == list(expected)


def test_claim_chooses() -> None:
    assert len(cst.find_all(parse("a, b, a"), libcst.Name, lambda node: node.value == "a")) == 2


def test_one_is_found() -> None:
    module = parse("x = 1\ny = 2\n")
    two = cst.find_one(module, libcst.Integer, lambda node: node.value == "2", "two")
    assert two is cst.find_all(module, libcst.Integer)[1]


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [((), AnchorNotFound, "^the line: not found$"), ((1, 2, 3), AnchorAmbiguous, "^the line: found 3 times$")],
)
def test_only_one_will_do(found: tuple[int, ...], error: type[Exception], words: str) -> None:
    assert cst.only([7], "the line") == 7
    with pytest.raises(error, match=words):
        cst.only(found, "the line")


NESTED = """
    import x

    @decorator
    class A:
        y = 1
        if x:
            def f(self):
                def g(): return 1
        else:
            async def h(self): pass
    try:
        def one(): pass
    except E:
        def two(): pass
    else:
        def three(): pass
    finally:
        def four(): pass
    with x:
        def five(): pass
    class B: z = 1
"""


@pytest.mark.parametrize("path", ["A", "A.f", "A.f.g", "A.h", "one", "two", "three", "four", "five", "B"])
def test_definition_is_found(path: str) -> None:
    assert cst.find_definition(parse(NESTED), path).name.value == path.split(".")[-1]


@pytest.mark.parametrize(
    ("path", "words"),
    [("f", "f"), ("A.g", "A.g"), ("A.y", "A.y"), ("A.f.g.h", "A.f.g.h"), ("x.y.z", "x"), ("", ""), ("B.z", "B.z")],
)
def test_definition_is_not_found(path: str, words: str) -> None:
    with pytest.raises(AnchorNotFound, match=f"^{re.escape(words)}: not found$"):
        cst.find_definition(parse(NESTED), path)


def test_definition_is_there_twice() -> None:
    with pytest.raises(AnchorAmbiguous, match=r"^A\.f: found 2 times$"):
        cst.find_definition(
            parse("class A:\n    if x:\n        def f(): pass\n    else:\n        def f(): pass"), "A.f"
        )


CALLS = """
    import f

    x = f.g(a, h(1))
    f(
        b=self.f(
            2
        ),
    )
    g
    self.f.h()
    twice(twice())
    (lambda: 3)()
"""


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("f.g", "f.g(a, h(1))"),
        ("h", "h(1)"),
        ("f", "f(b=self.f(2))"),
        ("self.f", "self.f(2)"),
        ("self.f.h", "self.f.h()"),
        ("(lambda: 3)", "(lambda: 3)()"),
    ],
)
def test_call_is_found_by_the_whole_name(name: str, code: str) -> None:
    assert cst.is_code(cst.find_call(parse(CALLS), name), code)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("g", AnchorNotFound, "not found"),
        ("self", AnchorNotFound, "not found"),
        ("f.h", AnchorNotFound, "not found"),
        ("f()", AnchorNotFound, "not found"),
        ("twice", AnchorAmbiguous, "found 2 times"),
    ],
)
def test_call_must_be_there_once(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(f'the call of {name}')}: {words}$"):
        cst.find_call(parse(CALLS), name)


def test_call_is_looked_for_in_a_node() -> None:
    module = parse("def one():\n    f(1)\ndef two():\n    if x:\n        f(2)\n")
    call = cst.find_call(cst.find_definition(module, "two"), "f")
    assert call is cst.find_all(module, libcst.Call)[1]


@pytest.mark.parametrize(
    ("code", "other", "is_equal"),
    [
        ("x = f( a,\n  'b' )  # why\n", 'x = f(a, "b")', True),
        ("if x:\n    # why\n    y = (1)\n\n", "if x: y = 1", True),
        ("x = 1", "x = 2", False),
        ("x = 1", "x = = 1", False),
    ],
    ids=["layout", "suite", "value", "no code"],
)
def test_code_is_compared_by_syntax(code: str, other: str, is_equal: bool) -> None:
    assert cst.is_code(parse(code).body[0], other) is is_equal


@pytest.mark.parametrize("code", ["if x:  # head\n    # first\n    y = 1  # end\n", "if x: y = 1\n"])
def test_suite_is_its_statements(code: str) -> None:
    (chain,) = cst.find_chains(parse(code))
    assert cst.is_code(chain[0].body, "y = 1")
    assert "head" not in cst.code_of(chain[0].body)


def test_code_of_a_branch_is_dedented() -> None:
    method = cst.find_definition(parse("class A:\n    def f(self):\n        if x:\n            y\n"), "A.f")
    assert cst.code_of(method) == "def f(self):\n    if x:\n        y"
    assert cst.code_of(cst.find_chains(method)[0][0].test) == "x"


def test_fragment_that_is_no_code_equals_only_itself() -> None:
    arg = cst.find_all(parse("f(**x)"), libcst.Arg)[0]
    assert cst.is_code(arg, "**x")
    assert not cst.is_code(arg, "** x")


def test_chains() -> None:
    code = "if a: pass\nelif b:\n    if c: pass\nelse:\n    if d: pass\n    elif e: pass\n    elif f: pass\n"
    found = [[cst.code_of(branch.test) for branch in chain] for chain in cst.find_chains(parse(code))]
    assert found == [["a", "b"], ["c"], ["d", "e", "f"]]


SOURCE = "class A:\n\tdef f(self):\n\t\tx = [1,  2]  # why\n\n\t\ty = 3\n"


def test_replace_takes_on_the_layout() -> None:
    module = parse(SOURCE)
    line = cst.find_all(module, libcst.SimpleStatementLine)[0]
    one, two = cst.statements("""
        if z:
            w()
        v
    """)
    expected = SOURCE.replace("x = [1,  2]  # why", "if z:\n\t\t\tw()\n\t\tv")
    assert cst.fitted(cst.replace(module, line, [one, two])).code == expected


STYLES = """
def far():
{far_indent}a


class C:
{indent}def near(self):
{indent}{indent}try:
{indent}{indent}{indent}b
{indent}{indent}except E:
{indent}{indent}{indent}for x in y:
{indent}{indent}{indent}{indent}c
{indent}{indent}match z:
{indent}{indent}{indent}case 1:
{indent}{indent}{indent}{indent}c
"""


@pytest.mark.parametrize("far_indent", ["  ", "    ", "\t", "        "])
@pytest.mark.parametrize("indent", [" ", "  ", "    ", "\t"])
def test_new_code_is_indented_as_what_is_around_it(far_indent: str, indent: str) -> None:
    module = cst.parse(STYLES.format(far_indent=far_indent, indent=indent).encode(), "a.py")
    (fresh,) = cst.statements("if p:\n    while q:\n        d\nelse:\n    e\n")
    for line in cst.find_all(module, libcst.SimpleStatementLine, lambda node: cst.is_code(node, "c")):
        module = cst.replace(module, line, fresh)
    after = cst.fitted(module).code
    block = "if p:\n    while q:\n        d\nelse:\n    e\n".replace("    ", indent)
    assert after.count(textwrap.indent(block, indent * 4)) == 2
    assert f"{far_indent}a\n" in after


def test_tree_without_new_code_is_fitted_as_it_is() -> None:
    module = cst.parse(STYLES.format(far_indent="\t", indent="  ").encode(), "a.py")
    assert cst.fitted(module) is module


def test_replace_inside_an_expression_shares_the_rest() -> None:
    module = parse(SOURCE)
    two = cst.find_all(module, libcst.Integer)[1]
    changed = cst.replace(module, two, libcst.Integer("4"))
    assert changed.code == SOURCE.replace("2", "4")
    old, new = (cst.find_definition(tree, "A.f").body.body[1] for tree in (module, changed))
    assert old is new


def test_replace_needs_a_node_of_the_tree() -> None:
    with pytest.raises(AssertionError, match="the node is not in the tree"):
        cst.replace(parse("x = 1"), libcst.Integer("1"), libcst.Integer("2"))


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("x = [1]", "x = [1]", True),
        ("x = [1]", "x = [2]", False),
        ("x = [1]", "x = [1, 2]", False),
        ("x = [1]", "x = (1,)", False),
        ("x = [1]", "x = [1]  # why", False),
    ],
)
def test_trees_are_compared(one: str, other: str, is_equal: bool) -> None:
    assert is_same(parse(one), parse(other)) is is_equal


def test_requirement() -> None:
    cst.require(True, "A.f", "a list")
    with pytest.raises(UnexpectedShape, match=r"^A\.f: expected a list$"):
        cst.require(False, "A.f", "a list")


@pytest.mark.parametrize(
    ("code", "expected"),
    [("['a', \"b\", 'c' 'd', r'\\d', (''),]", ("a", "b", "cd", "\\d", "")), ("[\n'a'  # why\n]", ("a",))],
)
def test_strings_of_a_list(code: str, expected: tuple[str, ...]) -> None:
    assert cst.list_strings(libcst.parse_expression(code), "A.f") == expected


@pytest.mark.parametrize(
    "code", ["[]", "('a',)", "{'a'}", "a", "['a', b]", "['a', *b]", "[b'a']", "[f'a']", "['a', 1]"]
)
def test_list_of_something_else(code: str) -> None:
    with pytest.raises(UnexpectedShape, match=r"^A\.f: expected a list literal of strings$"):
        cst.list_strings(libcst.parse_expression(code), "A.f")
