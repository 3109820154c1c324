"""What the real engine makes of many EAGLE-3 pairs on a CPU, gate by gate, as JSON.

``python truth.py answers FOLDER CASES.json``, inside the engine's environment, prints what stops each pair at each of
its stages. They are tried independently where that is possible, so one gate does not hide the next. Nothing here knows
of patchkit.

A CPU's runner of the older releases refuses speculation at its start, so each target is built without, and the drafter
is put beside it by the proposer's own ``load_model``. What the runner then asks and does is repeated here in its order.
"""

from __future__ import annotations

import copy
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_MLA_DISABLE="1",  # the CPU has no MLA kernels; the model then takes plain attention
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_USE_V2_MODEL_RUNNER="0",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
)
STAGES = ("configuration", "load", "interface", "layers", "forward", "request")
LENGTH = 256
ROWS = 16
WORDS = 300
NO_INTERFACE = "Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested"
Answer = dict[str, str | None]


class NotReached(Exception):
    """A stage cannot be tried, for this reason."""


@dataclass
class Target:
    """A model that the engine has built, with the runner that holds it."""

    vllm_config: Any
    runner: Any
    vocabulary: int

    @property
    def model(self) -> Any:
        """Return the model as the runner holds it."""
        return self.runner.model


@dataclass
class Pair:
    """One case on its way through the stages."""

    case: dict[str, Any]
    target: Target
    vllm_config: Any = None
    proposer: Any = None
    found: dict[str, Any] = field(default_factory=dict)
    """What a stage leaves for a later one."""

    @property
    def wants_states(self) -> bool:
        """Return whether the drafter uses auxiliary states, as its proposer reads it."""
        return bool(self.proposer.eagle3_use_aux_hidden_state)


def answers(folder: Path, cases: list[dict[str, Any]]) -> dict[str, Answer]:
    """Return what each case meets at each stage; its models are named by their folders in this one."""
    stand_in_for_cuda()
    stand_in_for_torchvision()
    multiply_as_a_gpu_does()
    hurry()
    made: dict[str, Answer] = {}
    for case in sorted(cases, key=lambda case: str(case["model"])):  # the pairs of one target follow each other
        places = {key: str(folder / case[key]) for key in ("model", "draft")}
        made[case["name"]] = answer(case | places)
    return {case["name"]: made[case["name"]] for case in cases}


def answer(case: dict[str, Any]) -> Answer:
    """Return what one case meets at each stage."""
    said: Answer = {"configuration": words(lambda: configure(case))}
    if case.get("tp", 1) > 1 or case.get("pp", 1) > 1:
        return said | dict.fromkeys(STAGES[1:], "not reached: more than one process")
    built = target_of(case["model"], bool(case.get("trust")), bool(case.get("params")))
    if isinstance(built, str):
        return said | {"load": f"target: {built}"} | dict.fromkeys(STAGES[2:], "not reached: no target")
    pair = Pair(case, built)
    for stage, act in (("load", load), ("interface", interface), ("layers", layers)):
        said[stage] = words(lambda act=act: act(pair))  # type: ignore[misc]
        pair.found[stage] = said[stage] is None
    try:
        said["forward"] = words(lambda: forward(pair))
        said["request"] = words(lambda: request(pair))
    finally:
        reset(built)
    return said


def words(act: Callable[[], object]) -> str | None:
    """Return None, or what an act raises."""
    try:
        act()
    except NotReached as reason:
        return f"not reached: {reason}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:WORDS]
    return None


def configure(case: dict[str, Any]) -> None:
    """Make the configuration of an engine with the pair."""
    speculation = {"method": "eagle3", "model": case["draft"], "num_speculative_tokens": case.get("tokens", 2)}
    sizes = {"tensor_parallel_size": case.get("tp", 1), "pipeline_parallel_size": case.get("pp", 1)}
    settings = arguments(case["model"], bool(case.get("trust")), bool(case.get("params")))
    from vllm.engine.arg_utils import EngineArgs

    EngineArgs(**settings, **sizes, speculative_config=speculation).create_engine_config()


