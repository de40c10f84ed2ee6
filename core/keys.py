"""Key selectors: how a keyed exchange and a keyed operator find the key of each record.

One selector object is used on both sides of the exchange, so both see the same key. A selector
offers the row face (`keys`) always and the column face (`key_columns`) where keys are columns.
The key of a record in the row face is the plain Python value; with several key columns, a tuple.
Whatever makes keys of the row face checks there that a dict can hold them, and nobody later.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import pyarrow as pa

from .batch import Batch, ColumnBatch, to_columns
from .column_values import python_values
from .errors import TypeMismatchError
from .frames import frame_of
from .key_kinds import held_keys
from .row import Row
from .union_type import UnionType
from .value_types import empty_batch, holds, is_value_type, type_text

if TYPE_CHECKING:
    import polars as pl


class KeySelector(Protocol):
    """What an exchange partitions by and a keyed operator keys its state by."""

    def keys(self, batch: Batch) -> list[Any]:
        """The key of each record, in order. TypeMismatchError if one of them is not hashable."""
        ...

    def held_keys(self, batch: Batch) -> list[Any]:
        """The same, as state holds them (`key_kinds`)."""
        ...

    def key_columns(self, batch: Batch) -> pa.RecordBatch | None:
        """The key columns, one row per record, or None when keys are not columns. TypeMismatchError
        if one is of a type whose values cannot be keys."""
        ...

    def describe(self) -> str:
        """Short text for `explain()`."""
        ...


@dataclass(frozen=True)
class ColumnKey:
    """Key by one or several named columns (fields, for object records with named fields)."""

    names: tuple[str, ...]

    def keys(self, batch: Batch) -> list[Any]:
        return self._keys(batch, held=False)

    def held_keys(self, batch: Batch) -> list[Any]:
        return self._keys(batch, held=True)

    def _keys(self, batch: Batch, held: bool) -> list[Any]:
        if isinstance(batch, ColumnBatch):
            return _to_keys(self.key_columns(batch), self, held)
        if len(self.names) == 1:
            name = self.names[0]
            return _usable([_field(value, name) for value in batch.values], self, held)
        keys = [tuple([_field(value, name) for name in self.names]) for value in batch.values]
        return _usable(keys, self, held)

    def key_columns(self, batch: Batch) -> pa.RecordBatch:
        columns = to_columns(batch).data.select(list(self.names))
        check_key_types(columns.schema, f"key_by({self.describe()})")
        return columns

    def describe(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True)
class ExpressionKey:
    """Key by polars expressions over the record's columns."""

    expressions: tuple[pl.Expr, ...]

    def keys(self, batch: Batch) -> list[Any]:
        return _to_keys(self.key_columns(batch), self, held=False)

    def held_keys(self, batch: Batch) -> list[Any]:
        return _to_keys(self.key_columns(batch), self, held=True)

    def key_columns(self, batch: Batch) -> pa.RecordBatch:
        frame = frame_of(to_columns(batch).data).select(*self.expressions)
        table = frame.to_arrow()
        check_key_types(table.schema, f"key_by({self.describe()})")
        if len(frame):
            return table.combine_chunks().to_batches()[0]
        return empty_batch(table.schema)

    def describe(self) -> str:
        return ", ".join(str(e) for e in self.expressions)


