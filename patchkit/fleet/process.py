"""The process that works on a node, apart from the node's worker and from what is installed there."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
from pathlib import Path

from patchkit.errors import Abandoned
from patchkit.fleet.channel import Channel
from patchkit.fleet.work import Work, serve


def main(folder: str) -> None:  # pragma: no cover - it takes the standard streams, so it has a process of its own
    """Do what is asked for on the standard streams; the folder with what was shipped goes in the end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is not committed is taken back
    channel = Channel(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a patch prints is no answer
    try:
        order = channel.hear()
        if order is not None:
            channel.say({"python": platform.python_version(), "machine": platform.machine(), "pid": os.getpid()})
            serve(channel, Work(channel, Path(folder, "catalog"), order))
    except Abandoned:
        pass  # nobody is there to be told
    finally:
        shutil.rmtree(folder, ignore_errors=True)