def arguments(model: str, trust: bool, params: bool) -> dict[str, Any]:
    """Return what every engine here is started with."""
    settings: dict[str, Any] = {
        "model": model,
        "max_model_len": LENGTH,
        "max_num_seqs": 4,
        "enforce_eager": True,
        "dtype": "float32",
        "block_size": 16,
        "trust_remote_code": trust,
        "load_format": "dummy",
    }
    if params:
        settings |= {"tokenizer_mode": "mistral"}
    return settings


@cache
def target_of(model: str, trust: bool, params: bool) -> Target | str:
    """Return a built target, or what stops it; remote code is trusted if there is no other way."""
    try:
        return build(model, trust, params)
    except Exception as error:
        if not trust:
            return target_of(model, True, params)
        return f"{type(error).__name__}: {error}"[:WORDS]


def build(model: str, trust: bool, params: bool) -> Target:
    """Build a target as the executor's worker does, with random weights."""
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.worker.cpu_worker import CPUWorker

    vllm_config = EngineArgs(**arguments(model, trust, params)).create_engine_config()
    place = f"tcp://127.0.0.1:{port()}"
    with set_current_vllm_config(vllm_config):
        worker = CPUWorker(
            vllm_config=vllm_config, local_rank=0, rank=0, distributed_init_method=place, is_driver_worker=True
        )
        worker.init_device()
        worker.load_model()
    return Target(vllm_config, worker.model_runner, vllm_config.model_config.get_vocab_size())


@cache
def port() -> int:
    """Return a free port, the same for all the targets: a process joins its group of one only once."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def load(pair: Pair) -> None:
    """Let the proposer load the drafter beside the target; past a missing image token, for the stages after it."""
    config = pair.target.model.config
    try:
        load_beside(pair)
    except AttributeError as error:
        if "image_token_index" in str(error):
            config.image_token_index = 0
            try:
                load_beside(pair)
            finally:
                del config.image_token_index
        raise


def load_beside(pair: Pair) -> None:
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.v1.spec_decode.eagle import EagleProposer

    pair.vllm_config = beside(pair)
    with set_current_vllm_config(pair.vllm_config):
        pair.proposer = EagleProposer(pair.vllm_config, torch.device("cpu"), pair.target.runner)
        pair.proposer.load_model(pair.target.model)
    pair.found["drafter"] = True


def beside(pair: Pair) -> Any:
    """Return the target's configuration with the drafter, whose attention layers stay out of the target's."""
    copied = copy.copy(pair.target.vllm_config)
    copied.speculative_config = speculation(pair)
    copied.load_config = copy.copy(copied.load_config)
    copied.load_config.load_format = "auto"
    copied.compilation_config = copy.copy(copied.compilation_config)
    copied.compilation_config.static_forward_context = dict(copied.compilation_config.static_forward_context)
    return copied


def speculation(pair: Pair) -> Any:
    """Return the pair's configuration for speculation, past the list of supported targets if that is what refuses."""
    from vllm.config import SpeculativeConfig

    real = pair.target.vllm_config.model_config
    settings = {
        "method": "eagle3",
        "model": pair.case["draft"],
        "num_speculative_tokens": pair.case.get("tokens", 2),
        "target_parallel_config": pair.target.vllm_config.parallel_config,
    }
    try:
        return SpeculativeConfig(**settings, target_model_config=real)
    except Exception:
        accepted = copy.deepcopy(real)
        accepted.hf_text_config.model_type = "llama"
        accepted.config_format = "auto"  # a drafter with a config.json beside a target with a params.json
    try:
        made = SpeculativeConfig(**settings, target_model_config=accepted)
    except Exception as error:
        raise NotReached("configuration failed") from error
    made.target_model_config = real
    return made


def interface(pair: Pair) -> None:
    """Ask what the runner asks before it sets the layers."""
    from vllm.model_executor.models.interfaces import supports_eagle3

    if pair.proposer is None:
        raise NotReached("no proposer")
    if pair.wants_states and not supports_eagle3(pair.target.model):
        raise RuntimeError(NO_INTERFACE)


def layers(pair: Pair) -> None:
    """Set the layers that the runner would set."""
    if not pair.found["interface"]:
        raise NotReached("interface failed" if pair.proposer else "no proposer")
    if not pair.wants_states:
        return
    runner, model = pair.target.runner, pair.target.model
    own = runner.speculative_config
    try:
        runner.speculative_config = pair.vllm_config.speculative_config
        ids = runner._get_eagle3_aux_layers_from_config()
    finally:
        runner.speculative_config = own
    if not ids:
        newer = getattr(model, "get_eagle3_default_aux_hidden_state_layers", None)
        ids = newer() if newer else model.get_eagle3_aux_hidden_state_layers()
    model.set_aux_hidden_state_layers(ids)


