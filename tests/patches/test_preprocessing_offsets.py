from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchkit.catalog import load_patch
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from tests.support import CATALOG, check_refused, check_restored, check_rewritten, check_unchanged, rewriter

ID = "preprocessing_offsets"
PATH = "speculators/data_generation/preprocessing.py"
# The function that is added: what is in it is tested below by what it finds.
FIND: str = load_patch(CATALOG.headers[ID]).rewritings[PATH].__globals__["FIND"].strip("\n")
MARKER = f"# patchkit: {ID}"
MASK = "def _create_loss_mask_from_offsets(text, offsets):\n    return offsets"
TAKE = 'offsets = encoding["offset_mapping"]'
FOUND = """\
    offsets = (
        encoding["offset_mapping"]
        if tokenizer.is_fast
        else _find_offsets(tokenizer, formatted_raw, input_ids)
    )"""
BATCH = f"""\
def _preprocess_batch(tokenizer, formatted_raw):
    encoding = tokenizer(
        formatted_raw,
        return_offsets_mapping=True,
        truncation=True,
    )
    input_ids = encoding["input_ids"]
    {TAKE}
    return _create_loss_mask_from_offsets(formatted_raw, offsets)"""
PATCHED = (
    BATCH.replace("    encoding =", f"    {MARKER}\n    encoding =")
    .replace("=True,", "=tokenizer.is_fast,", 1)
    .replace(f"    {TAKE}", f"    {MARKER}\n{FOUND}")
)
ASKED = "return_offsets_mapping=True"


def fragment(*parts: str) -> str:
    return (
        "\n\n\n".join(("from __future__ import annotations\n\nfrom transformers import PreTrainedTokenizer", *parts))
        + "\n"
    )


def with_batch(old: str, new: str) -> str:
    """Return the smallest fragment with something else in the function that tokenizes."""
    assert old in BATCH
    return fragment(MASK, BATCH.replace(old, new))


WORDS = r"^_preprocess_batch: tokenizer\(…\): expected return_offsets_mapping among its arguments"
ANCHOR = r'^_preprocess_batch: offsets = encoding\["offset_mapping"\]'
REFUSED = {
    "no function": (fragment(MASK), AnchorNotFound, "^_preprocess_batch: not found"),
    "function twice": (fragment(MASK, BATCH, BATCH), AnchorAmbiguous, "^_preprocess_batch: found 2 times"),
    "not taken": (with_batch(TAKE, "pass"), AnchorNotFound, f"{ANCHOR}: not found"),
    "taken twice": (with_batch(TAKE, f"{TAKE}\n    {TAKE}"), AnchorAmbiguous, f"{ANCHOR}: found 2 times"),
    "taken otherwise": (with_batch(TAKE, TAKE.replace("_mapping", "s")), AnchorNotFound, f"{ANCHOR}: not found"),
    "no call": (with_batch("tokenizer(\n", "tokenize(\n"), AnchorNotFound, "^the call of tokenizer: not found"),
    "two calls": (
        with_batch("input_ids = encoding", "input_ids = tokenizer(formatted_raw) or encoding"),
        AnchorAmbiguous,
        "^the call of tokenizer: found 2 times",
    ),
    "called in a condition": (
        with_batch("    encoding = tokenizer(\n", "    if encoding := tokenizer(\n").replace(
            "    )\n", "    ): pass\n"
        ),
        AnchorNotFound,
        "^_preprocess_batch: not found",
    ),
    "offsets not asked for": (with_batch(f"{ASKED},", ""), UnexpectedShape, WORDS),
    "offsets asked for by place": (with_batch(f"{ASKED},", "True,"), UnexpectedShape, WORDS),
    "offsets asked for in a mapping": (with_batch(f"{ASKED},", f"**dict({ASKED}),"), UnexpectedShape, WORDS),
    "no neighbour": (fragment(BATCH), AnchorNotFound, "^_create_loss_mask_from_offsets: not found"),
    "neighbour twice": (fragment(MASK, MASK, BATCH), AnchorAmbiguous, "^_create_loss_mask_from_offsets: found 2 times"),
}
COMMENTED = BATCH.replace("    encoding =", "    # above\n\n    encoding =").replace(TAKE, f"{TAKE}  # beside")
COMMENTED = COMMENTED.replace(f"{ASKED},", f"{ASKED},  # asked").replace("    )\n", "    )  # called\n\n")
COMMENTED_PATCHED = (
    COMMENTED.replace("    encoding =", f"    {MARKER}\n    encoding =")
    .replace("=True,", "=tokenizer.is_fast,", 1)
    .replace(f"    {TAKE}", f"    {MARKER}\n{FOUND}")
)


