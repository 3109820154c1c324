from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from patchkit.errors import ModelUnreadable
from patchkit.gates.checkpoint import Checkpoint, open_checkpoint
from tests.gates.fragments import TARGET, checkpoint

INDEX = "model.safetensors.index.json"
MISSING = object()


def safetensors(place: Path, header: object, *, length: int | None = None) -> None:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    place.write_bytes((len(data) if length is None else length).to_bytes(8, "little") + data)


def model(folder: Path, **config: object) -> Checkpoint:
    return checkpoint(folder, config)


def test_folder_and_file_are_opened_alike(tmp_path: Path) -> None:
    opened = checkpoint(tmp_path, TARGET)
    assert (opened.place, opened.folder, opened.config) == (tmp_path / "config.json", tmp_path, TARGET)
    assert (opened.lines[0], opened.lines[1], opened.is_plain) == ("{", ' "hidden_size": 64,', False)
    assert open_checkpoint(tmp_path / "config.json") == opened


def test_params_of_mistral(tmp_path: Path) -> None:
    opened = checkpoint(tmp_path, {"dim": 8}, "params.json")
    assert (opened.place.name, opened.is_plain) == ("params.json", True)
    assert (opened.config["hidden_size"], opened.architectures) == (8, ("MistralForCausalLM",))
    assert opened.line("dim") == (2, '"dim": 8')
    assert open_checkpoint(tmp_path / "params.json") == opened


def test_config_comes_before_the_params_of_mistral(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"dim": 8}, "params.json")
    opened = checkpoint(tmp_path, {"dim": 9})
    assert (opened.is_plain, opened.config) == (False, {"dim": 9})


def test_config_through_links_is_read_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text('{"a": 1}')
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to("../blob")
    opened = open_checkpoint(tmp_path / "model")
    assert (opened.config, opened.folder) == ({"a": 1}, tmp_path / "model")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b'{"a": 1,}', "is not valid JSON"),
        (b"\xff{}", "is not valid JSON"),
        (b'{"a": "\n"}', "is not valid JSON"),
        (b"[" * 200_000, "is not valid JSON"),
        (b'{"a":' * 200_000, "is not valid JSON"),
        (b"[]", "holds no JSON object"),
        (b'"config"', "holds no JSON object"),
        (b"null", "holds no JSON object"),
        (b"NaN", "holds no JSON object"),
    ],
    ids=lambda value: value[:12].decode("latin-1") if isinstance(value, bytes) else None,
)
@pytest.mark.parametrize("name", ["config.json", "params.json"])
def test_config_that_is_no_json_object(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelUnreadable, match=message) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.message.startswith(str(tmp_path / name))
    assert caught.value.hint.startswith("name a folder that holds a config.json")


def test_giant_config(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(32 * 2**20 + 1)
    with pytest.raises(ModelUnreadable, match=r"config\.json cannot be read: larger than 33554432 bytes"):
        open_checkpoint(tmp_path)


def test_folder_and_pipe_in_place_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "folder" / "config.json").mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.json")
    for place in (tmp_path / "folder", tmp_path / "pipe", tmp_path / "pipe" / "config.json", Path("/dev/zero")):
        with pytest.raises(ModelUnreadable, match="not a regular file"):
            open_checkpoint(place)


@pytest.mark.parametrize("name", ["", "config.json", "none", "none/config.json", "line\nbreak", "nul\0", "\udcff"])
def test_config_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelUnreadable, match=r"cannot be read: (No such file or directory|embedded null byte)"):
        open_checkpoint(tmp_path / name)


def test_circular_link_in_place_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to("config.json")
    with pytest.raises(ModelUnreadable, match="cannot be read: Too many levels"):
        open_checkpoint(tmp_path)


def test_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match="File name too long"):
        open_checkpoint(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["A", "B"], ("A", "B")),
        (["A", 1, None, ["B"], "C\n"], ("A", "C\n")),
        ("LlamaForCausalLM", ()),
        ({"A": "B"}, ()),
        (None, ()),
        ([], ()),
    ],
)
def test_architectures(tmp_path: Path, given: object, expected: tuple[str, ...]) -> None:
    assert model(tmp_path, architectures=given).architectures == expected


@pytest.mark.parametrize(("given", "expected"), [("llama", "llama"), (7, None), (None, None), (["llama"], None)])
def test_model_type(tmp_path: Path, given: object, expected: str | None) -> None:
    assert model(tmp_path, model_type=given).model_type == expected


