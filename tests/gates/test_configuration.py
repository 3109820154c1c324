from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from patchkit.gates.checkpoint import Checkpoint, open_checkpoint
from patchkit.gates.code import Code
from patchkit.gates.configuration import config_classes, has_attribute, text_model_type
from patchkit.gates.module import Evidence
from patchkit.gates.registry import Registry
from tests.gates.fragments import checkpoint, code, write

LLAMA = "transformers/models/llama/configuration_llama.py"
SEE = "transformers/models/see/configuration_see.py"
REMOTE = {"AutoConfig": "configuration_x.XConfig"}
X = "class XConfig:\n    own = 1\n"


def names(folder: Path, config: dict[str, Any], name: str = "config.json", **changes: str) -> list[str]:
    registry = Registry(code(folder / "site", **changes))
    return [cls.name for cls in config_classes(registry, checkpoint(folder / "model", config, name))]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama"}, ["LlamaConfig"]),
        ({"model_type": "wide"}, ["WideConfig"]),
        ({"model_type": "none"}, []),
        ({"model_type": 7}, []),
        ({"model_type": ["llama"]}, []),
        ({"model_type": None}, []),
        ({"model_type": "llama\n"}, []),
        ({}, []),
        ({"auto_map": REMOTE}, ["XConfig"]),
        ({"auto_map": REMOTE, "model_type": "none"}, ["XConfig"]),
        ({"auto_map": REMOTE, "model_type": "llama"}, ["LlamaConfig", "XConfig"]),
        ({"auto_map": REMOTE, "model_type": "wide"}, ["WideConfig"]),
    ],
)
def test_classes_that_may_stand_behind_a_config(tmp_path: Path, config: dict[str, Any], expected: list[str]) -> None:
    write(tmp_path / "model", {"configuration_x.py": X})
    assert names(tmp_path, config) == expected


def test_params_of_mistral_have_no_class(tmp_path: Path) -> None:
    assert names(tmp_path, {"model_type": "llama"}, "params.json") == []


@pytest.mark.parametrize(
    "target",
    [
        "",
        "XConfig",
        ".XConfig",
        "configuration_x.",
        "configuration_x.None",
        "none.XConfig",
        "../outside.XConfig",
        "..outside.XConfig",
        "/outside.XConfig",
        "sub/inner.XConfig",
        "sub.inner.XConfig",
        "owner/model--configuration_x.XConfig",
        "configuration_x.X Config",
        "configuration_x.XConfig\n",
        "configuration_x\n.XConfig",
        "configuration_x.X\0",
        "cönfiguration.XConfig",
        "broken.XConfig",
        "pipe.XConfig",
        "folder.XConfig",
        "loop.XConfig",
        "package.XConfig",
    ],
)
def test_code_of_a_folder_is_asked_for_by_plain_names(tmp_path: Path, target: str) -> None:
    files = {"outside.py": X, "model/configuration_x.py": X, "model/sub/inner.py": X, "model/cönfiguration.py": X}
    loops = {"model/broken.py": "class XConfig(", "model/loop.py": "from pool import XConfig\n"}
    write(tmp_path, files | loops | {"model/pool.py": "from loop import XConfig\n"})
    os.mkfifo(tmp_path / "model" / "pipe.py")
    (tmp_path / "model" / "folder.py").mkdir()
    (tmp_path / "model" / "package").symlink_to(tmp_path)
    assert names(tmp_path, {"auto_map": {"AutoConfig": target}}) == []


def test_code_of_a_folder_may_be_linked_and_in_parts(tmp_path: Path) -> None:
    write(tmp_path, {"blob": "from .inner import XConfig\n", "model/inner.py": X})
    (tmp_path / "model" / "configuration_x.py").symlink_to("../blob")
    assert names(tmp_path, {"auto_map": REMOTE}) == ["XConfig"]


