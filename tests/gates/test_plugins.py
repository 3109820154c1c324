from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from patchkit.gates.code import Code
from patchkit.gates.gate import Gate
from patchkit.gates.module import SHOWN
from patchkit.gates.plugins import Plugin, find_own, find_plugins, judge
from tests.gates.fragments import write

PLATFORM = "[vllm.platform_plugins]\nascend = vllm_ascend:register\n"
GENERAL = "[vllm.general_plugins]\nextra = extra_models.plugin:register\n"
ASCEND = Plugin("vllm-ascend", "vllm.platform_plugins", "ascend", "vllm_ascend")
PROPOSER = "# One\nx = 1\n  model.config.image_token_index = y\nimage_token_index = 1\n"


def install(site: Path, distribution: str, text: str | bytes) -> Path:
    place = site / f"{distribution}-1.0.dist-info" / "entry_points.txt"
    place.parent.mkdir(parents=True)
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def on(site: Path, root: Path | None = None) -> Gate:
    gate = judge(Code([site], root))
    assert (gate.id, gate.when, gate.error) == ("plugins", "configuration", None)
    return gate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[console_scripts]\nvllm = vllm:main\n",
        "[vllm.general_plugins]\n",
        "[vllm.general_plugins]\nown = vllm.plugins.lora:register\npatchkit = patchkit.plugin:register\n",
        "[vllm.general_plugins]\npatchkit_proof = patchkit_proof:register\n",
        "[other.vllm.platform_plugins]\na = b:c\n",
        "[DEFAULT]\na = b:c\n",
        "[DEFAULT]\na = b:c\n[vllm.platform_plugins]\n[vllm.general_plugins]\nown = vllm.plugins:register\n",
    ],
)
def test_environment_without_plugins_passes(tmp_path: Path, text: str) -> None:
    install(tmp_path, "some", text)
    gate = on(tmp_path)
    assert (gate.verdict, gate.message, gate.evidence) == ("pass", "no plugin of vLLM is installed", ())


def test_site_that_is_not_there_has_no_plugins(tmp_path: Path) -> None:
    assert on(tmp_path / "none").verdict == "pass"
    assert judge(Code([])).verdict == "pass"


def test_plugin_of_models_leaves_a_doubt(tmp_path: Path) -> None:
    install(tmp_path, "extra_models", GENERAL)
    write(tmp_path, {"extra_models/eagle.py": "x = 1\n"})
    gate = on(tmp_path)
    assert (gate.verdict, gate.evidence) == ("unknown", ())
    assert gate.message == (
        "installed: extra of extra-models (vllm.general_plugins); "
        "none has gates of its own by name, but a plugin may change anything"
    )
    assert gate.hint == "VLLM_PLUGINS names those that are loaded"


def test_platform_may_replace_the_proposer_even_without_a_line_that_says_so(tmp_path: Path) -> None:
    install(tmp_path, "vllm_ascend", PLATFORM)
    gate = on(tmp_path)
    assert (gate.verdict, gate.evidence) == ("unknown", ())
    assert gate.message == (
        "installed: ascend of vllm-ascend (vllm.platform_plugins); "
        "it may put its own proposer and its own gates in the place of vLLM's"
    )
    assert "leave the plugin out with VLLM_PLUGINS" in gate.hint


@pytest.mark.parametrize(
    ("path", "is_seen"),
    [
        ("extra_models/spec_decode/a.py", True),
        ("extra_models/eagle.py", True),
        ("extra_models/my_proposer.py", True),
        ("extra_models/worker/model_runner.py", True),
        ("extra_models/other.py", False),
        ("extra_models/eagle.txt", False),
        ("other/eagle.py", False),
    ],
)
def test_first_line_of_a_file_that_looks_like_a_gate_is_shown(tmp_path: Path, path: str, is_seen: bool) -> None:
    install(tmp_path, "extra_models", GENERAL)
    write(tmp_path, {path: PROPOSER})
    gate = on(tmp_path)
    expected = [(path, 3, "model.config.image_token_index = y")] if is_seen else []
    assert [(line.path, line.line, line.text) for line in gate.evidence] == expected
    assert ("its own proposer" in gate.message) == is_seen


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    install(tmp_path, "extra_models", GENERAL)
    package = write(tmp_path, {"extra_models/eagle_b.py": "supports_eagle3\n"}) / "extra_models"
    os.mkfifo(package / "eagle_a.py")
    (package / "eagle_c.py").symlink_to("none.py")
    (package / "eagle_d.py").mkdir()
    (package / "eagle_e.py").write_bytes(b"\xff image_token_index\n")
    (package / "eagle_f.py").symlink_to("eagle_f.py")
    assert [line.path for line in on(tmp_path).evidence] == ["extra_models/eagle_b.py", "extra_models/eagle_e.py"]


