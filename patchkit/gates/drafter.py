"""The drafter: its class in the registry, its number of tokens, its widths and its vocabulary."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.layers import default_ids, layer_ids
from patchkit.gates.module import Class, Evidence
from patchkit.gates.syntax import Function, dotted, strings, walk

_SPECULATORS = "vllm.transformers_utils.configs.speculators.algos"


def judge_architecture(subject: Subject) -> Gate | None:
    """Look for the drafter's class in the registry, under the name that vLLM makes of its architecture."""
    if subject.draft is None:
        return None
    when, said = "configuration", subject.said(subject.draft, "architectures", "speculators_model_type")
    known = subject.registry.architectures
    names = architectures(subject)
    if not known:
        return Gate("draft-architecture", UNKNOWN, "vLLM's registry of models cannot be read", when)
    if names is None:
        message = "the drafter's config.json names no architecture that can be followed"
        return Gate("draft-architecture", UNKNOWN, message, when, said)
    found = next((name for name in names if name in known), None)
    if found is None:
        error = f"Model architectures {list(names)} are not supported for now."
        message = f"vLLM's registry has no {' or '.join(names)}, which is what it makes of this drafter for EAGLE-3"
        hint = "use a drafter in a format that this release knows, or a later release of vLLM"
        return Gate("draft-architecture", FAIL, message, when, said, error, hint=hint)
    entry = known[found]
    return Gate("draft-architecture", PASS, f"{found} is {entry.cls}", when, (entry.evidence, *said))


def architectures(subject: Subject) -> tuple[str, ...] | None:
    """Return the architectures that vLLM gives the drafter for EAGLE-3; None where they cannot be told."""
    draft = subject.draft
    if draft is None:
        return None
    if "speculators_model_type" in draft.config:
        return _of_speculators(subject)
    names = _overridden(subject, draft.architectures, draft.model_type or "")
    if not names:
        return None
    return tuple(name if name.startswith("Eagle3") or name.endswith("Eagle3") else f"Eagle3{name}" for name in names)


def _of_speculators(subject: Subject) -> tuple[str, ...] | None:
    """Return the architecture that vLLM gives a drafter in speculators' own format."""
    module = subject.code.module(_SPECULATORS)
    kind = subject.draft.config["speculators_model_type"] if subject.draft else None
    for function in module.tree.body if module else ():
        if not isinstance(function, Function) or not _is_registered(function, kind):
            continue
        model_type = subject.draft_keys.get("model_type") or "llama"
        for node in walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and dotted(node.targets[0])[-1:]:
                pairs = zip(node.value.keys, node.value.values, strict=True)
                table = {strings(key): strings(value) for key, value in pairs if key is not None}
                if isinstance(model_type, str) and (model_type,) in table:
                    return table[model_type,]
        for node in walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and strings(node.value):
                return strings(node.value)
    return None


def _is_registered(function: Function, kind: object) -> bool:
    calls = [node for node in function.decorator_list if isinstance(node, ast.Call) and node.args]
    return any(strings(call.args[0]) == (kind,) for call in calls)


def _overridden(subject: Subject, names: Sequence[str], model_type: str) -> Sequence[str]:
    """Return a drafter's architectures after vLLM's own override, which turns some model types into MTP drafters."""
    module = subject.code.module("vllm.config.speculative")
    cls = module.classes.get("SpeculativeConfig") if module else None
    method = cls.members.get("hf_config_override") if cls else None
    for node in method.body if isinstance(method, Function) else ():
        if not isinstance(node, ast.If) or not names:
            continue
        if not _holds(node.test, model_type, names[0]):
            continue
        for step in node.body:
            if isinstance(step, ast.Assign) and dotted(step.targets[0])[-1:] == ("model_type",) and strings(step.value):
                model_type = strings(step.value)[0]
            for part in walk(step):
                for key, value in zip(part.keys, part.values, strict=True) if isinstance(part, ast.Dict) else ():
                    if key is not None and strings(key) == ("architectures",):
                        names = strings(value)
    return names


