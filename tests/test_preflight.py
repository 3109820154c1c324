"""``patchkit preflight`` as a user runs it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patchkit.cli import run
from patchkit.gates.checkpoint import open_checkpoint
from patchkit.gates.code import Code
from patchkit.gates.gate import GATES, Subject
from patchkit.gates.registry import Registry
from patchkit.gates.verdict import Verdict, give_verdict
from patchkit.gates.view import show_verdict, summarise
from patchkit.screen import Screen
from tests.gates.fragments import DRAFT, TARGET, TEXT, TRANSFORMERS, VLLM, write
from tests.test_render import Terminal, terminal

__all__ = ["terminal"]
SEE = {"architectures": ["SeeForConditionalGeneration"], "model_type": "see", "text_config": TEXT}
WIDE = {
    "architectures": ["WideForConditionalGeneration"],
    "model_type": "wide",
    "text_config": TEXT | {"architectures": ["LlamaForCausalLM"]},
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a site folder with a little vLLM."""
    return write(tmp_path / "site", VLLM | TRANSFORMERS)


def model(place: Path, config: dict[str, Any]) -> str:
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config, indent=1))
    return str(place)


def command(site: Path, target: dict[str, Any], draft: dict[str, Any] | None, *more: str) -> list[str]:
    words = ["--site", str(site), "preflight", "--model", model(site.parent / "model", target)]
    if draft is not None:
        words += ["--draft", model(site.parent / "draft", draft), "--num-speculative-tokens", "3"]
    return [*words, *more]


def test_right_pair_passes_every_gate(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(site, SEE, DRAFT)) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0] == (
        "SeeForConditionalGeneration → language_model: LlamaForCausalLM → model: LlamaModel → layers: decoder layers"
    )
    assert sorted(line.split()[1] for line in lines[1:-1]) == sorted(GATES)
    assert {line.split()[0] for line in lines[1:-1]} == {"pass"}
    assert lines[-1] == "preflight: no gate of 12 fails"


def test_closed_gate_is_shown_with_when_evidence_words_and_next_step(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(site, WIDE, DRAFT)) == 1
    out, err = capsys.readouterr()
    place, read = "vllm/v1/spec_decode/eagle.py", "target_model.config.image_token_index"
    lines = (site / place).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith(read))
    assert err == ""
    assert (
        "fail     image-token          WideForConditionalGeneration: the proposer reads config.image_token_index, "
        "and WideConfig has no image_token_index\n"
        "         met after the target's weights are loaded\n"
        f"         {place}:{line}: self.model.config.image_token_index = target_model.config.image_token_index\n"
    ) in out
    assert "         vLLM says: AttributeError: 'WideConfig' object has no attribute 'image_token_index'\n" in out
    assert "         no patch of this catalog opens it\n" in out
    assert out.endswith("preflight: 2 of 12 gates fail; the first is met after the target's weights are loaded\n")


def test_json_has_every_gate_and_a_finding_for_each_that_fails(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command(site, WIDE, DRAFT), "--json"]) == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert (err, report["schema"], report["verb"], report["ok"]) == ("", 1, "preflight", False)
    assert report["environment"]["site"] == [str(site)]
    gates = {gate["id"]: gate for gate in report["gates"]}
    assert set(gates) == set(GATES)
    token = gates["image-token"]
    assert (token["verdict"], token["when"], token["cure"]) == ("fail", "target-loaded", None)
    assert token["evidence"][0]["path"] == "vllm/v1/spec_decode/eagle.py"
    assert [finding["code"] for finding in report["findings"]] == ["gate-closed", "gate-closed"]
    assert report["findings"][0]["message"] == token["message"]
    assert [step["cls"] for step in report["path"]][:2] == ["WideForConditionalGeneration", "LlamaForCausalLM"]
    assert report["weights"] == {"model_bytes": None, "draft_bytes": None}
    assert (report["model"], report["draft"]) == (
        str(site.parent / "model/config.json"),
        str(site.parent / "draft/config.json"),
    )