def test_code_of_a_folder_is_never_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    write(tmp_path / "model", {"configuration_x.py": f"open({str(ran)!r}, 'w')\n{X}"})
    assert names(tmp_path, {"auto_map": REMOTE}) == ["XConfig"]
    assert not ran.exists()


def test_model_need_not_lie_in_the_image(tmp_path: Path) -> None:
    code(tmp_path / "image" / "site")
    write(tmp_path / "model", {"configuration_x.py": X})
    registry = Registry(Code([tmp_path / "image" / "site"], tmp_path / "image"))
    (cls,) = config_classes(registry, checkpoint(tmp_path / "model", {"auto_map": REMOTE}))
    assert cls.name == "XConfig"


def test_code_of_a_folder_may_have_many_conditions(tmp_path: Path) -> None:
    write(tmp_path / "model", {"configuration_x.py": "if a:\n    b\n" + "elif c:\n    d\n" * 1500 + X})
    assert names(tmp_path, {"auto_map": REMOTE}) == ["XConfig"]


def test_code_of_a_folder_does_not_replace_what_is_installed(tmp_path: Path) -> None:
    source = "from transformers import PretrainedConfig\nclass XConfig(PretrainedConfig): pass\n"
    write(tmp_path / "model", {"configuration_x.py": source, "transformers.py": "class PretrainedConfig: token = 1\n"})
    assert asked(tmp_path, {"auto_map": REMOTE}, "token")[0] is False


def test_code_of_a_folder_may_have_its_base_in_another_file(tmp_path: Path) -> None:
    source = "from .base import Base\nclass XConfig(Base): pass\n"
    write(tmp_path / "model", {"configuration_x.py": source, "base.py": "class Base:\n    token = 1\n"})
    assert asked(tmp_path, {"auto_map": REMOTE}, "token")[0] is True


def asked(
    folder: Path, config: dict[str, Any], path: str, name: str = "config.json", **changes: str
) -> tuple[bool | None, list[str]]:
    registry = Registry(code(folder / "site", **changes))
    opened = checkpoint(folder / "model", config, name)
    found, evidence = has_attribute(registry, opened, config_classes(registry, opened), path.split("."))
    places = [line.path.removeprefix(f"{folder}/") for line in evidence]
    return found, [f"{place}:{line.line}: {line.text}" for place, line in zip(places, evidence, strict=True)]


IMAGE_TOKEN = "self.image_token_id = image_token_id"
CLASS_SEE, CLASS_TEXT = (
    f"{SEE}:6: class SeeConfig(PretrainedConfig):",
    f"{SEE}:3: class SeeTextConfig(PretrainedConfig):",
)


@pytest.mark.parametrize(
    ("config", "path", "expected"),
    [
        ({"token": 1}, "token", (True, ['model/config.json:2: "token": 1'])),
        ({"token": None}, "token", (True, ['model/config.json:2: "token": null'])),
        ({"a": {"token": 1}}, "a.token", (True, ['model/config.json:3: "token": 1'])),
        ({"a": {"b": {"token": 1}}}, "a.b.token", (True, ['model/config.json:4: "token": 1'])),
        ({}, "token", (None, [])),
        ({"a": {}}, "a.token", (None, [])),
        ({"a": [1]}, "a.token", (None, [])),
        ({"a": "token"}, "a.token", (None, [])),
        ({}, "a.b.token", (None, [])),
        ({"model_type": "see"}, "image_token_id", (True, [CLASS_SEE])),
        ({"model_type": "see"}, "model_type", (True, ['model/config.json:2: "model_type": "see"'])),
        ({"model_type": "see"}, "sub_configs", (True, [f'{SEE}:8: sub_configs = {{"text_config": SeeTextConfig}}'])),
        ({"model_type": "see"}, "image_token_index", (False, [CLASS_SEE])),
        ({"model_type": "see"}, "text_config.token", (False, [CLASS_TEXT])),
        ({"model_type": "see", "text_config": {}}, "text_config.token", (False, [CLASS_TEXT])),
        ({"model_type": "see", "text_config": [1]}, "text_config.token", (False, [CLASS_TEXT])),
        ({"model_type": "see"}, "text_config.model_type", (True, [f'{SEE}:4: model_type = "see_llama_text"'])),
        ({"model_type": "see"}, "vision_config.token", (None, [])),
        ({"model_type": "see"}, "vision_config.inner.token", (None, [])),
        ({"model_type": "wide"}, "text_config.model_type", (True, [f'{LLAMA}:4: model_type = "llama"'])),
    ],
)
def test_attribute_of_a_configuration(
    tmp_path: Path, config: dict[str, Any], path: str, expected: tuple[bool | None, list[str]]
) -> None:
    assert asked(tmp_path, config, path) == expected