def _holds(test: ast.expr, model_type: str, architecture: str) -> bool:
    """Tell whether a test on a drafter's model_type or first architecture holds."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, right = ast.unparse(test.left), test.comparators[0]
    value = model_type if left.endswith(".model_type") else (architecture if "architecture" in left else None)
    if value is None or not isinstance(test.ops[0], ast.In | ast.Eq):
        return False
    if isinstance(test.ops[0], ast.In) and isinstance(right, ast.Constant):
        return value in str(right.value)  # a string in place of a tuple of one
    return value in strings(right)


def judge_tokens(subject: Subject) -> Gate | None:
    """Judge the number of speculative tokens; nothing where no drafter is given."""
    if subject.draft is None:
        return None
    when, count = "configuration", subject.speculative_tokens
    lookahead = subject.draft_number("n_predict")
    if count is None and lookahead is None and "speculators_model_type" not in subject.draft.config:
        message = "vLLM wants num_speculative_tokens, since the drafter's config.json gives no number"
        hint = "say it with --num-speculative-tokens to have it judged"
        return Gate("speculative-tokens", UNKNOWN, message, when, hint=hint)
    if count is not None and lookahead and count > lookahead and count % lookahead:
        said = subject.said(subject.draft, "n_predict")
        error = f"num_speculative_tokens:{count} must be divisible by n_predict={lookahead}"
        message = f"the drafter predicts {lookahead} tokens at once, and {count} is no multiple of that"
        hint = f"take a multiple of {lookahead}"
        return Gate("speculative-tokens", FAIL, message, when, said, error, hint=hint)
    named = f"{count} tokens" if count is not None else "the number in the drafter's config.json"
    return Gate("speculative-tokens", PASS, f"{named} can be drafted", when)


def judge_sizes(subject: Subject) -> Gate | None:
    """Compare widths and vocabularies; nothing where no drafter is given."""
    if subject.draft is None:
        return None
    width, own = subject.target.number("hidden_size"), subject.draft_number("hidden_size")
    if width is None or own is None:
        which = "target" if width is None else "drafter"
        return Gate("drafter-sizes", UNKNOWN, f"the {which}'s config.json gives no hidden_size", "first-forward")
    for judge in (_judge_fc, _judge_embeddings, _judge_vocabulary):
        gate = judge(subject, width, own)
        if gate is not None:
            return gate
    said = subject.said(subject.draft, "hidden_size", "vocab_size")
    message = f"hidden size {own} and vocabulary fit the target's {width} and {subject.target.number('vocab_size')}"
    return Gate("drafter-sizes", PASS, message, "first-forward", said)


def _judge_fc(subject: Subject, width: int, own: int) -> Gate | None:
    """Judge the width of the auxiliary states that the drafter is built for, against what the target gives."""
    assert subject.draft is not None
    if not subject.uses_aux_hidden_states:
        if own == width:
            return None
        message = f"the drafter takes the target's last state, of width {width}, and is {own} wide"
        return _fails(message, "first-request", subject.said(subject.draft, "hidden_size"))
    each = subject.draft_number("target_hidden_size") or own
    built = each * _states_built_for(subject)
    shape = _shape(subject, "fc.weight")
    if shape is not None and shape[-1:] != (built,):
        message = f"fc.weight is {list(shape)}, and config.json makes a drafter whose fc takes {built}"
        return _fails(message, "drafter-loaded", subject.said(subject.draft, "hidden_size", "target_hidden_size"))
    ids = layer_ids(subject) or (default_ids(subject, subject.layers) if subject.layers is not None else None)
    if ids is None or not all(type(number) is int for number in ids):
        return None
    given = len(set(ids)) * width
    if given == built:
        return None
    error = f"RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x{given} and {built}x{own})"
    states, wanted = len(set(ids)), f"{built} = {built // each} × {each}"
    message = f"the target gives {states} states of width {width}, and the drafter's fc takes {wanted}"
    gate = _fails(message, "first-request", subject.said(subject.draft, "hidden_size", "target_hidden_size"))
    return replace(gate, error=error)


def _states_built_for(subject: Subject) -> int:
    """Return how many auxiliary states the drafter's class makes room for."""
    cls = draft_class(subject)
    if cls is None or not any("num_aux_hidden_states" in line for line in cls.module.lines):
        return 3
    settings = subject.draft_keys.get("eagle_config")
    named = settings.get("eagle_aux_hidden_state_layer_ids") if isinstance(settings, dict) else None
    count = subject.draft_number("num_aux_hidden_states")
    return count if count is not None else (len(named) if isinstance(named, list) and named else 3)


