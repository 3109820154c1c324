"""The command and the environment that the server is started with."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchkit.errors import PortInUse, RunnerUsage
from patchkit.proof import VARIABLE
from patchkit.runner.gpus import Gpu

DEFAULT_PORT = 8000
"""The port that ``vllm serve`` takes by itself."""
_TENSOR = ("--tensor-parallel-size", "-tp")
_PIPELINE = ("--pipeline-parallel-size", "-pp")


@dataclass(frozen=True)
class Served:
    """What is to be served."""

    model: str
    draft: str | None = None
    tokens: int | None = None
    """Speculative tokens; with a drafter."""
    arguments: tuple[str, ...] = ()
    """Passed to ``vllm serve`` as they are."""

    @property
    def port(self) -> int:
        """Return the port that the server will listen on."""
        word = option(self.arguments, ("--port",))
        if word is None:
            return DEFAULT_PORT
        if not re.fullmatch(r"[0-9]{1,5}", word) or not 0 < int(word) < 65536:
            raise RunnerUsage(f"--port {word} is no port", "give a number from 1 to 65535")
        return int(word)

    @property
    def host(self) -> str:
        """Return the address at which the server can be asked from here."""
        word = option(self.arguments, ("--host",)) or "127.0.0.1"
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(word, word)  # noqa: S104 - asked, never bound

    @property
    def url(self) -> str:
        """Return the server's address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "https" if option(self.arguments, ("--ssl-certfile", "--ssl-keyfile")) else "http"
        return f"{scheme}://{host}:{self.port}"

    def refuse_unseen(self) -> None:
        """Refuse arguments by which the server could listen where the runner does not look."""
        if option(self.arguments, ("--uds",)) is not None:
            raise RunnerUsage("--uds: the runner asks the server over TCP", "leave it out, and give --port")
        if option(self.arguments, ("--config",)) is not None and option(self.arguments, ("--port",)) is None:
            raise RunnerUsage("--config may name a port that the runner does not see", "give --port beside it")

    def tensor_parallel(self, gpus: Sequence[Gpu]) -> int:
        """Return the tensor parallel size: as given, else as many as the GPUs that the pipeline leaves."""
        given = _size(self.arguments, _TENSOR)
        return given if given is not None else max(len(gpus) // self.pipeline_parallel, 1)

    @property
    def pipeline_parallel(self) -> int:
        """Return the pipeline parallel size."""
        return _size(self.arguments, _PIPELINE) or 1

    def command(self, python: str, gpus: Sequence[Gpu]) -> list[str]:
        """Return the target interpreter's own vLLM command."""
        command = [python, "-m", "vllm.entrypoints.cli.main", "serve", self.model]
        if self.draft is not None:
            settings = {"method": "eagle3", "model": self.draft, "num_speculative_tokens": self.tokens}
            command += ["--speculative-config", json.dumps(settings)]
        if len(gpus) > 1 and option(self.arguments, _TENSOR) is None:
            command += [_TENSOR[0], str(self.tensor_parallel(gpus))]
        return [*command, *self.arguments]


def environment(files: Mapping[str, str], gpus: Sequence[Gpu], hides_gpus: bool, plugin: Path | None) -> dict[str, str]:
    """Return the server's environment: the GPUs it may see, and the files that each of its processes proves.

    ``hides_gpus`` is for a server that must not see any. Where there is none it is left unsaid: vLLM would start later.
    ``plugin`` is the folder of a copy of the plugin, for a target that has no patchkit.
    """
    variables = dict(os.environ)
    if gpus or hides_gpus:
        # By number, in NVML's order: some releases of vLLM read nothing else.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu.index) for gpu in gpus)
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    variables[VARIABLE] = ",".join(f"{path}={files[path]}" for path in sorted(files))
    allowed = variables.get("VLLM_PLUGINS")
    if allowed is not None and "patchkit" not in allowed.split(","):
        variables["VLLM_PLUGINS"] = ",".join(filter(None, [allowed, "patchkit"]))
    if plugin is not None:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(plugin), variables.get("PYTHONPATH")]))
    return variables


def check_port(served: Served) -> None:
    """Refuse a port that somebody listens on."""
    family = socket.AF_INET6 if ":" in served.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((served.host, served.port))
        except (OSError, UnicodeError, TypeError) as error:
            raise PortInUse(
                f"port {served.port} of {served.host} cannot be had: {getattr(error, 'strerror', error)}",
                "end what listens there, or give another one: -- --port N",
            ) from error


def option(arguments: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value of the last of an option's uses among arguments."""
    found = None
    for number, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else (arguments[number + 1] if number + 1 < len(arguments) else "")
    return found


def _size(arguments: Sequence[str], names: Sequence[str]) -> int | None:
    word = option(arguments, names)
    if word is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", word) or int(word) < 1:
        raise RunnerUsage(f"{names[0]} {word} is no number of ranks", "give a number from 1")
    return int(word)
