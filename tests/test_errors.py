from __future__ import annotations

import pickle

import pytest

from patchkit import errors
from patchkit.errors import PatchkitError

CODES = {
    "PatchkitError": "error",
    "ConfigError": "catalog-invalid",
    "CatalogMissing": "catalog-missing",
    "AlreadyThere": "already-there",
    "UnknownName": "unknown-name",
    "EnvironmentInvalid": "environment-invalid",
    "LogUnreadable": "log-unreadable",
    "ModelUnreadable": "model-unreadable",
    "TargetError": "owner-unclear",
    "EditableInstall": "editable-install",
    "PathEscape": "path-escape",
    "SourceUnreadable": "file-unreadable",
    "FileMissing": "missing-file",
    "RecordMissing": "record-missing",
    "RecordMalformed": "record-malformed",
    "SeveralTargets": "several-targets",
    "WheelInvalid": "wheel-invalid",
    "WheelExists": "wheel-exists",
    "DownloadFailed": "download-failed",
    "PatchError": "conflict",
    "PatchInvalid": "patch-invalid",
    "AnchorNotFound": "anchor-not-found",
    "AnchorAmbiguous": "anchor-ambiguous",
    "UnexpectedShape": "unexpected-shape",
    "RewriteUnsound": "rewrite-unsound",
    "PatchedWheel": "patched-wheel",
    "JournalCorrupt": "journal-corrupt",
    "TransactionError": "write-failed",
    "Locked": "locked",
    "RollbackFailed": "rollback-failed",
    "RunnerError": "server-refused",
    "RunnerUsage": "server-arguments",
    "GpuUnusable": "gpu-unusable",
    "PortInUse": "port-in-use",
    "Abandoned": "write-failed",
    "CodeRefused": "code-refused",
    "FleetError": "fleet-unreachable",
    "PlanOutdated": "plan-outdated",
    "RayMissing": "ray-missing",
}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_codes_are_the_contract() -> None:
    assert {kind.__name__: kind.code for kind in KINDS} == CODES


def test_codes_are_distinct() -> None:
    own = [kind.code for kind in KINDS if "code" in vars(kind)]
    assert len(set(own)) == len(own)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_one_root_and_no_other(kind: type[PatchkitError]) -> None:
    assert issubclass(kind, PatchkitError)
    assert not issubclass(kind, (ValueError, OSError))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_message_is_the_text_and_the_hint_is_apart(kind: type[PatchkitError]) -> None:
    error = kind("it is broken", "mend it")
    assert (str(error), error.message, error.hint) == ("it is broken", "it is broken", "mend it")


def test_hint_is_optional() -> None:
    assert PatchkitError("it is broken").hint == ""


def test_errors_of_one_text_are_two() -> None:
    assert PatchkitError("it is broken") != PatchkitError("it is broken")
    assert len({PatchkitError("it is broken"), PatchkitError("it is broken")}) == 2


def test_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(errors.Locked("held", "wait")))
    assert (type(error), error.message, error.hint) == (errors.Locked, "held", "wait")
