from __future__ import annotations

from collections.abc import Callable
from functools import partial

import libcst
import pytest

from patchkit import arguments, cst
from patchkit.errors import UnexpectedShape

Edit = Callable[[libcst.Module], libcst.Module]


def on_call(edit: Callable[..., libcst.Module], wanted: str, patch_id: str = "one") -> Edit:
    """Return an edit of the only call of ``f``, or of ``self.f``."""

    def call(module: libcst.Module) -> libcst.Module:
        found = cst.find_one(module, libcst.Call, lambda node: cst.code_of(node.func) in {"f", "self.f"}, "the call")
        return edit(module, found, wanted, patch_id)

    return call


def on_function(edit: Callable[..., libcst.Module], wanted: str, patch_id: str = "one") -> Edit:
    """Return an edit of the only function ``f``."""

    def function(module: libcst.Module) -> libcst.Module:
        found = cst.find_one(module, libcst.FunctionDef, lambda node: node.name.value == "f", "the function")
        return edit(module, found, wanted, patch_id)

    return function


ADD, TAKE = on_call(arguments.add_argument, "d=4"), on_call(arguments.take_added_argument, "d")
DROP, PUT_BACK = on_call(arguments.drop_argument, "b"), on_call(arguments.put_argument_back, "b=2")
PARAMETER = "d: bool | None = None"
ADD_PARAMETER = on_function(arguments.add_parameter, PARAMETER)
TAKE_PARAMETER = on_function(arguments.take_added_parameter, "d")
EDITS = {
    "add": ADD,
    "take": TAKE,
    "drop": DROP,
    "put back": PUT_BACK,
    "add parameter": ADD_PARAMETER,
    "take parameter": TAKE_PARAMETER,
}
WORDS = "one argument or more before it, one a line, each with a comma"
REFUSED = {
    "add: no arguments": ("add", "f()\n", "f"),
    "add: one line": ("add", "f(a=1, b=2)\n", "f"),
    "add: one line, comma": ("add", "f(a=1, b=2,)\n", "f"),
    "add: a row below the bracket": ("add", "f(\n    a=1, b=2\n)\n", "f"),
    "add: no comma at the end": ("add", "f(\n    a=1,\n    b=2\n)\n", "f"),
    "add: no comma at the end, a comment": ("add", "f(\n    a=1,\n    b=2  # b\n)\n", "f"),
    "add: first beside the bracket": ("add", "f(a,\n  b=2,\n)\n", "f"),
    "add: last beside the bracket": ("add", "f(\n    a=1,\n    b=2,)\n", "f"),
    "add: call of an attribute": ("add", "self.f(a=1)\n", "self.f"),
    "take: no comma at the end": ("take", "f(\n    a=1,\n    # patchkit: one\n    d=4\n)\n", "f"),
    "take: first beside the bracket": ("take", "f(a,\n  # patchkit: one\n  d=4,\n)\n", "f"),
    "drop: first": ("drop", "f(\n    b=2,\n    c=3,\n)\n", "f"),
    "drop: the only": ("drop", "f(\n    b=2,\n)\n", "f"),
    "drop: one line": ("drop", "f(a=1, b=2, c=3)\n", "f"),
    "drop: beside the one before": ("drop", "f(\n    a=1, b=2,\n    c=3,\n)\n", "f"),
    "drop: beside the one after": ("drop", "f(\n    a=1,\n    b=2, c=3,\n)\n", "f"),
    "drop: no comma at the end": ("drop", "f(\n    a=1,\n    b=2\n)\n", "f"),
    "drop: first beside the bracket": ("drop", "f(a,\n  b=2,\n  c=3,\n)\n", "f"),
    "put back: first beside the bracket": ("put back", "f(a,\n  # patchkit: one\n  c=3,\n)\n", "f"),
    "add parameter: none there": ("add parameter", "def f(): pass\n", "f"),
    "add parameter: one line": ("add parameter", "def f(a, b=1): pass\n", "f"),
    "add parameter: no comma at the end": ("add parameter", "def f(\n    a,\n    b=1\n): pass\n", "f"),
    "add parameter: first beside the bracket": ("add parameter", "def f(a,\n      b=1,\n      ): pass\n", "f"),
    "add parameter: by name only": ("add parameter", "def f(\n    *,\n    a,\n): pass\n", "f"),
    "add parameter: by place only": ("add parameter", "def f(\n    a,\n    /,\n): pass\n", "f"),
    "take parameter: no comma at the end": (
        "take parameter",
        "def f(\n    a,\n    # patchkit: one\n    d=4\n): pass\n",
        "f",
    ),
}
ADDED = {
    "smallest": ("f(\n    a=1,\n)\n", "f(\n    a=1,\n    # patchkit: one\n    d=4,\n)\n"),
    "by place": ("f(\n    a,\n    *d,\n)\n", "f(\n    a,\n    *d,\n    # patchkit: one\n    d=4,\n)\n"),
    "unpacked": ("f(\n    **d,\n)\n", "f(\n    **d,\n    # patchkit: one\n    d=4,\n)\n"),
    "a row below the bracket": ("f(\n    a, b,\n)\n", "f(\n    a, b,\n    # patchkit: one\n    d=4,\n)\n"),
    "comments beside": (
        "# top\nx = f(  # open\n    # above\n    a=1,  # a\n\n    # between\n    b = 2,  # b\n)  # close\n# end\n",
        "# top\nx = f(  # open\n    # above\n    a=1,  # a\n\n    # between\n    b = 2,  # b\n"
        "    # patchkit: one\n    d=4,\n)  # close\n# end\n",
    ),
    "another patch did": (
        "f(\n    a=1,\n    # patchkit: other\n    c=3,\n)\n",
        "f(\n    a=1,\n    # patchkit: other\n    c=3,\n    # patchkit: one\n    d=4,\n)\n",
    ),
    "in a method": (
        "class A:\n    def g(self):\n        x = self.f(\n            a=[\n                1,\n            ],\n"
        "        )\n        return x\n",
        "class A:\n    def g(self):\n        x = self.f(\n            a=[\n                1,\n            ],\n"
        "            # patchkit: one\n            d=4,\n        )\n        return x\n",
    ),
    "in another call": (
        "g(\n    x=f(\n        a,\n    ),\n    d=1,\n)\n",
        "g(\n    x=f(\n        a,\n        # patchkit: one\n        d=4,\n    ),\n    d=1,\n)\n",
    ),
    "another call in it": (
        "f(\n    a=g(d=1),\n)\n",
        "f(\n    a=g(d=1),\n    # patchkit: one\n    d=4,\n)\n",
    ),
    "bracket below the arguments": ("f(\n    a=1,\n    )\n", "f(\n    a=1,\n    # patchkit: one\n    d=4,\n    )\n"),
    "arguments below the bracket": (
        "f(\n  a=1,\n        b=2,\n)\n",
        "f(\n  a=1,\n        b=2,\n  # patchkit: one\n  d=4,\n)\n",
    ),
    "tabs": (
        "if x:\n\tf(\n\t\ta=1,\n\t)\n",
        "if x:\n\tf(\n\t\ta=1,\n\t\t# patchkit: one\n\t\td=4,\n\t)\n",
    ),
}
DROPPED = {
    "between": (
        "f(\n    a=1,\n    b=2,\n    c=3,\n)\n",
        "f(\n    a=1,\n    # patchkit: one\n    c=3,\n)\n",
    ),
    "last": ("f(\n    a=1,\n    b=2,\n)\n", "f(\n    a=1,\n    # patchkit: one\n)\n"),
    "after one by place": ("f(\n    b,\n    b=2,\n)\n", "f(\n    b,\n    # patchkit: one\n)\n"),
    "comments beside": (
        "x = f(  # open\n    # above\n    a=1,  # a\n    b=2,\n    c = 3,  # c\n    # end\n)  # close\n",
        "x = f(  # open\n    # above\n    a=1,  # a\n    # patchkit: one\n    c = 3,  # c\n    # end\n)  # close\n",
    ),
    "in a method": (
        "class A:\n    def g(self):\n        x = self.f(\n            a=1,\n            b=2,\n            c=g(b=2),\n"
        "        )\n        return x\n",
        "class A:\n    def g(self):\n        x = self.f(\n            a=1,\n            # patchkit: one\n"
        "            c=g(b=2),\n        )\n        return x\n",
    ),
    "bracket below the arguments": (
        "f(\n    a=1,\n    b=2,\n    )\n",
        "f(\n    a=1,\n    # patchkit: one\n    )\n",
    ),
    "tabs": (
        "if x:\n\tf(\n\t\ta=1,\n\t\tb=2,\n\t)\n",
        "if x:\n\tf(\n\t\ta=1,\n\t\t# patchkit: one\n\t)\n",
    ),
}
PARAMETERS = {
    "smallest": (
        "def f(\n    a,\n): pass\n",
        f"def f(\n    a,\n    # patchkit: one\n    {PARAMETER},\n): pass\n",
    ),
    "typed, comments beside": (
        "class A:\n    def f(\n        self,  # self\n        # why\n        a: int = 1,  # a\n"
        "    ) -> None:  # close\n        pass\n",
        "class A:\n    def f(\n        self,  # self\n        # why\n        a: int = 1,  # a\n"
        f"        # patchkit: one\n        {PARAMETER},\n    ) -> None:  # close\n        pass\n",
    ),
    "before those by name only": (
        "def f(\n    a,\n    *,\n    b,\n    **c,\n): pass\n",
        f"def f(\n    a,\n    # patchkit: one\n    {PARAMETER},\n    *,\n    b,\n    **c,\n): pass\n",
    ),
    "before the rest": (
        "def f(\n    a,\n    *b,\n): pass\n",
        f"def f(\n    a,\n    # patchkit: one\n    {PARAMETER},\n    *b,\n): pass\n",
    ),
    "after those by place only": (
        "async def f(\n    a,\n    /,\n    b,\n): pass\n",
        f"async def f(\n    a,\n    /,\n    b,\n    # patchkit: one\n    {PARAMETER},\n): pass\n",
    ),
}
CASES = {
    **{f"add: {name}": (ADD, TAKE, *case) for name, case in ADDED.items()},
    **{f"drop: {name}": (DROP, PUT_BACK, *case) for name, case in DROPPED.items()},
    **{f"add parameter: {name}": (ADD_PARAMETER, TAKE_PARAMETER, *case) for name, case in PARAMETERS.items()},
}
UNCHANGED = {
    "add: there, one line": ("add", "f(a, d=5)\n"),
    "add: there, one a line": ("add", "f(\n    a=1,\n    d=5,\n    e=6,\n)\n"),
    "add: there, first": ("add", "f(\n    d=5,\n)\n"),
    "take: not there": ("take", "f(\n    a=1,\n)\n"),
    "take: not there, marked": ("take", "f(\n    a=1,\n    # patchkit: one\n    e=5,\n)\n"),
    "take: not marked": ("take", "f(\n    a=1,\n    # why\n    d=4,\n)\n"),
    "take: not marked, one line": ("take", "f(a=1, d=4)\n"),
    "take: not marked, first": ("take", "f(\n    d=4,\n)\n"),
    "take: marker at the end": ("take", "f(\n    d=4,\n    # patchkit: one\n)\n"),
    "take: marked by another patch": ("take", "f(\n    a=1,\n    # patchkit: one_more\n    d=4,\n)\n"),
    "take: marker above another": ("take", "f(\n    a=1,\n    # patchkit: one\n    b=2,\n    d=4,\n)\n"),
    "take: marker beside": ("take", "f(\n    a=1,  # patchkit: one\n    d=4,\n)\n"),
    "take: marker above the call": ("take", "# patchkit: one\nf(\n    a=1,\n    d=4,\n)\n"),
    "drop: no arguments": ("drop", "f()\n"),
    "drop: not there": ("drop", "f(b, a=1)\n"),
    "drop: in another call": ("drop", "f(\n    a=g(b=2),\n)\n"),
    "put back: no arguments": ("put back", "f()\n"),
    "put back: one line": ("put back", "f(a=1, c=3)\n"),
    "put back: not marked": ("put back", "f(\n    a=1,\n    # why\n    c=3,\n)\n"),
    "put back: marked by another patch": ("put back", "f(\n    a=1,\n    # patchkit: another\n)\n"),
    "put back: marker beside": ("put back", "f(\n    a=1,  # patchkit: one\n)\n"),
    "put back: marker above the call": ("put back", "# patchkit: one\nf(\n    a=1,\n)\n"),
    "add parameter: there": ("add parameter", "def f(a, d): pass\n"),
    "add parameter: there, first": ("add parameter", "def f(\n    d,\n    a=1,\n): pass\n"),
    "take parameter: not there": ("take parameter", "def f(\n    a,\n    # patchkit: one\n    b,\n): pass\n"),
    "take parameter: not marked": ("take parameter", "def f(\n    a,\n    d=None,\n): pass\n"),
    "take parameter: marked by another patch": (
        "take parameter",
        "def f(\n    a,\n    # patchkit: on\n    d=None,\n): pass\n",
    ),
}


