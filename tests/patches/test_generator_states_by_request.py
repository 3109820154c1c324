from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import permutations
from random import Random
from textwrap import dedent, indent
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet

from patchkit import cst
from patchkit.catalog import load_patch
from patchkit.errors import AnchorAmbiguous, AnchorNotFound, PatchError, UnexpectedShape
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from tests.support import CATALOG, check_refused, check_restored, check_rewritten, check_unchanged, rewriter

ID = "generator_states_by_request"
WORKER = "speculators/data_generation/custom_worker.py"
GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"
MARKER = f"# patchkit: {ID}\n"
# What the patch names: the anchors, and what comes in their place. What that does is tested below by running it.
NAMED = load_patch(CATALOG.headers[ID]).rewritings[WORKER].__globals__
STORE, GET = NAMED["WORKER_SWAPS"]
RESET, STEP, FINISH, FETCH = NAMED["GENERATE_SWAPS"]
PLACES = {"store": STORE, "get": GET, "reset": RESET, "step": STEP, "finish": FINISH, "fetch": FETCH}
OLD = {name: old.strip("\n") for name, (_, old, _) in PLACES.items()}
NEW = {name: new.strip("\n") for name, (_, _, new) in PLACES.items()}
MARKED = {name: f"{MARKER}{new}" for name, new in NEW.items()}
METHODS = NAMED["METHODS"].strip("\n")
FILES = {
    WORKER: """\
class HiddenStatesWorkerExtension:
    def _store_captured_states(self, aux_hidden_states):
{store}

    def _reset_capture(self):
        self._captured_states = None

    def _get_captured_states(self):
        if self._captured_states is None:
            return None
{get}
        self._captured_states = None
        return result
{methods}""",
    GENERATOR: """\
class VllmHiddenStatesGenerator:
    def generate(self, input_ids_list):
        for i, ids in enumerate(input_ids_list):
            self.scheduler.add_request(f"req_{{self._request_counter}}_{{i}}", ids)
        self._request_counter += 1
{reset}
        schedule_iterations = 0
        while (scheduler_output := self.scheduler.schedule()).num_scheduled_tokens:
{step}
            self.executor.execute_model(scheduler_output)
            for req_id in scheduler_output.num_scheduled_tokens:
{finish}
{fetch}
        return captured_states_list
""",
}
DEPTHS = {"store": 8, "get": 8, "reset": 8, "step": 12, "finish": 16, "fetch": 8}


def fragment(path: str, methods: str = "", **code: str) -> str:
    """Return a file with the anchors in it, or other code in their places."""
    filled = {name: indent(code.get(name, old), " " * DEPTHS[name]) for name, old in OLD.items()}
    members = f"\n{indent(methods, '    ')}\n" if methods else ""
    return FILES[path].format(methods=members, **filled)


def path_of(name: str) -> str:
    return WORKER if name in ("store", "get") else GENERATOR


def anchor(name: str) -> str:
    return "^" + re.escape(f"{PLACES[name][0]}: {OLD[name].splitlines()[0]}")


def refusals() -> dict[str, tuple[str, str, type[PatchError], str]]:
    """Return the refusals of each anchor: the file, the fragment, the error, its words."""
    cases: dict[str, tuple[str, str, type[PatchError], str]] = {}
    for name, old in OLD.items():
        path = path_of(name)
        cases[f"{name} missing"] = (
            path,
            fragment(path, **{name: "pass"}),
            AnchorNotFound,
            f"{anchor(name)}: not found",
        )
        cases[f"{name} twice"] = (
            path,
            fragment(path, **{name: f"{old}\n{old}"}),
            AnchorAmbiguous,
            f"{anchor(name)}: found 2 times",
        )
    return cases


