"""Partial aggregates: what local combining sends through the exchange instead of records.

A batch of partials holds the key columns, then accumulator columns. Its schema says so itself: its
metadata hold the layout of the state that the operator behind makes for them (the types of the key
columns and, of windows, of the columns that were folded; of running groups, of the records),
because the first batch that an operator gets may be one of partials. Such a batch travels on the
same edge as records, which it may be mixed with. A partial is the aggregate of records of one key:
for windows in one slice of time, in which its timestamp lies; for running groups in one batch, of
whose last record of the key it has the timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of
from .batch import Batch, ColumnBatch
from .errors import TypeMismatchError
from .key_kinds import held_keys
from .keys import KeySelector

_LAYOUT = b"strom.partials"
KEYS = b"keys"
"""Metadata of a layout: how many of its fields are key columns. The others are inputs."""

PARTIAL_PREFIX = "__"
"""Of the names of accumulator columns in a batch of partials."""

ROWS_COLUMN = "__rows"
"""The accumulator column that says how many records a partial stands for."""


def make_layout(keys: pa.Schema, inputs: Sequence[pa.Field]) -> pa.Schema:
    """The layout of a window operator's state."""
    return pa.schema([*keys, *inputs], metadata={KEYS: str(len(keys))})


def split_layout(layout: pa.Schema) -> tuple[pa.Schema, list[pa.Field]]:
    """Key columns and inputs; the inverse of `make_layout`."""
    assert layout.metadata is not None
    count = int(layout.metadata[KEYS])
    return pa.schema(list(layout)[:count]), list(layout)[count:]


def partial_schema(
    layout: pa.Schema, accumulators: Sequence[tuple[str, str]], values: Sequence[pa.Field] = ()
) -> pa.Schema:
    """The schema of batches of partials; `accumulators`: (name, numpy dtype). `values`: columns
    behind them, of what is not a number, under names of their own."""
    keys, _ = split_layout(layout)
    columns = [
        pa.field(PARTIAL_PREFIX + name, pa.bool_() if dtype == "bool" else getattr(pa, dtype)())
        for name, dtype in accumulators
    ]
    metadata = {_LAYOUT: layout.serialize().to_pybytes()}
    named = [field.with_name(PARTIAL_PREFIX + field.name) for field in values]
    return pa.schema([*keys, *columns, *named], metadata=metadata)


def layout_of(schema: pa.Schema) -> pa.Schema | None:
    """The layout that a batch of partials carries; None for records."""
    metadata = schema.metadata
    if metadata is None or _LAYOUT not in metadata:
        return None
    return _parsed(metadata[_LAYOUT])


@lru_cache(maxsize=64)
def _parsed(layout: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(layout))


@dataclass(frozen=True)
class PartialKey:
    """The keys of records by `key`, and of partials by the key columns that they hold: for edges
    that carry both, where keys are expressions over columns that partials lack."""

    key: KeySelector

    def keys(self, batch: Batch) -> list[Any]:
        columns = _key_columns(batch)
        if columns is None:
            return self.key.keys(batch)
        lists = [column.to_pylist() for column in columns.columns]
        return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))

    def held_keys(self, batch: Batch) -> list[Any]:
        return held_keys(self.keys(batch))

    def key_columns(self, batch: Batch) -> pa.RecordBatch | None:
        columns = _key_columns(batch)
        return self.key.key_columns(batch) if columns is None else columns

    def describe(self) -> str:
        return self.key.describe()


def _key_columns(batch: Batch) -> pa.RecordBatch | None:
    """The key columns of partials; None for records."""
    if not isinstance(batch, ColumnBatch):
        return None
    layout = layout_of(batch.data.schema)
    return None if layout is None else key_part(batch.data, layout)


def check_layout(found: pa.Schema, bound: pa.Schema) -> None:
    """Partials of layout `found` may be merged into state made for `bound`: types of inputs may
    only differ as numbers do, for an accumulator does not tell a date from a number. Raises
    TypeMismatchError."""
    if found.equals(bound):
        return
    for new, old in zip(split_layout(found)[1], split_layout(bound)[1], strict=True):
        if not (new.type.equals(old.type) or (_number(new.type) and _number(old.type))):
            raise TypeMismatchError(
                f"what is aggregated was {old.type} in earlier batches and is {new.type} now; "
                "declare a schema upstream so that its type is fixed"
            )


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def records_in(batch: Batch, rows: npt.NDArray[np.int64]) -> int:
    """How many records these rows of a batch of partials stand for."""
    assert isinstance(batch, ColumnBatch)
    counts = numpy_of(batch.data.column(ROWS_COLUMN))
    return int(counts[rows].sum())


def key_part(data: pa.RecordBatch, layout: pa.Schema) -> pa.RecordBatch:
    """The key columns of a batch of partials."""
    keys, _ = split_layout(layout)
    return pa.RecordBatch.from_arrays(data.columns[: len(keys)], schema=keys)
