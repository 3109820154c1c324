"""What a process does on its node: look, plan, and write in steps that can be taken back until the last."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from patchkit import actions, orders
from patchkit.catalog import Catalog, load_catalog
from patchkit.environment import Environment, ask_interpreter, find_environment
from patchkit.errors import Abandoned, PatchkitError, PlanOutdated
from patchkit.findings import Finding, from_error
from patchkit.fleet import beacon
from patchkit.fleet.channel import Channel, Message
from patchkit.orders import Draft, Order
from patchkit.plan import Change
from patchkit.report import Report, report_of, to_json
from patchkit.survey import Survey
from patchkit.transaction import Gate, Transaction

_LATE = 60.0
"""How long another node's write may take to be seen here, in seconds: network file systems remember folders."""


class Work(Gate):
    """The work of one node; its steps are asked for by messages, and what is not kept is taken back."""

    def __init__(self, channel: Channel, catalog: Path, order: Message) -> None:
        self._channel, self._place, self._asked = channel, catalog, order
        self._names = tuple(str(name) for name in _list(order["names"]))
        self._draft: Draft | None = None
        self._lit: list[tuple[Path, str]] = []
        self._end = "as-before"

    @cached_property
    def _catalog(self) -> Catalog:
        return load_catalog(self._place)

    @cached_property
    def _environment(self) -> Environment:
        """The target: what the node's own interpreter, or the one that was named, would import."""
        packages = [target.package for target in self._catalog.targets.targets.values()]
        if self._asked["site"] is not None:
            return find_environment(None, Path(str(self._asked["site"])), None, packages)
        return ask_interpreter(str(self._asked["python"] or sys.executable), packages)

    @cached_property
    def _order(self) -> Order:
        if self._asked["verb"] == "revert":
            return orders.order_revert(self._catalog, self._environment, self._names)
        selection = self._catalog.select(self._names)
        return orders.order_apply(selection, allow_unlisted=bool(self._asked["allow_unlisted"]))

    def look(self, _message: Message) -> Message:
        """Say what is there."""
        action = actions.check if self._asked["verb"] == "check" else actions.status
        return _told(action(self._catalog, self._environment, self._catalog.select(self._names)))

    def plan(self, _message: Message) -> Message:
        """Plan and verify, after an unfinished run is taken back; nothing else is written."""
        survey = orders.recovered(self._catalog, self._environment, bool(self._asked["dry_run"]))
        self._draft = draft = orders.draft_of(self._order, survey)
        if any(finding.code == "patch-invalid" for finding in draft.findings):
            import libcst  # noqa: F401 - where it cannot be loaded, no patch can, and it is not their fault
        report = report_of(self._order.verb, survey, self._order.ids, draft.findings, draft.changes)
        sites = {str(site): _digest(draft, site) for site in sorted(draft.sites)}
        return {**_told(report), "sites": {} if draft.findings else sites}

    def light(self, message: Message) -> Message:
        """Leave a file in each folder that would be written; say where that is not possible, and why."""
        refused = {}
        for site in sorted(self._planned.sites):
            reason = beacon.light(site, str(message["name"]))
            self._lit.append((site, str(message["name"])))
            if reason is not None:
                refused[str(site)] = reason
        return {"refused": refused}

    def seek(self, message: Message) -> Message:
        """Say which files of other nodes are in the folders that would be written."""
        asked = message["names"]
        assert isinstance(asked, dict)
        return {"seen": {site: beacon.seen(Path(site), map(str, _list(names))) for site, names in asked.items()}}

    def douse(self, _message: Message) -> Message:
        """Remove the files that were left."""
        self.tidy()
        return {}

    def state(self) -> Message:
        """Say how a write has ended, or that there was none."""
        return {"state": self._end}

    def tidy(self) -> None:
        """Leave nothing behind."""
        while self._lit:
            beacon.douse(*self._lit.pop())

    def write(self, message: Message) -> Message:
        """Write what was planned, but for the folders that another node writes; then wait twice for the word."""
        draft = self._planned
        others = {Path(str(site)) for site in _list(message["others"])}
        if {str(site): _digest(draft, site) for site in draft.sites} != message["sites"]:
            raise PlanOutdated("another plan is to be written than was verified", "run the same command again")
        draft = replace(draft, sites=draft.sites - others, changes=_without(draft.changes, others))
        with Transaction(draft.sites, self._environment.pycache_prefix).held() as transaction:
            if not draft.is_current():
                places = ", ".join(map(str, sorted(draft.sites)))
                raise PlanOutdated(f"{places} has changed since it was planned", "run the same command again")
            draft.write(transaction, self)
        self._end = "kept"
        return self.state()

    def written(self) -> None:
        """Say that all is written, and wait for the word to commit; without it all is taken back."""
        self._channel.say({"state": "written"})
        self._expect("finish")

    def finished(self) -> None:
        """Say what is there after the commitment, and wait for the word to keep it."""
        report = orders.verified(self._order, Survey(self._catalog, self._environment), self._planned.changes)
        self._channel.say({**_told(report), "state": "finished"})
        # Whoever has gone now had decided: what is committed stays.
        self._expect("keep", is_default=True)

    def verify(self, _message: Message) -> Message:
        """Say what is there, once what another node wrote into the same folder is seen here."""
        end = time.monotonic() + (_LATE if self._planned.changes else 0)
        while True:
            report = orders.verified(self._order, Survey(self._catalog, self._environment), self._planned.changes)
            if report.ok or time.monotonic() > end:
                return _told(report)
            time.sleep(1)

    def _expect(self, word: str, *, is_default: bool = False) -> None:
        message = self._channel.hear()
        if message is None and is_default:
            return
        if message is None or message.get("do") != word:
            raise Abandoned("the run was taken back", "run patchkit fleet check")

    @property
    def _planned(self) -> Draft:
        assert self._draft is not None, "a plan comes first"
        return self._draft


