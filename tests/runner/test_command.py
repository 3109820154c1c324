from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from patchkit.errors import PortInUse, RunnerUsage
from patchkit.proof import VARIABLE
from patchkit.runner.command import DEFAULT_PORT, Served, check_port, environment, option
from patchkit.runner.gpus import Gpu
from tests.runner.fake import free_port

GPUS = [Gpu(index, f"GPU-{index}", "NVIDIA H200", 1, 1) for index in range(4)]


def served(*arguments: str) -> Served:
    return Served("model", arguments=arguments)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ([], None),
        (["--port", "1"], "1"),
        (["--port=1"], "1"),
        (["--port", "1", "--port=2"], "2"),
        (["--port=2", "--port", "1"], "1"),
        (["-p", "3"], "3"),
        (["--port="], ""),
        (["--port"], ""),
        (["--port=a=b"], "a=b"),
        (["--portal", "1"], None),
    ],
)
def test_last_use_of_an_option_counts(arguments: list[str], value: str | None) -> None:
    assert option(arguments, ("--port", "-p")) == value


@pytest.mark.parametrize(("arguments", "port"), [([], DEFAULT_PORT), (["--port", "1"], 1), (["--port=65535"], 65535)])
def test_port(arguments: list[str], port: int) -> None:
    assert served(*arguments).port == port


@pytest.mark.parametrize("word", ["", "0", "65536", "-1", "1.5", "http", "²"])
def test_port_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(RunnerUsage, match="is no port"):
        served("--port", word).port  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ([], "http://127.0.0.1:8000"),
        (["--host="], "http://127.0.0.1:8000"),
        (["--host", "0.0.0.0"], "http://127.0.0.1:8000"),
        (["--host", "::", "--port", "1"], "http://[::1]:1"),
        (["--host", "::1"], "http://[::1]:8000"),
        (["--host", "localhost"], "http://localhost:8000"),
        (["--host=10.0.0.1"], "http://10.0.0.1:8000"),
    ],
)
def test_address_at_which_the_server_is_asked(arguments: list[str], url: str) -> None:
    assert served(*arguments).url == url


@pytest.mark.parametrize(
    ("arguments", "gpus", "tensor", "pipeline", "added"),
    [
        ([], 0, 1, 1, []),
        ([], 1, 1, 1, []),
        ([], 4, 4, 1, ["--tensor-parallel-size", "4"]),
        (["-pp", "2"], 4, 2, 2, ["--tensor-parallel-size", "2"]),
        (["--pipeline-parallel-size=3"], 4, 1, 3, ["--tensor-parallel-size", "1"]),
        (["-pp", "8"], 4, 1, 8, ["--tensor-parallel-size", "1"]),
        (["-tp", "2"], 4, 2, 1, []),
        (["--tensor-parallel-size=3", "-tp=1"], 4, 1, 1, []),
    ],
)
def test_ranks_come_from_the_arguments_and_the_gpus(
    arguments: list[str], gpus: int, tensor: int, pipeline: int, added: list[str]
) -> None:
    found = served(*arguments)
    assert (found.tensor_parallel(GPUS[:gpus]), found.pipeline_parallel) == (tensor, pipeline)
    start = ["python", "-m", "vllm.entrypoints.cli.main", "serve", "model"]
    assert found.command("python", GPUS[:gpus]) == [*start, *added, *arguments]


@pytest.mark.parametrize("arguments", [["-tp", "0"], ["-tp"], ["-tp", "two"], ["--pipeline-parallel-size=-1"]])
def test_number_of_ranks_that_is_none_is_refused(arguments: list[str]) -> None:
    with pytest.raises(RunnerUsage, match="is no number of ranks"):
        served(*arguments).tensor_parallel(GPUS)


def test_drafter_is_given_in_the_speculative_config() -> None:
    command = Served("model", "a 'draft'", 3, ("--port", "1")).command("python", [])
    assert command[5] == "--speculative-config" and command[7:] == ["--port", "1"]
    assert json.loads(command[6]) == {"method": "eagle3", "model": "a 'draft'", "num_speculative_tokens": 3}


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTHONPATH", "VLLM_PLUGINS", VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_environment_names_files_in_order_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    found = environment({"b.py": "2", "a.py": "1"}, [], False, None)
    assert found == {**os.environ, VARIABLE: "a.py=1,b.py=2"}
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(("gpus", "hides", "visible"), [([], False, "7"), ([], True, ""), (GPUS[2:0:-1], False, "2,1")])
def test_gpus_are_named_by_number(gpus: list[Gpu], hides: bool, visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    found = environment({}, gpus, hides, None)
    assert found["CUDA_VISIBLE_DEVICES"] == visible
    assert found.get("CUDA_DEVICE_ORDER") == (None if visible == "7" else "PCI_BUS_ID")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        ("", "patchkit"),
        ("a,b", "a,b,patchkit"),
        ("patchkit", "patchkit"),
        ("a,patchkit", "a,patchkit"),
        ("patchkits", "patchkits,patchkit"),
    ],
)
def test_plugin_is_allowed_where_plugins_are_named(
    before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is not None:
        monkeypatch.setenv("VLLM_PLUGINS", before)
    assert environment({}, [], False, None).get("VLLM_PLUGINS") == after


@pytest.mark.parametrize(("before", "after"), [(None, "/plugin"), ("", "/plugin"), ("/a:/b", "/plugin:/a:/b")])
def test_copy_of_the_plugin_comes_first(before: str | None, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    assert environment({}, [], False, Path("/plugin"))["PYTHONPATH"] == after


def test_port_that_is_free_is_taken() -> None:
    check_port(served("--port", str(free_port())))


@pytest.mark.parametrize(("host", "given"), [("127.0.0.1", "0.0.0.0"), ("127.0.0.1", "localhost"), ("::1", "::")])
def test_port_that_somebody_listens_on_is_refused(host: str, given: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} here")
    with listening, pytest.raises(PortInUse, match="cannot be had: Address already in use"):
        check_port(served("--host", given, "--port", str(listening.getsockname()[1])))


def test_port_that_was_just_left_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            listening.accept()[0].close()
    check_port(served("--port", str(port)))


def test_host_that_is_not_known_is_refused() -> None:
    with pytest.raises(PortInUse, match=r"port 1 of no.such.host.invalid cannot be had"):
        check_port(served("--host", "no.such.host.invalid", "--port", "1"))


@pytest.mark.parametrize(
    ("arguments", "named"), [(["--uds", "/run/vllm"], "--uds"), (["--config", "c.yaml"], "--config")]
)
def test_arguments_that_hide_where_the_server_listens_are_refused(arguments: list[str], named: str) -> None:
    with pytest.raises(RunnerUsage, match=named):
        served(*arguments).refuse_unseen()


def test_configuration_file_beside_a_port_is_taken() -> None:
    served("--config", "c.yaml", "--port", "1").refuse_unseen()
    served().refuse_unseen()


def test_server_with_a_certificate_is_asked_by_https() -> None:
    assert served("--ssl-certfile", "c.pem", "--port=1").url == "https://127.0.0.1:1"
