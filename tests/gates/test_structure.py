from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from patchkit.gates.checkpoint import Checkpoint
from patchkit.gates.code import Code
from patchkit.gates.module import Class, Evidence
from patchkit.gates.registry import Registry
from patchkit.gates.structure import Step, Structure
from tests.gates.fragments import TRANSFORMERS, VLLM, write

MODELS = "vllm/model_executor/models"
SEE_CONFIG: dict[str, Any] = {"model_type": "see", "text_config": {"model_type": "llama"}}


def structure(
    folder: Path,
    architecture: str,
    config: dict[str, Any] | None = None,
    *,
    source: str | None = None,
    files: dict[str, str] | None = None,
) -> Structure:
    """Return a model of the little vLLM; ``source`` is written in place of the module of the see model."""
    changed = {f"{MODELS}/see.py": source} if source is not None else {}
    code = Code([write(folder, VLLM | TRANSFORMERS | changed | (files or {}))])
    registry = Registry(code)
    cls = registry.model(architecture)
    assert cls is not None
    return Structure(code, registry, Checkpoint(folder / "config.json", config or {}, ()), cls)


def see(folder: Path, source: str, config: dict[str, Any] | None = None, **files: str) -> Structure:
    head = "from .interfaces import SupportsMultiModal\nfrom .llama import LlamaForCausalLM, LlamaModel\n"
    head += "from .deep import DeepForCausalLM\n"
    return structure(
        folder,
        "SeeForConditionalGeneration",
        config,
        source=f"{head}{source}\n",
        files={name.replace("__", "/") + ".py": text for name, text in files.items()},
    )


def wrapper(lines: str, more: str = "") -> str:
    body = indent(lines, " " * 12)
    return f"""class SeeForConditionalGeneration(SupportsMultiModal):
    def __init__(self, vllm_config, cls=LlamaForCausalLM, *, other=DeepForCausalLM, none):
        with self._mark_language_model(vllm_config):
{body}
{indent(more, "    ")}
"""


def name(cls: Class | None) -> str | None:
    return cls.name if cls else None


def test_text_model(tmp_path: Path) -> None:
    model = structure(tmp_path, "LlamaForCausalLM")
    assert (model.is_multimodal, model.language_attribute) == (False, "")
    assert (name(model.language_model), name(model.decoder)) == ("LlamaForCausalLM", "LlamaModel")
    assert model.lineage.names >= {"LlamaForCausalLM", "SupportsEagle3", "SupportsEagleBase", "Module"}
    assert model.has_inner_model is True
    layers = "self.start_layer, self.end_layer, self.layers = make_layers(vllm_config)"
    assert model.steps == (
        Step(
            "",
            "LlamaForCausalLM",
            Evidence(f"{MODELS}/llama.py", 18, "class LlamaForCausalLM(nn.Module, SupportsPP, SupportsEagle3):"),
        ),
        Step("model", "LlamaModel", Evidence(f"{MODELS}/llama.py", 4, "class LlamaModel(nn.Module):")),
        Step("layers", "decoder layers", Evidence(f"{MODELS}/llama.py", 7, layers)),
    )


def test_multimodal_model(tmp_path: Path) -> None:
    model = structure(tmp_path, "SeeForConditionalGeneration", SEE_CONFIG)
    assert (model.is_multimodal, model.language_attribute) == (True, "language_model")
    assert [(step.attribute, step.cls, step.evidence.line) for step in model.steps] == [
        ("", "SeeForConditionalGeneration", 5),
        ("language_model", "LlamaForCausalLM", 18),
        ("model", "LlamaModel", 4),
        ("layers", "decoder layers", 7),
    ]


def test_class_of_a_constant_of_the_class(tmp_path: Path) -> None:
    assert name(structure(tmp_path, "DeepForCausalLM").decoder) == "DeepModel"


def test_model_of_which_nothing_is_known(tmp_path: Path) -> None:
    model = see(tmp_path, "class SeeForConditionalGeneration(SupportsMultiModal, Unknown): pass")
    assert (model.language_attribute, model.language_model, model.decoder) == (None, None, None)
    assert (model.has_inner_model, [step.cls for step in model.steps]) == (None, ["SeeForConditionalGeneration"])