def nested(batch: str) -> str:
    """Put what the function does under a try."""
    head, *lines = batch.splitlines()
    body = "\n".join(f"    {line}" for line in lines)
    return f"{head}\n    try:\n{body}\n    except Exception as e:\n        log.warning(e)"


REWRITTEN = {
    "smallest": (fragment(MASK, BATCH), fragment(f"{MARKER}\n{FIND}", MASK, PATCHED)),
    "comments": (
        fragment(f"# above\n{MASK}  # beside", COMMENTED),
        fragment(f"{MARKER}\n{FIND}", f"# above\n{MASK}  # beside", COMMENTED_PATCHED),
    ),
    "nested": (fragment(MASK, nested(BATCH)), fragment(f"{MARKER}\n{FIND}", MASK, nested(PATCHED))),
    "neighbours": (
        fragment("def f():\n    pass", MASK, "x = tokenizer(1)", BATCH, "def g(tokenizer):\n    tokenizer(1)"),
        fragment(
            "def f():\n    pass",
            f"{MARKER}\n{FIND}",
            MASK,
            "x = tokenizer(1)",
            PATCHED,
            "def g(tokenizer):\n    tokenizer(1)",
        ),
    ),
    "neighbour below": (fragment(BATCH, MASK), fragment(PATCHED, f"{MARKER}\n{FIND}", MASK)),
    "decorated": (
        fragment(f"@cache\n{MASK}", BATCH),
        fragment(f"{MARKER}\n{FIND}", f"@cache\n{MASK}", PATCHED),
    ),
    "asked as wanted": (
        with_batch(ASKED, ASKED.replace("True", "tokenizer.is_fast")),
        fragment(f"{MARKER}\n{FIND}", MASK, PATCHED.replace(f"    {MARKER}\n    encoding", "    encoding")),
    ),
    "taken as wanted": (
        with_batch(f"    {TAKE}", FOUND),
        fragment(f"{MARKER}\n{FIND}", MASK, PATCHED.replace(f"    {MARKER}\n    offsets", "    offsets")),
    ),
    "function there": (fragment(FIND, MASK, BATCH), fragment(FIND, MASK, PATCHED)),
}
OTHER_LAYOUT = """\
    offsets = (encoding["offset_mapping"] if tokenizer.is_fast  # why
               else _find_offsets(tokenizer, formatted_raw, input_ids))"""
NATIVE = fragment(f"# upstream\n{FIND}", MASK, PATCHED.replace(MARKER, "# upstream"))


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, PATH, before, error, words)


