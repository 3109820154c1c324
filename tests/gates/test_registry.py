from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from patchkit.gates.code import Code
from patchkit.gates.module import Class, Evidence
from patchkit.gates.registry import Entry, Registry
from tests.gates.fragments import TRANSFORMERS, VLLM, code, write

MODELS = "vllm/model_executor/models/registry.py"
AUTO = "transformers/models/auto/configuration_auto.py"
MODELING = "transformers/models/auto/modeling_auto.py"
ASKS = {"vllm/config/vllm.py": "from transformers import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES\n"}


def bare(site: Path, files: dict[str, str]) -> Registry:
    return Registry(Code([write(site, files)]))


def place(cls: Class | None) -> tuple[str, str] | None:
    return (cls.evidence.path, cls.name) if cls else None


def test_architectures_of_the_registry(tmp_path: Path) -> None:
    known = Registry(code(tmp_path)).architectures
    text = '"LlamaForCausalLM": ("llama", "LlamaForCausalLM"),'
    assert known["LlamaForCausalLM"] == Entry("llama", "LlamaForCausalLM", Evidence(MODELS, 2, text), False)
    assert known["SeeForConditionalGeneration"].is_multimodal
    assert (known["LlamaForCausalLMEagle3"].cls, len(known)) == ("Eagle3LlamaForCausalLM", 6)


def test_entries_that_are_not_two_words_are_left_out(tmp_path: Path) -> None:
    source = """
        _A_MODELS = {
            "One": ("one",), "Three": ("a", "b", "c"), "Word": "word", "Call": make(), 7: ("a", "b"),
            name: ("a", "b"), **more, "List": ["list", "List"], "Line\\nbreak": ("line\\nbreak", "X"),
        }
        _B_MODELS = dict(B=("b", "B"))
        OTHER = {"C": ("c", "C")}
        """
    assert list(bare(tmp_path, {MODELS: source}).architectures) == ["List", "Line\nbreak"]


@pytest.mark.parametrize("files", [{}, {MODELS: "_A_MODELS = {"}, {MODELS: ""}], ids=["absent", "broken", "empty"])
def test_no_registry_has_no_architectures(tmp_path: Path, files: dict[str, str]) -> None:
    registry = bare(tmp_path, files)
    assert registry.architectures == {}
    assert registry.model("LlamaForCausalLM") is None


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("Short", ("vllm/model_executor/models/short.py", "Cls")),
        ("Long", ("other/long.py", "Cls")),
        ("Reexported", ("other/long.py", "Cls")),
        ("NoModule", None),
        ("NoClass", None),
        ("Up", None),
        ("Root", None),
        ("Line", None),
        ("Unknown", None),
    ],
)
def test_class_of_an_architecture(tmp_path: Path, architecture: str, expected: tuple[str, str] | None) -> None:
    source = """
        _MODELS = {
            "Short": ("short", "Cls"), "Long": ("other.long", "Cls"), "Reexported": ("again", "Again"),
            "NoModule": ("none", "Cls"), "NoClass": ("short", "None"), "Up": ("../../../outside", "Cls"),
            "Root": ("/outside", "Cls"), "Line": ("short\\n", "Cls"),
        }
        """
    files = {
        MODELS: source,
        "vllm/model_executor/models/short.py": "class Cls: pass\n",
        "vllm/model_executor/models/again.py": "from other.long import Cls as Again\n",
        "other/long.py": "class Cls: pass\n",
        "outside.py": "class Cls: pass\n",
    }
    assert place(bare(tmp_path, files).model(architecture)) == expected


SEE, WIDE = "transformers/models/see/configuration_see.py", "vllm/transformers_utils/configs/wide.py"


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("wide", (WIDE, "WideConfig")),
        ("llama", ("transformers/models/llama/configuration_llama.py", "LlamaConfig")),
        ("see", (SEE, "SeeConfig")),
        ("see-text", (SEE, "SeeTextConfig")),
        ("see_text", None),
        ("", None),
        ("../see", None),
        ("see\n", None),
        ("\ud800", None),
    ],
)
def test_class_of_a_model_type(tmp_path: Path, model_type: str, expected: tuple[str, str] | None) -> None:
    registry = Registry(code(tmp_path))
    assert place(registry.config(model_type)) == expected
    assert registry.config(model_type) is registry.config(model_type)


