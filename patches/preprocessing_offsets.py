"""Preprocessing masks conversations for a tokenizer that gives no offsets

Preprocessing finds the assistant's tokens by the offsets that the tokenizer gives. A tokenizer in Python alone, as
Kimi's is, has none and raises NotImplementedError. That is caught for each conversation and logged as a warning: the
dataset comes out empty.

The rewrite asks only a fast tokenizer for offsets, and works them out for another: it decodes the tokens one after
the other and follows them through the text. Tokens that share a character share its place. A tokenizer whose tokens
do not decode to the text is an error that says so.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import code_of, find_all, find_call, find_definition, find_one, is_code, replace, require, statements
from patchkit.edits import is_marked, mark, swap, swap_back, unmark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.5.0",
    symptom="return_offset_mapping is not available when using Python tokenizers",
    upstream=Upstream(status="unreported"),
)

METHOD = "_preprocess_batch"
NEIGHBOUR = "_create_loss_mask_from_offsets"
ARGUMENT = "return_offsets_mapping"
IS_FAST = "tokenizer.is_fast"
TAKE = 'offsets = encoding["offset_mapping"]'
TAKE_OR_FIND = """
offsets = (
    encoding["offset_mapping"]
    if tokenizer.is_fast
    else _find_offsets(tokenizer, formatted_raw, input_ids)
)
"""
FIND = '''
def _find_offsets(
    tokenizer: PreTrainedTokenizer, text: str, input_ids: list[int]
) -> list[tuple[int, int]]:
    """Find the place of each token in the text by decoding one after the other."""
    offsets: list[tuple[int, int]] = []
    position = 0
    pending: list[int] = []  # tokens that end inside a character
    known, middle = 0, 0  # those of them that may be a U+FFFD of the text, and its end
    for token in input_ids:
        pending.append(token)
        piece = tokenizer.decode(pending)
        whole = piece.rstrip("\\ufffd")
        if not text.startswith(whole, position):
            while text[position : position + 1].isspace() and not piece[:1].isspace():
                position += 1  # blanks that the tokenizer does not decode
        end = position + len(piece)
        if text.startswith(piece, position) and piece != whole:
            known, middle = len(pending), end
        elif text.startswith(piece, position):
            offsets += [(position, middle)] * known
            offsets += [(max(position, middle), end)] * (len(pending) - known)
            position, pending, known = end, [], 0
        elif len(pending) > 256 or not text.startswith(whole, position):
            raise ValueError(
                f"{type(tokenizer).__name__} decodes its tokens to {piece!r}, and the "
                f"text goes on with {text[position : position + 20]!r}: no offsets"
            )
    # A cut at the maximum length may fall inside a character.
    offsets += [(position, middle)] * known
    position = max(position, middle)
    return offsets + [(position, position + 1)] * (len(pending) - known)
'''


@patch.rewrites("speculators/data_generation/preprocessing.py", within=("_find_offsets", "_preprocess_batch"))
def find_offsets(module: cst.Module) -> cst.Module:
    """Ask a fast tokenizer alone for offsets, and find those of another."""
    module = swap(module, METHOD, TAKE, TAKE_OR_FIND, __name__)
    line, call = _find_call(module)
    value = call.args[_find_argument(call)].value
    if not is_code(value, IS_FAST):
        require(is_code(value, "True"), METHOD, f"{ARGUMENT} to be True")
        module = replace(module, line, mark(replace(line, value, cst.parse_expression(IS_FAST)), __name__))
    present = _functions(module)
    require(all(is_code(node, FIND) for node in present), "_find_offsets", "no other function of this name")
    return module if present else _add_function(module)


@patch.restores("speculators/data_generation/preprocessing.py")
def ask_always(module: cst.Module) -> cst.Module:
    """Ask every tokenizer for offsets again."""
    module = swap_back(module, METHOD, TAKE, TAKE_OR_FIND, __name__)
    line, call = _find_call(module)
    if is_marked(line, __name__):
        asked = replace(line, call.args[_find_argument(call)].value, cst.parse_expression("True"))
        module = replace(module, line, unmark(asked, __name__))
    for function in _functions(module):
        if is_marked(function, __name__):
            module = module.with_changes(body=[node for node in module.body if node is not function])
    return module


def _functions(module: cst.Module) -> list[cst.FunctionDef]:
    return find_all(module, cst.FunctionDef, lambda node: node.name.value == "_find_offsets")


def _find_call(module: cst.Module) -> tuple[cst.SimpleStatementLine, cst.Call]:
    method = find_definition(module, METHOD)
    call = find_call(method, "tokenizer")
    line = find_one(method, cst.SimpleStatementLine, lambda line: bool(find_all(line, cst.Call, call.__eq__)), METHOD)
    return line, call


def _find_argument(call: cst.Call) -> int:
    places = [
        place for place, argument in enumerate(call.args) if argument.keyword and argument.keyword.value == ARGUMENT
    ]
    require(len(places) == 1, f"{METHOD}: {code_of(call.func)}(…)", f"{ARGUMENT} among its arguments")
    return places[0]


def _add_function(module: cst.Module) -> cst.Module:
    """Put the function before the one that uses its offsets."""
    neighbour = find_definition(module, NEIGHBOUR)
    require(isinstance(neighbour, cst.FunctionDef), NEIGHBOUR, "a function")
    (function,) = statements(FIND)
    assert isinstance(function, cst.FunctionDef)
    blank = cst.EmptyLine(indent=False)
    added = mark(function.with_changes(leading_lines=(blank, blank)), __name__)
    return replace(module, neighbour, [added, neighbour])