@dataclass(frozen=True)
class FunctionKey:
    """Key by a Python function of the record."""

    function: Callable[[Any], Any]

    def keys(self, batch: Batch) -> list[Any]:
        function = self.function
        return _usable([function(row) for row in batch.rows()], self, held=False)

    def held_keys(self, batch: Batch) -> list[Any]:
        function = self.function
        return _usable([function(row) for row in batch.rows()], self, held=True)

    def usable(self, made: list[Any], *, held: bool) -> list[Any]:
        """What somebody has made as the function would, as `keys` or `held_keys` give it."""
        return _usable(made, self, held)

    def key_columns(self, batch: Batch) -> None:
        return None

    def describe(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


@dataclass(frozen=True)
class ConstantKey:
    """Every record has the key 0: a keyed operator over the whole stream (`window_all`)."""

    def keys(self, batch: Batch) -> list[Any]:
        return [0] * len(batch)

    def held_keys(self, batch: Batch) -> list[Any]:
        return self.keys(batch)

    def key_columns(self, batch: Batch) -> pa.RecordBatch:
        import numpy as np

        zeros = pa.array(np.zeros(len(batch), dtype=np.int64))
        return pa.RecordBatch.from_arrays([zeros], names=["__all"])

    def describe(self) -> str:
        return "all"


def check_key_types(keys: pa.Schema, call: str) -> None:
    """TypeMismatchError if a key column holds structs, at any depth, which columns have no hash of,
    or values that only Python can read, whose storage may differ where they are equal: 1.5 and
    1.50. `call`: what makes the keys."""
    for field in keys:
        if holds(field.type, is_value_type):
            part = ".kind" if isinstance(field.type, UnionType) else ""
            raise TypeMismatchError(
                f"{call}: the column '{field.name}' has type {type_text(field.type)}, which only "
                f"Python can compare: key by a function, key_by(lambda row: row.{field.name}{part})"
            )
        if pa.types.is_nested(field.type) and holds_structs(field.type):
            raise TypeMismatchError(
                f"{call}: the column '{field.name}' has type {field.type}, and structs cannot be "
                "(parts of) keys: key by its fields, as columns of their own or as in "
                'pl.col("column").struct.field("field")'
            )


def holds_structs(kind: pa.DataType) -> bool:
    """Whether the type is a struct, or has one in it; a map's entries do not count."""
    if pa.types.is_map(kind):
        return holds_structs(kind.key_type) or holds_structs(kind.item_type)
    if pa.types.is_struct(kind):
        return True
    return any(holds_structs(kind.field(i).type) for i in range(kind.num_fields))


def findable(keys: list[Any]) -> list[Any]:
    """The keys as state holds them: with one NaN in place of every other, in tuples too, for NaN
    equals nothing, so a dict finds it by identity only; and rows as copies, for they may be
    records, and be changed."""
    if _kinds(keys) <= _EQUAL_TO_THEMSELVES:
        return keys
    return [_findable(key) for key in keys]


def _usable(keys: list[Any], selector: KeySelector, held: bool) -> list[Any]:
    """The keys, findable, and as state holds them if asked so. TypeMismatchError if one of them is
    not hashable."""
    kinds = _kinds(keys)
    if kinds <= _EQUAL_TO_THEMSELVES:
        return held_keys(keys) if held and kinds & _OF_KINDS else keys
    keys = [_findable(key) for key in keys]
    if not kinds <= _HASHABLE:
        for key in keys:
            _check_hashable(key, selector)
    return held_keys(keys) if held else keys


def _check_hashable(key: Any, selector: KeySelector) -> None:
    try:
        hash(key)
    except TypeError as error:
        text = repr(key)
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise TypeMismatchError(
            f"key {shown} ({type(key).__name__}), made by key_by({selector.describe()}), is not "
            f"hashable ({error}): key by a number, a text, a date, or a tuple of such"
        ) from error


def _kinds(keys: list[Any]) -> set[type]:
    """Types of the keys; of plain tuples those of their fields."""
    kinds = set(map(type, keys))
    if tuple in kinds:
        tuples = [key for key in keys if type(key) is tuple]
        kinds.discard(tuple)
        kinds |= set(map(type, chain.from_iterable(tuples)))
    return kinds


_SHOWN = 80
"""Characters of a key that a message quotes."""


_NAN = float("nan")
_DECIMAL_NAN = Decimal("NaN")
_EQUAL_TO_THEMSELVES = frozenset({type(None), bool, int, str, bytes, date, datetime})
"""Common kinds of keys of which no value is unlike itself. All are hashable."""

_OF_KINDS = frozenset({bool, datetime})
"""Those of them that state may hold otherwise than as they are."""

_HASHABLE = _EQUAL_TO_THEMSELVES | {float, complex, time, timedelta, UUID}
"""Common kinds of keys that are hashable, whatever the value."""


def _findable(key: Any) -> Any:
    if isinstance(key, tuple):
        parts = tuple([_findable(part) for part in key])
        same = all(map(operator.is_, parts, key)) and not isinstance(key, Row)
        return key if same else tuple.__new__(type(key), parts)
    if isinstance(key, Decimal):
        return _DECIMAL_NAN if key.is_qnan() else key
    return _NAN if isinstance(key, float) and key != key else key


def _to_keys(columns: pa.RecordBatch, selector: KeySelector, held: bool) -> list[Any]:
    for field in columns.schema:
        if pa.types.is_interval(field.type):
            raise TypeMismatchError(
                f"key_by({selector.describe()}): the column '{field.name}' has type {field.type}, "
                "of which Python values cannot be read back from a checkpoint: key by its parts"
            )
    if columns.num_columns == 1:
        return _usable(python_values(columns.column(0)), selector, held)
    lists = [_usable(python_values(column), selector, False) for column in columns.columns]
    keys = list(zip(*lists, strict=True))
    return held_keys(keys) if held else keys


def _field(value: Any, name: str) -> Any:
    if isinstance(value, (dict, Row)):
        return value[name]
    return getattr(value, name)
