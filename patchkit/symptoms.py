"""Known errors in a server's log or a traceback: the symptoms of the catalog, and of vLLM's gates in any wording."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO

from patchkit.header import Header

BLOCK = 2**20
"""How much of a log is looked at at once, in bytes."""
OVERLAP = 4096
"""How much of it is looked at again with what follows, in bytes; no error that is known is longer."""
SHOWN = 300
"""Longest text that is shown of a line, in characters."""


@dataclass(frozen=True)
class Symptom:
    """An error that was recognised, where it was first seen."""

    line: int
    """Number of the line, from 1."""
    text: str
    """What the line says, from a little before the error, undecodable bytes spelt out."""
    count: int
    """How often it was seen."""
    meaning: str
    """What the error says in other words."""
    cure: str | None
    """Id of the patch that cures it; None where no patch of the catalog does."""


@dataclass(frozen=True)
class Known:
    """An error that patchkit knows beside the catalog's symptoms."""

    pattern: re.Pattern[bytes]
    """With one group, for what the error names."""
    meaning: str
    cure: str | None = None
    """Id of the patch for it; its symptom in the catalog is then told by this pattern alone."""
    cured: tuple[bytes, ...] = ()
    """What the error may name for the patch to cure it; empty: anything."""
    context: bytes = b""
    """What must stand near before it, where the error alone could be about anything."""


_SPECULATORS = b"data_generation/vllm_hidden_states_generator.py"

# Bounded gaps: a hostile line must not make a pattern slow.
KNOWN = (
    Known(
        re.compile(
            rb"is only supported for (?:(?!is only supported)[^\n]){0,2000}?"
            rb"model_type[ \t]{0,9}=[ \t]{0,9}'?([\w.-]{1,100})[^\w.-]"
        ),
        "the target's model_type is not in vLLM's list for this kind of speculation; met at once",
        "eagle3_target_whitelist",
        (b"kimi_k2", b"deepseek_v3"),
    ),
    Known(
        re.compile(rb"'(\w{1,200})' object has no attribute 'image_token_index'"),
        "the proposer does not know where this multimodal model keeps its image token; met after the target's weights",
        "kimi_k25_image_token",
        (b"KimiK25Config",),
    ),
    Known(
        re.compile(rb"[Mm]odel does not support (EAGLE-?3) interface"),
        "the target's class does not declare the EAGLE-3 interface; met after the drafter is loaded",
        "eagle3_aux_hidden_states",
    ),
    Known(
        re.compile(rb"values to unpack \((expected) 2"),
        "the target gives no auxiliary hidden states; met at the first forward",
        "eagle3_aux_hidden_states",
        context=b"aux_hidden_states",
    ),
    Known(
        re.compile(rb"mat1 and mat2 shapes cannot be (multiplied)"),
        "the drafter gets another number of auxiliary hidden states than it was built for, or another width: "
        "look at eagle_aux_hidden_state_layer_ids, also for ids that are the same; met at the first forward",
        context=b"eagle3",
    ),
    Known(
        re.compile(rb"\b(is_encoder_decoder)\r?\n[^\n]{0,80}Field required"),
        "speculators builds a SchedulerConfig without a setting that vLLM requires; met at once",
        "generator_encoder_decoder_setting",
    ),
    Known(
        re.compile(rb"(Boolean value of Tensor) with more than one value is ambiguous"),
        "speculators takes one layer's states for a list of replies; met after the first batch",
        "generator_reply_of_one_worker",
        context=_SPECULATORS,
    ),
    Known(
        re.compile(rb"(Found no NVIDIA driver) on your system"),
        "speculators asks for the memory of a device that is not there; met after the target's weights",
        "generator_memory_figure",
        context=_SPECULATORS,
    ),
    Known(
        re.compile(rb"contains (custom code) which must be executed to correctly load the model"),
        "speculators loads the tokenizer with no word on remote code; met at once",
        "generator_tokenizer_trust",
        context=_SPECULATORS,
    ),
    Known(re.compile(rb"(spec decode) is not supported"), "vLLM up to 0.18 refuses speculation on a CPU"),
    Known(
        re.compile(rb"(Target model does not have )'(?:model|embed_tokens|embedding)'"),
        "the proposer does not find the target's embeddings; met after the drafter's weights",
    ),
    Known(
        re.compile(rb"must inherit from (EagleModelMixin)"),
        "the target's class declares the EAGLE-3 interface and its decoder cannot give the states; "
        "met after the drafter's weights",
    ),
    Known(
        re.compile(rb"for \+: '(?:Tensor|NoneType)' and '(Tensor|NoneType)'"),
        "the state that enters the first layer, id 0 of eagle_aux_hidden_state_layer_ids, cannot be given; "
        "met at the first forward",
        context=b"aux_hidden_state",
    ),
    Known(
        re.compile(rb"eagle_aux_hidden_state_layer_ids ([^\n:]{0,200}): this model needs"),
        "the drafter's config.json names layers that the target lacks, or one twice; met after the drafter's weights",
    ),
    Known(
        re.compile(rb"(Pipeline parallelism) is not supported for this model"),
        "the drafter's or the target's class takes no pipeline parallelism; met at once",
    ),
    Known(
        re.compile(rb"does not support \w{1,50} with (pipeline parallelism)|EAGLE-3 with this model needs pipeline_"),
        "the auxiliary hidden states of earlier pipeline ranks do not reach the drafter; met after the weights",
    ),
    Known(
        re.compile(rb"attention heads \((\d{1,9})\) must be divisible by tensor parallel size"),
        "the heads of the target or the drafter cannot be split over the ranks; met at once",
    ),
    Known(
        re.compile(rb"Model architectures (\[[^\]\n]{0,300}\]) are not supported for now"),
        "vLLM's registry lacks the class of the target, or that which it makes of the drafter; met at once",
    ),
    Known(
        re.compile(rb"this server does not run (the patched files): "),
        "a file of this server is not the one that was checked before the start; patchkit's plugin stopped it",
    ),
    Known(
        re.compile(rb"(num_speculative_tokens) must be provided"),
        "neither the command line nor the drafter's config.json says how many tokens are drafted; met at once",
    ),
)
_TOLD = {known.cure for known in KNOWN}


