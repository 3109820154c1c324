"""The talk between a node's worker and the process that works there: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import BinaryIO

from patchkit.errors import Abandoned

Message = dict[str, object]
MAX_LINE = 64 * 2**20
"""Of a message, in bytes."""


@dataclass(frozen=True)
class Channel:
    """Reads messages and writes answers."""

    source: BinaryIO
    sink: BinaryIO

    def hear(self) -> Message | None:
        """Return the next message; None where nobody is there any more."""
        line = self.source.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            return None
        found = json.loads(line)
        return found if isinstance(found, dict) else {}

    def say(self, answer: Message) -> None:
        """Write an answer."""
        try:
            self.sink.write(json.dumps(answer).encode() + b"\n")
            self.sink.flush()
        except OSError as error:
            raise Abandoned("nobody waits for the answer", "run patchkit fleet check") from error
