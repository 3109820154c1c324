from __future__ import annotations

from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.catalog import load_patch
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
from patchkit.record import digest
from tests.support import (
    CATALOG,
    check_nothing_to_restore,
    check_refused,
    check_restored,
    check_rewritten,
    check_unchanged,
    rewriter,
)

ID = "eagle3_target_whitelist"
PATH = "vllm/config/speculative.py"
FRAGMENT = """\
class SpeculativeConfig:
    def _verify_args(self):
{code}
        if not any(name in self.model_type for name in {name}):
            raise ValueError("refused")
        return self
"""
NAME = "eagle3_target_supported"


def fragment(code: str, name: str = NAME) -> str:
    return FRAGMENT.format(code=indent(dedent(code).strip("\n"), " " * 8), name=name)


LIST = f'{NAME} = ["llama"]'
LOOP = "[name for name in eagle3_target_supported]"
REFUSED = {
    "no class": ("x = 1\n", AnchorNotFound, "^SpeculativeConfig: not found"),
    "no method": ("class SpeculativeConfig:\n    pass\n", AnchorNotFound, r"^SpeculativeConfig\._verify_args: not"),
    "method outside the class": ("def _verify_args(self): pass\n", AnchorNotFound, "^SpeculativeConfig: not found"),
    "class twice": (fragment(LIST) + fragment(LIST), AnchorAmbiguous, "^SpeculativeConfig: found 2 times"),
    "no list": (fragment("pass"), AnchorNotFound, "the list of target model types: not found"),
    "list of another name": (fragment('supported = ["llama"]'), AnchorNotFound, "not found"),
    "annotated list": (fragment(f'{NAME}: list[str] = ["llama"]'), AnchorNotFound, "not found"),
    "attribute": (fragment(f'self.{NAME} = ["llama"]'), AnchorNotFound, "not found"),
    "two targets": (fragment(f'x = {NAME} = ["llama"]'), AnchorNotFound, "not found"),
    "two statements in a line": (fragment(f'{NAME} = ["llama"]; x = 1'), AnchorNotFound, "not found"),
    "list twice": (fragment(f"{LIST}\n{LIST}"), AnchorAmbiguous, "found 2 times"),
    "both names": (fragment(f'{LIST}\naux_hidden_states_supported = ["a"]'), AnchorAmbiguous, "found 2 times"),
    "tuple": (fragment(f'{NAME} = ("llama",)'), UnexpectedShape, "expected a list literal of strings"),
    "call": (fragment(f"{NAME} = names()"), UnexpectedShape, "expected a list literal of strings"),
    "empty list": (fragment(f"{NAME} = []"), UnexpectedShape, "expected a list literal of strings"),
    "a name in the list": (fragment(f'{NAME} = ["llama", QWEN]'), UnexpectedShape, "a list literal of strings"),
    "unpacking": (fragment(f'{NAME} = ["llama", *more]'), UnexpectedShape, "a list literal of strings"),
    "bytes": (fragment(f'{NAME} = [b"llama"]'), UnexpectedShape, "a list literal of strings"),
    "format string": (fragment(f'{NAME} = [f"{{llama}}"]'), UnexpectedShape, "a list literal of strings"),
    "no check": (fragment(LIST, "other"), UnexpectedShape, f"one check of the model type against {NAME}"),
    "two checks": (fragment(f"{LIST}\n{LOOP}"), UnexpectedShape, "one check of the model type"),
    "form feed": ("\f" + fragment(LIST), UnexpectedShape, "byte for byte"),
    "no Python": ("class SpeculativeConfig(:\n", UnexpectedShape, "does not parse"),
}
MARK = f"# patchkit: {ID}\n"
REWRITTEN = {
    "smallest": (f'{NAME} = ["llama"]', f'{MARK}{NAME} = ["llama", "kimi_k2", "deepseek_v3"]'),
    "renamed": (
        'aux_hidden_states_supported = ["llama", "qwen"]',
        f'{MARK}aux_hidden_states_supported = ["llama", "qwen", "kimi_k2", "deepseek_v3"]',
    ),
    "one line, trailing comma": (f'{NAME} = ["llama",]', f'{MARK}{NAME} = ["llama", "kimi_k2", "deepseek_v3",]'),
    "has kimi": (f'{NAME} = ["kimi_k2", "a"]', f'{MARK}{NAME} = ["kimi_k2", "a", "deepseek_v3"]'),
    "has deepseek": (f'{NAME} = ["deepseek_v3", "a"]', f'{MARK}{NAME} = ["deepseek_v3", "a", "kimi_k2"]'),
    "admits deepseek": (f'{NAME} = ["deepseek"]', f'{MARK}{NAME} = ["deepseek", "kimi_k2"]'),
    "longer name admits nothing": (
        f'{NAME} = ["kimi_k25", "deepseek_v32"]',
        f'{MARK}{NAME} = ["kimi_k25", "deepseek_v32", "kimi_k2", "deepseek_v3"]',
    ),
    "other quotes": (f"{NAME} = ['llama']", f'{MARK}{NAME} = [\'llama\', "kimi_k2", "deepseek_v3"]'),
    "one a line": (
        f'{NAME} = [\n    "llama",\n    "qwen",\n]',
        f'{MARK}{NAME} = [\n    "llama",\n    "qwen",\n    "kimi_k2",\n    "deepseek_v3",\n]',
    ),
    "one a line, no trailing comma": (
        f'{NAME} = [\n    "llama",\n    "qwen"\n]',
        f'{MARK}{NAME} = [\n    "llama",\n    "qwen",\n    "kimi_k2",\n    "deepseek_v3"\n]',
    ),
    "comments": (
        f'# above\n{NAME} = [  # open\n    "llama",  # one\n    # two\n    "qwen",  # three\n    # end\n]  # close',
        f'# above\n{MARK}{NAME} = [  # open\n    "llama",  # one\n    # two\n    "qwen",  # three\n'
        '    "kimi_k2",\n    "deepseek_v3",\n    # end\n]  # close',
    ),
    "other statements": (
        f'x = ["llama"]\n{NAME} = ["llama"]\nif x:\n    y = ["qwen"]',
        f'x = ["llama"]\n{MARK}{NAME} = ["llama", "kimi_k2", "deepseek_v3"]\nif x:\n    y = ["qwen"]',
    ),
}


