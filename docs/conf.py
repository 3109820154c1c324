"""How Sphinx makes the site and the man pages."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent.parent))

from docs.filling import files_of, fill

project = "patchkit"
release = version = version_of("patchkit")
extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
exclude_patterns = ["**/__pycache__"]
nitpicky = True
highlight_language = "none"
smartquotes = False  # what is typed is what is meant

html_theme = "furo"
html_title = f"patchkit {release}"
html_static_path = ["static"]
html_css_files = ["patchkit.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

man_pages = [
    ("patchkit", "patchkit", "patch the installed source of vLLM and speculators, and prove it", "", 1),
    ("patchkit-serve", "patchkit-serve", "start the patched vLLM server, and refuse an unpatched one", "", 1),
]
man_show_urls = True


def _fill(app: Sphinx, name: str, content: list[str]) -> None:
    for place in files_of(content[0]):
        app.env.note_dependency(str(place))
    content[0] = fill(content[0])


def _tidy(app: Sphinx, error: Exception | None) -> None:
    if app.builder.name == "man" and error is None:
        for place in Path(app.outdir).glob("*.1"):
            # docutils opens each section with a blank line, which mandoc warns of.
            place.write_text(re.sub(r"(?m)^(\.S[HS] .*\n)\.sp\n", r"\1", place.read_text("utf-8")), "utf-8")


def setup(app: Sphinx) -> None:
    """Fill the pages as they are read."""
    app.connect("source-read", _fill)
    app.connect("build-finished", _tidy)