def forward(pair: Pair) -> None:
    """Run the target as at the engine's start, where the runner unpacks the states."""
    if pair.proposer is None:
        raise NotReached("no proposer")
    if pair.found["interface"] and not pair.found["layers"]:
        raise NotReached("layers failed")
    runner = pair.target.runner
    outputs: list[Any] = []
    hook = runner.model.register_forward_hook(lambda _module, _arguments, output: outputs.append(output))
    runner.use_aux_hidden_state_outputs = pair.wants_states
    try:
        dummy_run(runner)
    finally:
        hook.remove()
        runner.use_aux_hidden_state_outputs = False
    pair.found["output"] = outputs[-1]


def dummy_run(runner: Any) -> None:
    import torch
    from vllm.config import set_current_vllm_config

    with set_current_vllm_config(runner.vllm_config), torch.inference_mode():
        runner._dummy_run(ROWS)


def request(pair: Pair) -> None:
    """Give the target's states and the next tokens to the drafter, as the runner and the proposer do."""
    import torch

    if "drafter" not in pair.found:
        raise NotReached("load failed")
    if "output" not in pair.found:
        raise NotReached("forward failed")
    with torch.inference_mode():
        states = pair.found["output"]
        if pair.wants_states:
            states = torch.cat([state[:ROWS] for state in states[1]], dim=-1)
        draft(pair, states)


def draft(pair: Pair, states: Any) -> None:
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.forward_context import set_forward_context

    proposer = pair.proposer
    combined = proposer.model.combine_hidden_states(states)
    assert combined.shape[-1] == proposer.hidden_size, "combined.shape[-1] == self.hidden_size"
    rows = ROWS
    proposer.hidden_states[:rows] = combined
    tokens = torch.randint(pair.target.vocabulary, (rows,), dtype=torch.int32)
    tokens[-1] = pair.target.vocabulary - 1
    proposer.input_ids[:rows] = tokens
    named: dict[str, Any] = {"input_ids": proposer.input_ids[:rows], "inputs_embeds": None}
    if proposer.supports_mm_inputs:
        named = {"input_ids": None, "inputs_embeds": proposer.model.embed_input_ids(proposer.input_ids[:rows])}
    with set_current_vllm_config(pair.vllm_config), set_forward_context(None, pair.vllm_config, num_tokens=rows):
        output = proposer.model(
            positions=proposer._get_positions(rows), hidden_states=proposer.hidden_states[:rows], **named
        )
        last = output[0] if isinstance(output, tuple) else output
        proposer.model.compute_logits(last).argmax(dim=-1)


def reset(target: Target) -> None:
    """Let the target forget the layers of a pair; a model may refuse to be given none."""
    for module in target.model.modules():
        if hasattr(module, "aux_hidden_state_layers"):
            module.aux_hidden_state_layers = ()


def stand_in_for_cuda() -> None:
    """Let vLLM 0.15 name the device of its Kimi model where there is no CUDA."""
    import torch

    if not torch.cuda.is_available():
        torch.cuda.current_device = lambda: torch.device("cpu")


def stand_in_for_torchvision() -> None:
    """Let a torchvision for CUDA be imported beside a torch without; processors import it, and nothing here runs it."""
    import torch

    try:
        import torchvision
    except ImportError:
        return
    except RuntimeError:  # its own operators did not load
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import torchvision  # noqa: F401


def multiply_as_a_gpu_does() -> None:
    """Keep oneDNN's product of matrices out: it folds rows of a wrong width that every other one refuses."""
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False


def hurry() -> None:
    """Leave out what only takes time: six seconds of asking the hub for each local folder, a process for each class."""
    from types import SimpleNamespace

    from vllm.model_executor.models import registry
    from vllm.transformers_utils import repo_utils

    repo_utils.time = SimpleNamespace(sleep=lambda _seconds: None)
    registry._run_in_subprocess = lambda inspect: inspect()


if __name__ == "__main__":
    question = {"answers": answers}[sys.argv[1]]
    print("probe:" + json.dumps(question(Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))))