LINKED = "extra_models/eagle.py"


@pytest.mark.parametrize("target", ["other.py", "../elsewhere.py", "../../cache/eagle.py"])
def test_file_that_an_installer_linked_is_read(tmp_path: Path, target: str) -> None:
    site = tmp_path / "site"
    install(site, "extra_models", GENERAL)
    (site / "extra_models").mkdir()
    write(tmp_path, {f"site/extra_models/{target}": PROPOSER})
    (site / LINKED).symlink_to(target)
    assert [(line.path, line.line) for line in on(site).evidence] == [(LINKED, 3)]


@pytest.mark.parametrize(("target", "is_read"), [("../../cache/eagle.py", True), ("../../../cache/eagle.py", False)])
def test_link_of_a_file_does_not_lead_out_of_the_root(tmp_path: Path, target: str, is_read: bool) -> None:
    root = tmp_path / "root"
    install(root / "site", "extra_models", GENERAL)
    (root / "site" / "extra_models").mkdir()
    write(tmp_path, {("root/" if is_read else "") + "cache/eagle.py": PROPOSER})
    (root / "site" / LINKED).symlink_to(target)
    assert (root / "site" / LINKED).is_file()
    assert [line.path for line in on(root / "site", root).evidence] == ([LINKED] if is_read else [])


@pytest.mark.parametrize(("target", "is_read"), [("real", True), ("../cache", False)])
def test_link_of_a_package_does_not_lead_out_of_the_site(tmp_path: Path, target: str, is_read: bool) -> None:
    site = tmp_path / "site"
    install(site, "extra_models", GENERAL)
    write(tmp_path, {"site/real/eagle.py": PROPOSER, "cache/eagle.py": PROPOSER})
    (site / "extra_models").symlink_to(target)
    assert (site / LINKED).is_file()
    assert [line.path for line in on(site).evidence] == ([LINKED] if is_read else [])


@pytest.mark.parametrize("name", ["eagle\u200b.py", "eagle\t.py"])
def test_file_of_a_name_that_cannot_be_shown_is_passed_over(tmp_path: Path, name: str) -> None:
    install(tmp_path, "extra_models", GENERAL)
    write(tmp_path, {f"extra_models/{name}": PROPOSER})
    assert on(tmp_path).evidence == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_as_python_does_and_shown_in_part(tmp_path: Path, end: str) -> None:
    install(tmp_path, "extra_models", GENERAL)
    (tmp_path / "extra_models").mkdir()
    text = f"a = '\x0c\x1c\u2028\x85'{end}  supports_eagle3 = '{'x' * SHOWN}'{end}"
    (tmp_path / LINKED).write_bytes(text.encode())
    (line,) = on(tmp_path).evidence
    assert (line.line, line.text) == (2, f"supports_eagle3 = '{'x' * SHOWN}"[:SHOWN])


@pytest.mark.parametrize(
    ("value", "package"),
    [
        ("vllm_ascend:register", "vllm_ascend"),
        ("vllm_ascend", "vllm_ascend"),
        ("  vllm_ascend.a.b : register [extra]", "vllm_ascend"),
        ("vllm_ascend[extra]", "vllm_ascend"),
        ("../../etc:register", ""),
        ("/etc:register", "/etc"),
        ("", ""),
        ("a%(b)s:c", "a%(b)s"),
        ("vllmx:register", "vllmx"),
    ],
)
def test_package_is_told_from_the_entry_point(tmp_path: Path, value: str, package: str) -> None:
    install(tmp_path, "Vllm_Ascend", f"[vllm.platform_plugins]\nAscend = {value}\n")
    expected = Plugin("Vllm-Ascend", "vllm.platform_plugins", "Ascend", package)
    assert list(find_plugins(Code([tmp_path]))) == [expected]
    assert on(tmp_path).verdict == "unknown"


def test_defaults_are_no_plugins(tmp_path: Path) -> None:
    install(tmp_path, "vllm_ascend", f"[DEFAULT]\nleak = other:register\n{PLATFORM}")
    assert list(find_plugins(Code([tmp_path]))) == [ASCEND]


def test_plugins_come_from_every_site_in_order(tmp_path: Path) -> None:
    install(tmp_path / "a", "vllm_ascend", GENERAL + PLATFORM)
    install(tmp_path / "b", "zeta", PLATFORM)
    install(tmp_path / "b", "alpha", PLATFORM + "again = vllm_ascend:x\nagain = vllm_ascend:y\n")
    found = [(plugin.distribution, plugin.name) for plugin in find_plugins(Code([tmp_path / "a", tmp_path / "b"]))]
    assert found == [
        ("vllm-ascend", "ascend"),
        ("vllm-ascend", "extra"),
        ("alpha", "ascend"),
        ("alpha", "again"),
        ("zeta", "ascend"),
    ]


