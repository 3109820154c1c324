"""What runs in a node's worker: it unpacks what was shipped, starts a process with it, and passes messages on.

It travels by value, so it imports nothing but the standard library. What is shipped never comes on the worker's own
path, nor on that of the target.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from typing import IO

# The process is nobody's child: Ray kills the children of a worker that ends, and this one has to take back what it
# wrote when nobody is there to listen any more.
_START = (
    "import os, sys\n"
    "if os.fork():\n    os._exit(0)\n"
    "os.setsid()\n"
    "folder, *paths = sys.argv[1:]\n"
    "sys.path[:0] = paths\n"
    "from patchkit.fleet.process import main\n"
    "main(folder)\n"
)
_TAIL = 2000


class Post:
    """Stands between the cluster and the process on a node."""

    def start(self, parcel: bytes, order: str) -> str:
        """Start the process with what was shipped, give it its order, and return its first answer."""
        folder = tempfile.mkdtemp(prefix="patchkit-fleet-")
        with zipfile.ZipFile(io.BytesIO(parcel)) as archive:
            archive.extractall(folder)
        native = os.path.join(folder, "native", str(sysconfig.get_config_var("EXT_SUFFIX")))
        fits = os.path.isdir(native)
        paths = [os.path.join(folder, "pure"), *([native] if fits else [])]
        # Where compiled modules are for another machine, the node's own are looked for: after what was shipped.
        flags = ["-I", "-B", *(["-S"] if fits else [])]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this worker
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", _START, folder, *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
        )
        process.wait()
        self._input, self._output = process.stdin, process.stdout
        return self.ask(order)

    def ask(self, message: str) -> str:
        """Pass a message on and return the answer."""
        source: IO[bytes] | None = self._output
        sink: IO[bytes] | None = self._input
        assert source is not None and sink is not None
        try:
            sink.write(message.encode() + b"\n")
            sink.flush()
            answer = source.readline().decode()
        except OSError:
            answer = ""
        return answer if answer.endswith("\n") else json.dumps({"died": self._last_words()})

    def _last_words(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _TAIL))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it was killed"
