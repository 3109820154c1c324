from __future__ import annotations

import sys
from textwrap import dedent, indent
from types import SimpleNamespace

import pytest

from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from tests.support import check_refused, check_restored, check_rewritten, check_unchanged, rewriter

ID = "eagle3_aux_hidden_states"
TEXT = "vllm/model_executor/models/deepseek_v2.py"
WRAPPER = "vllm/model_executor/models/kimi_k25.py"
INTERFACES = "vllm.model_executor.models.interfaces"
IMPORTED = f"# patchkit: {ID}\nfrom {INTERFACES} import SupportsEagle3\n"
LAYERS = "islice(self.layers, self.start_layer, self.end_layer)"
LOOP = f"""\
for layer in {LAYERS}:
    hidden_states, residual = layer(hidden_states, residual)
"""
FORWARD = f"""\
{LOOP}\
hidden_states = hidden_states + residual
return hidden_states
"""
NUMBERED = f"""\
# patchkit: {ID}
aux_hidden_states = []
for layer_id, layer in enumerate({LAYERS}, self.start_layer):
    if layer_id in self.aux_hidden_state_layers:
        aux_hidden_states.append(
            hidden_states.clone() if residual is None else hidden_states + residual
        )
    hidden_states, residual = layer(hidden_states, residual)
if self.end_layer in self.aux_hidden_state_layers:
    aux_hidden_states.append(hidden_states + residual)
"""
COLLECTED = f"""\
# patchkit: {ID}
if aux_hidden_states:
    return hidden_states, aux_hidden_states
"""
PATCHED = f"""\
{NUMBERED}\
hidden_states = hidden_states + residual
{COLLECTED}\
return hidden_states
"""
MEMBERS = f"""\

    # patchkit: {ID}
    aux_hidden_state_layers: tuple[int, ...] = ()

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        if get_pp_group().world_size > 1:
            raise ValueError(
                "EAGLE-3 with this model needs pipeline_parallel_size=1: the auxiliary "
                "hidden states of the other pipeline ranks would be lost"
            )
        known = range(self.config.num_hidden_layers + 1)
        if not layers or len(set(layers)) < len(layers) or not set(layers) <= set(known):
            raise ValueError(
                f"eagle_aux_hidden_state_layer_ids {{tuple(layers)}}: this model needs one or "
                f"more distinct ids from 0 to {{self.config.num_hidden_layers}}"
            )
        self.aux_hidden_state_layers = tuple(layers)

    def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
        count = self.config.num_hidden_layers
        return (2, count // 2, count - 3)
"""
HANDED_ON = f"""\

    # patchkit: {ID}
    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        self.INNER.set_aux_hidden_state_layers(layers)

    def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
        return self.INNER.get_eagle3_aux_hidden_state_layers()
"""
TEXT_MODEL = """\
class DeepseekV2ForCausalLM(Base):
    def __init__(self, model):
        self.model = model
"""
ONE_LINE_LOOP = f"for layer in {LAYERS}: hidden_states, residual = layer(hidden_states, residual)\n"
BETWEEN = """\
class Mixture:
    pass


"""
KIMI = """\
class KimiK25ForConditionalGeneration(Base):
    def __init__(self, language_model):
        self.language_model = language_model
"""


def decoder(forward: str = FORWARD, head: str = "def forward(self, hidden_states, residual=None):") -> str:
    body = indent(dedent(forward).strip("\n"), " " * 8)
    return f"class DeepseekV2Model(Base):\n    {head}\n{body}\n"


def fragment(forward: str = FORWARD, text_model: str = TEXT_MODEL) -> str:
    return f"from itertools import islice\n\n\n{decoder(forward)}\n\n{BETWEEN}{text_model}"


def declared(code: str, inner: str, bases: tuple[str, str] = ("Base)", "Base, SupportsEagle3)")) -> str:
    """Return a class as it is with the interface."""
    return code.replace(*bases, 1) + HANDED_ON.replace("INNER", inner)