@pytest.mark.parametrize(
    ("method", "attribute"),
    [
        ("return self.language_model", "language_model"),
        ("return self.model.language_model", "model.language_model"),
        ("return self", ""),
        ("return self.a\nreturn self.b", None),
        ("return other.a", None),
        ("return self.a()", None),
        ("raise NotImplementedError", None),
        ("return", None),
    ],
)
def test_attribute_that_a_method_gives(tmp_path: Path, method: str, attribute: str | None) -> None:
    more = f"def get_language_model(self):\n{indent(method, '    ')}"
    assert see(tmp_path, wrapper("self.marked = LlamaForCausalLM()", more)).language_attribute == attribute


@pytest.mark.parametrize(
    ("lines", "attribute"),
    [
        ("self.lm = 1", "lm"),
        ("self.lm = 1\nself.lm = 2", "lm"),
        ("self.lm = self.other = 1", None),
        ("self.lm = 1\nself.other = 2", None),
        ("if a:\n    self.lm = 1\nelse:\n    self.lm = 2", "lm"),
        ("lm = self.lm = 1\nself.a.b = other.lm = 2", "lm"),
        ("self.lm: object = 1", None),
        ("pass", None),
    ],
)
def test_attribute_in_a_marked_block(tmp_path: Path, lines: str, attribute: str | None) -> None:
    assert see(tmp_path, wrapper(lines)).language_attribute == attribute


@pytest.mark.parametrize(
    ("block", "attribute"),
    [
        ("self._mark_language_model(a)", "lm"),
        ("other(), self._mark_language_model(a) as b", "lm"),
        ("self._mark_language_model", None),
        ("self._mark_tower_model(a)", None),
        ("mark(a)", None),
    ],
)
def test_block_that_marks(tmp_path: Path, block: str, attribute: str | None) -> None:
    source = wrapper("self.lm = 1").replace("self._mark_language_model(vllm_config)", block)
    assert see(tmp_path, source).language_attribute == attribute


def test_marked_block_of_a_base(tmp_path: Path) -> None:
    source = wrapper("self.lm = LlamaForCausalLM()").replace("SeeForConditionalGeneration", "Base")
    model = see(tmp_path, f"{source}class SeeForConditionalGeneration(Base): pass")
    assert (model.language_attribute, name(model.language_model)) == ("lm", "LlamaForCausalLM")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("self.model.language_model", "LlamaForCausalLM"),
        ("self.model", "Inner"),
        ("self", "SeeForConditionalGeneration"),
        ("self.none.language_model", None),
        ("self.model.none", None),
    ],
)
def test_path_to_the_language_model(tmp_path: Path, path: str, found: str | None) -> None:
    inner = "class Inner:\n    def __init__(self):\n        self.language_model = LlamaForCausalLM()\n"
    source = wrapper("self.model = Inner()", f"def get_language_model(self):\n    return {path}")
    assert name(see(tmp_path, f"{inner}{source}").language_model) == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("self.lm = LlamaForCausalLM(a)", "LlamaForCausalLM"),
        ("self.lm = llama.LlamaForCausalLM(a)", "LlamaForCausalLM"),
        ("self.lm = LlamaForCausalLM(a) if b else LlamaForCausalLM(c)", "LlamaForCausalLM"),
        ("self.lm = LlamaForCausalLM(a) if b else DeepForCausalLM(c)", None),
        ("self.lm = LlamaForCausalLM(a) if b else None", None),
        ("if b:\n    self.lm = LlamaForCausalLM(a)\nelse:\n    self.lm = DeepForCausalLM(a)", None),
        ("lm = LlamaForCausalLM(a)\nself.lm = lm", "LlamaForCausalLM"),
        ("lm: object = LlamaForCausalLM(a)\nlm = lm\nself.lm = lm", None),
        ("lm = lm\nself.lm = lm", None),
        ("self.lm = lm", None),
        ("self.lm = LlamaForCausalLM", None),
        ("self.lm = Unknown(a)", None),
        ("self.lm = unknown.model.Unknown(a)", None),
        ("self.lm = make()(a)", None),
        ("self.lm = cls(a)", "LlamaForCausalLM"),
        ("self.lm = other(a)", "DeepForCausalLM"),
        ("self.lm = none(a)", None),
        ("self.lm = vllm_config(a)", None),
        ("self.lm = self.made(a)", "LlamaForCausalLM"),
        ("self.lm = self.either(a)", None),
        ("self.lm = self.nothing(a)", None),
        ("self.lm = self.again(a)", None),
        ("self.lm = self.constant(a)", "DeepForCausalLM"),
        ("self.lm = self.annotated(a)", "LlamaForCausalLM"),
        ("self.lm = self.bare(a)", None),
        ("self.lm = self.Nested(a)", None),
        ("self.lm = self.none(a)", None),
        ("self.lm = self.model.made(a)", None),
    ],
)
def test_class_of_an_attribute(tmp_path: Path, lines: str, found: str | None) -> None:
    more = """
constant = DeepForCausalLM
annotated: type = LlamaForCausalLM
bare: type
class Nested: pass
def made(self, a):
    lm = LlamaForCausalLM(a)
    return lm
def either(self, a):
    if a:
        return LlamaForCausalLM(a)
    return DeepForCausalLM(a)
def nothing(self, a): pass
def again(self, a): return self.again(a)
"""
    model = see(tmp_path, f"from . import llama\n{wrapper(lines, more)}")
    assert model.language_attribute == "lm"
    assert name(model.language_model) == found


