"""What the extra ``serve`` brings."""

from __future__ import annotations

import importlib.util

_PACKAGES = ("httpx", "prometheus_client", "pynvml")


def missing() -> list[str]:
    """Return the packages of the extra that are not installed."""
    return [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
