"""Patches folded over one pristine file, each step proved."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from patchkit.catalog import Catalog
from patchkit.codemod import Codemod
from patchkit.cores import run_apart
from patchkit.environment import Environment
from patchkit.errors import DEFECT, PatchError, RewriteUnsound
from patchkit.header import Header, find_blank
from patchkit.hunks import Hunks
from patchkit.record import digest
from patchkit.syntax import parse_quietly
from patchkit.text import Text

_Key = tuple[str, str, tuple[str, ...]]
"""Path of a file, digest of its pristine bytes, and the patches."""
_WORTH = 50_000
"""From how many bytes of source on it pays to fork."""
_PATCH = 6000
"""How many bytes of source to parse and to print take as long as one patch does."""
_WAYS = 64
"""How many ways back are tried at most: where patches leave no mark, each may be there or not."""


@dataclass(frozen=True)
class Step:
    """What one patch did to a file."""

    patch_id: str
    source: Text
    result: Text

    @property
    def before(self) -> bytes:
        """The file before it."""
        return self.source.data

    @property
    def after(self) -> bytes:
        """The file after it."""
        return self.result.data


@dataclass(frozen=True)
class Rewrite:
    """A pristine file and what the patches make of it."""

    before: bytes
    after: bytes
    patches: frozenset[str]
    """Only the patches that changed something: another found what it wants in the file."""
    _steps: Callable[[], tuple[Step, ...]] = field(default=tuple, compare=False, repr=False)

    @property
    def steps(self) -> tuple[Step, ...]:
        """What each patch did, in order."""
        return self._steps()


class Cure(Protocol):
    """What a patch file of any kind can do with a text. Errors are PatchErrors."""

    leaves_mark: bool
    """Whether a text that carries the patch says so, by a comment; otherwise it may as well have been so always."""

    def __init__(self, header: Header) -> None: ...

    def rewrite(self, text: Text) -> Text:
        """Return what the patch makes of a text, the text itself where it finds what it wants."""

    def restore(self, text: Text) -> Text:
        """Return a text with the patch taken back, the text itself where it is not there."""

    def prove(self, before: Text, after: Text) -> None:
        """Refuse a change outside what the patch names."""

    def prove_again(self, result: Text) -> None:
        """Refuse the result of all patches of a file where this one would change it again."""


_CURES: dict[str, type[Cure]] = {".py": Codemod, ".diff": Hunks}


class Rewriter:
    """Runs the patches of a catalog over texts, whatever kind they are of, and proves what they make."""

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self.catalog, self._environment = catalog, environment
        self._cures: dict[str, Cure] = {}
        self._rewrites: dict[_Key, Rewrite] = {}

    def fold(self, path: str, pristine: bytes, ids: Collection[str]) -> Rewrite:
        """Apply patches to the pristine bytes of a file in the order of their ids, proving every step."""
        key = (path, digest(pristine), tuple(sorted(ids)))
        if key not in self._rewrites:
            self._rewrites[key] = self._rewritten(key, pristine, *_result(self._fold(path, pristine, key[2]), pristine))
        return self._rewrites[key]

    def fold_ahead(self, jobs: Iterable[tuple[str, bytes, Collection[str]]]) -> None:
        """Fold several files at once, where there are cores for it; what cannot be folded is left for ``fold``."""
        pristine = {(path, digest(data), tuple(sorted(ids))): data for path, data, ids in jobs if ids}
        new = {key: data for key, data in pristine.items() if key not in self._rewrites}
        sizes = {key: len(data) + _PATCH * len(key[2]) for key, data in new.items()}
        if len(sizes) < 2 or sum(sizes.values()) < _WORTH:
            return
        with suppress(PatchError):  # LibCST and the catalog's code are loaded once, before any process forks
            for patch_id in sorted({patch_id for _, _, ids in sizes for patch_id in ids}):
                self._cure(patch_id)

        def fold(key: _Key) -> tuple[bytes, frozenset[str]]:
            steps = self._fold(key[0], pristine[key], key[2])
            return _result(steps, pristine[key])

        for key, (after, patches) in run_apart(fold, sizes).items():
            self._rewrites[key] = self._rewritten(key, pristine[key], after, patches)

    def _rewritten(self, key: _Key, pristine: bytes, after: bytes, patches: frozenset[str]) -> Rewrite:
        """Return a rewrite; what the patches of several did each is worked out when it is asked for, not kept."""

        def steps() -> tuple[Step, ...]:
            if len(patches) == 1:
                return (Step(min(patches), Text(key[0], pristine), Text(key[0], after)),)
            return tuple(self._fold(key[0], pristine, key[2]))

        return Rewrite(pristine, after, patches, steps)

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
            header = self.catalog.headers[patch_id]
            blank = find_blank(header)
            if blank is not None:
                raise blank
            self._cures[patch_id] = _CURES[header.place.suffix](header)
        return self._cures[patch_id]

    def _fold(self, path: str, pristine: bytes, ids: tuple[str, ...]) -> list[Step]:
        """Return the steps; a result that is not as listed is made anew, with all that a digest would prove."""
        listed = self._listed(path, pristine, ids)
        with _collector_paused():
            if listed is not None:
                steps = self._steps(Text(path, pristine, pristine, is_listed=True), ids)
                if digest(_result(steps, pristine)[0]) == listed:
                    return steps
            return self._steps(Text(path, pristine, pristine), ids)

    def _listed(self, path: str, pristine: bytes, ids: tuple[str, ...]) -> str | None:
        """Return the listed digest of what the patches make of a file."""
        if not ids:
            return None
        target = self.catalog.headers[ids[0]].patch.target
        listing = self.catalog.targets.get_listing(target, path, digest(pristine))
        return listing.patched.get(frozenset(ids)) if listing else None

    def _steps(self, text: Text, ids: tuple[str, ...]) -> list[Step]:
        steps: list[Step] = []
        for patch_id in ids:
            after = self._cure(patch_id).rewrite(text)
            if after is not text:
                self._cure(patch_id).prove(text, after)
                steps.append(Step(patch_id, text, after))
                text = after
        if steps:
            self._prove(steps)
        return steps

    def _prove(self, steps: Sequence[Step]) -> None:
        """Refuse a result that does not compile, or to which a patch would do something again."""
        result = steps[-1].result
        _compile(_printed(steps), result.path, self._environment)
        for step in steps:
            self._cure(step.patch_id).prove_again(result)


def _result(steps: Sequence[Step], pristine: bytes) -> tuple[bytes, frozenset[str]]:
    """Return the bytes after the last step, and the patches."""
    return steps[-1].after if steps else pristine, frozenset(step.patch_id for step in steps)


def _printed(steps: Sequence[Step]) -> bytes:
    """Return the bytes after the last step; the first step that cannot be printed is the one to blame."""
    with suppress(PatchError):
        return steps[-1].after
    return [step.after for step in steps][-1]


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