def test_branches_are_followed_to_a_depth(tmp_path: Path) -> None:
    value = "LlamaForCausalLM()" + " if a else LlamaForCausalLM()" * 8
    assert name(see(tmp_path / "near", wrapper(f"self.lm = {value}")).language_model) == "LlamaForCausalLM"
    value += " if a else LlamaForCausalLM()"
    assert see(tmp_path / "far", wrapper(f"self.lm = {value}")).language_model is None


@pytest.mark.parametrize(
    ("method", "found"),
    [
        ("def build(self, one, cls=LlamaForCausalLM, *, k=None): return cls()", "LlamaForCausalLM"),
        ("def build(self, cls=LlamaForCausalLM, other=None): return cls()", "LlamaForCausalLM"),
        ("def build(self, cls=LlamaForCausalLM, /, other=1, *, k): return cls()", "LlamaForCausalLM"),
        ("def build(self, a, *, b, cls=LlamaForCausalLM, c): return cls()", "LlamaForCausalLM"),
        ("def build(self, cls, other=LlamaForCausalLM): return cls()", None),
        ("def build(self, cls='LlamaForCausalLM'): return cls()", None),
        ("def build(self, LlamaForCausalLM=DeepForCausalLM): return LlamaForCausalLM()", "DeepForCausalLM"),
    ],
)
def test_class_of_a_parameter(tmp_path: Path, method: str, found: str | None) -> None:
    assert name(see(tmp_path, wrapper("self.lm = self.build()", method)).language_model) == found


def registered(before: str, arguments: str) -> str:
    return wrapper(f"{before}\nself.lm = init_vllm_registered_model({arguments})")


NAMED = "text.architectures = ['DeepForCausalLM']"