class Recogniser:
    """Looks for known errors in a log; keeps the first of each and counts the others."""

    def __init__(self, headers: Iterable[Header]) -> None:
        self._ids: set[str | None] = set()
        self._known = [*KNOWN]
        for header in headers:
            self._ids.add(header.id)
            if header.id not in _TOLD:
                pattern = re.compile(b"(%b)" % re.escape(header.patch.symptom.encode()))
                self._known.append(Known(pattern, header.title, header.id))
        self._found: dict[tuple[str, str | None], Symptom] = {}
        self.lines = 0

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        """What was recognised, in the order of the log."""
        return tuple(sorted(self._found.values(), key=lambda symptom: symptom.line))

    def read(self, log: BinaryIO) -> None:
        """Look at a whole log, of any size and any bytes."""
        data, newlines = b"", 0
        for block in _blocks(log):
            seen = data[-OVERLAP:]
            data = seen + block
            for known in self._known:
                self._look(known, data, len(seen), 1 + newlines - seen.count(b"\n"))
            newlines += block.count(b"\n")
        self.lines = newlines + (data[-1:] not in (b"", b"\n"))

    def _look(self, known: Known, data: bytes, seen: int, line: int) -> None:
        """Look for one error in some of a log, of which the beginning was seen before."""
        place = 0
        for match in known.pattern.finditer(data):
            line, place = line + data.count(b"\n", place, match.start()), match.start()
            if match.end() > seen and known.context in data[max(0, place - OVERLAP) : place]:
                is_cured = known.cure in self._ids and (not known.cured or match[1] in known.cured)
                self._add(known.meaning, known.cure if is_cured else None, line, data, place)

    def _add(self, meaning: str, cure: str | None, line: int, data: bytes, place: int) -> None:
        first = self._found.get((meaning, cure))
        if first is None:
            self._found[meaning, cure] = Symptom(line, _text(data, place), 1, meaning, cure)
        else:
            self._found[meaning, cure] = replace(first, count=first.count + 1)


def _blocks(log: BinaryIO) -> Iterator[bytes]:
    """Yield what is in a log, but not the whole of its holes: one that is cut while it is written begins with one."""
    while block := log.read(BLOCK):
        yield block
        if not block.strip(b"\0"):
            _skip_hole(log)


def _skip_hole(log: BinaryIO) -> None:
    """Go on where there are bytes again; a file system or a stream that knows of no holes has none."""
    with suppress(OSError):
        place = log.tell()
        try:
            place = os.lseek(log.fileno(), place, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            place = os.fstat(log.fileno()).st_size
        log.seek(place)


def _text(data: bytes, place: int) -> str:
    """Return what the line of a place says, from a little before it."""
    start = max(data.rfind(b"\n", 0, place) + 1, place - 80)
    end = data.find(b"\n", place, place + 4 * SHOWN)
    text = data[start : end if end >= 0 else place + 4 * SHOWN].decode("utf-8", "backslashreplace").strip()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