@pytest.mark.parametrize(
    ("distribution", "text", "is_there"),
    [
        ("patchkit", "[vllm.general_plugins]\npatchkit = patchkit_proof:register\n", True),
        ("patchkit", b"[vllm.general_plugins]\npatchkit = \xff\n", False),
        ("patchkit", "[console_scripts]\npatchkit = patchkit.cli:main\n", False),
        ("patchkit", "[vllm.platform_plugins]\npatchkit = patchkit_proof:register\n", False),
        ("patchkit", "", False),
        ("patchkit_other", "[vllm.general_plugins]\npatchkit = patchkit_proof:register\n", False),
        ("extra_models", GENERAL, False),
    ],
)
def test_own_plugin_is_told_from_the_metadata(
    tmp_path: Path, distribution: str, text: str | bytes, is_there: bool
) -> None:
    install(tmp_path / "b", distribution, text)
    assert find_own(Code([tmp_path / "a", tmp_path / "b"])) is is_there
    assert not find_own(Code([tmp_path / "a"]))


HOSTILE = {
    "no section": "vllm = a:b\n",
    "no value": "[vllm.platform_plugins]\nascend\n",
    "open section": "[vllm.platform_plugins\nascend = a:b\n",
    "not UTF-8": b"[vllm.platform_plugins]\nascend = \xff:b\n",
}


def unread(*names: str) -> str:
    return f"the entry points of {', '.join(names)} cannot be read, and may name a plugin"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_entry_points_that_cannot_be_read_do_not_hide_others(tmp_path: Path, text: str | bytes) -> None:
    install(tmp_path, "hostile", text)
    install(tmp_path, "vllm_ascend", PLATFORM)
    os.mkfifo(install(tmp_path, "pipe", "").with_name("entry_points.txt.other"))
    (tmp_path / "fifo-1.dist-info").mkdir()
    os.mkfifo(tmp_path / "fifo-1.dist-info" / "entry_points.txt")
    (tmp_path / "folder-1.dist-info" / "entry_points.txt").mkdir(parents=True)
    assert list(find_plugins(Code([tmp_path]))) == [ASCEND]
    assert on(tmp_path).message == unread("fifo", "folder", "hostile")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_entry_points_that_cannot_be_read_leave_a_doubt(tmp_path: Path, text: str | bytes) -> None:
    install(tmp_path, "Some_Hostile", text)
    gate = on(tmp_path)
    assert (gate.verdict, gate.message, gate.evidence) == ("unknown", unread("Some-Hostile"), ())
    assert gate.hint == "reinstall these distributions"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_entry_points_that_are_no_file_leave_a_doubt(tmp_path: Path, make: Callable[[Path], None]) -> None:
    place = install(tmp_path, "odd", "")
    place.unlink()
    make(place)
    gate = on(tmp_path)
    assert (gate.verdict, gate.message) == ("unknown", unread("odd"))


def test_distributions_that_cannot_be_read_are_named_over_every_site(tmp_path: Path) -> None:
    for site, name in (("a", "zeta"), ("a", "alpha"), ("b", "beta")):
        install(tmp_path / site, name, HOSTILE["no value"])
    assert judge(Code([tmp_path / "a", tmp_path / "b"])).message == unread("alpha", "zeta", "beta")


@pytest.mark.parametrize(("target", "is_read"), [("real", True), ("../cache", False)])
def test_link_of_the_metadata_does_not_lead_out_of_the_site(tmp_path: Path, target: str, is_read: bool) -> None:
    site, place = tmp_path / "site", tmp_path / "site" / "vllm_ascend-1.0.dist-info"
    site.mkdir()
    write(site, {f"{target}/entry_points.txt": PLATFORM})
    place.symlink_to(target)
    assert (place / "entry_points.txt").is_file()
    assert list(find_plugins(Code([site]))) == ([ASCEND] if is_read else [])
    assert (on(site).message == unread("vllm-ascend")) == (not is_read)


def test_entry_points_that_an_installer_linked_are_read(tmp_path: Path) -> None:
    place = install(tmp_path / "site", "vllm_ascend", "")
    place.unlink()
    (tmp_path / "cached.txt").write_text(PLATFORM)
    place.symlink_to(tmp_path / "cached.txt")
    assert list(find_plugins(Code([tmp_path / "site"]))) == [ASCEND]
    assert on(tmp_path / "site", tmp_path).verdict == "unknown"