@pytest.mark.parametrize(("before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(before: str, after: str) -> None:
    check_rewritten(ID, PATH, before, after)


@pytest.mark.parametrize("code", [NATIVE, NATIVE.replace(FOUND, OTHER_LAYOUT)], ids=["native", "other layout"])
def test_unchanged_where_it_finds_them_already(code: str) -> None:
    check_unchanged(ID, PATH, code)


@pytest.mark.parametrize("case", [case for case in REWRITTEN if case != "function there"])
def test_restored(case: str) -> None:
    old, new = (code.encode() for code in REWRITTEN[case])
    check_restored(ID, PATH, old, new)


def test_line_ends_are_kept() -> None:
    old, new = (code.replace("\n", "\r\n").encode() for code in REWRITTEN["comments"])
    rewrite = rewriter().fold(PATH, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(PATH, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize("data", [fragment(MASK, BATCH), NATIVE], ids=["pristine", "native"])
def test_nothing_to_restore(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(data.encode())) == Rewrite(
        data.encode(), data.encode(), frozenset()
    )


def test_native_function_stays_where_the_rest_is_restored() -> None:
    old, new = (code.encode() for code in REWRITTEN["function there"])
    check_restored(ID, PATH, old, new)


@pytest.mark.parametrize("data", ["x = 1\n", NATIVE], ids=["no function", "native"])
def test_not_restored(data: str) -> None:
    assert rewriter().restore(PATH, data.encode(), {ID}, digest(fragment(MASK, BATCH).encode())) is None


class ByteTokenizer:
    """A tokenizer whose tokens are bytes of the text; those of a part of a character decode to U+FFFD."""

    is_fast = False

    def __init__(self, *tokens: bytes) -> None:
        self.tokens = tokens

    def __call__(self, text: str, return_offsets_mapping: bool, truncation: bool) -> dict[str, list[int]]:
        if return_offsets_mapping:
            raise NotImplementedError(CATALOG.headers[ID].patch.symptom)
        return {"input_ids": list(range(len(self.tokens)))}

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self.tokens[token] for token in tokens).decode("utf-8", "replace")


class FastTokenizer:
    """A tokenizer that gives offsets, and is asked for nothing else."""

    is_fast = True

    def __call__(self, text: str, return_offsets_mapping: bool, truncation: bool) -> dict[str, object]:
        given = {"offset_mapping": [(0, len(text))]} if return_offsets_mapping else {}
        return {"input_ids": [0], **given}


class WordTokenizer:
    """A tokenizer of words alone: it does not decode the blanks between them."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.words[token] for token in tokens)


class MarkTokenizer(WordTokenizer):
    """A tokenizer that marks the blank before a word, and leaves it out where it starts to decode."""

    def decode(self, tokens: Sequence[int]) -> str:
        return super().decode(tokens).replace("▁", " ").removeprefix(" ")


class LowerTokenizer(WordTokenizer):
    """A tokenizer that decodes to other letters than those of the text."""

    def decode(self, tokens: Sequence[int]) -> str:
        return super().decode(tokens).lower()


Offsets = list[tuple[int, int]]
Run = Callable[..., Offsets]


def load(name: str, patches: set[str]) -> Run:
    """Return a function of the fragment."""
    # The name is that of a library which is not installed here.
    code = rewriter().fold(PATH, fragment(MASK, BATCH).encode(), patches).after
    code = code.replace(b"from transformers import PreTrainedTokenizer", b"PreTrainedTokenizer = object")
    namespace: dict[str, Run] = {}
    exec(compile(code, "fragment.py", "exec"), namespace)
    return namespace[name]


FIND_OFFSETS = load("_find_offsets", {ID})


def find(tokenizer: object, text: str, count: int) -> Offsets:
    return FIND_OFFSETS(tokenizer, text, list(range(count)))


def find_in_bytes(text: str, *tokens: bytes) -> Offsets:
    return find(ByteTokenizer(*tokens), text, len(tokens))


def split(text: str, *sizes: int) -> list[bytes]:
    """Cut the bytes of a text into tokens of these sizes, the last of what is left."""
    ends = [0, *accumulate(sizes)]
    data = text.encode()
    cut = [data[start:end] for start, end in pairwise([*ends, len(data)])]
    return [token for token in cut if token]


def places(text: str, tokens: Sequence[bytes]) -> Offsets:
    """Work out the offsets from the bytes: tokens up to one that ends with a character share their characters."""
    starts = [0, *accumulate(len(character.encode()) for character in text)]
    found: Offsets = []
    start = waiting = 0
    for end in accumulate(map(len, tokens)):
        waiting += 1
        if end in starts:
            found += [(starts.index(start), starts.index(end))] * waiting
            start, waiting = end, 0
    return found


def test_no_conversation_is_masked_before() -> None:
    with pytest.raises(NotImplementedError, match=CATALOG.headers[ID].patch.symptom):
        load("_preprocess_batch", set())(ByteTokenizer(b"a"), "a")


def test_offsets_are_found_after() -> None:
    tokens = split("ab 你", 2, 1, 2)
    assert load("_preprocess_batch", {ID})(ByteTokenizer(*tokens), "ab 你") == [(0, 2), (2, 3), (3, 4), (3, 4)]


@pytest.mark.parametrize("patches", [set(), {ID}], ids=["before", "after"])
def test_fast_tokenizer_is_asked(patches: set[str]) -> None:
    assert load("_preprocess_batch", patches)(FastTokenizer(), "text") == [(0, 4)]


SPLIT = {
    "one token": ("Hello", (), [(0, 5)]),
    "letters": ("abc", (1, 1), [(0, 1), (1, 2), (2, 3)]),
    "blanks": ("a  b\n", (1, 1, 2), [(0, 1), (1, 2), (2, 4), (4, 5)]),
    "blanks alone": (" \n\t ", (1, 2), [(0, 1), (1, 3), (3, 4)]),
    "ideograph over two": ("你好", (2, 1), [(0, 1), (0, 1), (1, 2)]),
    "ideograph over three": ("a你", (1, 1, 1), [(0, 1), (1, 2), (1, 2), (1, 2)]),
    "emoji over four": ("🙂x", (1, 1, 1, 1), [(0, 1)] * 4 + [(1, 2)]),
    "emoji joined": ("👩\u200d💻", (4, 1, 2, 2), [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3)]),
    "ideographic space": ("\u3000你", (2, 1), [(0, 1), (0, 1), (1, 2)]),
    "ideographic space over three": ("a\u3000", (1, 1, 1), [(0, 1), (1, 2), (1, 2), (1, 2)]),
    "ideographic space after a blank": (" \u3000 a", (1, 1, 2, 1), [(0, 1), (1, 2), (1, 2), (2, 3), (3, 4)]),
    "accent": ("é", (1,), [(0, 1), (0, 1)]),
    "part of the next": ("a你b", (2, 2), [(0, 2), (0, 2), (2, 3)]),
    "parts on both sides": ("你a好", (1, 4), [(0, 3), (0, 3), (0, 3)]),
    "special": ("<|im_end|>你", (10, 1), [(0, 10), (10, 11), (10, 11)]),
}


@pytest.mark.parametrize(("text", "sizes", "offsets"), SPLIT.values(), ids=SPLIT)
def test_characters_over_several_tokens(text: str, sizes: tuple[int, ...], offsets: Offsets) -> None:
    tokens = split(text, *sizes)
    assert find_in_bytes(text, *tokens) == offsets == places(text, tokens)


ALPHABET = "ab \n\u3000é你好🙂"


@settings(deadline=None)
@given(st.text(ALPHABET, max_size=30), st.lists(st.integers(1, 7), max_size=40))
def test_offsets_are_those_of_the_bytes(text: str, sizes: list[int]) -> None:
    tokens = split(text, *sizes)
    assert find_in_bytes(text, *tokens) == places(text, tokens)


@settings(deadline=None)
@given(st.text(ALPHABET + "\ufffd", max_size=30), st.lists(st.integers(1, 7), max_size=40))
def test_every_token_is_found_around_its_own_characters(text: str, sizes: list[int]) -> None:
    tokens = split(text, *sizes)
    offsets = find_in_bytes(text, *tokens)
    characters = [place for place, character in enumerate(text) for _ in character.encode()]
    ends = list(accumulate(map(len, tokens)))
    assert len(offsets) == len(tokens)
    for token, last, (start, end) in zip(tokens, ends, offsets, strict=True):
        first = characters[last - len(token)]
        # A token that ends one and goes on is not told from one that starts after it.
        assert start <= first or text[first] == "\ufffd"
        assert characters[last - 1] < end <= len(text)
    assert offsets == sorted(offsets)


@settings(deadline=None)
@given(st.text(ALPHABET, max_size=30), st.lists(st.integers(1, 7), max_size=40), st.integers(0, 40))
def test_cut_gives_the_offsets_of_the_whole(text: str, sizes: list[int], count: int) -> None:
    tokens = split(text, *sizes)[:count]
    offsets = find_in_bytes(text, *tokens)
    known = places(text, tokens)
    assert offsets[: len(known)] == known
    # Those cut off inside a character start where the last whole token ended.
    place = known[-1][1] if known else 0
    assert offsets[len(known) :] == [(place, place + 1)] * (len(tokens) - len(known))


LITERAL = {
    "alone": ("\ufffd", (), [(0, 1)]),
    "over three": ("\ufffd", (1, 1), [(0, 1)] * 3),
    "before a letter": ("\ufffda", (3,), [(0, 1), (1, 2)]),
    "over three, before a letter": ("\ufffda", (1, 1, 1), [(0, 1)] * 3 + [(1, 2)]),
    "after a letter": ("a\ufffdb", (1, 3), [(0, 1), (1, 2), (2, 3)]),
    "in a token with a letter": ("a\ufffdb", (4,), [(0, 2), (2, 3)]),
    "before an ideograph over two": ("\ufffd你a", (3, 1, 2), [(0, 1), (1, 2), (1, 2), (2, 3)]),
    "after an ideograph over two": ("你\ufffda", (1, 2, 3), [(0, 1), (0, 1), (1, 2), (2, 3)]),
    "two before a letter": ("\ufffd\ufffda", (3, 3), [(0, 2), (0, 2), (2, 3)]),
    "many before an ideograph over two": ("\ufffd" * 40 + "你", (3,) * 40 + (1,), [(0, 40)] * 40 + [(40, 41)] * 2),
}


@pytest.mark.parametrize(("text", "sizes", "offsets"), LITERAL.values(), ids=LITERAL)
def test_replacement_character_in_the_text(text: str, sizes: tuple[int, ...], offsets: Offsets) -> None:
    assert find_in_bytes(text, *split(text, *sizes)) == offsets


CUT = {
    "first byte": ("你", (1, 2), 1, [(0, 1)]),
    "two tokens of three": ("a你", (1, 1, 1), 3, [(0, 1), (1, 2), (1, 2)]),
    "in an emoji": ("你🙂", (3, 1, 1), 3, [(0, 1), (1, 2), (1, 2)]),
    "after a letter in the token": ("a你", (2, 2), 1, [(0, 1)]),
    "between characters": ("你好", (3,), 1, [(0, 1)]),
    "after a replacement character": ("\ufffd你", (3, 1), 2, [(0, 1), (1, 2)]),
    "in a replacement character": ("a\ufffd", (1, 1), 2, [(0, 1), (1, 2)]),
    "nothing left": ("你", (1,), 0, []),
}


@pytest.mark.parametrize(("text", "sizes", "count", "offsets"), CUT.values(), ids=CUT)
def test_cut_at_the_maximum_length(text: str, sizes: tuple[int, ...], count: int, offsets: Offsets) -> None:
    assert find_in_bytes(text, *split(text, *sizes)[:count]) == offsets


def test_no_tokens_have_no_offsets() -> None:
    assert find_in_bytes("") == []
    assert find_in_bytes("text") == []


WORDLY = {
    "blanks between": (WordTokenizer("a", "b"), "a b", 2, [(0, 1), (2, 3)]),
    "several blanks": (WordTokenizer("a", "bc", "d"), " a\n\n bc\u3000d ", 3, [(1, 2), (5, 7), (8, 9)]),
    "no blanks": (WordTokenizer("a", "b"), "ab", 2, [(0, 1), (1, 2)]),
    "some blanks decoded": (WordTokenizer("a", " b", "c"), "a b c", 3, [(0, 1), (1, 3), (4, 5)]),
    "nothing decoded": (WordTokenizer("", "a", "", "b"), "a b", 4, [(0, 0), (0, 1), (1, 1), (2, 3)]),
    "blank marked": (MarkTokenizer("▁Hello", "▁wor", "ld"), "Hello world", 3, [(0, 5), (6, 9), (9, 11)]),
    "blank marked alone": (MarkTokenizer("▁a", "▁", "▁b"), "a  b", 3, [(0, 1), (1, 1), (3, 4)]),
}


@pytest.mark.parametrize(("tokenizer", "text", "count", "offsets"), WORDLY.values(), ids=WORDLY)
def test_blanks_that_are_not_decoded(tokenizer: object, text: str, count: int, offsets: Offsets) -> None:
    assert find(tokenizer, text, count) == offsets


REJECTED = {
    "other letters": (
        LowerTokenizer("Hello", " world"),
        "Hello world",
        2,
        "LowerTokenizer decodes its tokens to 'hello', and the text goes on with 'Hello world': no offsets",
    ),
    "other letters later": (
        LowerTokenizer("a", " B"),
        "a B and more than twenty letters",
        2,
        "LowerTokenizer decodes its tokens to ' b', and the text goes on with ' B and more than twe': no offsets",
    ),
    "other letters after blanks": (
        LowerTokenizer("B"),
        " \n B",
        1,
        "LowerTokenizer decodes its tokens to 'b', and the text goes on with 'B': no offsets",
    ),
    "more than the text": (
        WordTokenizer("a", "b"),
        "a ",
        2,
        "WordTokenizer decodes its tokens to 'b', and the text goes on with '': no offsets",
    ),
    "other letters, then a part": (
        WordTokenizer("b\ufffd"),
        "a",
        1,
        "WordTokenizer decodes its tokens to 'b\ufffd', and the text goes on with 'a': no offsets",
    ),
}


@pytest.mark.parametrize(("tokenizer", "text", "count", "words"), REJECTED.values(), ids=REJECTED)
def test_tokens_that_decode_to_something_else(tokenizer: object, text: str, count: int, words: str) -> None:
    with pytest.raises(ValueError, match=r"no offsets$") as caught:
        find(tokenizer, text, count)
    assert str(caught.value) == words


def test_tokens_that_never_end_with_a_character() -> None:
    with pytest.raises(
        ValueError, match=r"^WordTokenizer decodes its tokens to '\ufffd+', and the text goes on with 'a'"
    ):
        find(WordTokenizer(*["\ufffd"] * 1000), "a", 1000)


def test_tokens_are_decoded_few_at_a_time() -> None:
    text = "你a" * 500
    tokenizer = ByteTokenizer(*split(text, *[1, 2, 1] * 500))
    lengths: list[int] = []

    def decode(tokens: Sequence[int]) -> str:
        lengths.append(len(tokens))
        return tokenizer.decode(tokens)

    assert find(SimpleNamespace(decode=decode), text, 1500) == places(text, tokenizer.tokens)
    assert (len(lengths), max(lengths)) == (1500, 2)
