"""DeepSeek-V3 and Kimi-K2.5 give EAGLE-3 their auxiliary hidden states

An EAGLE-3 drafter reads hidden states of some inner layers of its target. vLLM asks whether the target supports the
EAGLE-3 interface before it starts, and the text model of DeepSeek-V3, which Kimi-K2 and Kimi-K2.5 run on, neither
declares the interface nor returns such states. The server dies after the drafter is loaded.

The rewrite makes the text model collect the state that enters each layer asked for (id k is what enters layer k, 0 the
embeddings, the number of layers what leaves the last one), return them beside its output, and declare the interface;
the wrapper of Kimi-K2.5 declares it too and hands it on. Ids that the model does not have, or has twice, are refused by
an error rather than by fewer states. So is pipeline parallelism, under which the states of all but the last rank would
be lost. Without an EAGLE-3 drafter nothing is collected and the output is as it was. vLLM 0.18.0 has the interface.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import code_of, find_definition, is_code, only, replace, require, statements
from patchkit.edits import (
    add_base,
    append_members,
    base_names,
    body_of,
    drop_last_base,
    drop_last_members,
    mark,
    unmark,
    with_body,
)
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="vllm",
    versions=">=0.15.0,<0.18.0",
    symptom="Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested",
    upstream=Upstream(status="released", pull="vllm-project/vllm#36361", fixed_in="0.18.0"),
)

INTERFACE = "SupportsEagle3"
IMPORT = f"from vllm.model_executor.models.interfaces import {INTERFACE}"
DECODER = "DeepseekV2Model"
TEXT_MODEL = "DeepseekV2ForCausalLM"
WRAPPER = "KimiK25ForConditionalGeneration"

LAYERS = "islice(self.layers, self.start_layer, self.end_layer)"
NUMBERED = f"enumerate({LAYERS}, self.start_layer)"
RETURN = "return hidden_states"
BEFORE_LOOP = "aux_hidden_states = []"
AT_LAYER = """
if layer_id in self.aux_hidden_state_layers:
    aux_hidden_states.append(
        hidden_states.clone() if residual is None else hidden_states + residual
    )
"""
AFTER_LOOP = """
if self.end_layer in self.aux_hidden_state_layers:
    aux_hidden_states.append(hidden_states + residual)
"""
BEFORE_RETURN = """
if aux_hidden_states:
    return hidden_states, aux_hidden_states
"""
DECODER_MEMBERS = """
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
            f"eagle_aux_hidden_state_layer_ids {tuple(layers)}: this model needs one or "
            f"more distinct ids from 0 to {self.config.num_hidden_layers}"
        )
    self.aux_hidden_state_layers = tuple(layers)