FUNCTION = fragment(WORKER).replace("class HiddenStatesWorkerExtension", "def HiddenStatesWorkerExtension()")
REFUSED = {
    **refusals(),
    "no worker": (WORKER, "x = 1\n", AnchorNotFound, "^HiddenStatesWorkerExtension: not found"),
    "worker twice": (WORKER, fragment(WORKER) * 2, AnchorAmbiguous, "^HiddenStatesWorkerExtension: found 2 times"),
    "worker is a function": (
        WORKER,
        FUNCTION,
        UnexpectedShape,
        "^HiddenStatesWorkerExtension: expected a class with an indented body",
    ),
    "no method that stores": (
        WORKER,
        fragment(WORKER).replace("_store", "_keep"),
        AnchorNotFound,
        r"^HiddenStatesWorkerExtension\._store_captured_states: not found",
    ),
    "stored without a check": (
        WORKER,
        fragment(WORKER, store=OLD["store"].split("else")[0]),
        AnchorNotFound,
        "not found",
    ),
    "joined along another dimension": (
        WORKER,
        fragment(WORKER, get=OLD["get"].replace("dim=0", "dim=1")),
        AnchorNotFound,
        anchor("get"),
    ),
    "no generator": (GENERATOR, "x = 1\n", AnchorNotFound, "^VllmHiddenStatesGenerator: not found"),
    "no method that generates": (
        GENERATOR,
        fragment(GENERATOR).replace("generate", "run"),
        AnchorNotFound,
        r"^VllmHiddenStatesGenerator\.generate: not found",
    ),
    "all ended at once": (
        GENERATOR,
        fragment(GENERATOR, finish=OLD["finish"].replace("[req_id]", "req_ids")),
        AnchorNotFound,
        anchor("finish"),
    ),
    "asked of every rank": (
        GENERATOR,
        fragment(GENERATOR, fetch=OLD["fetch"].replace("    unique_reply_rank=0,\n", "")),
        AnchorNotFound,
        anchor("fetch"),
    ),
    "some there, others missing": (
        GENERATOR,
        fragment(GENERATOR, **{**NEW, "fetch": "pass"}),
        AnchorNotFound,
        anchor("fetch"),
    ),
}


def commented(code: dict[str, str], marker: str) -> dict[str, str]:
    """Put comments above each place, and one beside each that ends in a simple statement before and after."""
    above = {name: f"# above {name}\n\n{marker}{value}" for name, value in code.items()}
    return {name: f"{value}  # beside" if name not in ("store", "finish") else value for name, value in above.items()}


AFTER = "\n\n# below\nclass Other:\n    pass\n"
REWRITTEN = {
    "worker": (WORKER, fragment(WORKER), fragment(WORKER, f"{MARKER}{METHODS}", **MARKED)),
    "generator": (GENERATOR, fragment(GENERATOR), fragment(GENERATOR, **MARKED)),
    "comments in the worker": (
        WORKER,
        f"# above\n{fragment(WORKER, **commented(OLD, ''))}{AFTER}",
        f"# above\n{fragment(WORKER, f'{MARKER}{METHODS}', **commented(NEW, MARKER))}{AFTER}",
    ),
    "comments in the generator": (
        GENERATOR,
        f"# above\n{fragment(GENERATOR, **commented(OLD, ''))}{AFTER}",
        f"# above\n{fragment(GENERATOR, **commented(NEW, MARKER))}{AFTER}",
    ),
    "more members": (
        WORKER,
        fragment(WORKER, "x = 1\n\ndef f(self):\n    pass"),
        fragment(WORKER, f"x = 1\n\ndef f(self):\n    pass\n\n{MARKER}{METHODS}", **MARKED),
    ),
    "methods there": (
        WORKER,
        fragment(WORKER, f"# upstream\n{METHODS}"),
        fragment(WORKER, f"# upstream\n{METHODS}", **MARKED),
    ),
    "some there": (
        GENERATOR,
        fragment(GENERATOR, reset=NEW["reset"], finish=NEW["finish"]),
        fragment(GENERATOR, **{**MARKED, "reset": NEW["reset"], "finish": NEW["finish"]}),
    ),
}
NATIVE = {WORKER: fragment(WORKER, METHODS, **NEW), GENERATOR: fragment(GENERATOR, **NEW)}


