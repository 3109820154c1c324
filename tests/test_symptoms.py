from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from patchkit.symptoms import BLOCK, OVERLAP, SHOWN, Recogniser, Symptom
from tests.support import CATALOG

HEADERS = list(CATALOG.headers.values())


def recognise(log: bytes, *, without: str = "") -> tuple[Symptom, ...]:
    recogniser = Recogniser(header for header in HEADERS if header.id != without)
    recogniser.read(io.BytesIO(log))
    return recogniser.symptoms


def cures(log: bytes) -> list[str | None]:
    return [symptom.cure for symptom in recognise(log)]


G1 = b"Eagle3 is only supported for ['llama', 'qwen'] models. Got self.target_model_config.model_type='%b'"
REQUIRED = b"1 validation error for SchedulerConfig\nis_encoder_decoder\n  Field required [type=missing]"
UNPACK = b"hidden_states, aux_hidden_states = out\nValueError: too many values to unpack (expected 2)"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (G1 % b"kimi_k2", "eagle3_target_whitelist"),
        (G1 % b"deepseek_v3", "eagle3_target_whitelist"),
        (b"extract_hidden_states is only supported for [...], got model_type = kimi_k2", "eagle3_target_whitelist"),
        (G1 % b"kimi_k25", None),
        (G1 % b"mamba", None),
        (b"'KimiK25Config' object has no attribute 'image_token_index'", "kimi_k25_image_token"),
        (b"'OpenCUAConfig' object has no attribute 'image_token_index'", None),
        (b"Model does not support EAGLE3 interface but aux_hidden_state_outputs was", "eagle3_aux_hidden_states"),
        (b"model does not support EAGLE-3 interface", "eagle3_aux_hidden_states"),
        (b"'DeepseekV2Model' object has no attribute 'model'", "kimi_k25_bare_language_model"),
        (UNPACK, "eagle3_aux_hidden_states"),
        (b"llama_eagle3.py\nRuntimeError: mat1 and mat2 shapes cannot be multiplied (3x2 and 3x9)", None),
        (b"NotImplementedError: spec decode is not supported", None),
        (b"AttributeError: Target model does not have 'model' attribute", None),
        (b"AttributeError: Target model does not have 'embed_tokens' or 'embedding' attribute", None),
        (b"AssertionError: Model instance must inherit from EagleModelMixin to set auxiliary layers", None),
        (b"aux_hidden_states.append(hidden_states + residual)\n"
         b"TypeError: unsupported operand type(s) for +: 'Tensor' and 'NoneType'", None),
        (b"ValueError: eagle_aux_hidden_state_layer_ids (2, 2, 5): this model needs one or more distinct ids", None),
        (b"ValueError: EAGLE-3 with this model needs pipeline_parallel_size=1: the auxiliary hidden states", None),
        (b"NotImplementedError: Pipeline parallelism is not supported for this model.", None),
        (b"ValueError: KimiK25ForConditionalGeneration does not support eagle3 with pipeline parallelism", None),
        (b"ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).", None),
        (b"ValueError: Model architectures ['Eagle3FooForCausalLM'] are not supported for now.", None),
        (b"NotProved: patchkit: this server does not run the patched files: a.py has SHA-256 1, not 2.", None),
        (b"ValueError: num_speculative_tokens must be provided with speculative model unless the draft", None),
    ],
    ids=lambda value: value[:40].decode() if isinstance(value, bytes) else None,
)  # fmt: skip
def test_recognised(log: bytes, expected: str | None) -> None:
    (symptom,) = recognise(b"INFO before\n" + log + b"\nINFO after\n")
    assert (symptom.line, symptom.cure, symptom.count) == (2 + log.count(b"\n"), expected, 1)
    assert symptom.text == log.splitlines()[-1].decode()


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.id)
def test_symptom_of_every_patch_is_recognised(header: object) -> None:
    name = header.id  # type: ignore[attr-defined]
    more = {"eagle3_target_whitelist": G1 % b"kimi_k2", "generator_encoder_decoder_setting": REQUIRED}
    log = more.get(name, CATALOG.headers[name].patch.symptom.encode())
    assert CATALOG.headers[name].patch.symptom.encode() in log
    assert cures(b'File "speculators/data_generation/vllm_hidden_states_generator.py"\nError: ' + log) == [name]


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"\n\n",
        b"INFO all is well\n",
        b"GPTQ is only supported for GPUs of a newer kind\n",
        b"GPTQ is only supported for GPUs\nmodel_type='kimi_k2'\n",
        b"ValueError: too many values to unpack (expected 2)\n",
        b"RuntimeError: mat1 and mat2 shapes cannot be multiplied\n",
        b'"is_encoder_decoder": false\n',
        b"RuntimeError: Boolean value of Tensor with more than one value is ambiguous\n",
        b"RuntimeError: Found no NVIDIA driver on your system.\n",
        b"ValueError: The repository contains custom code which must be executed to correctly load the model.\n",
        b"aux_hidden_states\n" + b"x" * OVERLAP + b"\ntoo many values to unpack (expected 2)\n",
    ],
)
def test_not_recognised(log: bytes) -> None:
    assert recognise(log) == ()