def patched(forward: str = PATCHED, text_model: str = declared(TEXT_MODEL, "model")) -> str:
    return f"from itertools import islice\n{IMPORTED}\n\n{decoder(forward)}{MEMBERS}\n\n{BETWEEN}{text_model}"


def wrapper(code: str = KIMI) -> str:
    return f"import itertools\n\n\n{code}"


def wrapper_patched(code: str = declared(KIMI, "language_model")) -> str:
    return f"import itertools\n{IMPORTED}\n\n{code}"


LOOP_WORDS = r"^DeepseekV2Model\.forward: the loop over islice.*: "
REFUSED = {
    "no text model": (decoder(), AnchorNotFound, "^DeepseekV2ForCausalLM: not found"),
    "text model twice": (fragment() + TEXT_MODEL, AnchorAmbiguous, "^DeepseekV2ForCausalLM: found 2 times"),
    "text model without bases": (
        fragment(text_model=TEXT_MODEL.replace("(Base)", "")),
        UnexpectedShape,
        "^DeepseekV2ForCausalLM: expected a class with bases",
    ),
    "a function in its place": (
        fragment(text_model="def DeepseekV2ForCausalLM(): pass\n"),
        UnexpectedShape,
        "^DeepseekV2ForCausalLM: expected a class with bases",
    ),
    "no decoder": (f"import x\n{TEXT_MODEL}", AnchorNotFound, "^DeepseekV2Model: not found"),
    "decoder twice": (fragment() + decoder(), AnchorAmbiguous, "^DeepseekV2Model: found 2 times"),
    "decoder without bases": (
        fragment().replace("DeepseekV2Model(Base)", "DeepseekV2Model"),
        UnexpectedShape,
        "^DeepseekV2Model: expected a class with bases",
    ),
    "no forward": (
        fragment().replace("def forward", "def backward"),
        AnchorNotFound,
        r"^DeepseekV2Model\.forward: not found",
    ),
    "forward twice": (
        fragment(FORWARD + f"\ndef forward(self):\n{indent(FORWARD, '    ')}").replace(
            " " * 8 + "def forward(self):", "    def forward(self):"
        ),
        AnchorAmbiguous,
        r"^DeepseekV2Model\.forward: found 2 times",
    ),
    "forward on one line": (
        fragment().replace(f"residual=None):\n{indent(FORWARD, ' ' * 8)}", "residual=None): return hidden_states\n"),
        AnchorNotFound,
        f"{LOOP_WORDS}not found",
    ),
    "no loop": (fragment("return hidden_states"), AnchorNotFound, f"{LOOP_WORDS}not found"),
    "loop over all layers": (fragment(FORWARD.replace(LAYERS, "self.layers")), AnchorNotFound, "not found"),
    "loop that counts already": (
        fragment(FORWARD.replace(LAYERS, f"enumerate({LAYERS})")),
        AnchorNotFound,
        "not found",
    ),
    "loop under an if": (fragment(f"if x:\n{indent(LOOP, '    ')}return hidden_states"), AnchorNotFound, "not found"),
    "loop twice": (fragment(LOOP + FORWARD), AnchorAmbiguous, f"{LOOP_WORDS}found 2 times"),
    "loop with an else": (
        fragment(FORWARD.replace(LOOP, f"{LOOP}else:\n    pass\n")),
        UnexpectedShape,
        r"^DeepseekV2Model\.forward: expected a plain loop over layers",
    ),
    "loop with another target": (
        fragment(FORWARD.replace("for layer in", "for block in")),
        UnexpectedShape,
        r"^DeepseekV2Model\.forward: expected a plain loop over layers",
    ),
    "loop body on one line": (
        fragment(FORWARD.replace(LOOP, ONE_LINE_LOOP)),
        UnexpectedShape,
        r"^DeepseekV2Model\.forward: expected",
    ),
    "text model on one line": (
        fragment(text_model="class DeepseekV2ForCausalLM(Base): pass\n"),
        UnexpectedShape,
        "^DeepseekV2ForCausalLM: expected",
    ),
    "another last statement": (
        fragment(FORWARD + "x = 1"),
        UnexpectedShape,
        r"^DeepseekV2Model\.forward: expected 'return hidden_states' at its end",
    ),
    "another result": (
        fragment(FORWARD.replace("return hidden_states", "return hidden_states, None")),
        UnexpectedShape,
        r"^DeepseekV2Model\.forward: expected 'return hidden_states' at its end",
    ),
    "no import": (fragment().partition("\n")[2], AnchorNotFound, "import"),
    "declared and not collected": (
        fragment(text_model=declared(TEXT_MODEL, "model")),
        UnexpectedShape,
        "^DeepseekV2Model: expected to return the states declared",
    ),
}
WRAPPER_REFUSED = {
    "no class": ("import x\n", AnchorNotFound, "^KimiK25ForConditionalGeneration: not found"),
    "class twice": (wrapper() + KIMI, AnchorAmbiguous, "^KimiK25ForConditionalGeneration: found 2 times"),
    "no bases": (
        wrapper(KIMI.replace("(Base)", "")),
        UnexpectedShape,
        "^KimiK25ForConditionalGeneration: expected a class with bases",
    ),
    "class on one line": (
        wrapper("class KimiK25ForConditionalGeneration(Base): pass\n"),
        UnexpectedShape,
        "^KimiK25ForConditionalGeneration: expected",
    ),
    "no import": (KIMI, AnchorNotFound, "import"),
}