def parsed(code: str) -> libcst.Module:
    return cst.parse_exactly(code.encode(), "fragment.py")


@pytest.mark.parametrize(("name", "code", "anchor"), REFUSED.values(), ids=REFUSED)
def test_refused(name: str, code: str, anchor: str) -> None:
    with pytest.raises(UnexpectedShape, match=f"^{anchor}: expected {WORDS}$"):
        EDITS[name](parsed(code))


@pytest.mark.parametrize(("edit", "way_back", "before", "after"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_rewritten_and_taken_back(edit: Edit, way_back: Edit, before: str, after: str, line_end: str) -> None:
    old, new = (code.replace("\n", line_end) for code in (before, after))
    assert edit(parsed(old)).bytes == new.encode()
    again = parsed(new)
    assert edit(again) is again
    assert way_back(again).bytes == old.encode()


@pytest.mark.parametrize(("name", "code"), UNCHANGED.values(), ids=UNCHANGED)
def test_unchanged(name: str, code: str) -> None:
    module = parsed(code)
    assert EDITS[name](module) is module


def test_value_of_an_argument_is_code() -> None:
    code = 'd=f"{x}=" if a == b else [self.c.d, lambda: 1]'
    before, after = ADDED["smallest"]
    assert on_call(arguments.add_argument, code)(parsed(before)).code == after.replace("d=4", code)
    before, after = DROPPED["between"]
    assert on_call(arguments.put_argument_back, code)(parsed(after)).code == before.replace("b=2", code)


def test_comment_beside_a_dropped_argument_goes_with_it() -> None:
    before, after = DROPPED["between"]
    assert DROP(parsed(before.replace("b=2,", "b=2,  # two"))).code == after


def test_one_argument_after_the_other_is_added_and_taken_back() -> None:
    before, after = ADDED["comments beside"]
    other = partial(on_call, patch_id="other")
    both = other(arguments.add_argument, "e=5")(ADD(parsed(before)))
    assert both.code == after.replace("    d=4,\n", "    d=4,\n    # patchkit: other\n    e=5,\n")
    assert TAKE(other(arguments.take_added_argument, "e")(parsed(both.code))).code == before


def test_argument_is_added_and_another_dropped() -> None:
    before, after = DROPPED["comments beside"]
    before, after = (code.replace("    # end\n", "") for code in (before, after))
    added = "    # patchkit: one\n    d=4,\n)  # close"
    both = ADD(DROP(parsed(before)))
    assert both.code == DROP(ADD(parsed(before))).code == after.replace(")  # close", added)
    assert TAKE(parsed(both.code)).code == after
    assert PUT_BACK(TAKE(parsed(both.code))).code == before


def test_only_the_way_to_the_call_is_built_anew() -> None:
    module = parsed("x = [1]\nf(\n    a=g(1),\n)\n")
    changed = ADD(module)
    assert changed.body[0] is module.body[0]
    old, new = (cst.find_call(tree, "g") for tree in (module, changed))
    assert old is new
