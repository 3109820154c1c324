"""Coverage-guided fuzzing of all that is read: ``python -m tests.torture.fuzz [SECONDS] [KIND …]``.

Only our own errors may come out of damaged input, in ten seconds and in bounded memory. It wants atheris, which has no
wheel for some Pythons: it is in the dependency group ``fuzz``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

HANG = 10
"""How long one input may take, in seconds."""
MEMORY = 1024
"""How much memory a process may take, in megabytes; atheris and LibCST have a part of it."""
LONGEST = 2**16
"""Length of the longest input, in bytes."""
_DONE = re.compile(r"Done (\d+) runs")
INSTRUMENTED = ["patchkit", "zipfile", "tomllib", "packaging", "unidiff", "configparser"]


def main(arguments: list[str]) -> int:
    """Fuzz each kind for so many seconds, in a process of its own, and print the figures."""
    seconds = int(arguments[0]) if arguments else 60
    failed = 0
    for kind in arguments[1:] or KINDS:
        with tempfile.TemporaryDirectory() as name:
            command = [sys.executable, "-m", "tests.torture.fuzz", "--one", kind, name, str(seconds)]
            done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace")
            runs = _DONE.search(done.stderr)
            is_well = done.returncode == 0 and runs is not None
            sys.stdout.write(f"fuzz {kind}: {runs[1] if runs else 'no'} inputs, {'ok' if is_well else 'FAILED'}\n")
            sys.stdout.flush()
            if not is_well:
                failed += 1
                sys.stdout.write(done.stderr[-4000:])
                for crash in Path(name).glob("crash-*"):
                    sys.stdout.write(f"{crash.read_bytes()!r}\n")
    return 1 if failed else 0


def fuzz(kind: str, folder: Path, seconds: str) -> None:
    """Fuzz one kind until the time is over, or an input does harm; ends the process."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.torture import readers
    from patchkit.errors import PatchkitError

    reader = getattr(readers, kind)(folder)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(reader.seeds):
        (corpus / str(number)).write_bytes(seed)
    words = folder / "words"
    words.write_text("".join(f'"{"".join(map(_escape, word))}"\n' for word in readers.WORDS if len(word) < 60))

    def one(data: bytes) -> None:
        with suppress(PatchkitError):
            reader.read(data)

    options = [f"-max_total_time={seconds}", f"-timeout={HANG}", f"-rss_limit_mb={MEMORY}", f"-max_len={LONGEST}"]
    options += [f"-dict={words}", f"-artifact_prefix={folder}/", "-print_final_stats=1", str(corpus)]
    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def _escape(byte: int) -> str:
    return f"\\x{byte:02x}"


KINDS = (
    "record",
    "metadata",
    "marker",
    "targets",
    "journal",
    "diff",
    "hunks",
    "header",
    "config",
    "gates",
    "tensors",
    "log",
    "growing_log",
    "wheel",
    "bytecode",
    "entry_points",
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        fuzz(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    sys.exit(main(sys.argv[1:]))