def test_config_of_vllm_comes_before_that_of_transformers(tmp_path: Path) -> None:
    table = '_CONFIG_REGISTRY = {"see": "WideConfig", "llama": "Gone"}\n'
    registry = Registry(code(tmp_path, vllm__transformers_utils__config=table))
    assert place(registry.config("see")) == (WIDE, "WideConfig")
    assert place(registry.config("llama")) == ("transformers/models/llama/configuration_llama.py", "LlamaConfig")


CONFIG, CONFIGS = "vllm/transformers_utils/config.py", "vllm/transformers_utils/configs/__init__.py"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (CONFIG, "OTHER = 1"),
        (CONFIG, "("),
        (CONFIGS, "("),
        (CONFIGS, "OTHER = 1"),
        (CONFIGS, '_CLASS_TO_MODULE = {"OtherConfig": "vllm.other"}'),
        (CONFIGS, '_CLASS_TO_MODULE = {"WideConfig": "vllm.none"}'),
        (CONFIGS, '_CLASS_TO_MODULE = {"WideConfig": "vllm"}'),
        (CONFIGS, '_CLASS_TO_MODULE = {"WideConfig": "../../../outside"}'),
    ],
)
def test_config_of_vllm_that_cannot_be_found(tmp_path: Path, file: str, text: str) -> None:
    write(tmp_path, {"outside.py": "class WideConfig: pass\n"})
    assert bare(tmp_path / "site", VLLM | TRANSFORMERS | {file: text}).config("wide") is None


def test_class_that_a_package_imports_itself(tmp_path: Path) -> None:
    registry = bare(tmp_path, VLLM | {CONFIGS: "from .wide import WideConfig\n"})
    assert place(registry.config("wide")) == (WIDE, "WideConfig")


def resolved(made: Code, names: Sequence[str]) -> list[str | None]:
    module = made.module("m")
    assert module is not None
    found = [made.find(module, name) for name in names]
    return [cls.evidence.path if cls else None for cls in found]


def test_names_that_packages_give_when_asked(tmp_path: Path) -> None:
    source = "from transformers import LlamaConfig, NoConfig, PreTrainedConfig, PretrainedConfig, SeeTextConfig\n"
    made = code(tmp_path, m=f"{source}from vllm import LlamaConfig as Other, PretrainedConfig as Base\n")
    Registry(made)
    base = "transformers/configuration_utils.py"
    llama = "transformers/models/llama/configuration_llama.py"
    assert resolved(made, ["LlamaConfig", "SeeTextConfig", "PretrainedConfig"]) == [llama, SEE, base]
    assert resolved(made, ["NoConfig", "PreTrainedConfig", "Other", "Base"]) == [None] * 4


def test_base_of_configurations_that_is_not_there(tmp_path: Path) -> None:
    source = "from transformers import PretrainedConfig\n"
    made = Code([write(tmp_path, {"transformers/__init__.py": "", "m.py": source})])
    Registry(made)
    assert resolved(made, ["PretrainedConfig"]) == [None]


def test_config_that_is_imported_from_where_it_is_asked_for_ends(tmp_path: Path) -> None:
    source = "from transformers import LlamaConfig\n"
    made = code(tmp_path, transformers__models__llama__configuration_llama=source)
    assert Registry(made).config("llama") is None


@pytest.mark.parametrize(
    "table",
    [
        'CONFIG_MAPPING_NAMES = {"a": "AConfig"}',
        'CONFIG_MAPPING_NAMES: dict[str, str] = {"a": "AConfig"}',
        'CONFIG_MAPPING_NAMES = OrderedDict([("a", "AConfig")])',
        'CONFIG_MAPPING_NAMES = OrderedDict((("a", "AConfig"), ("b", "B", "c"), "word", *more))',
        'CONFIG_MAPPING_NAMES = dict(a="AConfig")',
        'CONFIG_MAPPING_NAMES = OrderedDict(**{"a": "AConfig"}, b=7)',
        'CONFIG_MAPPING_NAMES = {}\nCONFIG_MAPPING_NAMES.update({"a": "AConfig"})',
        'CONFIG_MAPPING_NAMES = {}\nCONFIG_MAPPING_NAMES.update(a="AConfig")',
        'CONFIG_MAPPING_NAMES = {}\nCONFIG_MAPPING_NAMES |= {"a": "AConfig"}',
        'CONFIG_MAPPING_NAMES = {"a": "Old", **more, name: "X", "b": name}\nCONFIG_MAPPING_NAMES |= {"a": "AConfig"}',
        'OTHER = Wrapped(Wrapped({"b": "B"}))\nCONFIG_MAPPING_NAMES = Wrapped(Wrapped({"a": "AConfig"}))',
        'CONFIG_MAPPING_NAMES: dict\nCONFIG_MAPPING_NAMES = {"a": "AConfig"}\nCONFIG_MAPPING_NAMES.clear()\nprint()',
    ],
)
def test_table_of_transformers_in_any_shape(tmp_path: Path, table: str) -> None:
    source = "class AConfig: pass\n"
    registry = bare(tmp_path, {AUTO: f"{table}\n", "transformers/models/a/configuration_a.py": source})
    assert place(registry.config("a")) == ("transformers/models/a/configuration_a.py", "AConfig")
    assert registry.config("b") is None
    assert registry.knows_transformers


