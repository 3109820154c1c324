"""Patches folded over one pristine file, each step proved."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from patchkit.catalog import Catalog
from patchkit.codemod import Codemod
from patchkit.environment import Environment
from patchkit.errors import DEFECT, PatchError, RewriteUnsound
from patchkit.header import Header, find_blank
from patchkit.hunks import Hunks
from patchkit.record import digest
from patchkit.syntax import parse_quietly
from patchkit.text import Text

_WAYS = 64
"""How many ways back are tried at most: where patches leave no mark, each may be there or not."""


@dataclass(frozen=True)
class Step:
    """What one patch did to a file."""

    patch_id: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Rewrite:
    """A pristine file and what the patches make of it."""

    before: bytes
    after: bytes
    steps: tuple[Step, ...]
    """Only the patches that changed something: another found what it wants in the file."""

    @property
    def patches(self) -> frozenset[str]:
        """The patches that the file carries afterwards."""
        return frozenset(step.patch_id for step in self.steps)


class Cure(Protocol):
    """What a patch file of any kind can do with a text. Errors are PatchErrors."""

    leaves_mark: bool
    """Whether a text that carries the patch says so, by a comment; otherwise it may as well have been so always."""

    def __init__(self, header: Header) -> None: ...

    def rewrite(self, text: Text) -> Text:
        """Return what the patch makes of a text, the text itself where it finds what it wants."""

    def is_settled(self, text: Text) -> bool:
        """Tell whether the patch finds all that it wants in a text."""

    def restore(self, text: Text) -> Text:
        """Return a text with the patch taken back, the text itself where it is not there."""

    def prove_extent(self, before: Text, after: Text) -> None:
        """Refuse a change outside what the patch names."""


_CURES: dict[str, type[Cure]] = {".py": Codemod, ".diff": Hunks}


class Rewriter:
    """Runs the patches of a catalog over texts, whatever kind they are of, and proves what they make."""

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self._catalog, self._environment = catalog, environment
        self._cures: dict[str, Cure] = {}
        self._rewrites: dict[tuple[str, str, tuple[str, ...]], Rewrite] = {}

    def fold(self, path: str, pristine: bytes, ids: Collection[str]) -> Rewrite:
        """Apply patches to the pristine bytes of a file in the order of their ids, proving every step."""
        key = (path, digest(pristine), tuple(sorted(ids)))
        if key not in self._rewrites:
            with _collector_paused():
                self._rewrites[key] = self._fold(path, pristine, key[2])
        return self._rewrites[key]

    def restore(self, path: str, data: bytes, ids: Collection[str], pristine_sha256: str) -> Rewrite | None:
        """Take patches back from a patched file; None unless that gives exactly the pristine bytes."""
        for pristine, taken in islice(self._ways_back(Text(path, data), sorted(ids)), _WAYS):
            if digest(pristine.data) == pristine_sha256:
                try:
                    rewrite = self.fold(path, pristine.data, taken)
                except PatchError:
                    continue
                if rewrite.after == data:
                    return rewrite
        return None

    def _ways_back(self, text: Text, ids: Sequence[str]) -> Iterator[tuple[Text, tuple[str, ...]]]:
        """Yield what a text may have been before, with the patches that were taken back."""
        if not ids:
            yield text, ()
            return
        *others, last = ids
        restored, is_certain = text, False
        with suppress(PatchError):  # what cannot be taken back is not there; RECORD's digest has the last word
            restored, is_certain = self._cure(last).restore(text), self._cure(last).leaves_mark
        if restored is not text:
            for before, taken in self._ways_back(restored, others):
                yield before, (*taken, last)
        if restored is text or not is_certain:
            yield from self._ways_back(text, others)

    def _cure(self, patch_id: str) -> Cure:
        if patch_id not in self._cures:
            header = self._catalog.headers[patch_id]
            blank = find_blank(header)
            if blank is not None:
                raise blank
            self._cures[patch_id] = _CURES[header.place.suffix](header)
        return self._cures[patch_id]

    def _fold(self, path: str, pristine: bytes, ids: tuple[str, ...]) -> Rewrite:
        text, steps = Text(path, pristine, pristine), []
        for patch_id in ids:
            after = self._cure(patch_id).rewrite(text)
            if after is text:
                continue
            self._prove(patch_id, text, after)
            steps.append(Step(patch_id, text.data, after.data))
            text = after
        if steps:
            _compile(text.data, path, self._environment)
        return Rewrite(pristine, text.data, tuple(steps))

    def _prove(self, patch_id: str, before: Text, after: Text) -> None:
        """Refuse a rewrite that is not idempotent or that changes more than the patch names."""
        cure = self._cure(patch_id)
        if not cure.is_settled(after):
            problem = f"changes {after.path} again when it is applied to its own result"
            raise RewriteUnsound(f"{patch_id} {problem}", DEFECT)
        cure.prove_extent(before, after)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector: syntax trees are many objects without cycles, all of them needed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_COMPILE = "import sys; compile(sys.stdin.buffer.read(), sys.argv[1], 'exec', dont_inherit=True)"


def _compile(data: bytes, path: str, environment: Environment) -> None:
    """Refuse source that the target's Python does not compile; asks that Python when it is another version.

    Without an interpreter (a site folder, an image) the grammar of its version is the best that can be asked.
    """
    import subprocess

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if environment.version == sys.version_info[:2]:
                compile(data, path, "exec", dont_inherit=True)
            elif environment.python is None:
                parse_quietly(data, environment.version)
            else:
                command = [environment.python, "-I", "-B", "-W", "ignore", "-c", _COMPILE, path]
                subprocess.run(command, input=data, capture_output=True, timeout=60, check=True)
    except (SyntaxError, ValueError, subprocess.SubprocessError, OSError) as error:
        version = ".".join(map(str, environment.version))
        raise RewriteUnsound(f"{path} does not compile for Python {version} once rewritten: {error}", DEFECT) from error
