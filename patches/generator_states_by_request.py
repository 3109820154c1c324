"""Hidden states belong to the request that they are of

The generator of speculators 0.3.0 ends every request after its first step, and cuts the captured rows into sequences
in the order in which it was given them. A prompt that the scheduler runs in several chunks is cut off after the first,
and the engine may run the requests of a step in another order than they were added in: rows of one sequence are then
given out as those of another, and nothing says so (vllm-project/speculators#279).

The rewrite tells the workers before each step how many tokens of which request it runs, and from where on. They keep
the rows by request, told apart by the engine's batch, and hand them back in the order of the requests; missing rows are
an error that names the request. A request ends when its whole prompt was run. speculators 0.4.0 keeps rows by request
as well.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import code_of, find_all, find_definition, is_code, replace, require, statements
from patchkit.edits import append_members, body_of, drop_last_members, is_marked, swap, swap_back
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="speculators",
    versions=">=0.3.0,<0.4.0",
    requires={"vllm": ">=0.15.0,<0.18.0"},
    symptom="hidden states of another request",
    upstream=Upstream(status="released", issue="vllm-project/speculators#279", fixed_in="0.4.0"),
)

WORKER = "HiddenStatesWorkerExtension"
METHODS = '''
def _expect_requests(self, prompt_lengths: dict[str, int]):
    """Keep the states of these requests, given with the lengths of their prompts"""
    self._prompt_lengths = prompt_lengths
    self._captured_states = {request_id: [] for request_id in prompt_lengths}
    self._expected_tokens = {}

def _expect_tokens(self, tokens: dict[str, tuple[int, int]]):
    """Take note of the next step: from which token on, and how many, by request"""
    self._expected_tokens = tokens
'''
# Of each: the method, what stands there, what comes in its place.
WORKER_SWAPS = (
    (
        f"{WORKER}._store_captured_states",
        """
if self._captured_states is None:  # type: ignore[has-type]
    self._captured_states = [[h] for h in aux_hidden_states]
else:
    for i, h in enumerate(aux_hidden_states):
        self._captured_states[i].append(h)
""",
        """
if self._captured_states is None:  # a warm-up, for no request
    return
order = self.model_runner.input_batch.req_id_to_index
row = 0
for request_id in sorted(self._expected_tokens, key=order.__getitem__):
    start, count = self._expected_tokens[request_id]
    chunks = self._captured_states[request_id]
    if start == 0:  # for the first time, or anew after a preemption
        chunks.clear()
    chunks.append([states[row : row + count] for states in aux_hidden_states])
    row += count
""",
    ),
    (
        f"{WORKER}._get_captured_states",
        """
result = [
    torch.cat(layer_tensors, dim=0) for layer_tensors in self._captured_states
]
""",
        """
captured = {
    request_id: sum(len(chunk[0]) for chunk in chunks)
    for request_id, chunks in self._captured_states.items()
}
if not any(captured.values()):
    return None
for request_id, length in self._prompt_lengths.items():
    if captured[request_id] != length:
        raise RuntimeError(
            f"Hidden states of {captured[request_id]} of the {length} tokens of "
            f"request {request_id} were captured: the KV cache may be too small for "
            "its prompt, shorten it or raise gpu_memory_utilization"
        )
chunks = [chunk for chunks in self._captured_states.values() for chunk in chunks]
result = [torch.cat(layer_tensors, dim=0) for layer_tensors in zip(*chunks)]
""",
    ),
)
GENERATE = "VllmHiddenStatesGenerator.generate"
GENERATE_SWAPS = (
    (
        GENERATE,
        'self.executor.collective_rpc("_reset_capture")',
        """
self.executor.collective_rpc("_reset_capture")
prompt_lengths = {
    f"req_{self._request_counter - 1}_{i}": len(ids)
    for i, ids in enumerate(input_ids_list)
}
self.executor.collective_rpc("_expect_requests", args=(prompt_lengths,))
""",
    ),
    (
        GENERATE,
        "schedule_iterations += 1",
        """
schedule_iterations += 1
tokens = {
    req_id: (self.scheduler.requests[req_id].num_computed_tokens - count, count)
    for req_id, count in scheduler_output.num_scheduled_tokens.items()
}
self.executor.collective_rpc("_expect_tokens", args=(tokens,))
""",
    ),
    (
        GENERATE,
        "self.scheduler.finish_requests([req_id], RequestStatus.FINISHED_ABORTED)",
        """
request = self.scheduler.requests[req_id]
if request.num_computed_tokens >= request.num_prompt_tokens:
    self.scheduler.finish_requests([req_id], RequestStatus.FINISHED_ABORTED)
""",
    ),
    (
        GENERATE,
        """
captured_states_list = self.executor.collective_rpc(
    "_get_captured_states",
    unique_reply_rank=0,
)
""",
        """
self.scheduler.finish_requests(
    list(prompt_lengths), RequestStatus.FINISHED_ABORTED
)
captured_states_list = self.executor.collective_rpc(
    "_get_captured_states",
    unique_reply_rank=0,
)
""",
    ),
)


@patch.rewrites("speculators/data_generation/custom_worker.py", within=("HiddenStatesWorkerExtension",))
def keep_by_request(module: cst.Module) -> cst.Module:
    """Keep the rows by request, and join them in the order of the requests."""
    for dotted, old, new in WORKER_SWAPS:
        module = swap(module, dotted, old, new, __name__)
    worker = _find_worker(module)
    if _find_methods(worker):
        return module
    return replace(module, worker, append_members(worker, METHODS, __name__))


@patch.restores("speculators/data_generation/custom_worker.py")
def keep_together(module: cst.Module) -> cst.Module:
    """Keep the rows of each layer together again."""
    for dotted, old, new in WORKER_SWAPS:
        module = swap_back(module, dotted, old, new, __name__)
    worker = _find_worker(module)
    methods = _find_methods(worker)
    if not methods or not is_marked(methods[0], __name__):
        return module
    return replace(module, worker, drop_last_members(worker, METHODS))


@patch.rewrites(
    "speculators/data_generation/vllm_hidden_states_generator.py", within=("VllmHiddenStatesGenerator.generate",)
)
def tell_workers(module: cst.Module) -> cst.Module:
    """Tell the workers what each step runs, and end a request when its prompt was run."""
    for dotted, old, new in GENERATE_SWAPS:
        module = swap(module, dotted, old, new, __name__)
    return module


@patch.restores("speculators/data_generation/vllm_hidden_states_generator.py")
def tell_nothing(module: cst.Module) -> cst.Module:
    """End every request after its first step again."""
    for dotted, old, new in GENERATE_SWAPS:
        module = swap_back(module, dotted, old, new, __name__)
    return module


def _find_worker(module: cst.Module) -> cst.ClassDef:
    worker = find_definition(module, WORKER)
    require(isinstance(worker, cst.ClassDef) and bool(body_of(worker)), WORKER, "a class with an indented body")
    assert isinstance(worker, cst.ClassDef)
    return worker


def _find_methods(worker: cst.ClassDef) -> list[cst.BaseStatement]:
    """Return the methods where they are the last ones of the class, refusing others of their names."""
    wanted = statements(METHODS)
    found = body_of(worker)[-len(wanted) :]
    if len(found) == len(wanted) and all(map(is_code, found, map(code_of, wanted))):
        return found
    names = [node.name.value for node in find_all(worker, cst.FunctionDef)]
    require(not {"_expect_requests", "_expect_tokens"} & {*names}, WORKER, "no other methods of these names")
    return []
