"""What speculators makes of the real engine, as JSON: ``python extraction.py QUESTION MODELS`` in its environment.

It is run with pristine and with patched packages on its path; the tests compare the answers. The generator's own answer
is held against hooks in the worker, row by row, and against each sequence run alone by vLLM.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from pathlib import Path
from typing import Any

DEVICE = os.environ.get("EXTRACTION_DEVICE", "cpu")
if DEVICE == "cpu":
    os.environ.update(
        VLLM_MLA_DISABLE="1",  # the CPU has no MLA kernels; the model then takes plain attention
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
    )
else:
    os.environ.update(VLLM_WORKER_MULTIPROC_METHOD="spawn")  # where the parent has started CUDA already
os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
LAYER_IDS = [0, 2, 4, 5, 7]
"""In speculators' numbering: the state that leaves the layer, the last layer's too."""
CUSTOM_OPS = ["all", "-rotary_embedding"]
"""On the CPU, vLLM's own rotary kernel rotates the first rows of DeepSeek's queries by a wrong amount."""
ALONE: dict[str, dict[str, Any]] = {
    "cpu": {"block_size": 16, "compilation_config": {"custom_ops": CUSTOM_OPS}},
    "cuda": {"gpu_memory_utilization": 0.3},
}
LENGTH = 64
"""Longest sequence, and the tokens of a step: a step takes several sequences, and a long one takes two steps."""


def batches() -> list[list[list[int]]]:
    """Return sequences of many lengths, some of them twice, in batches that need one step or several."""
    source = random.Random(7)

    def sequence(length: int) -> list[int]:
        return [source.randrange(2, 240) for _ in range(length)]

    short = [sequence(length) for length in (3, 1, 5, 2, 4, 1, 3, 2, 6, 1, 4, 2)]
    long = [sequence(length) for length in (40, 1, 55, 17, 60, 33, 63, 8, 49, 2, 61)]
    return [[*long, long[2]], [*short, short[0], short[4]], [short[0], long[0]], [sequence(3) for _ in range(40)]]


def generate(models: Path) -> dict[str, Any]:
    """Return what the generator gives for every batch, held against hooks, and each sequence alone."""
    import torch
    from speculators.data_generation import vllm_hidden_states_generator as module

    module.MIN_MAX_BATCHED_TOKENS = LENGTH
    if DEVICE == "cpu":
        from vllm.config import CompilationConfig, VllmConfig

        compilation = CompilationConfig(custom_ops=CUSTOM_OPS)
        module.VllmConfig = lambda **keywords: VllmConfig(**keywords, compilation_config=compilation)
    trust = "tokenizer_trust_remote_code"
    has_trust = trust in module.VllmHiddenStatesGenerator.__init__.__annotations__
    generator = module.VllmHiddenStatesGenerator(
        str(models / _target()),
        layer_ids=LAYER_IDS,
        max_model_len=LENGTH,
        **({trust: True} if has_trust else {}),
    )
    generator.executor.collective_rpc(_watch)
    answers, given = [], []
    for number, batch in enumerate(batches()):
        results = generator.generate(batch)
        (seen,) = generator.executor.collective_rpc(_seen)
        expected = [seen.get(f"req_{number}_{place}") for place in range(len(batch))]
        answers.append(
            {
                "sequences": len(batch),
                "ids in order": [result["input_ids"].tolist() for result in results] == batch,
                "lengths": sum(
                    len(result["hidden_states"][0]) == len(ids) for result, ids in zip(results, batch, strict=True)
                ),
                "equal hooks": sum(_equal(result, states) for result, states in zip(results, expected, strict=True)),
            }
        )
        given += list(zip(batch, results, strict=True))
    block_size = generator.vllm_config.cache_config.block_size
    del generator
    answer = {"block size": block_size, "batches": answers}
    if "--alone" not in sys.argv:
        return answer
    alone = _run_alone(models, {tuple(ids) for ids, _ in given})
    differences = [
        float((state.float() - expected.float()).abs().max() / expected.float().abs().max())
        for ids, result in given
        for state, expected in zip(result["hidden_states"], alone[tuple(ids)], strict=True)
        if state.shape == expected.shape
    ]
    assert torch.isfinite(torch.tensor(differences)).all()
    return {**answer, "compared alone": len(differences), "greatest difference alone": max(differences)}


CONVERSATIONS = (
    [("user", "Hello"), ("assistant", "Hi there.")],
    [
        ("user", "你好，世界"),
        ("assistant", "こんにちは\u3000😀🇫🇷"),
        ("user", "¿Qué?"),
        ("assistant", "É isso: n\u0303"),
    ],
    [("user", "cut"), ("assistant", "界" * 100)],
    [("user", "\ufffd in"), ("assistant", "\ufffd out\n\n  indented\ttab ")],
)
CUT = 120
"""Length in tokens at which preprocessing cuts, inside the third conversation and inside a character of it."""


def preprocess(models: Path) -> dict[str, Any]:
    """Return the rows that preprocessing makes with a tokenizer in Python alone, and what they must be."""
    from speculators.data_generation.preprocessing import load_and_preprocess_dataset

    place = Path(os.environ["HF_DATASETS_CACHE"], "conversations.jsonl")
    place.parent.mkdir(parents=True, exist_ok=True)
    turns = [[{"role": role, "content": content} for role, content in talk] for talk in CONVERSATIONS]
    place.write_text("".join(json.dumps({"conversations": talk}) + "\n" for talk in turns))
    try:
        dataset, tokenizer = load_and_preprocess_dataset(
            str(models / "target-random"),
            str(place),
            CUT,
            build_dataset_num_proc=1,
            token_freq_path=str(place.with_name("frequencies.pt")),
        )
    except (IndexError, KeyError) as error:  # an empty dataset cannot be shown or counted
        return {"rows": [], "error": f"{type(error).__name__}: {error}"}
    rows = sorted([row["input_ids"].tolist(), row["loss_mask"].tolist()] for row in dataset)
    return {"rows": rows, "expected": sorted(map(_tokens_and_mask, CONVERSATIONS)), "is fast": tokenizer.is_fast}


def _tokens_and_mask(talk: Any) -> list[list[int]]:
    """Return a conversation's tokens and mask: its bytes, those of the assistant's words marked."""
    tokens: list[int] = []
    mask: list[int] = []
    for role, content in talk:
        data = list(content.encode())
        tokens += [{"user": 245, "assistant": 246}[role], *data, 247]
        mask += [0, *[int(role == "assistant")] * len(data), 0]
    return [tokens[:CUT], mask[:CUT]]


def _target() -> str:
    """Return the folder of the target: the multimodal one, or with --text its text model alone."""
    return "target-random-text" if "--text" in sys.argv else "target-random"


def _equal(result: dict[str, Any], expected: Any) -> bool:
    import torch

    return (
        expected is not None
        and len(result["hidden_states"]) == len(expected)
        and all(map(torch.equal, result["hidden_states"], expected))
    )


def _layers(model: Any) -> Any:
    """Return the decoder layers, wherever in the model they are: the only list of as many as the target has."""
    (found,) = [part for name, part in model.named_modules() if name.endswith(".layers") and len(part) == 8]
    return found


def _watch(worker: Any) -> None:
    """Keep in the worker what leaves each layer, row by row, with the request and position that each row is of."""
    runner = getattr(worker, "worker", worker).model_runner
    worker.rows, step = {}, {}
    execute = runner.execute_model

    def noting(scheduler_output: Any, *arguments: Any) -> Any:
        step["counts"] = dict(scheduler_output.num_scheduled_tokens)
        return execute(scheduler_output, *arguments)

    def keep(layer: int) -> Any:
        def hook(_module: Any, _arguments: Any, output: Any) -> None:
            states, row = output[0] + output[1], 0
            for place, name in enumerate(runner.input_batch.req_ids):
                start = int(runner.input_batch.num_computed_tokens_cpu[place])
                for token in range(step["counts"].get(name, 0)):
                    worker.rows[name, layer, start + token] = states[row].clone().cpu()
                    row += 1

        return hook

    runner.execute_model = noting
    for layer, part in enumerate(_layers(runner.model)):
        part.register_forward_hook(keep(layer))


def _seen(worker: Any) -> dict[str, Any]:
    """Return the kept rows as one tensor a layer, by request."""
    import torch

    found = {}
    for name in {name for name, _, _ in worker.rows}:
        end = 1 + max(position for other, _, position in worker.rows if other == name)
        found[name] = [torch.stack([worker.rows[name, layer, at] for at in range(end)]) for layer in LAYER_IDS]
    worker.rows.clear()
    return found


def _run_alone(models: Path, sequences: set[tuple[int, ...]]) -> dict[tuple[int, ...], Any]:
    """Return the states of every sequence, run by vLLM alone and whole."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(models / _target()),
        max_model_len=LENGTH + 1,
        max_num_seqs=1,
        enforce_eager=True,
        trust_remote_code=True,
        enable_prefix_caching=False,
        **ALONE[DEVICE],
    )
    model = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner.model
    states: dict[int, Any] = {}

    def keep(layer: int) -> Any:
        def hook(_module: Any, _arguments: Any, output: Any) -> None:
            states[layer] = (output[0] + output[1]).cpu()

        return hook

    for layer, part in enumerate(_layers(model)):
        part.register_forward_hook(keep(layer))
    sampling, found = SamplingParams(temperature=0, max_tokens=1), {}
    for ids in sorted(sequences):
        llm.generate([{"prompt_token_ids": list(ids)}], sampling, use_tqdm=False)
        found[ids] = [states[layer] for layer in LAYER_IDS]
    return found


def main() -> None:
    """Answer one question, an error of the packages included."""
    questions = {"generate": generate, "preprocess": preprocess}
    try:
        answer = questions[sys.argv[1]](Path(sys.argv[2]))
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].line
        answer = {"error": f"{type(error).__name__}: {error}", "line": line}
    print("probe:" + json.dumps(answer))


if __name__ == "__main__":
    main()
