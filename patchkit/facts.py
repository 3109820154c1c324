"""One file of an installation: what its bytes are, and which patches they carry."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from patchkit.catalog import Catalog
from patchkit.environment import Environment
from patchkit.errors import PatchedWheel, PatchError, PatchkitError, TargetError
from patchkit.installation import Installation, Source, read_source
from patchkit.journal import Applied, Journal, own_version, read_object
from patchkit.targets import Listing, PatchSet

if TYPE_CHECKING:
    from patchkit.rewrite import Rewriter


class FileFacts(NamedTuple):
    """One file of an installation, as far as digests and the journal explain it."""

    path: str
    installation: Installation
    source: Source | None
    """The file; None when it is not there."""
    pristine: str | None
    """Digest without patches: RECORD's, or what the marker or the listing of a patched wheel says it was."""
    listing: Listing | None
    """The listed digests of a file with these pristine bytes."""
    carried: PatchSet | None
    """Patches that the file carries; None when its bytes are not explained."""
    outdated: PatchSet = frozenset()
    """Those of them that today's plan would write differently."""
    entry: Applied | None = None
    """What the journal says, where that still describes the file."""
    is_shipped: bool = False
    """Whether the wheel was built with the patches that the file carries: nothing here has the pristine bytes."""
    error: PatchkitError | None = None
    """Why the file cannot be vouched for, when that is more than foreign bytes."""


def came_patched(installation: Installation) -> PatchedWheel:
    """Return the refusal to change a file that came patched in its wheel."""
    name = f"{installation.distribution} {installation.version}"
    return PatchedWheel(
        f"{name} came patched in its wheel, and the pristine bytes are not here",
        f"bring the upstream wheel back: {installation.replace_by_upstream}",
    )


class Examiner:
    """Explains files by digests first, and runs patches only where digests do not tell."""

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self._catalog, self._environment = catalog, environment

    @cached_property
    def rewriter(self) -> Rewriter:
        """What runs the patches."""
        from patchkit.rewrite import Rewriter

        return Rewriter(self._catalog, self._environment)

    def examine(self, installation: Installation, path: str, journal: Journal) -> FileFacts:
        """Return the facts of one file."""
        pristine = self._pristine(installation, path)
        bare = FileFacts(path, installation, None, pristine, None, frozenset())
        try:
            source = read_source(installation, path, self._environment.root)
        except TargetError as error:
            return bare._replace(carried=None, error=error)
        if source is None:
            return bare
        if pristine is None:
            problem = TargetError(f"{path} is in no RECORD of {installation.distribution}", installation.reinstall)
            return bare._replace(source=source, carried=None, error=problem)
        listing = self._catalog.targets.get_listing(installation.target.name, path, pristine)
        bare = bare._replace(source=source, listing=listing)
        return bare if source.sha256 == pristine else self._explain(bare, source, pristine, journal)

    def _pristine(self, installation: Installation, path: str) -> str | None:
        """Return the digest of a file without patches; RECORD's own may be listed as that of a patched file."""
        pristine, targets = installation.pristine_of(path), self._catalog.targets
        if pristine is None or targets.get_listing(installation.target.name, path, pristine):
            return pristine
        listing = targets.get_patched_listing(installation.target.name, path, pristine)
        return listing.pristine if listing else pristine

    def pristine_bytes(self, facts: FileFacts) -> bytes | None:
        """Return the bytes that RECORD describes: the file's own, the journal's, or the patched ones taken back."""
        assert facts.source is not None and facts.pristine is not None
        if facts.source.sha256 == facts.pristine:
            return facts.source.data
        kept = read_object(facts.installation.site, facts.pristine)
        if kept is not None:
            return kept
        rewrite = self.rewriter.restore(facts.path, facts.source.data, self._known(facts), facts.pristine)
        return None if rewrite is None else rewrite.before

    def _known(self, facts: FileFacts) -> tuple[str, ...]:
        return self._catalog.files_of(facts.installation.target.name).get(facts.path, ())

    def _explain(self, bare: FileFacts, source: Source, pristine: str, journal: Journal) -> FileFacts:
        """Say which patches a file carries that is not pristine: by the journal, by listed digests, by its code."""
        entry = journal.files.get(bare.path)
        if entry is not None and (entry.sha256, entry.pristine) == (source.sha256, pristine):
            outdated = self._outdated(bare, source, entry)
            return bare._replace(carried=frozenset(entry.patches), outdated=outdated, entry=entry)
        row = bare.installation.rows[bare.path]
        bare = bare._replace(is_shipped=source.sha256 == row.sha256)
        shipped = bare.installation.marker.files.get(bare.path)
        if shipped is not None and bare.is_shipped:
            outdated = self._outdated(bare, source, shipped)
            return bare._replace(carried=frozenset(shipped.patches), outdated=outdated)
        for patches, sha256 in bare.listing.patched.items() if bare.listing else ():
            if sha256 == source.sha256 and patches <= set(self._catalog.headers):
                return bare._replace(carried=patches)
        rewrite = self.rewriter.restore(bare.path, source.data, self._known(bare), pristine)
        return bare._replace(carried=None if rewrite is None else rewrite.patches)

    def _outdated(self, bare: FileFacts, source: Source, entry: Applied) -> PatchSet:
        """Return the patches whose part of the file is not what today's plan writes."""
        headers = self._catalog.headers
        changed = frozenset(
            name
            for name, revision in entry.patches.items()
            if name not in headers or headers[name].revision != revision
        )
        if changed - set(headers):
            return changed
        listed = bare.listing.patched.get(frozenset(entry.patches)) if bare.listing else None
        if not changed and (listed == source.sha256 or _is_own(entry)):
            return frozenset()
        try:
            pristine = self.pristine_bytes(bare)
            planned = None if pristine is None else self.rewriter.fold(bare.path, pristine, entry.patches).after
        except PatchError:
            planned = None
        return frozenset() if planned == source.data else changed or frozenset(entry.patches)


def _is_own(entry: Applied) -> bool:
    """Tell whether this version of patchkit wrote a file."""
    return entry.patchkit == own_version()
