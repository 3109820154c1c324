from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import libcst as cst
import pytest

from patchkit.patch import STATUSES, Patch, Upstream


def make(**fields: Any) -> Patch:
    values = {"target": "engine", "versions": ">=1,<2", "symptom": "refused", "upstream": Upstream("proposed")}
    return Patch(**{**values, **fields})


def keep(module: cst.Module) -> cst.Module:
    return module


def drop(module: cst.Module) -> cst.Module:
    return module.with_changes(body=())


def test_statuses_are_the_contract() -> None:
    assert STATUSES == ("unreported", "reported", "proposed", "merged", "released", "declined", "not-upstreamable")


def test_defaults() -> None:
    assert Upstream("reported") == Upstream(status="reported", issue="", pull="", fixed_in="")
    assert (make().requires, make().rewritings, make().restorings) == ({}, {}, {})


def test_values_are_given_by_keyword() -> None:
    with pytest.raises(TypeError):
        Patch("engine", ">=1,<2", "refused", Upstream("proposed"))  # type: ignore[misc]


@pytest.mark.parametrize("name", ["rewritings", "restorings", "title"])
def test_values_that_are_not_given(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        make(**{name: {}})


def test_values_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        make().target = "worker"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        make().upstream.status = "merged"  # type: ignore[misc]


def test_rewrites_registers_and_gives_the_function_back() -> None:
    patch = make()
    assert patch.rewrites("engine/a.py", within=("A.f",))(keep) is keep
    assert patch.rewrites("engine/b.py", within=("import", "B"))(drop) is drop
    assert (patch.rewritings, patch.restorings) == ({"engine/a.py": keep, "engine/b.py": drop}, {})


def test_rewrites_needs_to_know_where() -> None:
    with pytest.raises(TypeError, match="within"):
        make().rewrites("engine/a.py")  # type: ignore[call-arg]


def test_restores_registers_and_gives_the_function_back() -> None:
    patch = make()
    assert patch.restores("engine/a.py")(drop) is drop
    assert (patch.rewritings, patch.restorings) == ({}, {"engine/a.py": drop})


def test_each_patch_has_its_own_functions() -> None:
    one, other = make(), make()
    one.rewrites("engine/a.py", within=("A",))(keep)
    one.restores("engine/a.py")(drop)
    assert (other.rewritings, other.restorings) == ({}, {})


def test_functions_do_not_count_in_comparisons() -> None:
    one = make()
    one.rewrites("engine/a.py", within=("A",))(keep)
    assert one == make()
    assert one != make(versions=">=1,<3")
    assert "keep" not in repr(one)
