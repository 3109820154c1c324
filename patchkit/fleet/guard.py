"""Refuse to start a server over nodes that do not have what this machine has."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from patchkit.findings import Finding
from patchkit.fleet.cluster import Progress
from patchkit.fleet.report import FleetReport
from patchkit.fleet.run import Fleet, look

_ADDRESS = re.compile(r"auto|ray://\S+|[^\s/]+:[0-9]{1,5}")


def guard(fleet: Fleet, names: Collection[str], files: Mapping[str, str], progress: Progress) -> FleetReport:
    """Return the check of a fleet, which also wants the files of this machine, by SHA-256, on every node."""
    report = look(fleet, "check", names, progress)
    if not report.ok:
        return report
    there = report.nodes[0].told.files
    others = sorted(path for path in files if there.get(path) != files[path])
    if not others:
        return report
    message = f"all nodes have another {', '.join(others[:3])} than this machine"
    hint = "patchkit apply here, or name with --python the environment that the server is to run in"
    return replace(report, findings=(Finding("nodes-differ", message, hint),))


def with_address(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with an address after ``--fleet`` where none is given."""
    done: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return [*done, *words[number:]]
        done.append(word)
        following = words[number + 1] if number + 1 < len(words) else ""
        if word == "--fleet" and not _ADDRESS.fullmatch(following):
            done.append("auto")
    return done