def with_bases(code: str, bases: str) -> str:
    return code.replace("(Base)", f"({bases})")


BASES = {
    "several": ("A, B", "A, B, SupportsEagle3"),
    "on their own line": ("\n    A, B\n", "\n    A, B, SupportsEagle3\n"),
    "one a line": ("\n    A,\n    B,\n", "\n    A,\n    B, SupportsEagle3,\n"),
    "one a line, comments": (
        "\n    A,  # a\n    # b\n    B,  # b\n",
        "\n    A,  # a\n    # b\n    B, SupportsEagle3,  # b\n",
    ),
    "no last comma": ("\n    A,\n    B  # b\n", "\n    A,\n    B, SupportsEagle3  # b\n"),
    "dotted": ("nn.Module", "nn.Module, SupportsEagle3"),
    "keyword": ("A, metaclass=M", "A, SupportsEagle3, metaclass=M"),
}
COMMENTED = f"""\
x = 1

# above

# the loop
for layer in {LAYERS}:  # at the loop
    # in the loop
    hidden_states, residual = layer(hidden_states, residual)  # call

    # below the call
# after
if not x:
    return None

hidden_states = hidden_states + residual
# at the end
return hidden_states  # end
"""
COMMENTED_PATCHED = f"""\
x = 1

# above

# the loop
# patchkit: {ID}
aux_hidden_states = []
for layer_id, layer in enumerate({LAYERS}, self.start_layer):  # at the loop
    if layer_id in self.aux_hidden_state_layers:
        aux_hidden_states.append(
            hidden_states.clone() if residual is None else hidden_states + residual
        )
    # in the loop
    hidden_states, residual = layer(hidden_states, residual)  # call

    # below the call
if self.end_layer in self.aux_hidden_state_layers:
    aux_hidden_states.append(hidden_states + residual)
# after
if not x:
    return None

hidden_states = hidden_states + residual
{COLLECTED}\
# at the end
return hidden_states  # end
"""
LAID_OUT = """\
for layer in islice(
    self.layers, self.start_layer, self.end_layer
):
    hidden_states, residual = layer(
        hidden_states, residual
    )
return hidden_states
"""
LAID_OUT_PATCHED = f"""\
# patchkit: {ID}
aux_hidden_states = []
for layer_id, layer in enumerate(islice(
    self.layers, self.start_layer, self.end_layer
), self.start_layer):
    if layer_id in self.aux_hidden_state_layers:
        aux_hidden_states.append(
            hidden_states.clone() if residual is None else hidden_states + residual
        )
    hidden_states, residual = layer(
        hidden_states, residual
    )
if self.end_layer in self.aux_hidden_state_layers:
    aux_hidden_states.append(hidden_states + residual)
{COLLECTED}\
return hidden_states
"""
NEIGHBOURS = (
    f"# first\nimport a\n\n\nclass A:\n    import b\n\n\n{fragment()}\n\nclass C(DeepseekV2ForCausalLM):\n    pass\n"
)
REWRITTEN = {
    "smallest": (fragment(), patched()),
    "comments": (fragment(COMMENTED), patched(COMMENTED_PATCHED)),
    "other layout": (fragment(LAID_OUT), patched(LAID_OUT_PATCHED)),
    "neighbours": (NEIGHBOURS, NEIGHBOURS.replace(fragment(), patched())),
    "text model first": (
        f"import x\n\n\n{TEXT_MODEL}\n\n{decoder()}",
        f"import x\n{IMPORTED}\n\n{declared(TEXT_MODEL, 'model')}\n\n{decoder(PATCHED)}{MEMBERS}",
    ),
    "decoder right above the text model": (
        fragment().replace(BETWEEN, ""),
        patched().replace(BETWEEN, ""),
    ),
    "comment at the end of a class": (
        fragment(text_model=f"{TEXT_MODEL}\n    # end\n"),
        patched(text_model=declared(TEXT_MODEL, "model") + "\n    # end\n"),
    ),
    **{
        f"bases: {name}": (
            fragment(text_model=with_bases(TEXT_MODEL, before)),
            patched(text_model=declared(with_bases(TEXT_MODEL, before), "model", (before, after))),
        )
        for name, (before, after) in BASES.items()
    },
}
WRAPPER_REWRITTEN = {
    "smallest": (wrapper(), wrapper_patched()),
    "neighbours": (wrapper(f"{KIMI}\n\nx = 1\n"), wrapper_patched(declared(KIMI, "language_model") + "\n\nx = 1\n")),
    "decorator": (
        wrapper(f"@register(\n    1\n)  # one\n{KIMI}"),
        wrapper_patched(f"@register(\n    1\n)  # one\n{declared(KIMI, 'language_model')}"),
    ),
    **{
        f"bases: {name}": (
            wrapper(with_bases(KIMI, before)),
            wrapper_patched(declared(with_bases(KIMI, before), "language_model", (before, after))),
        )
        for name, (before, after) in BASES.items()
    },
}
CHANGES = {
    **{f"text model: {name}": (TEXT, *change) for name, change in REWRITTEN.items()},
    **{f"wrapper: {name}": (WRAPPER, *change) for name, change in WRAPPER_REWRITTEN.items()},
}


