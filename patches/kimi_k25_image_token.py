"""A drafter beside Kimi-K2.5 finds the image token of the target

load_model of the proposer copies the target's image token into the drafter's config. It knows some multimodal classes
by name and otherwise reads image_token_index, which KimiK25Config does not have: its placeholder is
media_placeholder_token_id. The server dies with an AttributeError after it has loaded the target's weights.

The rewrite puts a branch for KimiK25ForConditionalGeneration before the chain's else. The other branches and the else
stay as they are. vLLM 0.18.0 has the same branch.
"""

from __future__ import annotations

from itertools import pairwise

import libcst as cst

from patchkit.cst import find_all, find_chains, find_definition, is_code, only, replace, require, statements
from patchkit.edits import is_marked, mark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="vllm",
    versions=">=0.15.0,<0.18.0",
    symptom="'KimiK25Config' object has no attribute 'image_token_index'",
    upstream=Upstream(status="released", pull="vllm-project/vllm#36361", fixed_in="0.18.0"),
)

METHOD = "SpecDecodeBaseProposer.load_model"
KIMI = "KimiK25ForConditionalGeneration"
FALLBACK = "self.model.config.image_token_index = target_model.config.image_token_index"
MAPPING = "self.model.config.image_token_index = target_model.config.media_placeholder_token_id"
BRANCH = f"""
if self.get_model_name(target_model) == "{KIMI}":
    self.model.config.image_token_index = (
        target_model.config.media_placeholder_token_id
    )
"""


@patch.rewrites("vllm/v1/spec_decode/eagle.py", within=("SpecDecodeBaseProposer.load_model",))
def add_branch(module: cst.Module) -> cst.Module:
    """Put the branch before the else of the chain."""
    chain = _find_chain(module)
    for branch in chain:
        if find_all(branch.test, cst.SimpleString, lambda string: string.evaluated_value == KIMI):
            require(is_code(branch.body, MAPPING), METHOD, f"the branch for {KIMI} to be {MAPPING!r}")
            return module
    last = chain[-1]
    (added,) = statements(BRANCH)
    assert isinstance(added, cst.If)
    marked = mark(added.with_changes(leading_lines=(), orelse=last.orelse), __name__)
    return replace(module, last, last.with_changes(orelse=marked))


@patch.restores("vllm/v1/spec_decode/eagle.py")
def drop_branch(module: cst.Module) -> cst.Module:
    """Take the branch out of the chain."""
    chain = _find_chain(module)
    for before, branch in pairwise(chain):
        if is_marked(branch, __name__):
            return replace(module, before, before.with_changes(orelse=branch.orelse))
    return module


def _find_chain(module: cst.Module) -> tuple[cst.If, ...]:
    """Return the branches that choose by the class name of the target."""
    chains = find_chains(find_definition(module, METHOD))
    return only([chain for chain in chains if _sets_image_token(chain)], f"{METHOD}: the chain for image_token_index")


def _sets_image_token(chain: tuple[cst.If, ...]) -> bool:
    test, last = chain[0].test, chain[-1].orelse
    return (
        isinstance(test, cst.Comparison)
        and is_code(test.left, "self.get_model_name(target_model)")
        and isinstance(last, cst.Else)
        and is_code(last.body, FALLBACK)
    )
