"""Hidden states come in the order of the sequences that were given

The generator of speculators 0.4 goes through its requests in the alphabetical order of their names, in which
req_0_10 comes before req_0_2. From eleven sequences on, results are not in the order of what was given. Each carries
its own token ids, but a caller who goes by the place takes one sequence for another.

The rewrite goes through the requests in the order in which they were made. speculators 0.5.0 gave the generator up.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_all, find_definition, is_code, only, replace
from patchkit.edits import is_marked, mark, unmark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.4.0,<0.5.0",
    symptom="results in another order than the sequences",
    upstream=Upstream(status="released", fixed_in="0.5.0"),
)

METHOD = "VllmHiddenStatesGenerator.generate"
SORTED = "sorted(request_id_to_idx.keys())"
AS_MADE = "request_id_to_idx"


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.generate",)
)
def keep_order(module: cst.Module) -> cst.Module:
    """Go through the requests as they were made."""
    method = find_definition(module, METHOD)
    is_there = bool(find_all(method, cst.For, lambda loop: is_code(loop.iter, AS_MADE)))
    loops = find_all(method, cst.For, lambda loop: is_code(loop.iter, SORTED))
    if is_there and not loops:
        return module
    loop = only(loops, f"{METHOD}: the loop over {SORTED}")
    return replace(module, loop, mark(loop.with_changes(iter=cst.parse_expression(AS_MADE)), __name__))


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def sort_again(module: cst.Module) -> cst.Module:
    """Go through the requests in alphabetical order again."""
    for loop in find_all(find_definition(module, METHOD), cst.For, lambda loop: is_marked(loop, __name__)):
        module = replace(module, loop, unmark(loop.with_changes(iter=cst.parse_expression(SORTED)), __name__))
    return module
