from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.errors import AnchorNotFound
from patchkit.testing import Checks
from tests.trees import ENGINE, write_catalog

ID = "engine_models"
PATH = "engine/core.py"
AFTER = ENGINE.replace(
    '        models = ["llama", "qwen"]', f"        # patchkit: {ID}\n        models = ['llama', 'qwen', 'kimi']"
)


@pytest.fixture
def checks(tmp_path: Path) -> Checks:
    return Checks(write_catalog(tmp_path, {ID: {}}))


def test_held(checks: Checks) -> None:
    checks.filled_in(ID, Path(__file__))
    checks.rewritten(ID, PATH, ENGINE, AFTER)
    checks.unchanged(ID, PATH, AFTER)
    checks.refused(ID, PATH, "x = 1\n", AnchorNotFound, "^Engine: not found$")
    assert checks.restored(ID, PATH, ENGINE.encode(), AFTER.encode()).patches == {ID}


def test_other_result_is_shown(checks: Checks) -> None:
    with pytest.raises(AssertionError, match=r"(?s)makes something else of it.*\n\+ .*kimi"):
        checks.rewritten(ID, PATH, ENGINE, ENGINE)


def test_not_refused(checks: Checks) -> None:
    with pytest.raises(AssertionError, match=r"(?s)does not refuse it, and makes of it:\n.*kimi"):
        checks.refused(ID, PATH, ENGINE, AnchorNotFound, "not found")


def test_refused_in_other_words(checks: Checks) -> None:
    with pytest.raises(AssertionError, match="refuses it, but says: Engine: not found"):
        checks.refused(ID, PATH, "x = 1\n", AnchorNotFound, "twice")


@pytest.mark.parametrize(("before", "after"), [(ENGINE, ENGINE), ("# x\n" + ENGINE, AFTER)])
def test_not_restored(checks: Checks, before: str, after: str) -> None:
    with pytest.raises(AssertionError, match="is not taken back to the byte"):
        checks.restored(ID, PATH, before.encode(), after.encode())


def test_not_restored_without_a_way_back(tmp_path: Path) -> None:
    checks = Checks(write_catalog(tmp_path, {ID: {"restore": ""}}))
    with pytest.raises(AssertionError, match="is not taken back to the byte"):
        checks.restored(ID, PATH, ENGINE.encode(), AFTER.encode())
