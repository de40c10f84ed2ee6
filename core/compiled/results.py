"""What a program returns, as Python values, as columns of a declared type, or as a mask."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..arrays import numpy_of
from ..arrow_values import to_array
from ..column_values import python_values
from ..errors import TypeMismatchError
from ..records import order_of
from ..row import row_class, row_factory
from ..value_types import has_tuple_records
from .kinds import Kind, comes_back
from .program import Block, Branch, Constant, Group, Return, Shape, Value, kind
from .running import Leaf, Rows


def mask(leaves: list[Leaf], count: int) -> npt.NDArray[np.bool_]:
    """Of a program that returns truths: which records it is true for."""
    found = np.zeros(count, dtype=np.bool_)
    for rows, group in leaves:
        value = group.parts[0]
        if isinstance(value, Constant):
            if not value.value:
                continue
            true: Any = True
        else:
            true = numpy_of(rows.of(value))
        found[slice(None) if rows.places is None else rows.places] = true
    return found


def objects(leaves: list[Leaf], count: int) -> list[Any]:
    """The values that the function returns, in the order of the records."""
    if len(leaves) == 1:
        return _values(*leaves[0])
    found: list[Any] = [None] * count
    for rows, group in leaves:
        assert rows.places is not None
        for place, value in zip(rows.places.tolist(), _values(rows, group), strict=True):
            found[place] = value
    return found


def _values(rows: Rows, group: Group) -> list[Any]:
    count = len(rows)
    parts = [_part(rows, part, count) for part in group.parts]
    match group.shape:
        case Shape.ONE:
            return parts[0]
        case Shape.TUPLE:
            return list(zip(*parts, strict=True)) if parts else [()] * count
        case Shape.ROW:
            return row_factory(group.names)(parts, count)
        case Shape.DICT:
            names = group.names
            if not parts:
                return [{} for _ in range(count)]
            return [dict(zip(names, one, strict=True)) for one in zip(*parts, strict=True)]


def _part(rows: Rows, value: Value, count: int) -> list[Any]:
    if isinstance(value, Constant):
        return list(repeat(value.value, count))
    return python_values(rows.raw(value))


# --- columns of a declared type -----------------------------------------------------------------


class Columns:
    """Results of a program as records of a schema, where columns of it take the same as they would
    of the values one by one."""

    def __init__(self, schema: pa.Schema, orders: dict[Group, list[int]]) -> None:
        self._schema = schema
        self._orders = orders
        """For each thing that is returned, which of its parts belongs to which column."""

    def data(self, leaves: list[Leaf], count: int) -> pa.RecordBatch:
        """An error of Arrow's if a value does not fit: nothing is cut or rounded."""
        parts = [self._columns(rows, group) for rows, group in leaves]
        if len(parts) == 1:
            return pa.RecordBatch.from_arrays(parts[0], schema=self._schema)
        places = np.concatenate([rows.places for rows, _ in leaves if rows.places is not None])
        order = pa.array(np.argsort(places))
        merged = [pa.concat_arrays(columns).take(order) for columns in zip(*parts, strict=True)]
        return pa.RecordBatch.from_arrays(merged, schema=self._schema)

    def _columns(self, rows: Rows, group: Group) -> list[pa.Array]:
        ordered = (group.parts[at] for at in self._orders[group])
        return [
            _column(rows, value, type_)
            for value, type_ in zip(ordered, self._schema.types, strict=True)
        ]


def columns_of(block: Block, schema: pa.Schema) -> Columns | None:
    """None where some result is not as a column of the schema takes it."""
    orders: dict[Group, list[int]] = {}
    for group in _groups(block):
        order = _order(group, schema)
        if order is None or not all(
            _fits(group.parts[at], type_) for at, type_ in zip(order, schema.types, strict=True)
        ):
            return None
        orders[group] = order
    return Columns(schema, orders)


def _groups(block: Block) -> Iterable[Group]:
    match block.end:
        case Return(value=value):
            yield value
        case Branch(then=then, other=other):
            yield from _groups(then)
            yield from _groups(other)


def _order(group: Group, schema: pa.Schema) -> list[int] | None:
    """As `records.transposed` has it."""
    names, width = tuple(schema.names), len(group.parts)
    if not width or width != len(names) or len(set(names)) < width:
        return None
    match group.shape:
        case Shape.ONE | Shape.TUPLE:
            return list(range(width))
        case Shape.ROW:
            found = order_of(row_class(group.names), names, has_tuple_records(schema))
            return None if found is None else list(found)
        case Shape.DICT:
            return (
                [group.names.index(name) for name in names] if {*names} == {*group.names} else None
            )


def _fits(value: Value, type_: pa.DataType) -> bool:
    if isinstance(value, Constant):
        if kind(value) is Kind.OTHER:
            return False
        try:
            to_array([value.value], type_)
        except TypeMismatchError:
            return False
        return not pa.types.is_nested(type_) and not isinstance(type_, pa.BaseExtensionType)
    if value.type == type_ and comes_back(type_):
        return True
    match kind(value):
        case Kind.BOOL:
            return type_ in (pa.bool_(),)
        case Kind.INT:
            return type_ in (*_INTS, pa.float64())
        case Kind.FLOAT:
            return type_ in (pa.float64(),)
        case Kind.TEXT:
            return type_ in (pa.string(), pa.large_string())
    return False


_INTS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
)


def _column(rows: Rows, value: Value, type_: pa.DataType) -> pa.Array:
    if isinstance(value, Constant):
        return pa.repeat(to_array([value.value], type_)[0], len(rows))
    raw = rows.raw(value)
    if raw.type == type_:
        return raw
    found = rows.of(value)
    return found if found.type == type_ else found.cast(type_)
