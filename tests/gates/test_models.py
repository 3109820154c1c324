from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from patchkit.gates.models import ModelRow, judge_models
from tests.gates.fragments import VLLM, subject

SEE = dedent(VLLM["vllm/model_executor/models/see.py"])
WIDE = dedent(VLLM["vllm/model_executor/models/wide.py"])
PROPOSER = dedent(VLLM["vllm/v1/spec_decode/eagle.py"])
REGISTRY = dedent(VLLM["vllm/model_executor/models/registry.py"])
KEPT = "self.config = vllm_config.model_config.hf_config"
IMPORT = "from vllm.transformers_utils.configs.wide import WideConfig\n"
EAGLE3 = WIDE.replace("SupportsMultiModal", "SupportsEagle3, SupportsMultiModal")
NO_INDEX = "WideForConditionalGeneration: the proposer reads config.image_token_index, and WideConfig has no"
MAPPING = """
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES = {"wide": "WideForConditionalGeneration"}
    """


def table(tmp_path: Path, **changes: str) -> dict[str, ModelRow]:
    made = subject(tmp_path, {}, **changes)
    rows = list(judge_models(made))
    assert [row.architecture for row in rows] == sorted(row.architecture for row in rows)
    return {row.architecture: row for row in rows}


def wide(tmp_path: Path, source: str, **changes: str) -> ModelRow:
    return table(tmp_path, vllm__model_executor__models__wide=source, **changes)["WideForConditionalGeneration"]


def test_every_multimodal_class_has_a_row(tmp_path: Path) -> None:
    rows = table(tmp_path)
    assert list(rows) == ["SeeForConditionalGeneration", "WideForConditionalGeneration"]
    see = rows["SeeForConditionalGeneration"]
    assert (see.cls, see.interface, see.image_token) == ("SeeForConditionalGeneration", "pass", "pass")
    assert see.message == "SeeForConditionalGeneration: config.image_token_id is there"
    assert see.evidence[0].text.endswith("= target_model.config.image_token_id")
    assert not see.would_die


def test_class_of_configuration_that_nothing_names_cannot_be_told(tmp_path: Path) -> None:
    row = wide(tmp_path, WIDE)
    assert (row.interface, row.image_token) == ("fail", "unknown")
    assert "config.image_token_index" in row.message and "cannot be told" in row.message
    assert row.message.endswith("; the class of its configuration is not known")
    assert not row.would_die


@pytest.mark.parametrize(
    "kept",
    [
        f"config: WideConfig = {KEPT.partition(' = ')[2]}\n        self.config = config",
        f"self.config: WideConfig = {KEPT.partition(' = ')[2]}",
        f"{KEPT}\n        info.get_hf_config(WideConfig)",
        f"{KEPT}\n        info.get_hf_config()\n        other: WideConfig = 1\n        config: WideConfig",
    ],
    ids=["local", "attribute", "asked for", "declared"],
)
@pytest.mark.parametrize(("source", "dies"), [(EAGLE3, True), (WIDE, False)], ids=["eagle3", "not"])
def test_class_that_takes_eagle3_and_has_no_image_token_would_die(
    tmp_path: Path, source: str, kept: str, dies: bool
) -> None:
    row = wide(tmp_path, IMPORT + source.replace(KEPT, kept))
    assert (row.interface, row.image_token, row.would_die) == ("pass" if dies else "fail", "fail", dies)
    assert row.message.startswith(NO_INDEX)
    assert [Path(line.path).name for line in row.evidence] == ["eagle.py", "wide.py"]


def test_class_with_a_branch_may_find_it_in_the_config(tmp_path: Path) -> None:
    source = IMPORT + EAGLE3.replace(KEPT, f"self.config: WideConfig = {KEPT.partition(' = ')[2]}")
    proposer = PROPOSER.replace('["See', '["WideForConditionalGeneration", "See')
    row = wide(tmp_path, source, vllm__v1__spec_decode__eagle=proposer)
    assert (row.image_token, row.would_die) == ("unknown", False)
    assert "config.image_token_id" in row.message and row.message.endswith("; config.json must bring it")


