"""What a function reads beside its record: globals, values of its closure, attributes.

Each is noted with what was read, and looked at again before every batch (`same`): what is not the
same object any more has the function read anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, cast

from ..texts import encodable

Read = Callable[[], Any]


class Unknown(Exception):
    """It is not there, or something might happen where it is read. until_open: it may be there once
    the function has been opened."""

    def __init__(self, why: str, until_open: bool = False) -> None:
        super().__init__(why)
        self.until_open = until_open


@dataclass
class Outside:
    facts: list[tuple[Read, Any]]

    def read(self, read: Read) -> Any:
        """What `read` gives, noted."""
        value = read()
        self.facts.append((read, value))
        return value

    def same(self) -> bool:
        """Whether all is as it was."""
        try:
            return all(read() is value for read, value in self.facts)
        except (Unknown, ValueError):
            return False


def global_of(function: FunctionType, name: str) -> Read:
    """A global, or a builtin that none hides."""
    known = function.__globals__
    builtins = cast(Any, function).__builtins__  # of which some of mypy's stubs know nothing

    def read() -> Any:
        if name in known:
            return known[name]
        if name in builtins:
            return builtins[name]
        raise Unknown(f"reads {name}, which there is not")

    return read


def cell_of(function: FunctionType, at: int) -> Read:
    """A value of the closure. The read raises ValueError while there is none."""
    cell = (function.__closure__ or ())[at]
    return lambda: cell.cell_contents


def code_of(function: FunctionType) -> list[Read]:
    """What would make it another function."""
    return [
        lambda: function.__code__,
        lambda: function.__defaults__,
        lambda: function.__kwdefaults__,
    ]


def attribute_of(owner: Any, name: str) -> Read:
    """An attribute of a module or an instance, where to read it runs nothing."""
    return lambda: _attribute(owner, name)


def _attribute(owner: Any, name: str) -> Any:
    if type(owner) is ModuleType:
        return _in(vars(owner), name, owner)
    kind: Any = type(owner)
    if kind.__getattribute__ is not object.__getattribute__ or kind is type:
        raise Unknown(f"reads .{name} of a {kind.__name__}")
    held = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _NONE)
    if held is not _NONE and hasattr(type(held), "__get__"):
        raise Unknown(f"reads .{name}, which is a {type(held).__name__} of {kind.__name__}")
    own = getattr(owner, "__dict__", {})
    if name in own:
        return own[name]
    if held is _NONE:
        raise Unknown(f"reads .{name}, which there is not", until_open=True)
    return held


def _in(known: dict[str, Any], name: str, owner: Any) -> Any:
    if name not in known:
        raise Unknown(f"reads {owner.__name__}.{name}, which there is not")
    return known[name]


_NONE = object()

PLAIN = (type(None), bool, int, float, str)


def is_plain(value: Any) -> bool:
    """A value that cannot change, and that constants of columns can be."""
    if type(value) in (tuple, frozenset):
        return all(type(one) in PLAIN and is_plain(one) for one in value)
    return type(value) in PLAIN and (type(value) is not str or encodable(value) == value)


def is_callable(value: Any) -> bool:
    """Whether it is something that a call may be known of."""
    return isinstance(value, (FunctionType, BuiltinFunctionType, type, ModuleType))
