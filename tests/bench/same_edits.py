"""The edits of the catalog as a command of ``libcst.tool codemod``: parsed and printed, nothing proved."""

from __future__ import annotations

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext

from patchkit.catalog import bundled_catalog, load_catalog, load_patch


class SameEdits(CodemodCommand):
    """Run the patches that the catalog has for a file, in the order of their ids."""

    DESCRIPTION = "Apply what patchkit applies."

    def __init__(self, context: CodemodContext, patches: str) -> None:
        super().__init__(context)
        catalog = load_catalog(bundled_catalog())
        self._patches = [load_patch(catalog.headers[name]) for name in sorted(patches.split(","))]

    @staticmethod
    def add_args(parser) -> None:  # type: ignore[no-untyped-def]
        """Take the ids of the patches."""
        parser.add_argument("--patches", required=True)

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """Return the tree of one file with its patches."""
        for patch in self._patches:
            for path, rewriting in patch.rewritings.items():
                if (self.context.filename or "").endswith(path):
                    tree = rewriting(tree)
        return tree
