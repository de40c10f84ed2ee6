"""Fields of what has fields: the record, tuples and rows that the function makes, structs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..value_types import is_tuple
from . import operations
from .course import Item, Record, as_value
from .operations import Emit, Refused
from .program import Constant, Group, Shape, Value


def named_field(owner: Item, name: str, emit: Emit) -> Value:
    """`owner.name` or `owner["name"]`, of the record, a Row, a dict or a struct."""
    if isinstance(owner, Record):
        found = [column for column in owner.columns if column.name == name]
        if owner.is_tuple or not found:
            raise Refused(f"reads {name!r}, which its records do not have")
        return found[0]
    if isinstance(owner, Group):
        if name not in owner.names:
            raise Refused(f"reads {name!r} of what has no such field")
        return owner.parts[owner.names.index(name)]
    value = as_value(owner)
    if not pa.types.is_struct(value.type) or is_tuple(value.type):
        raise Refused(f"reads {name!r} of a {value.type}")
    return operations.field(value, name, emit)


def item_of(owner: Item, at: Value, emit: Emit) -> Value:
    """`owner[at]`"""
    index: Any = at.value if isinstance(at, Constant) else None
    if type(index) is str:
        return named_field(owner, index, emit)
    if type(index) is not int:
        raise Refused("takes an item that is not named by a constant")
    if isinstance(owner, (Record, Group)):
        parts = parts_of(owner)
        if not -len(parts) <= index < len(parts):
            raise Refused(f"reads field {index} of {len(parts)}")
        return parts[index]
    value = as_value(owner)
    if not pa.types.is_struct(value.type):
        raise Refused(f"takes item {index} of a {value.type}")
    return operations.field(value, index, emit)


def parts_of(owner: Item) -> tuple[Value, ...]:
    """What it has by place."""
    if isinstance(owner, Record):
        return owner.columns
    if isinstance(owner, Group) and owner.shape is not Shape.DICT:
        return owner.parts
    if isinstance(owner, Constant) and type(owner.value) is tuple:
        return tuple(map(Constant, owner.value))
    raise Refused("takes apart what is no record and no tuple")
