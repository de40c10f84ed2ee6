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
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import pyarrow as pa

from .batch import Batch, ColumnBatch, to_columns
from .column_values import python_values
from .errors import TypeMismatchError
from .row import Row

if TYPE_CHECKING:
    import polars as pl


class KeySelector(Protocol):
    """What an exchange partitions by and a keyed operator keys its state by."""

    def keys(self, batch: Batch) -> list[Any]:
        """The key of each record, in order. TypeMismatchError if one of them is not hashable."""
        ...

    def key_columns(self, batch: Batch) -> pa.RecordBatch | None:
        """The key columns, one row per record, or None when keys are not columns."""
        ...

    def describe(self) -> str:
        """Short text for `explain()`."""
        ...


@dataclass(frozen=True)
class ColumnKey:
    """Key by one or several named columns (fields, for object records with named fields)."""

    names: tuple[str, ...]

    def keys(self, batch: Batch) -> list[Any]:
        if isinstance(batch, ColumnBatch):
            return _to_keys(self.key_columns(batch), self)
        if len(self.names) == 1:
            name = self.names[0]
            return _usable([_field(value, name) for value in batch.values], self)
        keys = [tuple([_field(value, name) for name in self.names]) for value in batch.values]
        return _usable(keys, self)

    def key_columns(self, batch: Batch) -> pa.RecordBatch:
        return to_columns(batch).data.select(list(self.names))

    def describe(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True)
class ExpressionKey:
    """Key by polars expressions over the record's columns."""

    expressions: tuple[pl.Expr, ...]

    def keys(self, batch: Batch) -> list[Any]:
        return _to_keys(self.key_columns(batch), self)

    def key_columns(self, batch: Batch) -> pa.RecordBatch:
        import polars as pl

        frame = pl.DataFrame(to_columns(batch).data).select(*self.expressions)
        return (
            frame.to_arrow().combine_chunks().to_batches()[0]
            if len(frame)
            else (pa.RecordBatch.from_pylist([], schema=frame.to_arrow().schema))
        )

    def describe(self) -> str:
        return ", ".join(str(e) for e in self.expressions)


@dataclass(frozen=True)
class FunctionKey:
    """Key by a Python function of the record."""

    function: Callable[[Any], Any]

    def keys(self, batch: Batch) -> list[Any]:
        function = self.function
        return _usable([function(row) for row in batch.rows()], self)

    def key_columns(self, batch: Batch) -> None:
        return None

    def describe(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


@dataclass(frozen=True)
class ConstantKey:
    """Every record has the key 0: a keyed operator over the whole stream (`window_all`)."""

    def keys(self, batch: Batch) -> list[Any]:
        return [0] * len(batch)

    def key_columns(self, batch: Batch) -> pa.RecordBatch:
        import numpy as np

        zeros = pa.array(np.zeros(len(batch), dtype=np.int64))
        return pa.RecordBatch.from_arrays([zeros], names=["__all"])

    def describe(self) -> str:
        return "all"


def findable(keys: list[Any]) -> list[Any]:
    """The keys with one NaN in place of every other, in tuples too. NaN equals nothing, so a dict
    of state finds it by identity only."""
    if _kinds(keys) <= _EQUAL_TO_THEMSELVES:
        return keys
    return [_findable(key) for key in keys]


def _usable(keys: list[Any], selector: KeySelector) -> list[Any]:
    """The keys, findable. TypeMismatchError if one of them is not hashable."""
    kinds = _kinds(keys)
    if kinds <= _EQUAL_TO_THEMSELVES:
        return keys
    keys = [_findable(key) for key in keys]
    if not kinds <= _HASHABLE:
        for key in keys:
            _check_hashable(key, selector)
    return keys


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
_EQUAL_TO_THEMSELVES = frozenset({type(None), bool, int, str, bytes, date, datetime})
"""Common kinds of keys of which no value is unlike itself. All are hashable."""

_HASHABLE = _EQUAL_TO_THEMSELVES | {float, complex, time, timedelta, UUID}
"""Common kinds of keys that are hashable, whatever the value."""


def _findable(key: Any) -> Any:
    if isinstance(key, tuple):
        parts = tuple([_findable(part) for part in key])
        same = all(map(operator.is_, parts, key))
        return key if same else tuple.__new__(type(key), parts)
    return _NAN if isinstance(key, float) and key != key else key


def _to_keys(columns: pa.RecordBatch, selector: KeySelector) -> list[Any]:
    lists = [_usable(python_values(column), selector) for column in columns.columns]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def _field(value: Any, name: str) -> Any:
    if isinstance(value, (dict, Row)):
        return value[name]
    return getattr(value, name)
