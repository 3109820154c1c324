"""The server's log while it grows: how far the start has come, and which processes have proved themselves."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from patchkit.proof import MARK

_STAGES = (
    (re.compile(rb"Starting to load model"), "loading the model"),
    (re.compile(rb"Loading (?:safetensors|pt) checkpoint shards[^\n]{0,200}?(\d+)/(\d+)"), "loading weights, shard"),
    (re.compile(rb"Loading drafter model"), "loading the drafter"),
    (re.compile(rb"Model loading took"), "weights loaded"),
    (re.compile(rb"(?:torch\.compile|Compiling a graph|Dynamo bytecode)"), "compiling"),
    (re.compile(rb"(?:KV cache size|KV cache memory)"), "measuring memory"),
    (re.compile(rb"Capturing (?:CUDA )?graphs?"), "capturing graphs"),
    (re.compile(rb"Starting vLLM (?:API )?server"), "starting the API server"),
    (re.compile(rb"Application startup complete"), "started"),
)
"""What a line says about the start, in the order of the start."""
_PROOF = re.compile(rb"%b process (\d+) has (\d+) patched files, digest ([0-9a-f]{64})" % MARK.encode())
_SHOWN = 160
_MAX_LINE = 8192
"""How much of a line is looked at, in bytes; a progress bar may be one line without an end."""


@dataclass
class ServerLog:
    """A log that is read as it grows; any bytes."""

    place: Path
    begin: int = 0
    """Where this server's part begins, in bytes: a file may hold an earlier one's."""
    stage: str = "starting"
    last: str = ""
    """The last line, as much of it as is shown."""
    proofs: dict[int, str] = field(default_factory=dict)
    """Digest of the whole set of patched files by the process that has it."""
    _file: BinaryIO | None = None
    _rest: bytes = b""

    def read(self) -> None:
        """Take in what was written since the last time."""
        if self._file is None:
            self._file = self.place.open("rb")
            self._file.seek(self.begin)
        while block := self._file.read(2**16):
            lines = (self._rest + block).replace(b"\r", b"\n").split(b"\n")
            self._rest = lines.pop()[-_MAX_LINE:]
            for line in lines:
                self._take(line)

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _take(self, line: bytes) -> None:
        proof = _PROOF.search(line)
        if proof:
            self.proofs[int(proof[1])] = proof[3].decode()
        line = line[:_MAX_LINE]
        text = line.decode("utf-8", "backslashreplace").strip()
        if text:
            self.last = text[:_SHOWN]
        for pattern, stage in _STAGES:
            match = pattern.search(line)
            if match:
                counts = [group.decode() for group in match.groups()]
                self.stage = f"{stage} {' of '.join(counts)}" if counts else stage
