"""What is there: the state of every patch in an environment, told by digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from patchkit.catalog import Catalog
from patchkit.environment import Environment
from patchkit.errors import JournalCorrupt, PatchError, PatchkitError, TargetError
from patchkit.facts import Examiner, FileFacts, came_patched
from patchkit.header import Header, as_specifier, find_blank
from patchkit.installation import Installation, find_installation
from patchkit.journal import Journal, read_journal

STATES = (
    "not-installed",
    "not-applicable",
    "upstream",
    "pristine",
    "applied",
    "stale",
    "foreign",
    "conflict",
    "missing",
)
# A patch of several files is in the state of the file that needs attention most; this is the order.
_URGENCY = ("foreign", "missing", "conflict", "stale", "pristine", "applied", "upstream")


class FileState(NamedTuple):
    """The state of one patch in one file."""

    path: str
    state: str
    sha256: str | None = None
    pristine_sha256: str | None = None


class PatchState(NamedTuple):
    """The state of one patch."""

    id: str
    target: str
    state: str
    files: tuple[FileState, ...]
    reason: str = ""
    """Why the state is what it is, where the word alone does not say."""
    error: PatchkitError | None = None
    is_obsolete: bool = False
    """Applied, and no longer right for what is installed now: to be taken back."""


class Survey:
    """Everything known of an environment for one catalog; reads each file once and writes nothing."""

    def __init__(self, catalog: Catalog, environment: Environment) -> None:
        self.catalog = catalog
        self.environment = environment
        self.examiner = Examiner(catalog, environment)
        self.journals: dict[Path, Journal] = {}
        self.problems: list[JournalCorrupt] = []
        for site in environment.sites:
            try:
                self.journals[site] = read_journal(site)
            except JournalCorrupt as error:
                self.journals[site] = Journal()
                self.problems.append(error)
        self._facts: dict[tuple[str, str], FileFacts] = {}

    @cached_property
    def installations(self) -> Mapping[str, Installation | TargetError | None]:
        """The installation of each target, None where there is none, or why it cannot be used."""
        found: dict[str, Installation | TargetError | None] = {}
        for name, target in self.catalog.targets.targets.items():
            try:
                found[name] = find_installation(target, self.environment, self._paths(name))
            except TargetError as error:
                found[name] = error
        return found

    def _paths(self, target: str) -> set[str]:
        """Return the files of a target that matter: those of the catalog, and those that a journal knows."""
        package = self.catalog.targets.targets[target].package
        paths = set(self.catalog.files_of(target))
        for journal in self.journals.values():
            paths.update(path for path in journal.files if path.startswith(f"{package}/"))
        return paths

    def installed(self) -> dict[str, Installation]:
        """Return the usable installations by target."""
        return {name: found for name, found in self.installations.items() if isinstance(found, Installation)}

    def files(self, target: str) -> list[FileFacts]:
        """Return the facts of every file of an installed target that a patch touches or a journal knows."""
        installation = self.installed()[target]
        paths = self._paths(target) | set(installation.marker.files)
        return [self.facts(installation, path) for path in sorted(paths)]

    def facts(self, installation: Installation, path: str) -> FileFacts:
        """Return the facts of one file."""
        key = (installation.target.name, path)
        if key not in self._facts:
            self._facts[key] = self.examiner.examine(installation, path, self.journals[installation.site])
        return self._facts[key]

    def state(self, patch_id: str) -> PatchState:
        """Return the state of one patch of the catalog."""
        header = self.catalog.headers[patch_id]
        target = header.patch.target
        found = self.installations[target]
        if found is None:
            files = tuple(FileState(path, "not-installed") for path in header.files)
            names = ", ".join(self.catalog.targets.targets[target].distributions)
            return PatchState(patch_id, target, "not-installed", files, f"none of these is installed: {names}")
        if isinstance(found, TargetError):
            files = tuple(FileState(path, "foreign") for path in header.files)
            return PatchState(patch_id, target, "foreign", files, str(found), found)
        return self._state(header, found)

    def states(self, ids: Iterable[str]) -> list[PatchState]:
        """Return the states of some patches."""
        wanted = list(ids)
        jobs = [job for patch_id in wanted for job in self._untold(patch_id)]
        if jobs:
            self.examiner.rewriter.fold_ahead(jobs)
        return [self.state(patch_id) for patch_id in wanted]

    def _untold(self, patch_id: str) -> Iterator[tuple[str, bytes, set[str]]]:
        """Yield the pristine files of a patch of which only a rewrite tells its state."""
        header = self.catalog.headers[patch_id]
        installation = self.installations[header.patch.target]
        if not isinstance(installation, Installation):
            return
        facts = [self.facts(installation, path) for path in header.files]
        if self._verdict(header, installation, facts) is None:
            for fact in facts:
                if self._told(patch_id, fact) is None and fact.source and fact.source.sha256 == fact.pristine:
                    yield fact.path, fact.source.data, {patch_id}

    def _state(self, header: Header, installation: Installation) -> PatchState:
        facts = [self.facts(installation, path) for path in header.files]
        verdict = self._verdict(header, installation, facts)
        if verdict is None:
            files, error = [], None
            for fact in facts:
                state, problem = self._file_state(header.id, fact)
                files.append(_file(fact, state))
                error = error or problem
            states = {file.state for file in files}
            state = next(word for word in _URGENCY if word in states)
            return PatchState(header.id, header.patch.target, state, tuple(files), str(error or ""), error)
        state, reason = verdict
        files = [_file(fact, state) for fact in facts]
        return PatchState(header.id, header.patch.target, state, tuple(files), reason, is_obsolete=state == "stale")

    def _verdict(self, header: Header, installation: Installation, facts: list[FileFacts]) -> tuple[str, str] | None:
        """Return the state that versions alone decide, with the reason; None when the files decide."""
        reason = self._why_not_required(header) or _why_not_in_range(header, installation, facts)
        if reason is None:
            return None
        if any(fact.carried and header.id in fact.carried for fact in facts):
            return "stale", f"applied, but it is {reason}"
        fixed_in = header.fixed_in
        if fixed_in is not None and installation.version >= fixed_in:
            return "upstream", f"{installation.distribution} {installation.version} has it, since {fixed_in}"
        return "not-applicable", reason

    def _why_not_required(self, header: Header) -> str | None:
        for name, specifier in header.patch.requires.items():
            other = self.installations[name]
            if not isinstance(other, Installation):
                return f"for {name} {_readable(specifier)}, and it is not installed"
            if not as_specifier(specifier).contains(other.version, prereleases=True):
                return f"for {name} {_readable(specifier)}, and {other.distribution} {other.version} is installed"
        return None

    def _told(self, patch_id: str, facts: FileFacts) -> tuple[str, PatchkitError | None] | None:
        """Return the state of a patch in a file, as far as digests and the journal tell it."""
        blank = find_blank(self.catalog.headers[patch_id])
        if blank is not None:
            return "conflict", blank  # also where the digests are listed already
        if facts.carried is None:
            return "foreign", facts.error
        if facts.source is None:
            return "missing", None
        if patch_id in facts.carried:
            return ("stale" if patch_id in facts.outdated else "applied"), None
        if facts.listing is not None:
            listed = facts.listing.patched.get(frozenset({patch_id}))
            if listed is not None:
                return ("upstream" if listed == facts.pristine else "pristine"), None
        return None

    def _file_state(self, patch_id: str, facts: FileFacts) -> tuple[str, PatchkitError | None]:
        told = self._told(patch_id, facts)
        if told is not None:
            return told
        pristine = self.examiner.pristine_bytes(facts)
        if pristine is None:
            return ("conflict", came_patched(facts.installation)) if facts.is_shipped else ("foreign", None)
        try:
            rewrite = self.examiner.rewriter.fold(facts.path, pristine, {patch_id})
        except PatchError as error:
            return "conflict", error
        return ("pristine" if rewrite.patches else "upstream"), None

    def is_listed(self, target: str) -> bool:
        """Tell whether targets.toml has the digests of every file of an installation that a patch touches."""
        installation = self.installed()[target]
        paths = [path for path in self.catalog.files_of(target) if path in installation.rows]
        return bool(paths) and all(self.facts(installation, path).listing for path in paths)

    def strays(self) -> dict[str, list[FileFacts]]:
        """Return the patches that files carry and this catalog does not hold, with these files."""
        found: dict[str, list[FileFacts]] = {}
        for target in self.installed():
            for facts in self.files(target):
                for name in (facts.carried or frozenset()) - set(self.catalog.headers):
                    found.setdefault(name, []).append(facts)
        return found


def _file(facts: FileFacts, state: str) -> FileState:
    return FileState(facts.path, state, facts.source.sha256 if facts.source else None, facts.pristine)


def _why_not_in_range(header: Header, installation: Installation, facts: list[FileFacts]) -> str | None:
    """Say why a release is outside a patch's range; None when it is inside.

    Files that have listed digests are inside whatever the version says: a source build calls itself 0.1.dev1. A
    pre-release of the release with the fix may lack it still, so its files decide.
    """
    version, fixed_in = installation.version, header.fixed_in
    if all(fact.listing and frozenset({header.id}) in fact.listing.patched for fact in facts):
        return None
    if header.specifier.contains(version, prereleases=True):
        return None
    if fixed_in is not None and version.is_prerelease and version.base_version == fixed_in.base_version:
        return None
    return f"for {header.patch.target} {_readable(header.patch.versions)}, and {version} is installed"


def _readable(specifier: str) -> str:
    return " ".join(specifier.replace(",", " ").split())