@pytest.mark.parametrize(
    ("before", "arguments", "text", "found"),
    [
        ("", "architectures=['LlamaForCausalLM']", {}, "LlamaForCausalLM"),
        ("", "architectures=['None', 'LlamaForCausalLM']", {}, "LlamaForCausalLM"),
        ("", "architectures=['None']", {}, None),
        ("", "architectures=['LlamaForCausalLM']", {"architectures": ["DeepForCausalLM"]}, "LlamaForCausalLM"),
        ("names = ['LlamaForCausalLM']", "architectures=names", {}, "LlamaForCausalLM"),
        ("names = ['LlamaForCausalLM']\nnames = ['DeepForCausalLM']", "architectures=names", {}, None),
        ("names = other", "architectures=names", {"architectures": ["DeepForCausalLM"]}, "DeepForCausalLM"),
        ("", "architectures=names", {"architectures": ["DeepForCausalLM"]}, "DeepForCausalLM"),
        ("", "architectures=other()", {"architectures": ["DeepForCausalLM"]}, "DeepForCausalLM"),
        ("", "", {"architectures": ["None", 7, "LlamaForCausalLM"]}, "LlamaForCausalLM"),
        ("", "", {"architectures": [7]}, None),
        ("", "", {"architectures": "LlamaForCausalLM"}, None),
        ("", "", {"architectures": []}, None),
        (NAMED, "", {}, "DeepForCausalLM"),
        (NAMED, "", {"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"),
        (f"{NAMED}\ntext.architectures = ['LlamaForCausalLM']", "", {}, None),
        ("text.architectures = other\narchitectures = ['LlamaForCausalLM']", "", {}, None),
        ("", "", {"model_type": "llama"}, "LlamaForCausalLM"),
        ("", "", {"model_type": "llama", "architectures": []}, "LlamaForCausalLM"),
        ("", "", {"model_type": "llama", "architectures": "DeepForCausalLM"}, "LlamaForCausalLM"),
        ("", "", {"model_type": "none"}, None),
        ("", "", {"model_type": ["llama"]}, None),
        ("", "", {}, None),
    ],
)
def test_registered_model(tmp_path: Path, before: str, arguments: str, text: dict[str, Any], found: str | None) -> None:
    model = see(
        tmp_path,
        registered(before, arguments),
        {"text_config": text, "architectures": ["SeeForConditionalGeneration"], "model_type": "see"},
        vllm__config__vllm="from transformers import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES\n",
        transformers__models__auto__modeling_auto="MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = {'llama': 'LlamaForCausalLM'}\n",
    )
    assert name(model.language_model) == found


@pytest.mark.parametrize("text", [None, [1], "llama", 7])
def test_registered_model_of_a_flat_config_is_not_known(tmp_path: Path, text: object) -> None:
    config = {"text_config": text, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    assert see(tmp_path, registered("", ""), config).language_model is None


LAYERS = "class {}:\n    def __init__(self):\n        self.layers = make()\n"


@pytest.mark.parametrize(
    ("language", "decoder", "has_inner", "steps"),
    [
        (
            f"{LAYERS.format('Inner')}class Lm:\n    def __init__(self): self.model = Inner()",
            "Inner",
            True,
            ["", "lm", "model", "layers"],
        ),
        (LAYERS.format("Lm"), "Lm", False, ["", "lm", "layers"]),
        ("class Lm:\n    layers = ()", "Lm", False, ["", "lm"]),
        ("class Lm: pass", None, False, ["", "lm"]),
        ("class Lm(Unknown): pass", None, None, ["", "lm"]),
        ("class Lm:\n    def __init__(self): self.model = unknown()", None, True, ["", "lm"]),
        ("class Lm(Unknown):\n    model = None", None, True, ["", "lm"]),
        ("class Inner: pass\nclass Lm:\n    def f(self): self.model = Inner()", "Inner", True, ["", "lm", "model"]),
        ("class Lm:\n    def f(self): self.model = Lm()", "Lm", True, ["", "lm"]),
    ],
)
def test_owner_of_the_layers(
    tmp_path: Path, language: str, decoder: str | None, has_inner: bool | None, steps: list[str]
) -> None:
    model = see(tmp_path, f"{language}\n{wrapper('self.lm = Lm()')}")
    assert (name(model.decoder), model.has_inner_model) == (decoder, has_inner)
    assert [step.attribute for step in model.steps] == steps


def test_bases_in_a_circle_end(tmp_path: Path) -> None:
    source = "from .llama import Base\nclass SeeForConditionalGeneration(Base): pass\n"
    back = "from .see import SeeForConditionalGeneration\nclass Base(SeeForConditionalGeneration): pass\n"
    files = {f"{MODELS}/llama.py": back}
    model = structure(tmp_path, "SeeForConditionalGeneration", source=source, files=files)
    assert (model.lineage.is_complete, model.decoder, model.has_inner_model) == (False, None, None)


def test_objects_that_hold_each_other_end(tmp_path: Path) -> None:
    inner = "class Inner:\n    def f(self): self.model = SeeForConditionalGeneration()\n"
    model = see(tmp_path, f"{inner}{wrapper('self.lm = Inner()')}")
    assert [step.cls for step in model.steps] == ["SeeForConditionalGeneration", "Inner", "SeeForConditionalGeneration"]
