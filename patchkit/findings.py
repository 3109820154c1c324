"""Findings: what keeps a verb from saying yes, each with a stable word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from patchkit.errors import PatchkitError

CODES = {
    "already-there": "a file that would be written is there already; it is left alone",
    "anchor-ambiguous": "the code to rewrite is there more than once",
    "anchor-not-found": "the code to rewrite is not there",
    "catalog-invalid": "targets.toml or the catalog contradicts itself or cannot be read",
    "catalog-missing": "there is no catalog, or it holds no patch",
    "code-refused": "the catalog has patches in Python, and --no-code allows none",
    "conflict": "the patch cannot be applied to this source",
    "data-edited": "a file that no patch can change is not as it was shipped: it is no Python source of the package",
    "digest-unlisted": "targets.toml does not list this file of this release; --allow-unlisted goes on without",
    "download-failed": "pip does not bring the wheel that was asked for",
    "editable-install": "the target is a checkout, not a wheel",
    "environment-invalid": "the interpreter, site folder or root folder cannot be examined",
    "file-added": "a file is in the package that RECORD does not list",
    "file-removed": "a file that RECORD lists is gone",
    "file-unreadable": "a file is not a regular file, or this user cannot read it",
    "fleet-unreachable": "a Ray cluster cannot be reached, or has no node that is meant",
    "foreign-edit": "a file was changed by something other than patchkit; it is left alone",
    "gate-closed": "a gate of vLLM stops this model and drafter, or lets them run to no use",
    "gate-unknown": "of a gate nothing can be said, and --strict counts that",
    "gpu-unusable": "a GPU is not there, is held by somebody, or is too small",
    "interrupted": "an earlier run did not finish, or one is at work; apply or revert takes an unfinished one back",
    "journal-corrupt": "the journal cannot be read",
    "locked": "another patchkit is writing to the same tree",
    "log-unreadable": "a log to explain cannot be read",
    "missing-file": "a file to patch is not there",
    "model-unreadable": "the configuration of a model or drafter cannot be read",
    "node-failed": "patchkit cannot work on a node",
    "node-lost": "a node has died or does not answer",
    "nodes-differ": "nodes of one cluster have different files or releases",
    "not-applicable": "a patch named by its id is not for what is installed",
    "not-applied": "a selected patch is not applied",
    "not-installed": "a patch named by its id is for a distribution that is not installed",
    "nothing-applicable": "nothing that was selected applies to this environment",
    "owner-unclear": "no distribution, or more than one, answers for a file",
    "patch-invalid": "a patch file does not say what a patch must say",
    "patched-wheel": "the files came patched in their wheel, so they are taken back by the upstream wheel only",
    "path-escape": "a path leads out of its root",
    "plan-outdated": "a tree has changed between the plan and the write",
    "port-in-use": "the server's port cannot be listened on",
    "pristine-lost": "the pristine bytes are not in the journal and the patch cannot be taken back without them",
    "ray-missing": "Ray is not installed beside patchkit",
    "record-malformed": "RECORD cannot be read or contradicts itself",
    "record-missing": "a distribution has no usable RECORD or METADATA",
    "rewrite-unsound": "a rewrite failed one of its proofs",
    "rollback-failed": "a write failed and could not be taken back at once; the next apply or revert does it",
    "server-arguments": "an argument for the server cannot be right",
    "server-refused": "a server does not run what was checked",
    "several-targets": "edits in several distributions cannot be one patch",
    "shadowed": "the interpreter would import the package from another folder than the one that was checked",
    "stale": "a patch was applied by an older revision, or is no longer right for what is installed",
    "stale-bytecode": "Python would load bytecode that was not compiled from the file",
    "still-applied": "a patch could not be taken back",
    "unexpected-shape": "the code to rewrite looks different",
    "unknown-name": "a name is neither a patch nor a set",
    "unknown-patch": "a file carries a patch that this catalog does not hold",
    "wheel-exists": "another wheel of that name is there already",
    "wheel-invalid": "a wheel cannot be read, contradicts itself or RECORD, or holds what patching would break",
    "write-failed": "a write failed; the tree is as it was before",
}
"""Every word for ``findings[].code``, with its meaning. Words are added, never renamed."""


class Finding(NamedTuple):
    """Something that keeps a verb from saying yes."""

    code: str
    """One of ``CODES``."""
    message: str
    hint: str
    """The next command or step."""
    patch: str | None = None
    file: str | None = None


def from_error(error: PatchkitError, patch: str | None = None, file: str | None = None) -> Finding:
    """Return the finding that says what an error says."""
    return Finding(error.code, error.message, error.hint, patch, file)


def distinct(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without those that say the same of another patch: one file may have many patches."""
    kept: dict[tuple[str, str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.code, finding.message, finding.hint), finding)
    return list(kept.values())