def test_first_is_kept_and_the_others_are_counted_in_the_order_of_the_log() -> None:
    image = b"'KimiK25Config' object has no attribute 'image_token_index'"
    log = b"\n".join([image, G1 % b"kimi_k2", b"", image, image + b" " + image])
    first, second = recognise(log)
    assert (first.cure, first.line, first.count) == ("kimi_k25_image_token", 1, 4)
    assert (second.cure, second.line, second.count) == ("eagle3_target_whitelist", 2, 1)


def test_patch_that_the_catalog_does_not_hold_cures_nothing() -> None:
    (symptom,) = recognise(G1 % b"kimi_k2", without="eagle3_target_whitelist")
    assert symptom.cure is None


def test_symptom_is_taken_literally() -> None:
    header = CATALOG.headers["custom_worker_unwrap"]
    other = header._replace(id="other", patch=replace(header.patch, symptom="a.b(c"))
    recogniser = Recogniser([other])
    recogniser.read(io.BytesIO(b"axb(c\na.b(c\n"))
    assert [(symptom.line, symptom.cure) for symptom in recogniser.symptoms] == [(2, "other")]


IMAGE = b"'KimiK25Config' object has no attribute 'image_token_index'"


@pytest.mark.parametrize("cut", [0, 1, 20, len(IMAGE) - 1, len(IMAGE)])
@pytest.mark.parametrize("end", [b"\n", b""], ids=["own line", "one line"])
def test_error_across_the_blocks_is_seen_once(cut: int, end: bytes) -> None:
    before = b"x" * 70 + b"\n"
    fill = before * (BLOCK // len(before) - 2)
    log = fill + b"y" * (BLOCK - cut - len(fill) - len(end)) + end + IMAGE + b"\n" + before * 3
    assert log.index(IMAGE) == BLOCK - cut
    recogniser = Recogniser(HEADERS)
    recogniser.read(io.BytesIO(log))
    (symptom,) = recogniser.symptoms
    assert (symptom.line, symptom.count) == (1 + log[: BLOCK - cut].count(b"\n"), 1)
    assert recogniser.lines == log.count(b"\n")
    assert IMAGE.decode() in symptom.text


@pytest.mark.parametrize("cut", range(1, 10))
def test_name_across_the_blocks_is_not_cut(cut: int) -> None:
    error = G1 % b"kimi_k2"
    log = b"x" * (BLOCK - len(error) + cut) + error + b"\n"
    assert [(symptom.cure, symptom.count) for symptom in recognise(log)] == [("eagle3_target_whitelist", 1)]


@pytest.mark.parametrize(("log", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n" * 3, 3)])
def test_lines_are_counted(log: bytes, lines: int) -> None:
    recogniser = Recogniser(HEADERS)
    recogniser.read(io.BytesIO(log))
    assert recogniser.lines == lines


def test_hostile_bytes_are_spelt_out_and_long_lines_cut() -> None:
    (symptom,) = recognise(b"\xff\x1b[31m " + IMAGE + b"z" * 10_000_000)
    assert symptom.text.startswith("\\xff\x1b[31m '") and symptom.text.endswith("z…")
    assert len(symptom.text) == SHOWN + 1


def test_log_is_not_kept() -> None:
    import tracemalloc

    class Endless(io.RawIOBase):
        left = 100

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return (b"INFO line of a log\n" * (size // 19)) if self.left else b""

    recogniser = Recogniser(HEADERS)
    tracemalloc.start()
    recogniser.read(Endless())  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert recogniser.lines > 5_000_000
    assert peak < 8 * BLOCK


def test_hole_is_skipped_and_what_follows_is_read(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.truncate(2**37)
        log.seek(2**37)
        log.write(b"\nRuntimeError: Model does not support EAGLE-3 interface\n")
        log.truncate(2**37 + 2**35)
    recogniser = Recogniser(CATALOG.headers.values())
    with (tmp_path / "log").open("rb") as log:
        recogniser.read(log)
    assert [(found.line, found.cure) for found in recogniser.symptoms] == [(2, "eagle3_aux_hidden_states")]


def test_zeros_that_are_no_hole_are_read() -> None:
    recogniser = Recogniser(())
    recogniser.read(io.BytesIO(bytes(2 * BLOCK) + b"\n"))
    assert recogniser.lines == 1
