"""Keyword arguments and parameters written one a line: put in, taken out, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import libcst as cst

from patchkit.cst import code_of, find_all, replace, require
from patchkit.edits import is_marker, marker

Item = TypeVar("Item", cst.Arg, cst.Param)


def add_argument(module: cst.Module, call: cst.Call, code: str, patch_id: str) -> cst.Module:
    """Give a call a keyword argument at its end, the marker above it; a call that has it stays as it is."""
    if _place(call.args, code.partition("=")[0]) is not None:
        return module
    return _with(module, call, _insert(call, call.args, len(call.args), _argument(code), patch_id))


def take_added_argument(module: cst.Module, call: cst.Call, keyword: str, patch_id: str) -> cst.Module:
    """Take a keyword argument out of a call where the marker says that ``add_argument`` put it there."""
    place = _place(call.args, keyword)
    if place is None or not _is_marked(call.args, place, patch_id):
        return module
    return _with(module, call, _remove(call, call.args, place, patch_id))


def drop_argument(module: cst.Module, call: cst.Call, keyword: str, patch_id: str) -> cst.Module:
    """Take a keyword argument out of a call, the marker in its place; a call without it stays as it is."""
    place = _place(call.args, keyword)
    return module if place is None else _with(module, call, _remove(call, call.args, place, patch_id))


def put_argument_back(module: cst.Module, call: cst.Call, code: str, patch_id: str) -> cst.Module:
    """Put a keyword argument where the marker says that ``drop_argument`` took it out."""
    places = [place for place in range(1, len(call.args) + 1) if _is_marked(call.args, place, patch_id)]
    return _with(module, call, _insert(call, call.args, places[0], _argument(code), patch_id)) if places else module


def add_parameter(module: cst.Module, function: cst.FunctionDef, code: str, patch_id: str) -> cst.Module:
    """Give a function a parameter after its last positional one, the marker above it; one that it has stays."""
    parameter = _parameter(code)
    params = function.params.params
    if find_all(function.params, cst.Param, lambda param: param.name.value == parameter.name.value):
        return module
    return _with(module, function, _insert(function, params, len(params), parameter, patch_id))


def take_added_parameter(module: cst.Module, function: cst.FunctionDef, name: str, patch_id: str) -> cst.Module:
    """Take a parameter out of a function where the marker says that ``add_parameter`` put it there."""
    params = function.params.params
    place = _place(params, name)
    if place is None or not _is_marked(params, place, patch_id):
        return module
    return _with(module, function, _remove(function, params, place, patch_id))


def _argument(code: str) -> cst.Arg:
    call = cst.parse_expression(f"f({code})")
    assert isinstance(call, cst.Call)
    return call.args[0]


def _parameter(code: str) -> cst.Param:
    function = cst.parse_statement(f"def f({code}): ...")
    assert isinstance(function, cst.FunctionDef)
    return function.params.params[0]


def _place(items: Sequence[cst.Arg] | Sequence[cst.Param], name: str) -> int | None:
    names = [item.keyword if isinstance(item, cst.Arg) else item.name for item in items]
    return next((place for place, found in enumerate(names) if found and found.value == name), None)


def _is_marked(items: Sequence[cst.Arg] | Sequence[cst.Param], place: int, patch_id: str) -> bool:
    """Tell whether the marker of a patch stands above the item at a place, or above the closing bracket."""
    comma = items[place - 1].comma if place else None
    space = comma.whitespace_after if isinstance(comma, cst.Comma) else None
    return isinstance(space, cst.ParenthesizedWhitespace) and _number_of_marker(space, patch_id) is not None


def _with(module: cst.Module, owner: cst.Call | cst.FunctionDef, items: Sequence[cst.CSTNode]) -> cst.Module:
    """Return the module in which a call has these arguments, or a function these parameters."""
    if isinstance(owner, cst.Call):
        return replace(module, owner, owner.with_changes(args=items))
    return replace(module, owner, owner.with_changes(params=owner.params.with_changes(params=items)))


def _insert(
    owner: cst.Call | cst.FunctionDef, items: Sequence[Item], place: int, added: Item, patch_id: str
) -> list[Item]:
    """Return the items with one more before a place: below a new marker, or where a marker held its place.

    Other lines stay above what they stood above.
    """
    space, indent = _line_end(owner, items, place - 1)
    lines, held = list(space.empty_lines), _number_of_marker(space, patch_id)
    over, under = ([_marker(patch_id, indent)], lines) if held is None else (lines[:held], lines[held + 1 :])
    above = space.with_changes(empty_lines=over, last_line=indent)
    own = space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=under)
    changed = list(items)
    changed[place - 1 : place] = [_ended(items[place - 1], above), _ended(added, own)]
    return changed


def _remove(owner: cst.Call | cst.FunctionDef, items: Sequence[Item], place: int, patch_id: str) -> list[Item]:
    """Return the items without the one at a place, with a marker that holds it or without the one above it.

    Other lines stay, those above the item too.
    """
    space, indent = _line_end(owner, items, place - 1)
    own: cst.ParenthesizedWhitespace = _line_end(owner, items, place)[0]
    lines: list[cst.EmptyLine] = list(space.empty_lines)
    marked = _number_of_marker(space, patch_id)
    if marked is None:
        lines.append(_marker(patch_id, indent))
    else:
        del lines[marked]
    kept = space.with_changes(empty_lines=[*lines, *own.empty_lines], last_line=own.last_line)
    changed = list(items)
    changed[place - 1 : place + 1] = [_ended(items[place - 1], kept)]
    return changed


def _marker(patch_id: str, indent: cst.SimpleWhitespace) -> cst.EmptyLine:
    return marker(patch_id).with_changes(whitespace=indent)


def _number_of_marker(space: cst.ParenthesizedWhitespace, patch_id: str) -> int | None:
    return next((number for number, line in enumerate(space.empty_lines) if is_marker(line, patch_id)), None)


def _line_end(
    owner: cst.Call | cst.FunctionDef, items: Sequence[cst.Arg] | Sequence[cst.Param], place: int
) -> tuple[cst.ParenthesizedWhitespace, cst.SimpleWhitespace]:
    """Return the line end after the comma of an item and the items' indent, refusing those not written one a line."""
    comma = items[place].comma if 0 <= place < len(items) else None
    space = comma.whitespace_after if isinstance(comma, cst.Comma) else None
    first = owner.whitespace_before_args if isinstance(owner, cst.Call) else owner.whitespace_before_params
    name = code_of(owner.func) if isinstance(owner, cst.Call) else owner.name.value
    is_lined = isinstance(space, cst.ParenthesizedWhitespace) and isinstance(first, cst.ParenthesizedWhitespace)
    require(is_lined, name, "one argument or more before it, one a line, each with a comma")
    assert isinstance(space, cst.ParenthesizedWhitespace) and isinstance(first, cst.ParenthesizedWhitespace)
    return space, first.last_line


def _ended(item: Item, space: cst.ParenthesizedWhitespace) -> Item:
    comma = item.comma if isinstance(item.comma, cst.Comma) else cst.Comma()
    return item.with_changes(comma=comma.with_changes(whitespace_after=space))
