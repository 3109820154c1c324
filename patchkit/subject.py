"""What is recorded or adopted: installed distributions, and their edited files as changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from patchkit.catalog import Catalog
from patchkit.diff import prove, unified_diff
from patchkit.environment import Environment
from patchkit.errors import TargetError, UnknownName
from patchkit.facts import FileFacts
from patchkit.findings import Finding, from_error
from patchkit.installation import Installation, find_target
from patchkit.plan import Change
from patchkit.record import digest
from patchkit.rewrite import Rewrite
from patchkit.survey import Survey
from patchkit.targets import normalise


@dataclass(frozen=True)
class Subject:
    """What is recorded: one distribution, or those of all targets that are installed."""

    catalog: Catalog
    environment: Environment
    targets: tuple[str, ...]
    """Names of the targets that are meant."""
    wheel: Path | None = None
    """The wheel of what is installed; None lets pip download it."""

    def installations(self, survey: Survey) -> Iterator[Installation | Finding]:
        """Yield what is installed of it, or why that cannot be examined."""
        found = [survey.installations[name] for name in self.targets]
        for one in found:
            if one is not None:
                yield from_error(one) if isinstance(one, TargetError) else one
        if not any(found):
            hint = "name the environment with --python, --site or --root"
            yield Finding("not-installed", f"not installed here: {', '.join(self.targets)}", hint)


def find_subject(
    catalog: Catalog, environment: Environment, distribution: str | None = None, wheel: Path | None = None
) -> Subject:
    """Return what is to be recorded; a distribution that is no target of the catalog is made one for the time being."""
    targets = catalog.targets.targets
    if distribution is None:
        return Subject(catalog, environment, tuple(targets), wheel)
    name = normalise(distribution)
    found = tuple(key for key, target in targets.items() if name in (key, *target.distributions))
    if found:
        return Subject(catalog, environment, found, wheel)
    target = find_target(name, environment)
    if target is None:
        known = ", ".join(targets)
        raise UnknownName(f"{distribution!r} is not installed here", f"targets of the catalog: {known}")
    more = replace(catalog, targets=catalog.targets._replace(targets={**targets, name: target}))
    return Subject(more, environment, (name,), wheel)


def change_of(facts: FileFacts, before: bytes, rewrite: Rewrite) -> Change:
    """Return what a patch of an edited file comes to: the file as it is, what it was, and what explains it."""
    source = facts.source
    assert source is not None and facts.pristine is not None
    diff = unified_diff(facts.path, before, source.data)
    prove(diff, before, source.data)
    return Change(
        site=facts.installation.site,
        path=facts.path,
        place=source.place,
        before=before,
        before_sha256=digest(before),
        before_link=source.link,
        after=source.data,
        after_sha256=source.sha256,
        after_link=None,
        pristine=rewrite.before,
        pristine_sha256=facts.pristine,
        patches=rewrite.patches,
        undone=frozenset(),
        rewrite=rewrite,
        diff=diff,
        is_listed=facts.listing is not None,
        is_result_listed=bool(facts.listing and rewrite.patches in facts.listing.patched),
    )
