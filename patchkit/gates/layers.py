"""The auxiliary layers that a drafter asks for: there, distinct, in order, and counted as vLLM counts them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from patchkit.gates.gate import FAIL, PASS, UNKNOWN, Gate, Subject
from patchkit.gates.interface import DEFAULTS, Capture
from patchkit.gates.module import Evidence
from patchkit.gates.syntax import dotted, returned

KEY = "eagle_aux_hidden_state_layer_ids"
_RUNNERS = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils")


def judge(subject: Subject) -> Gate | None:
    """Compare the drafter's layer ids with the target; nothing where no drafter is given."""
    if subject.draft is None:
        return None
    said = subject.said(subject.draft, KEY)
    if not subject.uses_aux_hidden_states:
        return Gate("layer-ids", PASS, "the drafter takes no auxiliary hidden states", "in-service")
    count = subject.layers
    if count is None:
        return Gate("layer-ids", UNKNOWN, "the target's config.json does not say how many layers it has", "in-service")
    ids = layer_ids(subject)
    if ids is None:
        return _judge_defaults(subject, count)
    if not all(isinstance(number, int | float) for number in ids):
        return _fails(f"{KEY} is not a list of numbers", "first-forward", said)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in ids):
        message = f"{KEY} is not a list of whole numbers"
        return Gate("layer-ids", UNKNOWN, message, "first-forward", said, hint="write whole numbers")
    return _judge_named(subject, [int(number) for number in ids], count, said)  # type: ignore[call-overload]


def layer_ids(subject: Subject) -> Sequence[object] | None:
    """Return the ids that vLLM takes from the drafter's configuration; None where it takes the target's defaults."""
    found = subject.draft_keys.get(KEY)
    settings = subject.draft_keys.get("eagle_config")
    for name in (KEY, "layer_ids"):
        if not found and isinstance(settings, dict) and _reads_setting(subject, name):
            found = settings.get(name)
    return found if isinstance(found, list) and found else None


def default_ids(subject: Subject, count: int) -> tuple[int, ...] | None:
    """Return vLLM's own ids for the target, (2, n // 2, n - 3) unless its class says something else."""
    structure = subject.structure
    # A wrapper hands on to its language model, and that to its decoder.
    classes = (structure.cls, structure.language_model, structure.decoder) if structure else ()
    for cls in filter(None, classes):
        methods = list(filter(None, map(subject.code.lineage(cls).method, DEFAULTS)))
        for _, method in methods:
            values = returned(method)
            if values and isinstance(values[-1], ast.Tuple):
                return _evaluate(values[-1], count)
        if not methods and structure and cls.node is not structure.cls.node:
            return None
    return None


