"""patchkit run by another user than root."""

from __future__ import annotations

import os
import sys

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
# What is imported before the user changes need not be readable for the other user.
_CODE = f"""
import os, difflib, subprocess, unidiff.patch, unidiff.errors, libcst.matchers, libcst.metadata
import patchkit.cst, patchkit.codemod, patchkit.edits, patchkit.patch, patchkit.transaction, patchkit.cli
from patchkit.cli import VERBS
from importlib.metadata import version
version("patchkit")
for verb in VERBS:
    __import__(f"patchkit.verbs.{{verb}}")
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
patchkit.cli.main()
"""


def command_of_nobody(arguments: list[str]) -> list[str]:
    """Return the command by which root runs patchkit as nobody."""
    return [sys.executable, "-c", _CODE, *arguments]