STEPS = ("look", "plan", "light", "seek", "douse", "write", "verify")
"""The messages, each with a method of that name."""


def serve(channel: Channel, work: Work) -> None:
    """Answer messages until nobody is there any more."""
    with ExitStack() as stack:
        stack.callback(work.tidy)
        while (message := channel.hear()) is not None:
            step = str(message.get("do"))
            if step not in STEPS:
                channel.say(work.state())  # a word that came late, as undo after a refusal
                continue
            channel.say(_answered(work, step, message))


def _answered(work: Work, step: str, message: Message) -> Message:
    try:
        answer: Message = getattr(work, step)(message)
    except Abandoned:
        return work.state()
    except PatchkitError as error:
        return {"findings": [from_error(error)._asdict()]}
    except ImportError as error:
        hint = "pip install 'libcst>=1.9' beside that node's Ray, or set TMPDIR there to a folder that takes libraries"
        found = Finding("node-failed", f"what was shipped cannot be loaded: {error}", hint)
        return {"findings": [found._asdict()]}
    return answer


def _told(report: Report) -> Message:
    """Return what a report says of a node, as data; the text of the diffs stays here."""
    told = to_json(report)
    changes = [
        {key: value for key, value in _row(change).items() if key != "diff"} for change in _list(told["changes"])
    ]
    kept = ("ok", "environment", "targets", "patches", "findings")
    return {**{key: told[key] for key in kept}, "changes": changes}


def _row(value: object) -> Message:
    assert isinstance(value, dict)
    return value


def _digest(draft: Draft, site: Path) -> str:
    """Return one digest of what would be written into a folder, wherever the folder is."""
    rows = [
        [change.path, change.before_sha256, change.after_sha256, change.before_link, change.after_link]
        for change in draft.changes
        if change.site == site
    ]
    dropped = sorted(draft.obsolete.get(site, ()))
    return hashlib.sha256(json.dumps([rows, dropped]).encode()).hexdigest()


def _without(changes: Iterable[Change], sites: Collection[Path]) -> tuple[Change, ...]:
    return tuple(change for change in changes if change.site not in sites)


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value
