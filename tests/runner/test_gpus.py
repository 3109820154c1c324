from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from patchkit.errors import GpuUnusable
from patchkit.runner.gpus import BUSY, Gpu, are_there, check_gpus, choose_gpus, find_gpus

SIZE = 150 * 10**9


class NVMLError(Exception):
    """What the library raises."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Put a library with two free GPUs in the place of pynvml."""
    found = SimpleNamespace(calls=[], memory=[SimpleNamespace(total=SIZE, free=SIZE) for _ in range(2)], held=([], []))

    def processes(handle: int) -> list[Any]:
        if isinstance(found.held[handle], Exception):
            raise found.held[handle]
        return list(found.held[handle])

    functions = {
        "nvmlInit": lambda: found.calls.append("init"),
        "nvmlShutdown": lambda: found.calls.append("shutdown"),
        "nvmlDeviceGetCount": lambda: len(found.memory),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda handle: found.memory[handle],
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetComputeRunningProcesses": processes,
        "NVMLError": NVMLError,
    }
    module = ModuleType("pynvml")
    vars(module).update(functions)
    found.module = module
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return found


def gpu(index: int = 0, free: int = SIZE, *holders: tuple[int, int]) -> Gpu:
    return Gpu(index, f"GPU-{index}", "NVIDIA H200", SIZE, free, holders)


def test_every_gpu_is_described(nvml: SimpleNamespace) -> None:
    nvml.memory[1].free = 5
    nvml.held[1].extend([SimpleNamespace(pid=7, usedGpuMemory=9), SimpleNamespace(pid=8, usedGpuMemory=None)])
    assert find_gpus() == [gpu(), gpu(1, 5, (7, 9), (8, 0))]
    assert nvml.calls == ["init", "shutdown"]


def test_driver_that_does_not_tell_who_holds_memory_tells_how_much(nvml: SimpleNamespace) -> None:
    nvml.held = (NVMLError(), [])
    assert find_gpus() == [gpu(), gpu(1)]


def test_no_driver_means_no_gpu(nvml: SimpleNamespace) -> None:
    def absent() -> None:
        raise NVMLError

    nvml.module.nvmlInit = absent
    assert find_gpus() == []
    assert nvml.calls == []


def test_no_library_means_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert find_gpus() == []


def test_library_is_let_go_after_an_error(nvml: SimpleNamespace) -> None:
    nvml.memory.append(None)
    nvml.held = ([], [], [])
    with pytest.raises(AttributeError):
        find_gpus()
    assert nvml.calls == ["init", "shutdown"]


def test_gpu_that_cannot_be_asked_is_refused_in_words(nvml: SimpleNamespace) -> None:
    def unsupported(handle: int) -> None:
        raise NVMLError("Not Supported")

    nvml.module.nvmlDeviceGetMemoryInfo = unsupported
    with pytest.raises(GpuUnusable):
        find_gpus()


@pytest.mark.parametrize(
    ("wanted", "indices"),
    [("all", [0, 1, 2]), ("none", []), ("0", [0]), ("2,0", [2, 0]), (" 1 , 2", [1, 2]), ("01", [1])],
)
def test_gpus_are_chosen_by_number_in_the_order_given(wanted: str, indices: list[int]) -> None:
    assert [found.index for found in choose_gpus(wanted, [gpu(0), gpu(1), gpu(2)])] == indices


@pytest.mark.parametrize(
    ("wanted", "present", "words"),
    [
        ("3", [gpu()], r"--gpus 3: there is no GPU '3'; there is 0 \(NVIDIA H200\)"),
        ("0,-1", [gpu()], "there is no GPU '-1'"),
        ("", [gpu()], "there is no GPU ''"),
        ("0,", [gpu()], "there is no GPU ''"),
        ("GPU-0", [gpu()], "there is no GPU 'GPU-0'"),
        ("²", [gpu()], "there is no GPU '²'"),
        ("0", [], "there is none at all"),
        ("0,1,0", [gpu(), gpu(1)], "names GPU 0 twice"),
        ("0,00", [gpu()], "names GPU 0 twice"),
    ],
)
def test_choice_that_cannot_be_met_is_refused(wanted: str, present: list[Gpu], words: str) -> None:
    with pytest.raises(GpuUnusable, match=words):
        choose_gpus(wanted, present)


def test_all_of_none_is_none() -> None:
    assert choose_gpus("all", []) == []


@pytest.mark.parametrize(
    ("free", "holders", "words"),
    [
        (SIZE - BUSY - 1, [(7, 10**9), (8, 0)], r"is held: 1\.1 GB of 150\.0 GB by process 7 \(1\.0 GB\), process 8"),
        (0, [], "is held: 150.0 GB of 150.0 GB by an unknown process"),
    ],
)
def test_gpu_that_somebody_holds_is_refused(free: int, holders: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(GpuUnusable, match=words):
        check_gpus([gpu(0), gpu(1, free, *holders)], None, 2)


@pytest.mark.parametrize(("weights", "ranks"), [(None, 1), (SIZE, 1), (2 * SIZE, 2), (SIZE, 0), (None, 0)])
def test_share_that_fits_is_taken(weights: int | None, ranks: int) -> None:
    check_gpus([gpu(0), gpu(1)], weights, ranks)


def test_little_that_is_held_counts_for_nothing() -> None:
    check_gpus([gpu(0, SIZE - BUSY, (7, BUSY))], None, 1)


def test_share_that_does_not_fit_is_refused() -> None:
    with pytest.raises(GpuUnusable, match=r"has 150\.0 GB free, and a rank's share of the weights is 200\.0 GB"):
        check_gpus([gpu()], 400 * 10**9, 2)


@pytest.mark.parametrize(
    ("names", "expected"), [((), False), (("nvme0", "null"), False), (("nvidia0",), True), (("dxg",), True)]
)
def test_gpus_are_there_where_they_can_be_reached(tmp_path: Path, names: tuple[str, ...], expected: bool) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert are_there(tmp_path) is expected
