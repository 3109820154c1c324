from __future__ import annotations

from inspect import signature
from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from tests.support import CATALOG, check_refused, check_restored, check_rewritten, check_unchanged, rewriter

ID = "generator_tokenizer_trust"
PATH = "speculators/data_generation/vllm_hidden_states_generator.py"
LOAD = "self.tokenizer = AutoTokenizer.from_pretrained(model_path)"
LOAD_SO = """\
self.tokenizer = AutoTokenizer.from_pretrained(
    model_path, trust_remote_code=tokenizer_trust_remote_code
)
"""
MARKER = f"# patchkit: {ID}\n"
PARAMETERS = "self,\nmodel_path: str,\nmax_model_len: int = 2048,\n"
ADDED = "tokenizer_trust_remote_code: bool | None = None,\n"


def fragment(parameters: str, code: str, method: str = "__init__") -> str:
    body = indent(dedent(code).strip("\n"), " " * 8)
    head = f"    def {method}(\n{indent(parameters, ' ' * 8)}    ):\n"
    # Annotations are not looked up: `bool | None` is right in every release.
    return f"from __future__ import annotations\n\n\nclass VllmHiddenStatesGenerator:\n{head}{body}\n"


METHOD = r"^VllmHiddenStatesGenerator\.__init__"
ANCHOR = rf"{METHOD}: self\.tokenizer = AutoTokenizer\.from_pretrained\(model_path\)"
LINES = "^__init__: expected one argument or more before it, one a line, each with a comma"
ONE_LINE = f"class VllmHiddenStatesGenerator:\n    def __init__(self, model_path):\n        {LOAD}\n"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "class twice": (
        fragment(PARAMETERS, LOAD) + ONE_LINE,
        AnchorAmbiguous,
        "^VllmHiddenStatesGenerator: found 2 times",
    ),
    "no method": (fragment(PARAMETERS, LOAD, "f"), AnchorNotFound, f"{METHOD}: not found"),
    "method outside the class": (
        f"def __init__(self):\n    {LOAD}\n",
        AnchorNotFound,
        "^VllmHiddenStatesGenerator: not",
    ),
    "not loaded": (fragment(PARAMETERS, "pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "loaded twice": (fragment(PARAMETERS, f"{LOAD}\n{LOAD}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "loaded with a word": (
        fragment(PARAMETERS, LOAD.replace(")", ", trust_remote_code=True)")),
        AnchorNotFound,
        f"{ANCHOR}: not found",
    ),
    "loaded otherwise": (fragment(PARAMETERS, LOAD.replace("Auto", "")), AnchorNotFound, f"{ANCHOR}: not found"),
    "two statements in a line": (fragment(PARAMETERS, f"{LOAD}; x = 1"), AnchorNotFound, f"{ANCHOR}: not found"),
    "parameter there, not loaded": (fragment(PARAMETERS + ADDED, "pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "parameters in a line": (ONE_LINE, UnexpectedShape, LINES),
    "no comma at the end": (fragment("self,\nmodel_path\n", LOAD), UnexpectedShape, LINES),
}
MARKED = f"{MARKER}{LOAD_SO}"
REWRITTEN = {
    "smallest": (("self,\n", LOAD), (f"self,\n{MARKER}{ADDED}", MARKED)),
    "comments": (
        (f"{PARAMETERS.strip()}  # beside\n", f"# above\n\n{LOAD}  # beside\n# below\nx = 1"),
        (f"{PARAMETERS.strip()}  # beside\n{MARKER}{ADDED}", f"# above\n\n{MARKED.rstrip()}  # beside\n# below\nx = 1"),
    ),
    "by name alone": (
        (f"{PARAMETERS}*,\nx=1,\n", LOAD),
        (f"{PARAMETERS}{MARKER}{ADDED}*,\nx=1,\n", MARKED),
    ),
    "nested": (
        (PARAMETERS, f"if model_path:\n    {LOAD}\nelse:\n    x = 1"),
        (f"{PARAMETERS}{MARKER}{ADDED}", f"if model_path:\n{indent(MARKED, '    ')}else:\n    x = 1"),
    ),
    "neighbours": (
        (PARAMETERS, f"x = AutoTokenizer.from_pretrained(model_path)\n{LOAD}\nself.x = x"),
        (f"{PARAMETERS}{MARKER}{ADDED}", f"x = AutoTokenizer.from_pretrained(model_path)\n{MARKED}self.x = x"),
    ),
    "parameter there": ((PARAMETERS + ADDED, LOAD), (PARAMETERS + ADDED, MARKED)),
    "loaded so, no parameter": ((PARAMETERS, LOAD_SO), (f"{PARAMETERS}{MARKER}{ADDED}", LOAD_SO)),
    "other layout": (
        (PARAMETERS, "self.tokenizer = AutoTokenizer.from_pretrained(\n    model_path,\n)"),
        (f"{PARAMETERS}{MARKER}{ADDED}", MARKED),
    ),
}
RESTORABLE = [case for case in REWRITTEN if case != "other layout"]


def both(case: str) -> tuple[bytes, bytes]:
    before, after = REWRITTEN[case]
    return fragment(*before).encode(), fragment(*after).encode()


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize("case", REWRITTEN)
def test_rewritten(case: str) -> None:
    old, new = both(case)
    check_rewritten(ID, PATH, old.decode(), new.decode())


@pytest.mark.parametrize("default", ["bool | None = None", "bool = False"])
def test_unchanged_where_it_has_the_parameter_already(default: str) -> None:
    parameters = f"{PARAMETERS}tokenizer_trust_remote_code: {default},\nx=1,\n"
    check_unchanged(ID, PATH, fragment(parameters, f"x = 1\n# upstream\n{LOAD_SO.rstrip()}  # beside"))


@pytest.mark.parametrize("case", RESTORABLE)
def test_restored(case: str) -> None:
    old, new = both(case)
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old, new = (code.replace(b"\n", b"\r\n") for code in both("comments"))
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        (PARAMETERS, LOAD),
        (PARAMETERS + ADDED, LOAD_SO),
        (f"{PARAMETERS}# patchkit: other\n{ADDED}", f"# patchkit: other\n{LOAD_SO}"),
    ],
    ids=["pristine", "native", "another's"],
)
def test_nothing_to_restore(parameters: str, code: str) -> None:
    data = fragment(parameters, code).encode()
    assert rewriter().restore(PATH, data, {ID}, digest(data)) == Rewrite(data, data, frozenset())


@pytest.mark.parametrize("data", ["x = 1\n", fragment(PARAMETERS + ADDED, LOAD_SO)], ids=["no method", "native"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(PARAMETERS, LOAD).encode())) is None


def test_not_restored_to_a_layout_that_is_lost() -> None:
    old, new = both("other layout")
    assert rewriter().restore(PATH, new, {ID}, digest(old)) is None


class AutoTokenizer:
    """Loads a tokenizer that is code: asked about where nothing is said, refused here, where no one answers."""

    @staticmethod
    def from_pretrained(path: str, **words: object) -> SimpleNamespace:
        if path == "code" and not words.get("trust_remote_code"):
            raise ValueError(f"The repository {path} {CATALOG.headers[ID].patch.symptom}.")
        return SimpleNamespace(path=path, words=words)


def generator(patches: set[str]) -> type:
    """Return the class with these patches."""
    namespace: dict[str, type] = {"AutoTokenizer": AutoTokenizer}
    code = rewriter().fold(PATH, fragment(PARAMETERS, LOAD).encode(), patches).after
    exec(compile(code, "fragment.py", "exec"), namespace)
    return namespace["VllmHiddenStatesGenerator"]


def test_no_word_is_passed_and_none_is_taken_before() -> None:
    assert generator(set())("plain").tokenizer.words == {}
    with pytest.raises(ValueError, match=CATALOG.headers[ID].patch.symptom):
        generator(set())("code")
    with pytest.raises(TypeError, match="tokenizer_trust_remote_code"):
        generator(set())("code", tokenizer_trust_remote_code=True)


def test_default_trusts_no_more_after() -> None:
    assert generator({ID})("plain").tokenizer.words == {"trust_remote_code": None}
    with pytest.raises(ValueError, match=CATALOG.headers[ID].patch.symptom):
        generator({ID})("code")


@pytest.mark.parametrize("word", [True, False, None])
def test_word_is_passed_on_after(word: bool | None) -> None:
    assert generator({ID})("plain", tokenizer_trust_remote_code=word).tokenizer.words == {"trust_remote_code": word}


def test_tokenizer_that_is_code_is_loaded_where_it_is_trusted() -> None:
    assert generator({ID})("code", tokenizer_trust_remote_code=True).tokenizer.path == "code"
    with pytest.raises(ValueError, match=CATALOG.headers[ID].patch.symptom):
        generator({ID})("code", tokenizer_trust_remote_code=False)


def test_places_of_the_other_parameters_stay() -> None:
    before, after = (list(signature(generator(patches)).parameters) for patches in (set(), {ID}))
    assert after == [*before, "tokenizer_trust_remote_code"]