def test_keys_that_are_not_there(tmp_path: Path) -> None:
    opened = model(tmp_path)
    assert (opened.architectures, opened.model_type, opened.text_key, opened.remote_code) == ((), None, None, None)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"text_config": {"a": 1}}, "text_config"),
        ({"llm_config": {"a": 1}}, "llm_config"),
        ({"generator": {"a": 1}, "decoder": {"a": 1}}, "decoder"),
        ({"generator": {"a": 1}}, "generator"),
        ({"decoder": {}, "text_config": {"a": 1}}, "text_config"),
        ({"text_config": {}, "decoder": {"a": 1}}, "text_config"),
        ({"text_config": [{"a": 1}], "llm_config": "a"}, None),
        ({"vision_config": {"a": 1}}, None),
    ],
)
def test_part_of_the_text_model(tmp_path: Path, config: dict[str, Any], key: str | None) -> None:
    opened = checkpoint(tmp_path, config)
    assert (opened.text_key, opened.text) == (key, config[key] if key else config)


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({"AutoConfig": "configuration_x.X"}, "configuration_x.X"),
        ({"AutoConfig": "../x.Y"}, "../x.Y"),
        ({"AutoModel": "modeling_x.X"}, None),
        ({"AutoConfig": ["configuration_x.X"]}, None),
        ({"AutoConfig": None}, None),
        ("configuration_x.X", None),
        ([], None),
    ],
)
def test_code_of_its_own(tmp_path: Path, mapping: object, expected: str | None) -> None:
    assert model(tmp_path, auto_map=mapping).remote_code == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"a": 1}, 1),
        ({"a": 0, "b": 1}, 1),
        ({"b": 2}, 2),
        ({"a": True, "b": 3}, 3),
        ({"a": "1", "b": 1.5}, None),
        ({"a": 1, "text_config": {"a": 2}}, 2),
        ({"a": 1, "text_config": {"b": 2}}, 2),
        ({"a": 1, "text_config": {"a": None}}, 1),
        ({"a": 1, "text_config": [2]}, 1),
        ({"vision_config": {"a": 1}}, None),
        ({"a": -1}, None),
        ({"a": 2**40}, None),
    ],
)
def test_number(tmp_path: Path, config: dict[str, Any], expected: int | None) -> None:
    assert checkpoint(tmp_path, config).number("a", "b") == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [("a", (2, '"a": 1,')), ("b", (3, '"b": "a",')), ("inner", (5, '"inner": 2')), ("none", (1, "")), ("", (1, ""))],
)
def test_line_of_a_key(tmp_path: Path, key: str, expected: tuple[int, str]) -> None:
    assert model(tmp_path, a=1, b="a", text_config={"inner": 2}).line(key) == expected


def test_line_is_cut(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"a": "x" * 1000}))
    assert open_checkpoint(tmp_path).line("a") == (1, '{"a": "' + "x" * 193)


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
def test_lines_are_those_of_an_editor(tmp_path: Path, character: str) -> None:
    (tmp_path / "config.json").write_text(f'{{"a": "{character}",\n"b": 1}}', encoding="utf-8")
    assert open_checkpoint(tmp_path).line("b") == (2, '"b": 1}')