@pytest.mark.parametrize(("path", "before", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(path: str, before: str, error: type[PatchError], words: str) -> None:
    check_refused(ID, path, before, error, words)


@pytest.mark.parametrize(("path", "before", "after"), REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(path: str, before: str, after: str) -> None:
    check_rewritten(ID, path, before, after)


@pytest.mark.parametrize("path", FILES)
def test_unchanged_where_it_goes_by_request_already(path: str) -> None:
    check_unchanged(ID, path, NATIVE[path])


@pytest.mark.parametrize("case", REWRITTEN)
def test_restored(case: str) -> None:
    path, *codes = REWRITTEN[case]
    old, new = (code.encode() for code in codes)
    check_restored(ID, path, old, new)


@pytest.mark.parametrize("case", ["comments in the worker", "comments in the generator"])
def test_line_ends_are_kept(case: str) -> None:
    path, *codes = REWRITTEN[case]
    old, new = (code.replace("\n", "\r\n").encode() for code in codes)
    rewrite = rewriter().fold(path, old, {ID})
    assert rewrite.after == new
    assert rewriter().restore(path, new, {ID}, digest(old)) == rewrite


@pytest.mark.parametrize("path", FILES)
def test_nothing_to_restore(path: str) -> None:
    data = fragment(path).encode()
    assert rewriter().restore(path, data, {ID}, digest(data)) == Rewrite(data, data, frozenset())


@pytest.mark.parametrize("path", FILES)
def test_native_code_is_not_restored(path: str) -> None:
    data = NATIVE[path].encode()
    assert rewriter().restore(path, data, {ID}, digest(data)) == Rewrite(data, data, frozenset())


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("is_native", [True, False], ids=["native", "no class"])
def test_not_restored(path: str, is_native: bool) -> None:
    data = NATIVE[path] if is_native else "x = 1\n"
    assert rewriter().restore(path, data.encode(), {ID}, digest(fragment(path).encode())) is None


def test_generator_and_worker_are_patched_together() -> None:
    assert set(CATALOG.headers[ID].files) == set(FILES)


Rows = list[list[tuple[int, int]]]
"""Of each of two layers, the rows: the layer and the token."""


class Scheduler:
    """Runs so many tokens in a step, in the order of the requests; there is room for so many of a prompt."""

    def __init__(self, events: list[str], budget: int, room: int, preempted: dict[int, str]) -> None:
        self.events, self.budget, self.room, self.preempted = events, budget, room, preempted
        self.requests: dict[str, SimpleNamespace] = {}
        self.steps = 0

    def add_request(self, name: str, tokens: list[int]) -> None:
        self.requests[name] = SimpleNamespace(tokens=tokens, num_computed_tokens=0, num_prompt_tokens=len(tokens))

    def schedule(self) -> SimpleNamespace:
        self.steps += 1
        if self.steps in self.preempted:
            self.requests[self.preempted[self.steps]].num_computed_tokens = 0
        left, rows = self.budget, {}
        for name, request in self.requests.items():
            start = request.num_computed_tokens
            if tokens := request.tokens[: self.room][start : start + left]:
                rows[name] = tokens
                left -= len(tokens)
                request.num_computed_tokens += len(tokens)
        return SimpleNamespace(rows=rows, num_scheduled_tokens={name: len(tokens) for name, tokens in rows.items()})

    def finish_requests(self, names: list[str], status: str) -> None:
        assert status == "aborted"
        self.events += [f"finish {name}" for name in names if self.requests.pop(name, None)]


Order = Callable[[list[str]], Sequence[str]]


class Executor:
    """Runs a step on two workers, in an order of its own; the first captures the rows of two layers."""

    def __init__(self, events: list[str], workers: list[SimpleNamespace], order: Order) -> None:
        self.events, self.workers, self.order = events, workers, order

    def collective_rpc(
        self, method: str, args: tuple[object, ...] = (), unique_reply_rank: int | None = None
    ) -> object:
        self.events.append(f"{method}{args or ''}")
        replies = [getattr(worker, method)(*args) for worker in self.workers]
        return replies if unique_reply_rank is None else replies[unique_reply_rank]

    def execute_model(self, scheduler_output: SimpleNamespace) -> None:
        batch = self.order([*scheduler_output.rows])
        self.events.append(f"run {' '.join(batch)}")
        for worker in self.workers:
            worker.model_runner.input_batch.req_id_to_index = {name: place for place, name in enumerate(batch)}
        self.workers[0]._store_captured_states(states(*(scheduler_output.rows[name] for name in batch)))


def states(*prompts: Sequence[int]) -> Rows:
    """Return the rows of two layers for some tokens."""
    return [[(layer, token) for tokens in prompts for token in tokens] for layer in (1, 2)]


def cat(parts: Sequence[list[object]], dim: int) -> list[object]:
    assert dim == 0
    return [row for part in parts for row in part]


@cache
def load(path: str, *patches: str) -> type:
    """Return the class of a fragment."""
    namespace: dict[str, type] = {
        "torch": type("torch", (), {"cat": staticmethod(cat)}),
        "RequestStatus": type("RequestStatus", (), {"FINISHED_ABORTED": "aborted"}),
    }
    code = rewriter().fold(path, fragment(path).encode(), patches).after
    exec(compile(code, "fragment.py", "exec"), namespace)
    return namespace["HiddenStatesWorkerExtension" if path == WORKER else "VllmHiddenStatesGenerator"]


def make_worker(*patches: str) -> SimpleNamespace:
    worker = load(WORKER, *patches)()
    worker.model_runner = SimpleNamespace(input_batch=SimpleNamespace(req_id_to_index={}))
    worker._reset_capture()
    return worker


def as_added(names: list[str]) -> list[str]:
    return names


def backwards(names: list[str]) -> list[str]:
    return names[::-1]


def rotated(names: list[str]) -> list[str]:
    return [*names[1:], *names[:1]]


def shuffled(names: list[str]) -> list[str]:
    return Random(len(names)).sample(names, len(names))


def make_generator(
    *patches: str,
    budget: int = 100,
    room: int = 100,
    order: Order = as_added,
    preempted: dict[int, str] | None = None,
) -> SimpleNamespace:
    generator = load(GENERATOR, *patches)()
    generator.events = []
    generator.scheduler = Scheduler(generator.events, budget, room, preempted or {})
    generator.executor = Executor(generator.events, [make_worker(*patches), make_worker(*patches)], order)
    generator._request_counter = 0
    return generator


def test_prompt_in_chunks_is_cut_off_before() -> None:
    assert make_generator(budget=3).generate([[1, 2, 3, 4, 5]]) == states([1, 2, 3])


def test_rows_are_given_out_as_those_of_another_before() -> None:
    assert make_generator(order=backwards).generate([[1, 2], [3]]) == states([3], [1, 2])


PROMPTS = {
    "one": [[1, 2, 3, 4, 5]],
    "two": [[1, 2, 3], [4, 5, 6, 7]],
    "single tokens": [[1], [2], [3]],
    "of many lengths": [[*range(10 * start, 10 * start + 1 + start % 7)] for start in range(12)],
}


@pytest.mark.parametrize("order", [as_added, backwards, rotated, shuffled], ids=lambda order: order.__name__)
@pytest.mark.parametrize("budget", [1, 2, 3, 5, 16, 100])
@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_every_row_is_that_of_its_request_after(prompts: list[list[int]], budget: int, order: Order) -> None:
    generator = make_generator(ID, budget=budget, order=order)
    for _ in range(3):
        assert generator.generate(prompts) == states(*prompts)
        assert generator.scheduler.requests == {}


@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("order", [as_added, backwards], ids=lambda order: order.__name__)
def test_a_request_starts_anew_after_a_preemption(step: int, order: Order) -> None:
    generator = make_generator(ID, budget=3, order=order, preempted={step: "req_0_1"})
    prompts = [[1], [*range(2, 12)], [12, 13]]
    assert generator.generate(prompts) == states(*prompts)


def test_workers_are_told_what_each_step_runs() -> None:
    generator = make_generator(ID, budget=4, order=backwards)
    assert generator.generate([[1, 2, 3, 4, 5], [6, 7]]) == states([1, 2, 3, 4, 5], [6, 7])
    assert generator.events == [
        "_reset_capture",
        "_expect_requests({'req_0_0': 5, 'req_0_1': 2},)",
        "_expect_tokens({'req_0_0': (0, 4)},)",
        "run req_0_0",
        "_expect_tokens({'req_0_0': (4, 1), 'req_0_1': (0, 2)},)",
        "run req_0_1 req_0_0",
        "finish req_0_0",
        "finish req_0_1",
        "_get_captured_states",
    ]


def test_prompt_without_room_is_ended_before_the_states_are_fetched() -> None:
    generator = make_generator(ID, room=3)
    with pytest.raises(RuntimeError, match=r"^Hidden states of 3 of the 4 tokens of request req_0_1 were captured: "):
        generator.generate([[1, 2], [3, 4, 5, 6]])
    assert generator.events[-4:] == ["run req_0_0 req_0_1", "finish req_0_0", "finish req_0_1", "_get_captured_states"]
    assert generator.scheduler.requests == {}
    assert generator.generate([[7], [8, 9]]) == states([7], [8, 9])


def test_no_prompt_with_room_gives_nothing() -> None:
    generator = make_generator(ID, room=0)
    assert generator.generate([[1, 2], [3]]) is None
    assert generator.scheduler.requests == {}


@pytest.fixture
def worker() -> SimpleNamespace:
    return make_worker(ID)


def run(worker: SimpleNamespace, batch: list[str], rows: Rows, **tokens: tuple[int, int]) -> None:
    """Run a step of a worker: its order, what is captured, and of each request where it starts and how many."""
    worker._expect_tokens(tokens)
    worker.model_runner.input_batch.req_id_to_index = {name: place for place, name in enumerate(batch)}
    worker._store_captured_states(rows)


def test_rows_come_in_the_order_of_the_requests(worker: SimpleNamespace) -> None:
    worker._expect_requests({"a": 3, "b": 2, "c": 1})
    run(worker, ["c", "a", "b"], states([6], [1, 2], [4]), a=(0, 2), b=(0, 1), c=(0, 1))
    run(worker, ["b", "a"], states([5], [3]), a=(2, 1), b=(1, 1))
    assert worker._get_captured_states() == states([1, 2, 3], [4, 5], [6])
    assert worker._get_captured_states() is None


def test_requests_that_a_step_does_not_run_are_passed_over(worker: SimpleNamespace) -> None:
    worker._expect_requests({"a": 1, "b": 1})
    run(worker, ["b", "x", "a"], states([1]), a=(0, 1))
    run(worker, ["b", "x", "a"], states([2]), b=(0, 1))
    assert worker._get_captured_states() == states([1], [2])


def test_rows_that_fill_up_a_step_are_left_out(worker: SimpleNamespace) -> None:
    worker._expect_requests({"a": 2, "b": 1})
    run(worker, ["b", "a"], states([3], [1, 2], [0, 0, 0]), a=(0, 2), b=(0, 1))
    assert worker._get_captured_states() == states([1, 2], [3])


def test_restart_drops_the_rows_of_that_request_alone(worker: SimpleNamespace) -> None:
    worker._expect_requests({"a": 3, "b": 2})
    run(worker, ["a", "b"], states([1, 2], [4]), a=(0, 2), b=(0, 1))
    run(worker, ["b", "a"], states([5], [1]), a=(0, 1), b=(1, 1))
    run(worker, ["a"], states([2, 3]), a=(1, 2))
    assert worker._get_captured_states() == states([1, 2, 3], [4, 5])


MISSING = {
    "a chunk": ([("a", (0, 1)), ("b", (0, 2))], 1, 3, "a"),
    "all of one": ([("b", (0, 2))], 0, 3, "a"),
    "the last": ([("a", (0, 3)), ("b", (0, 1))], 1, 2, "b"),
    "run again": ([("a", (0, 3)), ("b", (0, 2)), ("b", (1, 1))], 3, 2, "b"),
}


@pytest.mark.parametrize(("steps", "captured", "length", "name"), MISSING.values(), ids=MISSING)
def test_missing_rows_name_the_request(
    worker: SimpleNamespace, steps: list[tuple[str, tuple[int, int]]], captured: int, length: int, name: str
) -> None:
    worker._expect_requests({"a": 3, "b": 2})
    for request_id, tokens in steps:
        run(worker, [request_id], states([0] * tokens[1]), **{request_id: tokens})
    words = f"^Hidden states of {captured} of the {length} tokens of request {name} were captured: the KV cache may"
    with pytest.raises(RuntimeError, match=words):
        worker._get_captured_states()
    worker._reset_capture()
    assert worker._get_captured_states() is None


def test_rank_that_captured_nothing_gives_none(worker: SimpleNamespace) -> None:
    worker._expect_requests({"a": 1})
    worker._expect_tokens({"a": (0, 1)})
    assert worker._get_captured_states() is None


def test_warm_up_keeps_nothing(worker: SimpleNamespace) -> None:
    worker._store_captured_states(states([0, 0, 0]))
    assert worker._get_captured_states() is None
    worker._expect_requests({"a": 1})
    run(worker, ["a"], states([1]), a=(0, 1))
    assert worker._get_captured_states() == states([1])


def test_next_batch_starts_without_the_rows_of_the_last(worker: SimpleNamespace) -> None:
    worker._expect_requests({"a": 2})
    run(worker, ["a"], states([1]), a=(0, 1))
    worker._reset_capture()
    worker._expect_requests({"b": 1})
    run(worker, ["b"], states([2]), b=(0, 1))
    assert worker._get_captured_states() == states([2])


# Every anchor that a patch of these files has in speculators 0.3.0.
EVERY = {
    WORKER: f"""\
import torch


def _patched_forward(self, input_ids, inputs_embeds=None):
    hidden_states = (
        inputs_embeds
        if inputs_embeds is not None
        else self.get_input_embeddings(input_ids)
    )
    return hidden_states


{fragment(WORKER)}
    def _setup_hidden_states_capture(self, model):
        if not supports_eagle3(model):
            raise ValueError(
                f"Model {{type(model).__name__}} does not support hidden state extraction"
            )

        base_model = model.model
        return base_model
""",
    GENERATOR: dedent(
        """\
        import torch


        class VllmHiddenStatesGenerator:
            def __init__(
                self,
                model_path: str,
                max_model_len: int = 2048,
            ):
                self.tokenizer = AutoTokenizer.from_pretrained(model_path)
                free_memory, _ = torch.cuda.mem_get_info()
                kv_cache_config = get_kv_cache_config_from_groups(
                    vllm_config=self.vllm_config,
                    kv_cache_specs=kv_cache_spec,
                    available_memory=free_memory,
                )
                self.scheduler = Scheduler(
                    kv_cache_config=kv_cache_config,
                )

            def _create_vllm_config(self):
                cache_config = CacheConfig(
                    block_size=16,
                )
                return SchedulerConfig(
                    max_num_seqs=32,
                )

            def make_request(self, ids):
                pass

        """
    )
    + "\n".join(fragment(GENERATOR).splitlines()[1:])
    .replace(
        "self.scheduler.add_request(",
        "request = Request(\n                prompt_token_ids=ids,\n"
        "                eos_token_id=self.tokenizer.eos_token_id,\n            )\n"
        "            self.scheduler.add_request(request, ",
    )
    .replace(
        "        return captured_states_list",
        "        aux_hidden_states = captured_states_list[0]\n        return aux_hidden_states\n",
    ),
}


def patches_of(path: str) -> list[str]:
    """Return the patches of a file in speculators 0.3.0, in the order of their ids."""
    headers = CATALOG.headers
    return [
        patch_id
        for patch_id in CATALOG.files_of("speculators")[path]
        if SpecifierSet(headers[patch_id].patch.versions).contains("0.3.0")
    ]


def apply(path: str, order: Sequence[str]) -> str:
    module = cst.parse_exactly(EVERY[path].encode(), path)
    for patch_id in order:
        module = load_patch(CATALOG.headers[patch_id]).rewritings[path](module)
    return module.code


def test_patches_of_the_generator_commute() -> None:
    patches = patches_of(GENERATOR)
    assert ID in patches and len(patches) == 10
    expected, random = apply(GENERATOR, patches), Random(0)
    for _ in range(30):
        order = random.sample(patches, len(patches))
        assert apply(GENERATOR, order) == expected, order


def test_patches_of_the_worker_commute() -> None:
    patches = patches_of(WORKER)
    assert patches == ["custom_worker_embed_input_ids", "custom_worker_unwrap", ID]
    assert len({apply(WORKER, order) for order in permutations(patches)}) == 1


@pytest.mark.parametrize("path", FILES)
def test_all_patches_of_a_file_are_restored(path: str) -> None:
    old, patches = EVERY[path].encode(), patches_of(path)
    rewrite = rewriter().fold(path, old, patches)
    assert (rewrite.after.decode(), rewrite.patches) == (apply(path, patches), set(patches))
    assert rewriter().restore(path, rewrite.after, patches, digest(old)) == rewrite