def test_empty_path_says_nothing(tmp_path: Path) -> None:
    registry = Registry(code(tmp_path / "site"))
    assert has_attribute(registry, checkpoint(tmp_path / "model", {"a": 1}), [], []) == (None, ())


@pytest.mark.parametrize(
    ("path", "found"), [("hidden_size", True), ("vision_config.a", True), ("image_token_index", False), ("b.c", False)]
)
def test_params_of_mistral_have_their_keys_and_no_others(tmp_path: Path, path: str, found: bool) -> None:
    config = {"dim": 8, "vision_encoder": {"a": 1}} if path == "vision_config.a" else {"dim": 8}
    assert asked(tmp_path, config, path, "params.json")[0] is found


HEAD = "from transformers import PretrainedConfig, OtherConfig\nfrom transformers.base import Far\n"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class XConfig: pass", False),
        ("class XConfig(PretrainedConfig): pass", False),
        ("class XConfig(transformers.PreTrainedConfig): pass", False),
        ("class XConfig(OtherConfig): pass", None),
        ("class XConfig(PretrainedConfig, OtherConfig): pass", None),
        ("class XConfig(PretrainedConfig, make()): pass", None),
        ("class Base: pass\nclass XConfig(Base, PretrainedConfig): pass", False),
        ("class Base(OtherConfig): pass\nclass XConfig(Base, PretrainedConfig): pass", None),
        ("class XConfig(PretrainedConfig):\n    token: int = 1", True),
        ("class XConfig(PretrainedConfig):\n    def token(self): pass", True),
        ("class XConfig(OtherConfig):\n    def __init__(self): self.token = 1", True),
        ("class XConfig(PretrainedConfig):\n    attribute_map = {'token': 'other', **more}", True),
        ("class XConfig(PretrainedConfig):\n    attribute_map = {'other': 'token'}", False),
        ("class XConfig(PretrainedConfig):\n    attribute_map = dict(token='other')", False),
        ("class XConfig(PretrainedConfig):\n    attribute_map: dict", False),
        ("class Base:\n    attribute_map = {'token': 'other'}\nclass XConfig(Base, OtherConfig): pass", True),
        ("class XConfig(YConfig): pass\nclass YConfig(XConfig): pass", None),
    ],
)
def test_attribute_of_code_of_its_own(tmp_path: Path, source: str, found: bool | None) -> None:
    write(tmp_path / "model", {"configuration_x.py": f"{HEAD}{source}\n"})
    assert asked(tmp_path, {"auto_map": REMOTE}, "token")[0] is found


@pytest.mark.parametrize(
    ("source", "found", "lines"),
    [
        ("class XConfig:\n    token = 1\n", None, ["class LlamaConfig(PretrainedConfig):", "token = 1"]),
        ("class XConfig: pass\n", False, ["class LlamaConfig(PretrainedConfig):", "class XConfig: pass"]),
    ],
)
def test_two_classes_must_agree(tmp_path: Path, source: str, found: bool | None, lines: list[str]) -> None:
    write(tmp_path / "model", {"configuration_x.py": source})
    answer, evidence = asked(tmp_path, {"auto_map": REMOTE, "model_type": "llama"}, "token")
    assert (answer, [line.split(": ", 1)[1] for line in evidence]) == (found, lines)


