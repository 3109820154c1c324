"""What the real engine does on a CPU, as JSON: ``python probe.py QUESTION MODELS`` inside the engine's environment.

It is run once with a pristine and once with a patched vLLM on its path; the tests compare the answers. Nothing here
knows whether vLLM is patched.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_MLA_DISABLE="1",  # the CPU has no MLA kernels; the model then takes plain attention
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
)
PROMPTS = ([10, 11, 12], [100], [33, 34, 35, 36, 37])
TOKENS = 8


def config(models: Path, draft: str) -> dict[str, Any]:
    """Return whether vLLM's own configuration takes the pair, or its words."""
    from vllm.engine.arg_utils import EngineArgs

    speculation = {"method": "eagle3", "model": str(models / draft), "num_speculative_tokens": 2}
    try:
        EngineArgs(**_arguments(models), speculative_config=speculation).create_engine_config()
    except Exception as error:
        return {"error": str(error)}
    return {"error": None}


def drafter(models: Path, draft: str) -> dict[str, Any]:
    """Return what the proposer's own load_model makes of the real target and drafter."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.models.interfaces import supports_eagle3
    from vllm.v1.spec_decode.eagle import EagleProposer

    llm = _engine(models)
    runner = _runner(llm)
    model = runner.model
    text_model = model.language_model
    answer: dict[str, Any] = {"wrapper": supports_eagle3(model), "text model": supports_eagle3(text_model)}
    vllm_config = _speculating(runner.vllm_config, models, draft)
    with set_current_vllm_config(vllm_config):
        proposer = EagleProposer(vllm_config, torch.device("cpu"), runner)
        try:
            proposer.load_model(model)
        except Exception as error:
            return {**answer, "error": f"{type(error).__name__}: {error}"}
    shared = proposer.model.model.embed_tokens is text_model.model.embed_tokens
    return {
        **answer,
        "error": None,
        "image token": getattr(proposer.model.config, "image_token_index", None),
        "embeddings shared": shared,
    }


def states(models: Path, _: str) -> dict[str, Any]:
    """Return the tokens, and the auxiliary states of every layer as the model gives them and as hooks see them."""
    import torch
    from vllm import SamplingParams

    llm = _engine(models)
    model = _runner(llm).model
    decoder = model.language_model.model
    layers = len(decoder.layers)
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    answer: dict[str, Any] = {"tokens": [list(out.outputs[0].token_ids) for out in llm.generate(prompts, sampling)]}
    if not hasattr(decoder, "aux_hidden_state_layers"):
        return answer
    seen: dict[int, torch.Tensor] = {}

    def watch(layer: int) -> Any:
        def hook(_module: Any, arguments: tuple[Any, ...]) -> None:
            hidden, residual = arguments[1], arguments[2]
            seen[layer] = (hidden if residual is None else hidden + residual).clone()

        return hook

    def watch_norm(_module: Any, arguments: tuple[Any, ...]) -> None:
        seen[layers] = (arguments[0] + arguments[1]).clone()

    hooks = [layer.register_forward_pre_hook(watch(number)) for number, layer in enumerate(decoder.layers)]
    hooks.append(decoder.norm.register_forward_pre_hook(watch_norm))
    equal: list[bool] = []
    rows: list[list[list[list[float]]]] = []
    is_ours = hasattr(decoder, "set_aux_hidden_state_layers")
    # Upstream dropped the state that leaves the last layer until 0.25, and fails on the one that enters the first.
    wanted = tuple(range(layers + 1)) if is_ours else tuple(range(1, layers))
    forward = type(model).forward

    def listening(self: Any, *arguments: Any, **keywords: Any) -> Any:
        output, found = forward(self, *arguments, **keywords)
        equal.append(len(found) == len(wanted) and all(map(torch.equal, found, [seen[layer] for layer in wanted])))
        rows.append([_sparse(state[-1]) for state in found])
        return output

    model.set_aux_hidden_state_layers(wanted)
    type(model).forward = listening
    out = llm.generate(prompts[:1], sampling)
    for hook in hooks:
        hook.remove()
    return {
        **answer,
        "tokens while captured": list(out[0].outputs[0].token_ids),
        "states equal hooks": equal,
        "layers": list(wanted),
        "states": rows,
    }


def _sparse(state: Any) -> list[list[float]]:
    """Return (dimension, value) of what is not zero in a state."""
    return [[int(place), float(state[place])] for place in state.nonzero().flatten()]


def _arguments(models: Path) -> dict[str, Any]:
    return {
        "model": str(models / "target"),
        "max_model_len": 256,
        "max_num_seqs": 4,
        "enforce_eager": True,
        "dtype": "float32",
        "block_size": 16,
        "trust_remote_code": True,
    }


def _engine(models: Path) -> Any:
    from vllm import LLM

    return LLM(**_arguments(models))


def _runner(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def _speculating(vllm_config: Any, models: Path, draft: str) -> Any:
    """Return the configuration of a running engine with a drafter, which a CPU's runner refuses at its start."""
    import copy

    from vllm.config import SpeculativeConfig

    copied = copy.copy(vllm_config)
    arguments = {"method": "eagle3", "model": str(models / draft), "num_speculative_tokens": 2}
    copied.speculative_config = SpeculativeConfig(
        **arguments, target_model_config=vllm_config.model_config, target_parallel_config=vllm_config.parallel_config
    )
    return copied


if __name__ == "__main__":
    question = {"config": config, "drafter": drafter, "states": states}[sys.argv[1]]
    result = question(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "draft")
    print("probe:" + json.dumps(result))