@pytest.mark.parametrize(("before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_text_model_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, TEXT, before, error, words)


@pytest.mark.parametrize(("before", "error", "words"), WRAPPER_REFUSED.values(), ids=WRAPPER_REFUSED)
def test_wrapper_refused(before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, WRAPPER, before, error, words)


def test_text_model_unchanged_where_it_has_the_interface() -> None:
    check_unchanged(ID, TEXT, patched().replace("# patchkit:", "# upstream:").replace("Base, ", "A, "))


@pytest.mark.parametrize("bases", ["SupportsEagle3", "SupportsEagle3, Base", "Base, SupportsEagle3"])
def test_wrapper_unchanged_where_it_has_the_interface(bases: str) -> None:
    check_unchanged(ID, WRAPPER, wrapper(with_bases(KIMI, bases)))


@pytest.mark.parametrize(("path", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_rewritten(path: str, before: str, after: str) -> None:
    check_rewritten(ID, path, before, after)


@pytest.mark.parametrize(("path", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_restored(path: str, before: str, after: str) -> None:
    old, new = before.encode(), after.encode()
    check_restored(ID, path, old, new)


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [(TEXT, *REWRITTEN["comments"]), (WRAPPER, *WRAPPER_REWRITTEN["bases: one a line, comments"])],
    ids=["text model", "wrapper"],
)
def test_line_ends_are_kept(path: str, before: str, after: str) -> None:
    old, new = (code.replace("\n", "\r\n").encode() for code in (before, after))
    rewrite = rewriter().fold(path, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(path, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize(("path", "code"), [(TEXT, fragment()), (WRAPPER, wrapper())], ids=["text model", "wrapper"])
def test_nothing_to_restore(path: str, code: str) -> None:
    data = code.encode()
    assert rewriter().restore(path, data, {ID}, digest(data)) == Rewrite(data, data, frozenset())


NOT_RESTORED = {
    "no text model": (TEXT, decoder()),
    "text model without bases": (TEXT, patched().replace("LM(Base, SupportsEagle3)", "LM")),
    "decoder without the loop": (TEXT, patched("return hidden_states")),
    "loop at the top": (TEXT, patched(PATCHED.replace("aux_hidden_states = []\n", ""))),
    "no base before the interface": (TEXT, patched().replace("Base, SupportsEagle3", "SupportsEagle3")),
    "no wrapper": (WRAPPER, "import x\n"),
    "wrapper of another hand": (WRAPPER, wrapper_patched().replace(f"# patchkit: {ID}", "# upstream")),
}


@pytest.mark.parametrize(("path", "code"), NOT_RESTORED.values(), ids=NOT_RESTORED)
def test_not_restored(path: str, code: str) -> None:
    pristine = fragment() if path == TEXT else wrapper()
    assert rewriter().restore(path, code.encode(), {ID}, digest(pristine.encode())) is None


class State(int):
    """A tensor as far as the loop needs one."""

    def __add__(self, other: int) -> State:
        return State(int(self) + int(other))

    def clone(self) -> State:
        return State(int(self))


class SupportsEagle3:
    """The interface, which the patched classes derive from."""


def run(path: str, code: str, monkeypatch: pytest.MonkeyPatch, world_size: int = 1) -> dict[str, type]:
    """Return the classes of a fragment after the patch."""
    monkeypatch.setitem(sys.modules, INTERFACES, SimpleNamespace(SupportsEagle3=SupportsEagle3))
    namespace = {"Base": type("Base", (), {}), "get_pp_group": lambda: SimpleNamespace(world_size=world_size)}
    exec(compile(rewriter().fold(path, code.encode(), {ID}).after, "fragment.py", "exec"), namespace)
    return namespace


def make_layer(number: int) -> object:
    """Return a layer that adds a one at its own place: what enters layer 2 ends in 11."""
    return lambda hidden, residual: (State(10**number), hidden if residual is None else hidden + residual)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a patched decoder of four layers, which no drafter asks for states yet."""
    return make_model(run(TEXT, fragment(), monkeypatch))


def make_model(namespace: dict[str, type], count: int = 4) -> object:
    decoder_model = namespace["DeepseekV2Model"]()
    decoder_model.layers = [make_layer(number) for number in range(count)]
    decoder_model.start_layer, decoder_model.end_layer = 0, count
    decoder_model.config = SimpleNamespace(num_hidden_layers=count)
    return decoder_model


EMBEDDED = State(50_000)
OUTPUT = 51_111


def test_nothing_is_collected_by_default(model: object) -> None:
    output = model.forward(EMBEDDED)
    assert (type(output), output) == (State, OUTPUT)


@pytest.mark.parametrize(
    ("ids", "states"),
    [
        ((0,), [50_000]),
        ((1,), [50_001]),
        ((2,), [50_011]),
        ((4,), [OUTPUT]),
        ((0, 2, 4), [50_000, 50_011, OUTPUT]),
        ((4, 2, 0), [50_000, 50_011, OUTPUT]),
        ([3, 1], [50_001, 50_111]),
        ((0, 1, 2, 3, 4), [50_000, 50_001, 50_011, 50_111, OUTPUT]),
    ],
    ids=str,
)
def test_states_are_collected_in_ascending_order(model: object, ids: tuple[int, ...], states: list[int]) -> None:
    model.set_aux_hidden_state_layers(ids)
    assert model.forward(EMBEDDED) == (OUTPUT, states)


def test_embeddings_are_copied_before_a_layer_may_change_them(model: object) -> None:
    model.set_aux_hidden_state_layers((0,))
    _, (state,) = model.forward(EMBEDDED)
    assert state is not EMBEDDED


def test_states_are_collected_anew_each_time(model: object) -> None:
    model.set_aux_hidden_state_layers((0, 4))
    assert model.forward(EMBEDDED) == model.forward(EMBEDDED) == (OUTPUT, [50_000, OUTPUT])


def test_another_model_keeps_its_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = run(TEXT, fragment(), monkeypatch)
    one, other = make_model(namespace), make_model(namespace)
    one.set_aux_hidden_state_layers((1,))
    assert (one.aux_hidden_state_layers, other.aux_hidden_state_layers) == ((1,), ())


def test_layers_are_numbered_from_the_first_of_the_rank(model: object) -> None:
    model.start_layer, model.aux_hidden_state_layers = 2, (1, 2, 3)
    assert model.forward(EMBEDDED) == (51_100, [50_000, 50_100])


@pytest.mark.parametrize("ids", [(5,), (-1,), (0, 2, 5), (1, -2), (2, 2, 3), (0, 0), ()], ids=lambda ids: f"ids {ids}")
def test_ids_are_refused(model: object, ids: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"this model needs one or more distinct ids from 0 to 4$") as caught:
        model.set_aux_hidden_state_layers(ids)
    assert str(caught.value).startswith(f"eagle_aux_hidden_state_layer_ids {ids}: ")
    assert model.aux_hidden_state_layers == ()


def test_pipeline_parallelism_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(run(TEXT, fragment(), monkeypatch, world_size=2))
    with pytest.raises(ValueError, match=r"needs pipeline_parallel_size=1: .* other pipeline ranks would be lost$"):
        model.set_aux_hidden_state_layers((0,))
    assert model.forward(EMBEDDED) == OUTPUT


@pytest.mark.parametrize(("count", "ids"), [(61, (2, 30, 58)), (8, (2, 4, 5))])
def test_default_ids(monkeypatch: pytest.MonkeyPatch, count: int, ids: tuple[int, ...]) -> None:
    model = make_model(run(TEXT, fragment(), monkeypatch), count)
    assert model.get_eagle3_aux_hidden_state_layers() == ids
    model.set_aux_hidden_state_layers(ids)


def test_default_ids_that_coincide_are_refused(model: object) -> None:
    ids = model.get_eagle3_aux_hidden_state_layers()
    assert ids == (2, 2, 1)
    with pytest.raises(ValueError, match=r"^eagle_aux_hidden_state_layer_ids \(2, 2, 1\): "):
        model.set_aux_hidden_state_layers(ids)


def test_text_model_and_wrapper_hand_on(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = run(TEXT, fragment(), monkeypatch)
    kimi = run(WRAPPER, wrapper(), monkeypatch)["KimiK25ForConditionalGeneration"]
    model = make_model(namespace)
    text_model = namespace["DeepseekV2ForCausalLM"](model)
    # vLLM 0.15 puts the decoder itself into the wrapper, 0.16 and later the text model.
    for number, outer in enumerate((text_model, kimi(text_model), kimi(model))):
        outer.set_aux_hidden_state_layers((number,))
        assert model.aux_hidden_state_layers == (number,)
        assert outer.get_eagle3_aux_hidden_state_layers() == (2, 2, 1)
        assert isinstance(outer, SupportsEagle3)
    assert not isinstance(model, SupportsEagle3)