def test_target_alone_is_judged_without_the_gates_of_a_drafter(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command(site, TARGET, None), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    of_drafters = {"draft-architecture", "speculative-tokens", "layer-ids", "drafter-sizes"}
    assert {gate["id"] for gate in report["gates"]} == set(GATES) - of_drafters
    assert report["draft"] is None


def test_unknown_is_no_pass_and_counts_only_where_it_is_asked_for(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = {key: value for key, value in DRAFT.items() if key != "eagle_aux_hidden_state_layer_ids"}
    assert run(command(site, TARGET, draft)) == 0
    out = capsys.readouterr().out
    assert "unknown  layer-ids  " in out
    assert "         met never: the server starts and answers, with a low acceptance rate\n" in out
    assert out.endswith("preflight: no gate of 12 fails, 1 cannot be told\n")
    assert run([*command(site, TARGET, draft), "--strict"]) == 1
    assert run([*command(site, TARGET, draft), "--strict", "--json"]) == 1
    found = json.loads(capsys.readouterr().out.partition("\n{")[2].join(("{", "")))["findings"]
    assert [finding["code"] for finding in found] == ["gate-unknown"]


def test_parallel_sizes_are_taken_from_the_command_line(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(site, TARGET, DRAFT, "--tp", "3")) == 1
    assert "4 attention heads cannot be split over 3 ranks" in capsys.readouterr().out
    assert run(command(site, TARGET, DRAFT, "--pp", "2")) == 1
    assert "takes no pipeline parallelism" in capsys.readouterr().out


def test_size_of_the_weights_that_are_loaded_in_vain_is_said(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command(site, WIDE, DRAFT)
    index = {"metadata": {"total_size": 595_000_000_000}, "weight_map": {}}
    (site.parent / "model/model.safetensors.index.json").write_text(json.dumps(index))
    assert run(words) == 1
    assert "met after the target's weights are loaded (595.0 GB)\n" in capsys.readouterr().out


def test_table_of_all_models_names_those_that_would_die_first(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = site / "vllm/model_executor/models/see.py"
    place.write_text(place.read_text().replace("SeeFor", "LookFor"))
    registry = site / "vllm/model_executor/models/registry.py"
    registry.write_text(
        registry.read_text().replace('"SeeForConditionalGeneration")', '"LookForConditionalGeneration")')
    )
    assert run(["--site", str(site), "preflight", "--all-models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ARCHITECTURE", "INTERFACE", "IMAGE", "TOKEN", "WHY"]
    assert lines[1].split()[:3] == ["SeeForConditionalGeneration", "pass", "fail"]
    assert lines[2].split()[:3] == ["WideForConditionalGeneration", "fail", "unknown"]
    assert lines[3] == "preflight: 1 of 2 multimodal classes take EAGLE-3; 1 would die"
    assert run(["--site", str(site), "preflight", "--all-models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert [(row["architecture"], row["would_die"]) for row in rows] == [
        ("SeeForConditionalGeneration", True),
        ("WideForConditionalGeneration", False),
    ]


def test_terminal_shows_the_way_as_a_tree(site: Path, terminal: Terminal) -> None:
    code = Code([site])
    subject = Subject(code, Registry(code), open_checkpoint(Path(model(site.parent / "model", SEE))))
    show_verdict(Screen(terminal, is_terminal=True), give_verdict(subject, {}), {})
    text = terminal.getvalue()
    assert "└── language_model: LlamaForCausalLM" in text
    assert "└── layers: decoder layers" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --model, with --draft for the drafter, or --all-models alone"),
        (["--all-models", "--model", "x"], "give --model, with --draft for the drafter, or --all-models alone"),
        (["--all-models", "--draft", "x"], "give --model, with --draft for the drafter, or --all-models alone"),
        (["--model", "x", "--tp", "0"], "'--tp'"),
        (["--model", "x", "--method", "medusa"], "'medusa' is not 'eagle3'"),
    ],
)
def test_wrong_command_line(site: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--site", str(site), "preflight", *words]) == 2
    assert said in capsys.readouterr().err


def test_model_that_cannot_be_read_is_named_with_a_next_step(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--site", str(site), "preflight", "--model", "moonshotai/Kimi-K2.5"]) == 1
    out, err = capsys.readouterr()
    assert err == (
        "model-unreadable: moonshotai/Kimi-K2.5 cannot be read: No such file or directory\n"
        "    name a folder that holds a config.json, or that file; a model of a hub must be on this disk\n"
    )
    assert out == "preflight: 1 finding\n"


def test_environment_without_vllm_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for words in (["--model", model(tmp_path / "model", TARGET)], ["--all-models"]):
        assert run(["--site", str(empty), "preflight", *words]) == 1
        assert f"not-installed: there is no vLLM in {empty}\n" in capsys.readouterr().err


def test_names_of_a_hostile_model_reach_no_terminal_raw(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = TARGET | {"model_type": "\x1b[31mred\n", "architectures": ["\x1b]0;title\x07", "LlamaForCausalLM"]}
    assert run(command(site, hostile, DRAFT | {"architectures": ["\x1b[2J"]})) == 1
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "\x07" not in out + err
    assert "\\x1b[2J" in out


def test_nothing_of_the_target_or_the_model_is_run(site: Path, tmp_path: Path) -> None:
    trap = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()\n"
    for place in site.rglob("*.py"):
        place.write_text(trap + place.read_text())
    code = "class SeeConfig:\n    image_token_id = 9\n"
    words = command(site, SEE | {"auto_map": {"AutoConfig": "configuration_own.SeeConfig"}}, DRAFT)
    (tmp_path / "model/configuration_own.py").write_text(trap + code)
    done = subprocess.run(
        [sys.executable, "-m", "patchkit", *words],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("preflight: no gate of 12 fails\n"), done.stdout + done.stderr
    assert list(tmp_path.rglob("*.ran")) == []


def test_summary_of_nothing() -> None:
    assert summarise(Verdict()) == "no gate of 0 fails"


def test_piped_text_has_no_colours(site: Path) -> None:
    out = io.StringIO()
    Screen(out, is_terminal=False).chain(["a", "b"])
    assert out.getvalue() == "a → b\n"
