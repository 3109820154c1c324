"""The GPUs of this machine, through NVML: which there are, how much of each is free, and who holds it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchkit.errors import GpuUnusable

_DEVICES = ("nvidia*", "nvhost*", "nvgpu*", "dxg")
"""Names of the files by which a process reaches a GPU: Linux, its system-on-chip kind, and Windows' subsystem."""
BUSY = 2**30
"""From how much memory on a GPU counts as held by somebody, in bytes."""


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    index: int
    uuid: str
    name: str
    total: int
    """Memory in bytes."""
    free: int
    holders: tuple[tuple[int, int], ...] = ()
    """(process, bytes) of those that hold memory on it."""


def are_there(devices: Path = Path("/dev")) -> bool:
    """Tell whether a process could reach a GPU at all, without asking the driver."""
    return any(place for pattern in _DEVICES for place in devices.glob(pattern))


def find_gpus() -> list[Gpu]:
    """Return the GPUs that NVML sees; none where there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # without the library or the driver, in whatever way: there is no GPU to speak of
        return []
    try:
        return [_describe(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise GpuUnusable(
            f"the GPUs cannot be asked: {error}", "name none with --gpus none, or mend the driver"
        ) from error
    finally:
        pynvml.nvmlShutdown()


def _describe(index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    holders = [(process.pid, process.usedGpuMemory or 0) for process in _processes(handle)]
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    return Gpu(index, str(uuid), str(name), int(memory.total), int(memory.free), tuple(holders))


def _processes(handle: Any) -> Sequence[Any]:
    import pynvml

    try:
        found: Sequence[Any] = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return []  # some drivers do not tell; free memory still does
    return found


def choose_gpus(wanted: str, present: Sequence[Gpu], visible: str | None = None) -> list[Gpu]:
    """Return the GPUs that ``all``, ``none`` or ``0,1,…`` name.

    ``visible`` is the CUDA_VISIBLE_DEVICES of the caller: all are then those, by number or by UUID.
    """
    if wanted == "none":
        return []
    if wanted == "all":
        names = None if visible is None else [word.strip() for word in visible.split(",")]
        return [gpu for gpu in present if names is None or str(gpu.index) in names or gpu.uuid in names]
    by_index = {gpu.index: gpu for gpu in present}
    known = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in present) or "none at all"
    chosen = []
    for word in wanted.split(","):
        gpu = by_index.get(int(word)) if re.fullmatch(r" *[0-9]{1,5} *", word) else None
        if gpu is None:
            raise GpuUnusable(f"--gpus {wanted}: there is no GPU {word.strip()!r}; there is {known}", "name others")
        if gpu in chosen:
            raise GpuUnusable(f"--gpus {wanted} names GPU {gpu.index} twice", "name each once")
        chosen.append(gpu)
    return chosen


def check_gpus(gpus: Sequence[Gpu], weights: int | None, ranks: int) -> None:
    """Refuse a GPU that somebody holds, or on which the share of the weights does not fit."""
    for gpu in gpus:
        held = gpu.total - gpu.free
        if held > BUSY:
            who = ", ".join(f"process {pid} ({_gigabytes(used)})" for pid, used in gpu.holders) or "an unknown process"
            raise GpuUnusable(
                f"GPU {gpu.index} ({gpu.name}) is held: {_gigabytes(held)} of {_gigabytes(gpu.total)} by {who}",
                "end that, or name other GPUs with --gpus",
            )
        share = (weights or 0) // max(ranks, 1)
        if share > gpu.free:
            raise GpuUnusable(
                f"GPU {gpu.index} ({gpu.name}) has {_gigabytes(gpu.free)} free, and a rank's share of the weights is "
                f"{_gigabytes(share)}",
                "take more GPUs, or a quantized model",
            )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