@pytest.mark.parametrize(
    ("annotations", "verdict"),
    [
        (("Missing",), "unknown"),
        (("PretrainedConfig",), "unknown"),
        (("WideConfig", "PretrainedConfig"), "fail"),
        (("SeeConfig", "LlamaConfig"), "unknown"),
        (("SeeConfig", "WideConfig"), "fail"),
        (("SeeConfig",), "fail"),
    ],
    ids=["not found", "the base", "one", "two others", "named alike", "another"],
)
def test_annotation_counts_where_it_says_one_class(tmp_path: Path, annotations: tuple[str, ...], verdict: str) -> None:
    lines = "\n".join(f"        config: {name} = hf_config" for name in annotations)
    head = f"{IMPORT}from transformers import LlamaConfig, PretrainedConfig, SeeConfig\n"
    row = wide(tmp_path, head + WIDE.replace(f"        {KEPT}", f"{lines}\n        {KEPT}"))
    assert row.image_token == verdict
    if verdict == "fail":
        assert (
            f"{annotations[-1 if annotations[-1] != 'PretrainedConfig' else 0]} has no image_token_index" in row.message
        )


@pytest.mark.parametrize(("place", "expected"), [("modeling_auto", "fail"), ("other", "unknown")])
def test_else_transformers_says_which_configuration_is_paired(tmp_path: Path, place: str, expected: str) -> None:
    changes = {f"transformers__models__auto__{place}": MAPPING}
    row = wide(tmp_path, WIDE, **changes)
    assert row.image_token == expected
    assert row.message.startswith(NO_INDEX) == (expected == "fail")


def test_pair_of_an_unknown_type_says_nothing(tmp_path: Path) -> None:
    row = wide(tmp_path, WIDE, transformers__models__auto__modeling_auto=MAPPING.replace('"wide"', '"none"'))
    assert row.image_token == "unknown"


@pytest.mark.parametrize("proposer", ["", PROPOSER.replace("image_token_index", "other")])
def test_release_that_does_not_ask_passes_every_class(tmp_path: Path, proposer: str) -> None:
    rows = table(tmp_path, vllm__v1__spec_decode__eagle=proposer).values()
    assert {(row.image_token, row.message, row.evidence) for row in rows} == {
        ("pass", "this release's proposer does not ask for it", ())
    }


def test_class_that_is_not_multimodal_by_its_bases_is_not_asked(tmp_path: Path) -> None:
    row = wide(tmp_path, WIDE.replace("SupportsMultiModal, ", ""))
    assert (row.image_token, row.message) == ("pass", "this release's proposer does not ask for it")


@pytest.mark.parametrize("source", ["", "class Other: ...", "class WideForConditionalGeneration(:"])
def test_class_that_is_not_there_has_no_row(tmp_path: Path, source: str) -> None:
    assert list(table(tmp_path, vllm__model_executor__models__wide=source)) == ["SeeForConditionalGeneration"]


@pytest.mark.parametrize("source", ["", "x = {", REGISTRY.replace("_MULTIMODAL_MODELS = ", "_OTHER_MODELS = ")])
def test_registry_without_multimodal_classes_gives_no_rows(tmp_path: Path, source: str) -> None:
    assert table(tmp_path, vllm__model_executor__models__registry=source) == {}


def test_interface_does_not_depend_on_a_drafter(tmp_path: Path) -> None:
    silent: dict[str, Any] = {"eagle_config": {"use_aux_hidden_state": False}}
    rows = list(judge_models(subject(tmp_path, {}, silent)))
    assert [row.interface for row in rows] == ["pass", "fail"]


def test_class_with_a_base_that_cannot_be_read_is_not_passed(tmp_path: Path) -> None:
    row = wide(tmp_path, WIDE.replace("(nn.Module, SupportsMultiModal, SupportsPP)", "(Elsewhere)"))
    assert row.image_token == "unknown"