def _evaluate(value: ast.Tuple, count: int) -> tuple[int, ...] | None:
    """Return the numbers of a tuple of sums over the number of layers."""
    numbers = []
    for node in value.elts:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            numbers.append(node.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant) and isinstance(node.right.value, int):
            if not dotted(node.left) or not isinstance(node.op, ast.FloorDiv | ast.Sub | ast.Add):
                return None
            by = node.right.value
            sums = {ast.FloorDiv: count // max(by, 1), ast.Sub: count - by, ast.Add: count + by}
            numbers.append(sums[type(node.op)])
        else:
            return None
    return tuple(numbers)


def _judge_defaults(subject: Subject, count: int) -> Gate:
    """Judge a drafter that names no layers: vLLM takes its own, and says so nowhere but in its log."""
    ids = default_ids(subject, count)
    evidence = tuple(subject.said(subject.target, "num_hidden_layers"))
    if ids is None:
        message = f"the drafter names no layers ({KEY}), and the target's defaults cannot be told"
        return Gate("layer-ids", UNKNOWN, message, "in-service", evidence, hint=_HINT)
    if len(set(ids)) < len(ids) or not all(0 <= number <= count for number in ids):
        message = f"the drafter names no layers, and the defaults for {count} layers are {_show(ids)}"
        return _fails(message, _when_dropped(subject), evidence)
    message = (
        f"the drafter names no layers ({KEY}), so vLLM takes {_show(ids)}: "
        "right only for a drafter that was trained on these"
    )
    return Gate("layer-ids", UNKNOWN, message, "in-service", evidence, hint=_HINT)


def _judge_named(subject: Subject, ids: list[int], count: int, said: tuple[Evidence, ...]) -> Gate:
    structure = subject.structure
    decoder = structure.decoder if structure else None
    capture = Capture(subject, structure, decoder) if structure and decoder else None
    outside = [number for number in ids if not 0 <= number <= count]
    if outside:
        message = f"{_show(outside)} is outside the target: its {count} layers have ids 0 to {count}"
        return _fails(message, _when_dropped(subject), said)
    if len(set(ids)) < len(ids):
        message = f"{_show(ids)} names a layer twice, and its state is given once"
        return _fails(message, _when_dropped(subject), said)
    if capture is None or not capture.is_there:
        message = f"{_show(ids)} are distinct layers of {count}; whether the target can give them cannot be told"
        edge = 0 in ids or count in ids
        return Gate("layer-ids", UNKNOWN if edge else PASS, message if edge else _fits(ids, count), "in-service", said)
    if 0 in ids and not capture.takes_first:
        message = "id 0, the state that enters the first layer, cannot be given by this decoder"
        return _fails(message, "first-forward", (*said, *capture.evidence))
    if count in ids and not capture.takes_last:
        message = f"id {count}, the state that leaves the last layer, is dropped by this decoder"
        return _fails(message, "first-request", (*said, *capture.evidence))
    if ids != sorted(ids):
        message = f"{_show(ids)} is not in ascending order, and the states come in the order of the layers"
        return Gate("layer-ids", UNKNOWN, message, "in-service", said, hint="put the ids in the order of the training")
    if _is_off_by_one(subject, ids, count):
        right = _show([number + 1 for number in ids])
        message = (
            f"{_show(ids)} are speculators' default layers: speculators counts the layers that a state leaves, vLLM "
            f"those that it enters, so a drafter trained on them needs {right}"
        )
        return Gate("layer-ids", UNKNOWN, message, "in-service", said, hint=f'if so, set "{KEY}": {right}')
    return Gate("layer-ids", PASS, _fits(ids, count), "in-service", said)


def _is_off_by_one(subject: Subject, ids: list[int], count: int) -> bool:
    """Tell whether a drafter of speculators has, one for one, the layers that speculators captures by default."""
    is_of_speculators = subject.draft is not None and "speculators_model_type" in subject.draft.config
    return is_of_speculators and ids == [2, count // 2, count - 3]


def _when_dropped(subject: Subject) -> str:
    """Return when ids that cannot be given stop a server: at once where the target's class refuses them."""
    structure = subject.structure
    if structure and structure.decoder and Capture(subject, structure, structure.decoder).is_strict:
        return "drafter-loaded"
    return "first-request"


def _reads_setting(subject: Subject, name: str) -> bool:
    """Tell whether the release looks for ids under this name of ``eagle_config`` too."""
    modules = map(subject.code.module, _RUNNERS)
    return any(f'.get("{name}")' in line for module in modules if module for line in module.lines)


def _fails(message: str, when: str, evidence: tuple[Evidence, ...]) -> Gate:
    return Gate("layer-ids", FAIL, message, when, evidence, hint=f'correct "{KEY}" in the drafter\'s config.json')


def _fits(ids: Sequence[int], count: int) -> str:
    return f"{_show(ids)} are distinct layers of {count}, in order"


def _show(ids: Sequence[int]) -> str:
    return f"[{', '.join(map(str, ids))}]"


_HINT = f'write the layers of its training into the drafter\'s config.json: "{KEY}": […]'