def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
    count = self.config.num_hidden_layers
    return (2, count // 2, count - 3)
"""
HANDED_ON = """
def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
    self.{inner}.set_aux_hidden_state_layers(layers)

def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
    return self.{inner}.get_eagle3_aux_hidden_state_layers()
"""


@patch.rewrites(
    "vllm/model_executor/models/deepseek_v2.py", within=("import", "DeepseekV2Model", "DeepseekV2ForCausalLM")
)
def collect_states(module: cst.Module) -> cst.Module:
    """Let the decoder collect states, and the text model declare the interface."""
    text_model = _find_class(module, TEXT_MODEL)
    if INTERFACE in base_names(text_model):
        require("aux_hidden_states" in code_of(_find_class(module, DECODER)), DECODER, "to return the states declared")
        return module
    module = replace(module, text_model, _declare(text_model, "model"))
    decoder = _find_class(module, DECODER)
    module = replace(module, decoder, append_members(_collect(decoder), DECODER_MEMBERS, __name__))
    return _add_import(module)


@patch.rewrites("vllm/model_executor/models/kimi_k25.py", within=("import", "KimiK25ForConditionalGeneration"))
def hand_on(module: cst.Module) -> cst.Module:
    """Let the wrapper declare the interface and hand it to its language model."""
    wrapper = _find_class(module, WRAPPER)
    if INTERFACE in base_names(wrapper):
        return module
    return _add_import(replace(module, wrapper, _declare(wrapper, "language_model")))


@patch.restores("vllm/model_executor/models/deepseek_v2.py")
def drop_states(module: cst.Module) -> cst.Module:
    """Take the collecting and the interface out."""
    text_model = _find_class(module, TEXT_MODEL)
    if base_names(text_model)[-1] != INTERFACE:
        return module
    module = replace(module, text_model, _undeclare(text_model, "model"))
    decoder = _find_class(module, DECODER)
    module = replace(module, decoder, _uncollect(drop_last_members(decoder, DECODER_MEMBERS)))
    return _drop_import(module)


@patch.restores("vllm/model_executor/models/kimi_k25.py")
def drop_interface(module: cst.Module) -> cst.Module:
    """Take the interface out."""
    wrapper = _find_class(module, WRAPPER)
    if base_names(wrapper)[-1:] != (INTERFACE,):
        return module
    return _drop_import(replace(module, wrapper, _undeclare(wrapper, "language_model")))


def _find_class(module: cst.Module, name: str) -> cst.ClassDef:
    found = find_definition(module, name)
    require(isinstance(found, cst.ClassDef), name, "a class with bases")
    assert isinstance(found, cst.ClassDef)
    require(bool(found.bases) and bool(body_of(found)), name, "a class with bases and an indented body")
    return found


def _declare(node: cst.ClassDef, inner: str) -> cst.ClassDef:
    return append_members(add_base(node, INTERFACE), HANDED_ON.format(inner=inner), __name__)


def _undeclare(node: cst.ClassDef, inner: str) -> cst.ClassDef:
    return drop_last_members(drop_last_base(node), HANDED_ON.format(inner=inner))


def _collect(decoder: cst.ClassDef) -> cst.ClassDef:
    forward = _find_forward(decoder)
    body = body_of(forward)
    loop, last = _find_loop(body, LAYERS), body[-1]
    require(code_of(loop.target) == "layer" and loop.orelse is None, f"{DECODER}.forward", "a plain loop over layers")
    require(bool(body_of(loop)), f"{DECODER}.forward", "an indented body of the loop")
    require(is_code(last, RETURN), f"{DECODER}.forward", f"{RETURN!r} at its end")
    (before,) = statements(BEFORE_LOOP)
    (at_layer,), (after,), (before_return,) = statements(AT_LAYER), statements(AFTER_LOOP), statements(BEFORE_RETURN)
    assert isinstance(before, cst.SimpleStatementLine) and isinstance(before_return, cst.If)
    numbered = with_body(loop, [at_layer, *body_of(loop)]).with_changes(
        leading_lines=(),
        target=cst.parse_expression("(layer_id, layer)").with_changes(lpar=(), rpar=()),
        iter=cst.Call(
            cst.Name("enumerate"),
            (
                cst.Arg(loop.iter, comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))),
                cst.Arg(cst.parse_expression("self.start_layer")),
            ),
        ),
    )
    place = body.index(loop)
    new = [
        *body[:place],
        mark(before.with_changes(leading_lines=loop.leading_lines), __name__),
        numbered,
        after,
        *body[place + 1 : -1],
        mark(before_return, __name__),
        last,
    ]
    return replace(decoder, forward, with_body(forward, new))


def _uncollect(decoder: cst.ClassDef) -> cst.ClassDef:
    forward = _find_forward(decoder)
    body = body_of(forward)
    loop = _find_loop(body, NUMBERED)
    place = body.index(loop)
    before = body[place - 1]
    assert isinstance(before, cst.SimpleStatementLine) and isinstance(loop.iter, cst.Call)
    plain = with_body(loop, body_of(loop)[1:]).with_changes(
        leading_lines=unmark(before, __name__).leading_lines, target=cst.Name("layer"), iter=loop.iter.args[0].value
    )
    return replace(decoder, forward, with_body(forward, [*body[: place - 1], plain, *body[place + 2 : -2], body[-1]]))


def _find_forward(decoder: cst.ClassDef) -> cst.FunctionDef:
    found = [node for node in body_of(decoder) if isinstance(node, cst.FunctionDef) and node.name.value == "forward"]
    return only(found, f"{DECODER}.forward")


def _find_loop(body: list[cst.BaseStatement], over: str) -> cst.For:
    loops = [node for node in body if isinstance(node, cst.For) and is_code(node.iter, over)]
    return only(loops, f"{DECODER}.forward: the loop over {over}")


def _add_import(module: cst.Module) -> cst.Module:
    """Import the interface after the last import at the top level."""
    (line,) = statements(IMPORT)
    assert isinstance(line, cst.SimpleStatementLine)
    body = list(module.body)
    place = only([number for number, node in enumerate(body) if _imports(node)][-1:], "an import at the top level")
    return module.with_changes(body=(*body[: place + 1], mark(line, __name__), *body[place + 1 :]))


def _drop_import(module: cst.Module) -> cst.Module:
    return module.with_changes(body=[node for node in module.body if not is_code(node, IMPORT)])


def _imports(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleStatementLine) and isinstance(node.body[0], (cst.Import, cst.ImportFrom))