def test_tensors_of_an_index(tmp_path: Path) -> None:
    opened = model(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a.weight": "one", "b": 7, "line\nbreak": None}}))
    safetensors(tmp_path / "one.safetensors", {"c": {"shape": [1]}})
    assert opened.tensors == {"a.weight": None, "b": None, "line\nbreak": None}


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": ["a"]}', "[" * 200_000, '{"weight_map": null}'])
def test_index_that_says_nothing_leaves_the_headers(tmp_path: Path, index: str) -> None:
    opened = model(tmp_path)
    (tmp_path / INDEX).write_text(index)
    safetensors(tmp_path / "b.safetensors", {"b": {"shape": [2, 3], "dtype": "BF16"}, "__metadata__": {"a": "b"}})
    safetensors(tmp_path / "a.safetensors", {"a": {"shape": []}, "b": {"shape": [1]}})
    (tmp_path / "c.bin").write_bytes(b"c")
    assert opened.tensors == {"a": (), "b": (2, 3)}


@pytest.mark.parametrize(
    ("entry", "shape"),
    [
        ({"shape": [4, 5]}, (4, 5)),
        ({"shape": [4, "5"]}, None),
        ({"shape": [4.5]}, None),
        ({"shape": 4}, None),
        ({"shape": {"4": 5}}, None),
        ({}, None),
        ([4, 5], None),
        (None, None),
        ("shape", None),
    ],
)
def test_shape_of_a_tensor(tmp_path: Path, entry: object, shape: tuple[int, ...] | None) -> None:
    opened = model(tmp_path)
    safetensors(tmp_path / "a.safetensors", {"a\nb": entry})
    assert opened.tensors == {"a\nb": shape}


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (b"", None),
        (b"", 2**64 - 1),
        (b"{}", 0),
        (b"{}", 11),
        (b"{}", 2**63),
        (b"{}" + b" " * 100, 1),
        (b"[]", None),
        (b"null", None),
        (b"{", None),
        (b"\xff" * 16, None),
        (b"[" * 200_000, None),
        (b'{"a":' * 200_000, None),
    ],
    ids=lambda value: value[:10].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_header_that_lies(tmp_path: Path, header: bytes, length: int | None) -> None:
    opened = model(tmp_path)
    safetensors(tmp_path / "a.safetensors", {"a": {"shape": [1]}})
    safetensors(tmp_path / "b.safetensors", header, length=length)
    assert opened.tensors is None


def test_header_longer_than_the_format_allows(tmp_path: Path) -> None:
    opened = model(tmp_path)
    safetensors(tmp_path / "a.safetensors", b"{}", length=100 * 2**20 + 1)
    with (tmp_path / "a.safetensors").open("r+b") as file:
        file.truncate(200 * 2**20)
    assert opened.tensors is None


def test_header_that_is_cut_short(tmp_path: Path) -> None:
    opened = model(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"\x01\0\0")
    assert opened.tensors is None


def test_what_is_no_file_of_tensors(tmp_path: Path) -> None:
    for name in ("folder", "pipe", "link", "device"):
        model(tmp_path / name)
    (tmp_path / "folder" / "a.safetensors").mkdir()
    os.mkfifo(tmp_path / "pipe" / "a.safetensors")
    (tmp_path / "link" / "a.safetensors").symlink_to("none")
    (tmp_path / "device" / "a.safetensors").symlink_to("/dev/zero")
    opened = [open_checkpoint(tmp_path / name) for name in ("folder", "pipe", "link", "device")]
    assert [each.tensors for each in opened] == [None] * 4


def test_pipe_that_somebody_writes_to(tmp_path: Path) -> None:
    opened = model(tmp_path)
    os.mkfifo(tmp_path / "a.safetensors")
    writer = os.open(tmp_path / "a.safetensors", os.O_RDWR)
    try:
        assert opened.tensors is None
    finally:
        os.close(writer)


def test_folder_leaves_no_descriptor_open(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").mkdir()
    before = next_descriptor()
    assert [model(tmp_path).tensors for _ in range(5)] == [None] * 5
    assert next_descriptor() == before


def next_descriptor() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_no_tensors(tmp_path: Path) -> None:
    opened = model(tmp_path)
    assert (opened.tensors, opened.size) == (None, None)


@pytest.mark.parametrize(
    ("index", "size"),
    [
        ({"metadata": {"total_size": 12}}, 12),
        ({"metadata": {"total_size": 0}}, 6),
        ({"metadata": {"total_size": -5}}, 6),
        ({"metadata": {"total_size": "12"}}, 6),
        ({"metadata": {"total_size": 1e3}}, 6),
        ({"metadata": [12]}, 6),
        ({}, 6),
        ([], 6),
        (MISSING, 6),
    ],
)
def test_size_of_the_weights(tmp_path: Path, index: object, size: int) -> None:
    opened = model(tmp_path)
    (tmp_path / "a.safetensors").write_bytes(b"1234")
    (tmp_path / "b.safetensors").write_bytes(b"56")
    if index is not MISSING:
        (tmp_path / INDEX).write_text(json.dumps(index))
    assert opened.size == size


@pytest.mark.parametrize("total", [True, 10**400])
def test_size_that_no_disk_has(tmp_path: Path, total: int) -> None:
    opened = model(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": total}}))
    assert opened.size is None


def test_size_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    opened = model(tmp_path)
    (tmp_path / "a.safetensors").symlink_to("none")
    assert opened.size is None


def test_pipe_in_place_of_the_index(tmp_path: Path) -> None:
    opened = model(tmp_path)
    os.mkfifo(tmp_path / INDEX)
    safetensors(tmp_path / "a.safetensors", {"a": {"shape": [1]}})
    assert (opened.tensors, opened.size) == ({"a": (1,)}, (tmp_path / "a.safetensors").stat().st_size)
