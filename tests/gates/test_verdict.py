from __future__ import annotations

from pathlib import Path

import pytest

from patchkit.gates.gate import Subject
from patchkit.gates.verdict import Verdict, give_verdict
from tests.gates.fragments import TEXT, VLLM, subject
from tests.support import CATALOG

KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": TEXT | {"architectures": ["DeepForCausalLM"], "model_type": "kimi_k2"},
}
MODELS = "vllm/model_executor/models"
REGISTRY = VLLM[f"{MODELS}/registry.py"].replace("_MULTIMODAL_MODELS = {", """_MULTIMODAL_MODELS = {
            "KimiK25ForConditionalGeneration": ("kimi_k25", "KimiK25ForConditionalGeneration"),""")  # fmt: skip
FILES = {
    "vllm__model_executor__models__registry": REGISTRY,
    "vllm__model_executor__models__kimi_k25": VLLM[f"{MODELS}/wide.py"].replace("WideFor", "KimiK25For"),
    "vllm__transformers_utils__config": '_CONFIG_REGISTRY: dict = LazyConfigDict(kimi_k25="KimiK25Config")',
    "vllm/transformers_utils/configs/__init__.py": """
        _CLASS_TO_MODULE = {"KimiK25Config": "vllm.transformers_utils.configs.kimi_k25"}
        """,
    "vllm__transformers_utils__configs__kimi_k25": VLLM["vllm/transformers_utils/configs/wide.py"].replace(
        "WideConfig", "KimiK25Config"
    ),
}


@pytest.fixture
def kimi(tmp_path: Path) -> Subject:
    """Return a pair that stops at the gates for which the catalog has patches."""
    return subject(tmp_path, KIMI, **FILES)


def cures(verdict: Verdict) -> dict[str, str | None]:
    return {gate.id: gate.cure for gate in verdict.failed}


def test_gate_that_fails_names_the_patch_that_knows_its_error_and_changes_its_file(kimi: Subject) -> None:
    assert cures(give_verdict(kimi, CATALOG.headers)) == {
        "whitelist": "eagle3_target_whitelist",
        "image-token": "kimi_k25_image_token",
        "interface": "eagle3_aux_hidden_states",
        "capture": None,
    }


def test_patch_for_another_file_is_no_cure(tmp_path: Path) -> None:
    renamed = FILES | {
        "vllm__model_executor__models__registry": REGISTRY.replace('("kimi_k25",', '("kimi_k26",'),
        "vllm__model_executor__models__kimi_k26": FILES["vllm__model_executor__models__kimi_k25"],
    }
    assert cures(give_verdict(subject(tmp_path, KIMI, **renamed), CATALOG.headers))["interface"] is None


def test_model_that_a_patch_is_not_for_has_no_cure(tmp_path: Path) -> None:
    target = KIMI | {"text_config": KIMI["text_config"] | {"model_type": "mamba"}}  # type: ignore[operator]
    assert cures(give_verdict(subject(tmp_path, target, **FILES), CATALOG.headers))["whitelist"] is None


def test_catalog_without_patches_cures_nothing(kimi: Subject) -> None:
    assert set(cures(give_verdict(kimi, {})).values()) == {None}


def test_gate_that_passes_or_is_unknown_has_no_cure(kimi: Subject) -> None:
    verdict = give_verdict(kimi, CATALOG.headers)
    assert all(gate.cure is None for gate in verdict.gates if gate.verdict != "fail")
    assert verdict.unknown == ()


def test_way_and_sizes_are_those_of_the_models(kimi: Subject) -> None:
    (kimi.target.folder / "model.safetensors").write_bytes(b"x" * 100)
    verdict = give_verdict(kimi, {})
    assert [(step.attribute, step.cls) for step in verdict.steps] == [
        ("", "KimiK25ForConditionalGeneration"),
        ("language_model", "DeepForCausalLM"),
        ("model", "DeepModel"),
        ("layers", "decoder layers"),
    ]
    assert (verdict.target_bytes, verdict.draft_bytes) == (100, None)
    assert (verdict.target, verdict.draft) == (str(kimi.target.place), str(kimi.draft and kimi.draft.place))


def test_target_without_a_class_has_no_way(tmp_path: Path) -> None:
    alone = subject(tmp_path, {"architectures": ["Unheard"]})
    alone.draft = None
    verdict = give_verdict(alone, CATALOG.headers)
    assert (verdict.steps, verdict.draft, verdict.failed) == ((), None, ())
