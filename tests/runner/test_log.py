from __future__ import annotations

import random
from pathlib import Path

import pytest

from patchkit.proof import MARK
from patchkit.runner.log import _MAX_LINE, _SHOWN, _STAGES, ServerLog

DIGEST = "0123456789abcdef" * 4
PROOF = f"{MARK} process 12 has 4 patched files, digest {DIGEST}\n"


def read(place: Path, *parts: str | bytes) -> ServerLog:
    """Return what is known after each part was written and read."""
    log = ServerLog(place)
    place.touch()
    for part in parts:
        with place.open("ab") as file:
            file.write(part if isinstance(part, bytes) else part.encode())
        log.read()
    log.close()
    log.close()
    return log


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        ("INFO hello", "starting"),
        ("(Worker pid=1) INFO Starting to load model /m...", "loading the model"),
        (
            "Loading safetensors checkpoint shards:  50% Completed | 32/64 [00:01<00:01]",
            "loading weights, shard 32 of 64",
        ),
        ("Loading pt checkpoint shards: 100% Completed | 2/2", "loading weights, shard 2 of 2"),
        ("Loading drafter model...", "loading the drafter"),
        ("Model loading took 8 GiB", "weights loaded"),
        ("Dynamo bytecode transform time: 3 s", "compiling"),
        ("GPU KV cache size: 1,000 tokens", "measuring memory"),
        ("Capturing CUDA graphs (decode, FULL):  5%", "capturing graphs"),
        ("Starting vLLM API server 0 on http://0.0.0.0:8000", "starting the API server"),
        ("INFO:     Application startup complete.", "started"),
    ],
)
def test_stage(tmp_path: Path, line: str, stage: str) -> None:
    log = read(tmp_path / "log", f"{line}\n")
    assert (log.stage, log.last) == (stage, line)


def test_stages_follow_each_other(tmp_path: Path) -> None:
    lines = ["Starting to load model", "Loading drafter model", "Model loading took", "torch.compile", "KV cache size"]
    lines += ["Capturing CUDA graph", "Starting vLLM server", "Application startup complete"]
    seen = [read(tmp_path / str(count), *(f"{line}\n" for line in lines[:count])).stage for count in range(9)]
    assert seen == ["starting", *(stage for _, stage in _STAGES if "shard" not in stage)]


def test_progress_bar_is_many_lines(tmp_path: Path) -> None:
    bar = "".join(f"\rLoading safetensors checkpoint shards: | {shard}/64" for shard in range(64))
    assert read(tmp_path / "log", bar).stage == "loading weights, shard 62 of 64"
    assert read(tmp_path / "log", "\r").stage == "loading weights, shard 63 of 64"


@pytest.mark.parametrize("cut", [0, 1, len(PROOF) // 2, len(PROOF) - 1, len(PROOF)])
def test_line_that_is_cut_between_two_reads_is_whole(tmp_path: Path, cut: int) -> None:
    assert read(tmp_path / "log", PROOF[:cut], PROOF[cut:]).proofs == {12: DIGEST}


def test_proofs_of_all_processes_are_kept_whatever_vllm_writes_before_them(tmp_path: Path) -> None:
    log = read(tmp_path / "log", "\x1b[36m(EngineCore_DP0 pid=12)\x1b[0;0m " + PROOF, PROOF.replace("12", "13"), PROOF)
    assert set(log.proofs) == {12, 13}


@pytest.mark.parametrize(
    "line", [PROOF.replace("12", "x"), PROOF.replace(DIGEST, DIGEST[1:]), PROOF.replace("proof", "")]
)
def test_line_that_is_no_proof(tmp_path: Path, line: str) -> None:
    assert read(tmp_path / "log", line).proofs == {}


def test_empty_lines_leave_the_last_one(tmp_path: Path) -> None:
    assert read(tmp_path / "log", "one\n \n\n\r\n").last == "one"


def test_line_is_shown_in_part(tmp_path: Path) -> None:
    assert read(tmp_path / "log", "x" * 1000 + "\n").last == "x" * _SHOWN


def test_hostile_bytes_are_read(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(300_000)
    log = read(tmp_path / "log", data, b"\n" + PROOF.encode(), b"\xff\x00\x1b[31m\n")
    assert log.proofs == {12: DIGEST}
    assert log.last == "\\xff\x00\x1b[31m"


def test_line_without_an_end_takes_no_memory_and_the_next_one_is_read(tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.write_bytes(b"x" * 1_000_000)
    log = ServerLog(place)
    log.read()
    assert len(log._rest) == _MAX_LINE
    with place.open("ab") as file:
        file.write(b"\n" + PROOF.encode())
    log.read()
    log.close()
    assert (log.proofs, log._rest) == ({12: DIGEST}, b"")
