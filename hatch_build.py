"""What the build adds to the wheel: the heads of the patches, so that a look at a tree parses none of them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Heads(BuildHookInterface):  # type: ignore[type-arg]
    """Read the heads, and put them beside targets.toml."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file that the wheel takes; an editable install has the patches themselves."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from patchkit.header import read_header
        from patchkit.heads import NAME, to_json

        headers = map(read_header, sorted(Path(self.root, "patches").glob("*.py")))
        self._folder = tempfile.TemporaryDirectory()
        place = Path(self._folder.name, NAME)
        place.write_text(to_json(headers), encoding="utf-8")
        build_data["force_include"][str(place)] = f"patchkit/catalog_data/{NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove it again."""
        if version != "editable":
            self._folder.cleanup()