def test_table_may_lie_in_a_module_of_its_own(tmp_path: Path) -> None:
    auto = "transformers/models/auto/auto_mappings.py"
    files = {
        auto: 'CONFIG_MAPPING_NAMES = {"a": "Old", "b": "BConfig"}\n',
        AUTO: 'CONFIG_MAPPING_NAMES.update({"a": "AConfig"})\nSPECIAL_MODEL_TYPE_TO_MODULE_NAME = {"b": "a-b"}\n',
        "transformers/models/a/configuration_a.py": "class AConfig: pass\n",
        "transformers/models/a_b/configuration_a_b.py": "class BConfig: pass\n",
    }
    registry = bare(tmp_path, files)
    assert place(registry.config("a")) == ("transformers/models/a/configuration_a.py", "AConfig")
    assert place(registry.config("b")) == ("transformers/models/a_b/configuration_a_b.py", "BConfig")


@pytest.mark.parametrize(
    "table",
    ["", "CONFIG_MAPPING_NAMES = {}", "CONFIG_MAPPING_NAMES = other", 'CONFIG_MAPPING_NAMES["a"] = "AConfig"', "("],
)
def test_transformers_that_is_not_known(tmp_path: Path, table: str) -> None:
    registry = bare(tmp_path, {AUTO: table})
    assert not registry.knows_transformers
    assert registry.config("a") is None


@pytest.mark.parametrize("files", [{}, {"transformers/models/a/configuration_a.py": "x = 1\n"}])
def test_class_that_is_not_where_the_table_says(tmp_path: Path, files: dict[str, str]) -> None:
    registry = bare(tmp_path, files | {AUTO: 'CONFIG_MAPPING_NAMES = {"a": "AConfig", "../a": "AConfig"}\n'})
    assert registry.knows_transformers
    assert (registry.config("a"), registry.config("../a")) == (None, None)


def test_words_of_one_side_are_no_pair(tmp_path: Path) -> None:
    assert not bare(tmp_path, {AUTO: 'CONFIG_MAPPING_NAMES = {("a", "b"): AConfig}\n'}).knows_transformers


PAIRS = """
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("llama", "LlamaForCausalLM"), ("two", ("A", "B"))])
MODEL_MAPPING_NAMES = {"see": "See", "look": "See"}
OTHER = {"other": "See"}
"""


@pytest.mark.parametrize(
    ("model_type", "files", "expected"),
    [
        ("llama", ASKS | {MODELING: PAIRS}, "LlamaForCausalLM"),
        ("two", ASKS | {MODELING: PAIRS}, None),
        ("see", ASKS | {MODELING: PAIRS}, None),
        ("llama", ASKS, None),
        ("llama", {MODELING: PAIRS}, None),
        ("llama", {MODELING: PAIRS, "vllm/config/vllm.py": ""}, None),
    ],
)
def test_architecture_that_vllm_gives_a_text_model(
    tmp_path: Path, model_type: str, files: dict[str, str], expected: str | None
) -> None:
    assert bare(tmp_path, files).text_architecture(model_type) == expected


def test_model_types_of_an_architecture(tmp_path: Path) -> None:
    registry = bare(tmp_path, {MODELING: PAIRS})
    assert registry.model_types("See") == ("look", "see")
    assert registry.model_types("LlamaForCausalLM") == ("llama",)
    assert registry.model_types("A") == ()


def test_no_model_types_without_transformers(tmp_path: Path) -> None:
    assert bare(tmp_path, {}).model_types("See") == ()
