"""Every exception that patchkit raises."""

from __future__ import annotations

from typing import ClassVar

DEFECT = "this is a defect of the patch: report it to whoever wrote the catalog"
"""The hint where a patch is wrong, whatever it is applied to."""


class PatchkitError(Exception):
    """Say what is wrong, with what, and what to do next.

    ``code`` is a stable word of the command-line contract. A refusal about one patch or file travels in the report as
    a finding with the same fields; the exception itself means that the verb cannot go on.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        """One sentence that names the thing that is wrong."""
        self.hint = hint
        """The next command or step."""

    def __str__(self) -> str:
        return self.message


class ConfigError(PatchkitError):
    """Refuse targets.toml or a catalog that cannot be used."""

    code: ClassVar[str] = "catalog-invalid"


class CatalogMissing(ConfigError):
    """Refuse a catalog that is not there or holds nothing."""

    code: ClassVar[str] = "catalog-missing"


class CodeRefused(ConfigError):
    """Refuse a catalog with code in it where none is allowed."""

    code: ClassVar[str] = "code-refused"


class AlreadyThere(ConfigError):
    """Refuse to write a file of a new patch over one that is there."""

    code: ClassVar[str] = "already-there"


class UnknownName(ConfigError):
    """Refuse a name that is neither a patch nor a set of the catalog."""

    code: ClassVar[str] = "unknown-name"


class SeveralTargets(PatchkitError):
    """Refuse to make one patch of edits in several distributions."""

    code: ClassVar[str] = "several-targets"


class EnvironmentInvalid(PatchkitError):
    """Refuse an interpreter, site folder or root folder that cannot be examined."""

    code: ClassVar[str] = "environment-invalid"


class LogUnreadable(PatchkitError):
    """Refuse a log that cannot be read."""

    code: ClassVar[str] = "log-unreadable"


class ModelUnreadable(PatchkitError):
    """Refuse a model or drafter whose configuration cannot be read."""

    code: ClassVar[str] = "model-unreadable"


class TargetError(PatchkitError):
    """Refuse an installed distribution that patchkit cannot vouch for."""

    code: ClassVar[str] = "owner-unclear"


class EditableInstall(TargetError):
    """Refuse a distribution that is a checkout, not a wheel."""

    code: ClassVar[str] = "editable-install"


class PathEscape(TargetError):
    """Refuse a path that leaves its root, by name or through a link."""

    code: ClassVar[str] = "path-escape"


class SourceUnreadable(TargetError):
    """Refuse a file that is there but cannot be read as a regular file."""

    code: ClassVar[str] = "file-unreadable"


class FileMissing(TargetError):
    """Refuse a file to patch that is not there."""

    code: ClassVar[str] = "missing-file"


class RecordMissing(TargetError):
    """Refuse a distribution without RECORD: nothing says what pristine is."""

    code: ClassVar[str] = "record-missing"


class RecordMalformed(TargetError):
    """Refuse a RECORD that cannot be read or that contradicts itself."""

    code: ClassVar[str] = "record-malformed"


class WheelInvalid(TargetError):
    """Refuse a wheel that cannot be read, contradicts itself, or holds what patching would break."""

    code: ClassVar[str] = "wheel-invalid"


class WheelExists(TargetError):
    """Refuse to replace another wheel of the same name."""

    code: ClassVar[str] = "wheel-exists"


class DownloadFailed(PatchkitError):
    """Report that pip does not bring a wheel."""

    code: ClassVar[str] = "download-failed"


class PatchError(PatchkitError):
    """Refuse a patch, or a patch on this source."""

    code: ClassVar[str] = "conflict"


class PatchInvalid(PatchError):
    """Refuse a patch file that does not say what a patch must say."""

    code: ClassVar[str] = "patch-invalid"


class AnchorNotFound(PatchError):
    """Refuse a source in which the code to rewrite is not found."""

    code: ClassVar[str] = "anchor-not-found"


class AnchorAmbiguous(PatchError):
    """Refuse a source in which the code to rewrite is found more than once."""

    code: ClassVar[str] = "anchor-ambiguous"


class UnexpectedShape(PatchError):
    """Refuse a source in which the code to rewrite looks different."""

    code: ClassVar[str] = "unexpected-shape"


class RewriteUnsound(PatchError):
    """Refuse a rewrite that failed one of its proofs."""

    code: ClassVar[str] = "rewrite-unsound"


def changes_again(patch_id: str, path: str) -> RewriteUnsound:
    """Return the error for a rewrite that is not idempotent."""
    return RewriteUnsound(f"{patch_id} changes {path} again when it is applied to its own result", DEFECT)


class PatchedWheel(PatchError):
    """Refuse to change what came patched in its wheel: other bytes would contradict RECORD."""

    code: ClassVar[str] = "patched-wheel"


class JournalCorrupt(PatchkitError):
    """Refuse a journal that cannot be read."""

    code: ClassVar[str] = "journal-corrupt"


class TransactionError(PatchkitError):
    """Report a write that failed; the tree is as it was before."""

    code: ClassVar[str] = "write-failed"


class Locked(TransactionError):
    """Report that another patchkit is writing to the same tree."""

    code: ClassVar[str] = "locked"


class RollbackFailed(TransactionError):
    """Report a write that failed and could not be taken back at once."""

    code: ClassVar[str] = "rollback-failed"


class PlanOutdated(TransactionError):
    """Refuse to write a plan whose tree has changed since it was verified."""

    code: ClassVar[str] = "plan-outdated"


class Abandoned(TransactionError):
    """Stop work that nobody waits for any more: the run was taken back, or its driver or node has died."""


class FleetError(PatchkitError):
    """Refuse a cluster that cannot be reached or asked."""

    code: ClassVar[str] = "fleet-unreachable"


class RayMissing(FleetError):
    """Refuse to ask a cluster without Ray."""

    code: ClassVar[str] = "ray-missing"


class RunnerError(PatchkitError):
    """Refuse to start a server."""

    code: ClassVar[str] = "server-refused"


class RunnerUsage(RunnerError):
    """Refuse arguments for the server that cannot be right."""

    code: ClassVar[str] = "server-arguments"


class GpuUnusable(RunnerError):
    """Refuse a GPU that is not there, is held, or is too small."""

    code: ClassVar[str] = "gpu-unusable"


class PortInUse(RunnerError):
    """Refuse a port that cannot be listened on."""

    code: ClassVar[str] = "port-in-use"
