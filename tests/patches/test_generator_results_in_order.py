from __future__ import annotations

from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError
from patchkit.record import digest
from tests.support import (
    check_nothing_to_restore,
    check_refused,
    check_restored,
    check_rewritten,
    check_unchanged,
    rewriter,
)

ID = "generator_results_in_order"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
SORTED = "for req_id in sorted(request_id_to_idx.keys()):{beside}\n    i = request_id_to_idx[req_id]"
AS_MADE = "for req_id in request_id_to_idx:{beside}\n    i = request_id_to_idx[req_id]"
LOOP, MADE = SORTED.format(beside=""), AS_MADE.format(beside="")
MARKED = f"# patchkit: {ID}\n{MADE}"


def fragment(code: str, method: str = "generate") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    return f"class VllmHiddenStatesGenerator:\n    def {method}(self, sequences):\n{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.generate"
ANCHOR = rf"{METHOD}: the loop over sorted\(request_id_to_idx\.keys\(\)\)"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "class twice": (fragment(LOOP) * 2, AnchorAmbiguous, "^VllmHiddenStatesGenerator: found 2 times"),
    "no method": (fragment(LOOP, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (
        f"def generate(self):\n{indent(LOOP, '    ')}\n",
        AnchorNotFound,
        "^VllmHiddenStatesGenerator: not found",
    ),
    "no loop": (fragment("pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "two loops": (fragment(f"{LOOP}\n{LOOP}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "loop in the loop": (fragment(f"{LOOP}\n{indent(LOOP, '    ')}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "sorted otherwise": (
        fragment(LOOP.replace("keys()", "keys(), key=int")),
        AnchorNotFound,
        f"{ANCHOR}: not found",
    ),
    "sorted without keys": (fragment(LOOP.replace(".keys()", "")), AnchorNotFound, f"{ANCHOR}: not found"),
    "another mapping": (fragment(LOOP.replace("_idx", "_prompt_len")), AnchorNotFound, f"{ANCHOR}: not found"),
    "comprehension": (
        fragment("x = [i for i in sorted(request_id_to_idx.keys())]"),
        AnchorNotFound,
        f"{ANCHOR}: not found",
    ),
    "comprehension as made": (fragment("x = [i for i in request_id_to_idx]"), AnchorNotFound, f"{ANCHOR}: not found"),
}
REWRITTEN = {
    "smallest": (LOOP, MARKED),
    "comments": (
        f"# above\n\n{SORTED.format(beside='  # beside')}  # in it\n\n# below\nx = 1",
        f"# above\n\n# patchkit: {ID}\n{AS_MADE.format(beside='  # beside')}  # in it\n\n# below\nx = 1",
    ),
    "nested": (
        f"if x:\n{indent(LOOP, '    ')}\nelse:\n    x = 1",
        f"if x:\n{indent(MARKED, '    ')}\nelse:\n    x = 1",
    ),
    "beside a colon": (
        "for x in sorted(request_id_to_idx.keys()): y = x",
        f"# patchkit: {ID}\nfor x in request_id_to_idx: y = x",
    ),
    "neighbours": (
        f"x = sorted(request_id_to_idx.keys())\nfor i in x:\n    pass\n{LOOP}\nelse:\n    x = 1",
        f"x = sorted(request_id_to_idx.keys())\nfor i in x:\n    pass\n{MARKED}\nelse:\n    x = 1",
    ),
    "other layout": (LOOP.replace("request_id_to_idx.keys()", "\n    request_id_to_idx.keys()\n", 1), MARKED),
}
RESTORABLE = [case for case in REWRITTEN if case != "other layout"]


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before), fragment(after))


@pytest.mark.parametrize("code", [MADE, f"# upstream\n{AS_MADE.format(beside='  # beside')}\nelse:\n    x = 1"])
def test_unchanged_where_it_goes_as_made_already(code: str) -> None:
    check_unchanged(ID, PATH, fragment(code))


@pytest.mark.parametrize("case", RESTORABLE)
def test_restored(case: str) -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN[case])
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old, new = (fragment(code).replace("\n", "\r\n").encode() for code in REWRITTEN["comments"])
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize("code", [LOOP, MADE, f"# patchkit: other\n{MADE}"], ids=["pristine", "native", "another's"])
def test_nothing_to_restore(code: str) -> None:
    check_nothing_to_restore(ID, PATH, fragment(code))


@pytest.mark.parametrize("data", ["x = 1\n", fragment(MADE)], ids=["no method", "native"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(LOOP).encode())) is None


def test_not_restored_to_a_layout_that_is_lost() -> None:
    old, new = (fragment(code).encode() for code in REWRITTEN["other layout"])
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


GENERATE = f"""\
request_id_to_idx = {{f"req_{{self.batch}}_{{place}}": place for place in range(len(sequences))}}
results = []
{LOOP}
    results.append(sequences[i])
return results
"""


def generate(patches: set[str], sequences: list[str], batch: int = 0) -> list[str]:
    """Return the sequences in the order of the results."""
    namespace: dict[str, type] = {}
    code = rewriter().fold(PATH, fragment(GENERATE).encode(), patches).after
    exec(compile(code, "fragment.py", "exec"), namespace)
    results: list[str] = namespace["VllmHiddenStatesGenerator"].__dict__["generate"](
        SimpleNamespace(batch=batch), sequences
    )
    return results


def test_eleventh_comes_third_before() -> None:
    assert generate(set(), list("abcdefghijk")) == list("abkcdefghij")


@pytest.mark.parametrize("batch", [0, 9, 10])
@pytest.mark.parametrize("count", [0, 1, 10, 11, 111])
def test_results_come_as_given_after(count: int, batch: int) -> None:
    sequences = [f"sequence {place}" for place in range(count)]
    assert generate({ID}, sequences, batch) == sequences


def test_ten_come_as_given_before() -> None:
    assert generate(set(), list("abcdefghij")) == list("abcdefghij")