def name_in(code: str) -> str:
    return "aux_hidden_states_supported" if "aux_hidden" in code else NAME


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(
    "names",
    ['["kimi_k2", "deepseek_v3"]', '["deepseek_v3", "kimi_k2"]', '["kimi", "deepseek"]', '["k", "v"]', '[""]'],
)
def test_unchanged_where_both_are_admitted(names: str) -> None:
    check_unchanged(ID, PATH, fragment(f"{NAME} = {names}"))


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, fragment(before, name_in(before)), fragment(after, name_in(before)))


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_restored(before: str, after: str) -> None:
    name = name_in(before)
    old, new = fragment(before, name).encode(), fragment(after, name).encode()
    check_restored(ID, PATH, old, new)


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"# coding: latin-1\n# \xe9\n"], ids=["", "BOM", "latin-1"])
def test_bytes_around_are_kept(ending: str, start: bytes) -> None:
    before, after = REWRITTEN["one a line"]
    old, new = (
        start.replace(b"\n", ending.encode()) + fragment(code).rstrip("\n").replace("\n", ending).encode()
        for code in (before, after)
    )
    assert rewriter().fold(PATH, old, {ID}).after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewriter().fold(PATH, old, {ID})


@pytest.mark.parametrize(
    "code",
    [
        f'{NAME} = ["llama", "kimi_k2", "deepseek_v3"]',
        f'{MARK}{NAME} = ["kimi_k2", "deepseek_v3"]',
        f'{MARK}{NAME} = ["kimi_k2", "deepseek_v3", "llama"]',
    ],
    ids=["not marked", "nothing else", "not at the end"],
)
def test_nothing_to_restore(code: str) -> None:
    check_nothing_to_restore(ID, PATH, fragment(code))


def test_not_restored_to_other_bytes() -> None:
    new = fragment(REWRITTEN["smallest"][1]).encode()
    assert rewriter().restore(PATH, new, {ID}, digest(b"")) is None


def test_not_restored_without_anchor() -> None:
    assert rewriter().restore(PATH, b"x = 1\n", {ID}, digest(b"x = 2\n")) is None
    check_nothing_to_restore(ID, PATH, "x = 1\n")  # it is what the wheel shipped, so nothing is there to take back


@pytest.mark.parametrize(
    ("model_type", "is_accepted"),
    [("llama", True), ("kimi_k2", True), ("deepseek_v3", True), ("gemma", False), ("deepseek_v2", False)],
)
def test_rewritten_check_accepts(model_type: str, is_accepted: bool) -> None:
    after = rewriter().fold(PATH, fragment(LIST).encode(), {ID}).after
    namespace: dict[str, type] = {}
    exec(compile(after, "fragment.py", "exec"), namespace)
    config = SimpleNamespace(model_type=model_type)
    verify = namespace["SpeculativeConfig"].__dict__["_verify_args"]
    if is_accepted:
        assert verify(config) is config
    else:
        with pytest.raises(ValueError, match=r"^refused$"):
            verify(config)


def test_registered_for_one_file() -> None:
    patch = load_patch(CATALOG.headers[ID])
    assert set(patch.rewritings) == set(patch.restorings) == {PATH}
    assert CATALOG.headers[ID].files == {PATH: ("SpeculativeConfig._verify_args",)}
