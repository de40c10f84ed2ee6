"""Functions that can keep nothing from one call to the next, as is seen from their code.

Such a function cannot change what it has returned, so its results need no look (`emitted`): that is
what most functions of `map` are, and looking at tuples would cost as much as they do.
"""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import Any

from ...state.copies import FIXED

_KNOWN = frozenset(
    {"abs", "bool", "bytes", "dict", "divmod", "float", "int", "len", "list", "max", "min", "ord"}
    | {"pow", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"}
)
"""Builtins that keep nothing."""

_OUTSIDE = frozenset(
    {"STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM", "LOAD_NAME"} | {"STORE_ATTR"}
)
"""What reaches, or makes, what outlives the call."""


def keeps_nothing(function: Any) -> bool:
    """Whether the function, if its arguments are values that cannot change or rows of columns, has
    after a call no way to what it returned. No: it may have."""
    if type(function) is not FunctionType or function.__kwdefaults__ or function.__dict__:
        return False
    cells = function.__closure__ or ()
    try:
        held = [cell.cell_contents for cell in cells] + list(function.__defaults__ or ())
    except ValueError:  # a cell that is not filled yet
        return False
    return all(map(_plain, held)) and _reaches_nothing(function.__code__, function.__globals__)


def _reaches_nothing(code: CodeType, known: dict[str, Any]) -> bool:
    """Neither the code nor functions in it, which end with the call."""
    for one in dis.get_instructions(code):
        name = one.argval
        if one.opname in _OUTSIDE:
            return False
        if one.opname == "LOAD_GLOBAL" and not _harmless(name, known):
            return False
        if one.opname == "STORE_DEREF" and name in code.co_freevars:
            return False
        if one.opname in ("LOAD_ATTR", "LOAD_METHOD") and name.startswith("__"):
            return False
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return all(_reaches_nothing(const, known) for const in inner)


def _harmless(name: str, known: dict[str, Any]) -> bool:
    return _plain(known[name]) if name in known else name in _KNOWN


def _plain(value: Any) -> bool:
    """A value that cannot change; no class, whose attributes can."""
    return type(value) in FIXED and type(value) is not type
