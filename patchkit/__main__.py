"""Run the command line with ``python -m patchkit``."""

from __future__ import annotations

from patchkit.cli import main

if __name__ == "__main__":
    main()