def _judge_embeddings(subject: Subject, width: int, own: int) -> Gate | None:
    """Judge a drafter that has no embeddings and takes the target's, which must then be as wide as it is."""
    assert subject.draft is not None
    if own == width:
        return None
    has_own = has_tensor(subject, "embed_tokens")
    said = subject.said(subject.draft, "hidden_size")
    if has_own:
        return None
    if has_own is None:
        message = f"the drafter is {own} wide, the target {width}: it needs embeddings of its own, and may have them"
        return _doubts(message, "first-forward", said, "name the drafter's folder with its weights")
    message = f"the drafter has no embeddings of its own and is {own} wide; the target's are {width} wide"
    return _fails(message, "first-forward", said)


def _judge_vocabulary(subject: Subject, _width: int, _own: int) -> Gate | None:
    """Judge the vocabularies: the drafter's must cover the target's, and a smaller lm_head needs a map."""
    assert subject.draft is not None
    all_tokens, covered = subject.target.number("vocab_size"), subject.draft_number("vocab_size")
    drafted = subject.draft_number("draft_vocab_size") or covered
    if all_tokens is None or covered is None or drafted is None:
        which = "target" if all_tokens is None else "drafter"
        return Gate("drafter-sizes", UNKNOWN, f"the {which}'s config.json gives no vocab_size", "first-request")
    said = subject.said(subject.draft, "vocab_size", "draft_vocab_size")
    if has_tensor(subject, "lm_head") is False and drafted != all_tokens:
        message = f"the drafter has no lm_head: the first {drafted} rows of the target's are taken for what it drafts"
        return _fails(message, "in-service", said)
    if drafted > covered:
        message = f"draft_vocab_size {drafted} is larger than the drafter's vocab_size {covered}"
        return _fails(message, "first-request", said)
    has_own = has_tensor(subject, "embed_tokens")
    if covered < all_tokens and has_own:
        message = f"the drafter's own embeddings are for {covered} tokens, and the target has {all_tokens}"
        return _fails(message, "first-request", said)
    if covered < all_tokens and has_own is None:
        message = f"the drafter knows {covered} tokens, the target {all_tokens}: the others may have no embedding in it"
        return _doubts(message, "first-request", said, "use a drafter of this target's vocabulary")
    if drafted < covered and has_tensor(subject, "d2t") is False:
        message = f"the drafter drafts {drafted} of {covered} tokens, and has no d2t tensor that says which"
        return Gate("drafter-sizes", FAIL, message, "in-service", said, hint="use a drafter with its d2t tensor")
    if covered > all_tokens:
        message = f"the drafter's vocabulary of {covered} is larger than the target's of {all_tokens}"
        return _doubts(message, "in-service", said, "use a drafter of this target's vocabulary")
    return None


def _fails(message: str, when: str, said: tuple[Evidence, ...]) -> Gate:
    hint = "use a drafter that was trained for this target, or correct its config.json"
    return Gate("drafter-sizes", FAIL, message, when, said, hint=hint)


def _doubts(message: str, when: str, said: tuple[Evidence, ...], hint: str) -> Gate:
    return Gate("drafter-sizes", UNKNOWN, message, when, said, hint=hint)


def draft_class(subject: Subject) -> Class | None:
    """Return the drafter's class."""
    found = (subject.registry.model(name) for name in architectures(subject) or ())
    return next((cls for cls in found if cls is not None), None)


def has_tensor(subject: Subject, word: str) -> bool | None:
    """Tell whether the drafter has a tensor of this name; None where no header is there to say."""
    tensors = subject.draft.tensors if subject.draft else None
    return None if tensors is None else any(word in name.split(".") for name in tensors)


def _shape(subject: Subject, name: str) -> tuple[int, ...] | None:
    tensors = subject.draft.tensors if subject.draft else None
    return next((shape for key, shape in (tensors or {}).items() if key == name or key.endswith(f".{name}")), None)
