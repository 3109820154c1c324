"""Plugins of the environment that may put their own proposer in the place of vLLM's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass

from patchkit.errors import PatchkitError
from patchkit.gates.code import Code
from patchkit.gates.gate import PASS, UNKNOWN, Gate
from patchkit.gates.module import SHOWN, Evidence
from patchkit.gates.syntax import split_lines

_GROUPS = ("vllm.platform_plugins", "vllm.general_plugins")
_OWN = ("patchkit", "patchkit_proof", "vllm")
_WORDS = ("image_token_index", "supports_eagle3")
_MAX_FILES = 2000
"""How many files of a plugin are looked at."""


@dataclass(frozen=True)
class Plugin:
    """One entry point that vLLM loads at its start."""

    distribution: str
    group: str
    name: str
    package: str


def judge(code: Code) -> Gate:
    """Name the plugins that vLLM would load; one with gates of its own makes the verdict about vLLM's unsure."""
    entries = list(_entry_points(code))
    found, unread = list(_plugins(entries)), [name for name, parser in entries if parser is None]
    if unread:
        message = f"the entry points of {', '.join(unread)} cannot be read, and may name a plugin"
        return Gate("plugins", UNKNOWN, message, "configuration", hint="reinstall these distributions")
    if not found:
        return Gate("plugins", PASS, "no plugin of vLLM is installed", "configuration")
    names = ", ".join(f"{plugin.name} of {plugin.distribution} ({plugin.group})" for plugin in found)
    evidence = tuple(line for plugin in found for line in _copies(code, plugin))
    if not evidence and not any(plugin.group == _GROUPS[0] for plugin in found):
        message = f"installed: {names}; none has gates of its own by name, but a plugin may change anything"
        return Gate("plugins", UNKNOWN, message, "configuration", hint="VLLM_PLUGINS names those that are loaded")
    message = f"installed: {names}; it may put its own proposer and its own gates in the place of vLLM's"
    hint = "the other verdicts are about vLLM's own code: compare, or leave the plugin out with VLLM_PLUGINS"
    return Gate("plugins", UNKNOWN, message, "configuration", evidence, hint=hint)


def find_plugins(code: Code) -> Iterator[Plugin]:
    """Yield the entry points that vLLM would load, by the metadata of the distributions."""
    return _plugins(_entry_points(code))


def _plugins(entries: Iterable[tuple[str, ConfigParser | None]]) -> Iterator[Plugin]:
    for name, parser in entries:
        for group in _GROUPS if parser is not None else ():
            for entry, value in parser.items(group) if parser.has_section(group) else ():  # type: ignore[union-attr]
                package = re.split(r"[:.\[\s]", value.strip(), maxsplit=1)[0]
                if package not in _OWN:
                    yield Plugin(name, group, entry, package)


def find_own(code: Code) -> bool:
    """Tell whether an environment has the plugin by which patchkit proves each process."""
    found = [parser for name, parser in _entry_points(code) if name == "patchkit" and parser is not None]
    return any(parser.has_option(_GROUPS[1], "patchkit") for parser in found)


def _entry_points(code: Code) -> Iterator[tuple[str, ConfigParser | None]]:
    """Yield every distribution with entry points, and these; None where they cannot be read."""
    for site in code.sites:
        for place in sorted(site.glob("*.dist-info/entry_points.txt")):
            name = place.parent.name.split("-")[0].replace("_", "-")
            parser = ConfigParser(delimiters=("=",), interpolation=None, strict=False, default_section="")
            parser.optionxform = str  # type: ignore[assignment,method-assign]
            try:
                parser.read_string(code.read(site, str(place.relative_to(site))).decode("utf-8"))
            except (OSError, PatchkitError, ValueError, ConfigError):
                yield name, None
            else:
                yield name, parser


def _copies(code: Code, plugin: Plugin) -> Iterator[Evidence]:
    """Yield the lines of a plugin's package that look like gates of its own."""
    for site in code.sites if plugin.package.isidentifier() else ():
        for place in sorted((site / plugin.package).rglob("*.py"))[:_MAX_FILES]:
            path = str(place.relative_to(site))
            if not ("spec_decode" in path or "eagle" in path or "proposer" in path or "model_runner" in path):
                continue
            try:
                lines = split_lines(code.read(site, path).decode("utf-8", "replace"))
            except (OSError, PatchkitError):
                continue
            for number, line in enumerate(lines, 1):
                if any(word in line for word in _WORDS):
                    yield Evidence(path, number, line.strip()[:SHOWN])
                    break
