"""What a patch is: its values, as written at the head of a patch file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import libcst as cst

    Rewriting = Callable[[cst.Module], cst.Module]
    """A pure function that returns the rewritten tree, the same tree when nothing is left to do, or raises."""

STATUSES = ("unreported", "reported", "proposed", "merged", "released", "declined", "not-upstreamable")
"""The words for ``Upstream.status``; the last two need a sentence in the patch's reason."""


class Upstream(NamedTuple):
    """Where the symptom stands in the project that is patched."""

    status: str
    """One of ``STATUSES``."""
    issue: str = ""
    """``owner/repository#number`` of the report."""
    pull: str = ""
    """``owner/repository#number`` of the fix."""
    fixed_in: str = ""
    """First release that has the fix; needed when the status is ``released``."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One symptom and its cure. The title and the reason are the docstring of the patch file, the id is its stem."""

    target: str
    """Name of a target in targets.toml."""
    versions: str
    """PEP 440 specifier with both ends: the releases that the patch is for."""
    symptom: str
    """Shortest stable part of the error text that the patch cures."""
    upstream: Upstream
    requires: Mapping[str, str] = field(default_factory=dict)
    """Specifiers of the versions that other targets must have, by target name."""
    rewritings: dict[str, Rewriting] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The rewrite of each file, by path below the site folder."""
    restorings: dict[str, Rewriting] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The way back for each file, used only when the journal with the pristine bytes is lost."""

    def rewrites(self, path: str, *, within: tuple[str, ...]) -> Callable[[Rewriting], Rewriting]:
        """Register the rewrite of one file.

        ``within`` names, by dotted path, the only definitions that may change; ``import`` stands for the import
        statements at the top level.
        """
        del within  # read from the decorator by patchkit.header, which does not run this file

        def register(function: Rewriting) -> Rewriting:
            self.rewritings[path] = function
            return function

        return register

    def restores(self, path: str) -> Callable[[Rewriting], Rewriting]:
        """Register the way back for one file; its result counts only if it has the digest that RECORD gives."""

        def register(function: Rewriting) -> Rewriting:
            self.restorings[path] = function
            return function

        return register
