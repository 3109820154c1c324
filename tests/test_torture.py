"""A shorter form of each campaign of ``make torture``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.torture.crash import KILL, Campaign
from tests.torture.crowd import crowd
from tests.torture.oracle import hold
from tests.trees import Tree
from tests.wheels.conftest import bring, pin_of


def has_strace() -> bool:
    """Tell whether strace is there and may trace."""
    found = shutil.which("strace")
    return found is not None and subprocess.run([found, "-o", "/dev/null", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_strace(), reason="needs strace, and to be allowed to trace")
@pytest.mark.parametrize("verb", ["apply", "revert"])
def test_fault_at_a_system_call_leaves_all_or_nothing(tree: Tree, tmp_path: Path, verb: str) -> None:
    (tmp_path / "work").mkdir()
    campaign = Campaign(tree, tmp_path / "work")
    campaign.torture(verb, [KILL], step=11)
    campaign.torture(verb, ["error=EIO", "error=EINTR", "error=ENOSPC"], step=71)
    assert campaign.killed > 3
    assert campaign.refused > 3
    assert campaign.points < 60


def test_crowd_leaves_the_tree_whole_and_readers_see_old_or_new(tree: Tree) -> None:
    found = crowd(tree, 8, 6)
    assert found.total() > 8
    assert any(name.startswith("read") for name in found)


def test_patches_change_nothing_of_a_release_but_the_files_that_they_name() -> None:
    pin = pin_of("speculators", "0.3.0")
    tried = hold(bring(pin), pin.target, pin.version)
    assert tried.files > 20
    assert not tried.strange