def spoken(folder: Path, config: object, **changes: str) -> tuple[str | None, list[tuple[int, str]]]:
    registry = Registry(code(folder / "site", **changes))
    found, evidence = text_model_type(registry, checkpoint(folder / "model", config))
    return found, [(line.line, line.text) for line in evidence]


INNER = {"model_type": "see", "text_config": {"model_type": "llama"}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama"}, ("llama", [(2, '"model_type": "llama"')])),
        ({"model_type": "none"}, ("none", [(2, '"model_type": "none"')])),
        ({"model_type": 'a"b\n'}, ('a"b\n', [(1, "")])),
        ({"model_type": 7}, (None, [])),
        ({"model_type": None}, (None, [])),
        ({"model_type": ["llama"]}, (None, [])),
        ({}, (None, [])),
        (INNER, ("llama", [(4, '"model_type": "llama"')])),
        ({"text_config": {"model_type": "see"}, "model_type": "see"}, ("see", [(5, '"model_type": "see"')])),
        ({"model_type": "llama", "text_config": [1]}, ("llama", [(2, '"model_type": "llama",')])),
        ({"model_type": "llama", "text_config": {"a": 1}}, (None, [])),
        ({"model_type": "see", "text_config": {}}, ("see_llama_text", [(4, 'model_type = "see_llama_text"')])),
        (
            {"model_type": "see", "text_config": {"model_type": 7}},
            ("see_llama_text", [(4, 'model_type = "see_llama_text"')]),
        ),
        ({"model_type": "see"}, ("see_llama_text", [(4, 'model_type = "see_llama_text"')])),
        ({"model_type": "wide"}, ("llama", [(4, 'model_type = "llama"')])),
        ({"thinker_config": {"text_config": {"model_type": "in"}}}, ("in", [(4, '"model_type": "in"')])),
        ({"thinker_config": {}, "model_type": "llama"}, (None, [])),
        ({"thinker_config": {"text_config": "llama"}}, (None, [])),
        ({"thinker_config": "llama", "model_type": "llama"}, ("llama", [(3, '"model_type": "llama"')])),
    ],
)
def test_model_type_of_the_text_model(
    tmp_path: Path, config: object, expected: tuple[str | None, list[tuple[int, str]]]
) -> None:
    assert spoken(tmp_path, config) == expected


def test_class_without_a_base_is_taken_at_its_keys(tmp_path: Path) -> None:
    write(tmp_path / "model", {"configuration_x.py": X})
    assert spoken(tmp_path, {"model_type": "x", "auto_map": REMOTE}) == ("x", [(2, '"model_type": "x",')])


def test_line_of_the_model_type_is_cut(tmp_path: Path) -> None:
    registry = Registry(code(tmp_path / "site"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x" * 300}))
    found, evidence = text_model_type(registry, open_checkpoint(tmp_path))
    text = '{"model_type": "' + "x" * 184
    assert (found, evidence) == ("x" * 300, (Evidence(str(tmp_path / "config.json"), 1, text),))


LLAMA_CONFIG = """
    from ...configuration_utils import PretrainedConfig

    class LlamaConfig(PretrainedConfig):
        {body}
    """


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("def get_text_config(self): return self.inner", None),
        ("get_text_config = other", None),
        ("def get_other(self): return self.inner", "llama"),
    ],
)
def test_class_with_a_way_of_its_own_to_the_text_model(tmp_path: Path, body: str, found: str | None) -> None:
    source = LLAMA_CONFIG.format(body=body)
    config = {"model_type": "llama"}
    assert spoken(tmp_path, config, transformers__models__llama__configuration_llama=source)[0] == found


