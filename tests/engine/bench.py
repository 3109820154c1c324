"""Time ``patchkit preflight`` beside the real engine until it raises the same error: ``make bench-preflight``."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.bench.tools import measure, show
from tests.engine.conftest import HERE, Engine


def main(work: Path) -> None:
    """Measure both on vLLM 0.16.0: at the first gate, and at the second with the first one open."""
    engine = Engine(work)
    models = engine.models
    for title, question, patches in (
        ("first gate, met at once: the list of targets", "config", ()),
        ("second gate, met after the weights: the image token (a model of 0.1 GB)", "drafter", _FIRST),
    ):
        site = engine.site(("0.16.0",), patches)
        variables = ["env", f"PYTHONPATH={site}", f"HF_HOME={work}/home"]
        real = [*variables, str(engine.python), str(HERE / "probe.py"), question, str(models)]
        words = ["--site", str(site), "preflight", "--model", str(models / "target"), "--draft", str(models / "draft")]
        ours = [sys.executable, "-m", "patchkit", *words, "--num-speculative-tokens", "2"]
        commands = {"patchkit preflight": ours, "the real engine": real}
        show(title, measure(commands, "--runs", "3", "--ignore-failure", rounds=1))


_FIRST = ("eagle3_target_whitelist",)

if __name__ == "__main__":
    if not shutil.which("hyperfine"):
        sys.exit("make bench-preflight needs hyperfine")
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
