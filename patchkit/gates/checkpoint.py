"""A model's folder: its config.json, and the names and shapes of its tensors. Nothing of it is run or loaded."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from patchkit.errors import ModelUnreadable
from patchkit.gates.mistral import adapt
from patchkit.gates.module import SHOWN
from patchkit.gates.syntax import split_lines
from patchkit.paths import read_regular

_MAX_HEADER = 100 * 2**20
"""Longest header of a safetensors file that is read, in bytes; the format's own limit."""
_MAX_SIZE = 2**60
"""Largest size of weights that is believed, in bytes."""
_MAX_NUMBER = 2**40
"""Largest number that is believed of a model's sizes; more would only make messages long."""
_INDEX = "model.safetensors.index.json"
_TEXT_KEYS = ("text_config", "llm_config", "decoder", "generator")
"""Where a multimodal config.json keeps the text model's, as Transformers and vLLM look for it."""

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """What a model's folder says of the model."""

    place: Path
    """The config.json, or Mistral's params.json."""
    config: Keys
    lines: Sequence[str] = field(repr=False)
    is_plain: bool = False
    """Whether the configuration object has no class of its own, so that it has these keys and no others."""

    @property
    def folder(self) -> Path:
        """Return the folder that holds the config.json."""
        return self.place.parent

    @property
    def architectures(self) -> tuple[str, ...]:
        """Return the names of the model's class, best first."""
        found = self.config.get("architectures")
        return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()

    @property
    def model_type(self) -> str | None:
        """Return the top-level model_type."""
        found = self.config.get("model_type")
        return found if isinstance(found, str) else None

    @cached_property
    def text_key(self) -> str | None:
        """Return the key of the text model's part; None where the whole config is about the text model."""
        return next((key for key in _TEXT_KEYS if isinstance(self.config.get(key), dict)), None)

    @property
    def text(self) -> Keys:
        """Return the text model's part of the config."""
        return self.config[self.text_key] if self.text_key else self.config

    @property
    def remote_code(self) -> str | None:
        """Return what the folder names as code of its own for the configuration; it is never run here."""
        mapping = self.config.get("auto_map")
        found = mapping.get("AutoConfig") if isinstance(mapping, dict) else None
        return found if isinstance(found, str) else None

    def number(self, *names: str) -> int | None:
        """Return the first of these keys of the text model's part, or of the whole, that is a size."""
        for keys in (self.text, self.config):
            for name in names:
                value = keys.get(name)
                if is_size(value):
                    return value
        return None

    def line(self, key: str) -> tuple[int, str]:
        """Return the first line that has a key, and its number; the first line where none has."""
        for number, line in enumerate(self.lines, 1):
            if f'"{key}"' in line:
                return number, line.strip()[:SHOWN]
        return 1, ""

    @cached_property
    def tensors(self) -> Mapping[str, tuple[int, ...] | None] | None:
        """Return the name and, where a header gives it, the shape of each tensor; None where no header is there."""
        index = _json(self.folder / _INDEX)
        weights = index.get("weight_map") if isinstance(index, dict) else None
        if isinstance(weights, dict):
            return dict.fromkeys(weights)
        found: dict[str, tuple[int, ...] | None] = {}
        files = sorted(self.folder.glob("*.safetensors"))
        for place in files:
            header = _header(place)
            if header is None:
                return None
            found.update(header)
        return found if files else None

    @cached_property
    def size(self) -> int | None:
        """Return the size of the weights in bytes, as the index says or the files are."""
        index = _json(self.folder / _INDEX)
        metadata = index.get("metadata") if isinstance(index, dict) else None
        total = metadata.get("total_size") if isinstance(metadata, dict) else None
        if isinstance(total, int) and not isinstance(total, bool) and 0 < total < _MAX_SIZE:
            return total
        try:
            return sum(place.stat().st_size for place in self.folder.glob("*.safetensors")) or None
        except OSError:
            return None


def open_checkpoint(place: Path) -> Checkpoint:
    """Read a model's folder, or its config.json."""
    hint = "name a folder that holds a config.json, or that file; a model of a hub must be on this disk"
    try:
        if place.is_dir():
            is_mistral = not (place / "config.json").exists() and (place / "params.json").exists()
            place = place / ("params.json" if is_mistral else "config.json")
        data = read_regular(place)
    except (OSError, ValueError) as error:
        raise ModelUnreadable(f"{place} cannot be read: {getattr(error, 'strerror', error)}", hint) from error
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelUnreadable(f"{place} is not valid JSON: {error}", hint) from error
    if not isinstance(config, dict):
        raise ModelUnreadable(f"{place} holds no JSON object", hint)
    is_plain = place.name == "params.json"
    lines = split_lines(data.decode("utf-8", "replace"))
    return Checkpoint(place, adapt(config) if is_plain else config, lines, is_plain)


def is_size(value: object) -> TypeGuard[int]:
    """Tell whether a value can be a size or a count of a model."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_NUMBER


def _json(place: Path) -> Any:
    try:
        return json.loads(read_regular(place))
    except (OSError, ValueError, RecursionError):
        return None


def _header(place: Path) -> dict[str, tuple[int, ...] | None] | None:
    """Return names and shapes from a safetensors file's header; its tensors are not read."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        length = int.from_bytes(os.read(descriptor, 8), "little") if stat.S_ISREG(status.st_mode) else 0
        if length > min(_MAX_HEADER, status.st_size):
            return None
        header = json.loads(os.read(descriptor, length))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)
    if not isinstance(header, dict):
        return None
    return {name: _shape(entry) for name, entry in header.items() if name != "__metadata__"}


def _shape(entry: object) -> tuple[int, ...] | None:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
        return None
    return tuple(shape)