@pytest.mark.parametrize(
    "body", ["pass", "model_type = name", "model_type: str", "model_type = ()", "def model_type(self): pass"]
)
def test_class_that_gives_no_model_type(tmp_path: Path, body: str) -> None:
    source = LLAMA_CONFIG.format(body=body)
    config = {"model_type": "wide", "text_config": {"a": 1}}
    assert spoken(tmp_path, config, transformers__models__llama__configuration_llama=source) == (None, [])


PART = """
from transformers import LlamaConfig, PretrainedConfig
from transformers.models.auto import AutoConfig
class YConfig:
    model_type = "y"
class XConfig(PretrainedConfig):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("sub_configs = {'text_config': YConfig}", "y"),
        ("sub_configs = {**more, 'other': LlamaConfig, 'text_config': YConfig}", "y"),
        ("sub_configs = {'text_config': AutoConfig}", None),
        ("sub_configs = {'text_config': Unknown}", None),
        ("sub_configs = [('text_config', YConfig)]", None),
        ("sub_configs: dict", None),
        ("def __init__(self): self.t = YConfig(**text_config)", "y"),
        ("def __init__(self): self.t = YConfig(1, a=2, **self.text_config)", "y"),
        ("def __init__(self): self.t = YConfig(**other)", None),
        ("def __init__(self): self.t = YConfig(text_config)", None),
        ("def __init__(self): self.t = YConfig(text_config=text_config)", None),
        ("def __init__(self): self.t = Unknown(**text_config)", None),
        ("def __init__(self): super().__init__(**text_config); YConfig(**text_config)", "y"),
        ("sub_configs = {'text_config': AutoConfig}\n    def f(self): YConfig(**text_config)", "y"),
        ("def __init__(self): text_config.get('model_type', 'llama')", "llama"),
        ("def __init__(self): self.text_config.get('model_type', 'llama')", "llama"),
        ("def __init__(self): text_config.get('model_type', 'none')", None),
        ("def __init__(self): text_config.get('model_type', name)", None),
        ("def __init__(self): text_config.get('model_type')", None),
        ("def __init__(self): text_config.get('other', 'llama')", None),
        ("def __init__(self): other.get('model_type', 'llama')", None),
        ("pass", None),
    ],
)
def test_part_of_a_configuration(tmp_path: Path, body: str, found: str | None) -> None:
    changes = {
        "vllm__transformers_utils__config": "_CONFIG_REGISTRY = {'x': 'XConfig'}\n",
        "vllm__transformers_utils__configs__wide": PART.format(body=body),
        "transformers__models__auto__configuration_auto": (
            "CONFIG_MAPPING_NAMES = {'llama': 'LlamaConfig'}\nclass AutoConfig: pass\n"
        ),
    }
    made = code(tmp_path / "site", **changes)
    table = "_CLASS_TO_MODULE = {'XConfig': 'vllm.transformers_utils.configs.wide'}\n"
    auto = "from .configuration_auto import AutoConfig\n"
    files = {"vllm/transformers_utils/configs/__init__.py": table, "transformers/models/auto/__init__.py": auto}
    write(tmp_path / "site", files)
    opened = checkpoint(tmp_path / "model", {"model_type": "x", "text_config": {"a": 1}})
    assert text_model_type(Registry(made), opened)[0] == found


def test_part_may_come_from_a_base(tmp_path: Path) -> None:
    source = "class Base:\n    sub_configs = {'text_config': Text}\nclass Text:\n    model_type = 'y'\n"
    write(tmp_path / "model", {"configuration_x.py": f"{source}class XConfig(Base): pass\n"})
    assert spoken(tmp_path, {"auto_map": REMOTE, "text_config": {"a": 1}}) == ("y", [(4, "model_type = 'y'")])


def test_config_without_lines(tmp_path: Path) -> None:
    opened = Checkpoint(tmp_path / "config.json", {"model_type": "llama"}, ())
    registry = Registry(code(tmp_path))
    assert text_model_type(registry, opened) == ("llama", (Evidence(str(tmp_path / "config.json"), 1, ""),))
