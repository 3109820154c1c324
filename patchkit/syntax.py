"""Source parsed by CPython's own parser, without its warnings about somebody else's code."""

from __future__ import annotations

import ast
import warnings


def parse_quietly(data: bytes, feature_version: tuple[int, int] | None = None) -> ast.Module:
    """Parse source; raises what ``ast.parse`` raises, SyntaxError, ValueError and the like."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(data, feature_version=feature_version)
