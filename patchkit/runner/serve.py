"""Everything that is asked before a server is started, and what is said while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit import actions, diagnosis
from patchkit.catalog import Catalog, Selection
from patchkit.environment import Environment
from patchkit.errors import RunnerError
from patchkit.gates.code import Code
from patchkit.gates.plugins import find_own
from patchkit.gates.view import summarise
from patchkit.proof import set_digest
from patchkit.report import Report
from patchkit.runner.command import Served, check_port
from patchkit.runner.gpus import are_there, check_gpus, choose_gpus, find_gpus
from patchkit.runner.launch import Server, Settings, started


@dataclass
class Run:
    """One run of the server."""

    catalog: Catalog
    environment: Environment
    selection: Selection
    served: Served
    settings: Settings
    say: Callable[[str], None]
    """Takes a line for the person who waits."""
    show: Callable[[Server], None]
    """Takes the server while it starts, many times a second."""
    begin: int = 0
    """Where the log of the server that was run begins in its file, in bytes."""
    was_asked: bool = False
    """Whether the runner was asked to end the server."""

    def prepare(self) -> Report | None:
        """Ask everything before the start; return the report that refuses it, of ``check`` or of ``preflight``."""
        self.served.refuse_unseen()
        checked = actions.check(self.catalog, self.environment, self.selection)
        if not checked.ok:
            return checked
        files = _files(checked)
        wants_none = self.settings.wanted_gpus == "none"
        present = [] if wants_none else find_gpus()
        gpus = choose_gpus(self.settings.wanted_gpus, present, os.environ.get("CUDA_VISIBLE_DEVICES"))
        has_plugin = find_own(Code(self.environment.sites))
        self.settings = replace(
            self.settings, files=files, has_plugin=has_plugin, gpus=gpus, hides_gpus=wants_none and are_there()
        )
        self.say(f"check: {len(checked.patches)} patches, {len(files)} files, digest {set_digest(files)[:16]}")
        refused, weights = self._preflight()
        if refused is not None:
            return refused
        check_gpus(gpus, weights, self.served.tensor_parallel(gpus) * self.served.pipeline_parallel)
        check_port(self.served)
        for gpu in gpus:
            self.say(f"GPU {gpu.index}: {gpu.name}, {gpu.free / 1e9:.0f} of {gpu.total / 1e9:.0f} GB free")
        return None

    def _preflight(self) -> tuple[Report | None, int | None]:
        """Return the refusal of the gates, where the model's folder is here, and the size of its weights."""
        model, draft = Path(self.served.model), self.served.draft
        if not model.exists():
            self.say(f"preflight: not asked, {model} is no folder here")
            return None, None
        judged = diagnosis.preflight(
            self.catalog,
            self.environment,
            model,
            Path(draft) if draft is not None else None,
            tokens=self.served.tokens,
            tensor_parallel=self.served.tensor_parallel(self.settings.gpus),
            pipeline_parallel=self.served.pipeline_parallel,
        )
        verdict = judged.verdict
        # Without a drafter nothing asks for speculation, and its gates stop nothing.
        if verdict is None or (verdict.failed and draft is not None):
            return judged, None
        self.say("preflight: no drafter" if draft is None else f"preflight: {summarise(verdict)}")
        return None, verdict.target_bytes

    def run(self) -> int:
        """Start the server and stay with it; return its exit code."""
        self.say(f"log: {self.settings.log}")
        with started(self.served, self.settings) as server:
            if server.wait_ready(self.show):
                self.prove(server)
                self.say(f"ready after {server.elapsed:.1f} s: {self.served.url}")
            elif server.code is None and not server.asked:
                self.say(f"not ready after {self.settings.ready_timeout:.0f} s: it is ended")
                server.stop(at_once=True)
            code = server.watch(self.say)
            self.begin, self.was_asked = server.log.begin, bool(server.asked)
            if server.asked_at is not None:
                self.say(f"ended {time.monotonic() - server.asked_at:.1f} s after it was asked to")
        return code

    def prove(self, server: Server) -> None:
        """Refuse a server of which no process, or one with other files, has proved itself."""
        wanted = set_digest(dict(self.settings.files))
        others = {pid for pid, digest in server.log.proofs.items() if digest != wanted}
        if not server.log.proofs or others:
            server.stop(at_once=True)
            what = f"process {min(others)} has other files" if others else "no process has proved its files"
            raise RunnerError(f"the server does not run what was checked: {what}", f"see {self.settings.log}")
        self.say(f"proof: {len(server.log.proofs)} processes run the patched files, digest {wanted[:16]}")

    def explain(self) -> Report:
        """Say what the log of a server that died has in it that is known."""
        with self.settings.log.open("rb") as log:
            log.seek(self.begin)
            return diagnosis.explain(self.catalog, lambda: self.environment, log)


def _files(checked: Report) -> dict[str, str]:
    """Return the SHA-256 of vLLM's files that were checked."""
    return {
        file.path: file.sha256
        for patch in checked.patches
        if patch.target == "vllm" and patch.state in ("applied", "upstream")
        for file in patch.files
        if file.sha256 is not None
    }
