"""State that holds a varying number of entries per key: pairs in a table, or rows in a buffer.

Both keep real keys, so that a snapshot can be split by key group and restored anywhere, and find
their way back to the slots of an operator's table by `KeyNumbers`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import take_column
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend
from ...state.column_index import storage_type
from ..windows.compacting_buffer import Chooser, CompactingBuffer

NUMBER = "number"


class KeyNumbers:
    """Numbers keys as the slots of a table, without adding keys to that table."""

    def __init__(self, state: KeyedStateBackend, keys: pa.Schema) -> None:
        self._scratch = state.table("key_numbers", keys, [])

    def of(self, table: ColumnTable | None, keys: pa.RecordBatch) -> Slots:
        """The slot of each key; numbers of len(table) and more for keys that it does not hold."""
        scratch = self._scratch.table()
        if table is not None:
            scratch.slots(table.keys())
        slots = scratch.slots(keys)
        self._scratch.drop(0)
        return slots


class Pairs:
    """Entries (key, value) per namespace, each with accumulator columns."""

    def __init__(
        self,
        name: str,
        keys: pa.Schema,
        kind: pa.DataType,
        columns: Sequence[AccColumn],
        state: KeyedStateBackend,
    ) -> None:
        self._keys = keys
        self._kind = storage_type(kind)
        fields = [pa.field(f"key{i}", f.type) for i, f in enumerate(keys)]
        self._schema = pa.schema([*fields, pa.field("value", self._kind)])
        self.state = state.table(name, self._schema, columns, len(keys))
        self._scratch = state.table(f"{name}_union", self._schema, columns)

    def rows(self, keys: pa.RecordBatch, values: pa.Array) -> pa.RecordBatch:
        """Entries, to be looked up in a table of `state`."""
        cast = values if values.type == self._kind else values.cast(self._kind)
        return pa.RecordBatch.from_arrays([*keys.columns, cast], schema=self._schema)

    def all(self, namespaces: Sequence[int]) -> pa.RecordBatch:
        """The entries of some namespaces, one after the other."""
        return pa.concat_batches([self.state.table(n).keys() for n in namespaces])

    def keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = rows.columns[: len(self._keys)]
        return pa.RecordBatch.from_arrays(columns, schema=self._keys)

    def union(self) -> ColumnTable:
        """An empty table; to be given back with `end_union`."""
        return self._scratch.table()

    def end_union(self) -> None:
        self._scratch.drop(0)


class KeptRows:
    """Rows (key, payload columns, sequence number) per namespace, in order of arrival, thinned out
    now and then to those that `choose` picks."""

    def __init__(
        self,
        name: str,
        keys: pa.Schema,
        payload: Sequence[pa.DataType],
        state: KeyedStateBackend,
        choose: Chooser,
    ) -> None:
        self._keys = keys
        fields = [pa.field(f"key{i}", f.type) for i, f in enumerate(keys)]
        fields += [pa.field(f"value{i}", kind) for i, kind in enumerate(payload)]
        self._schema = pa.schema([*fields, pa.field(NUMBER, pa.int64())])
        buffer = state.buffer(name, self._schema)
        self._rows = CompactingBuffer(buffer, state.max_parallelism, choose)

    def append(
        self, namespace: int, keys: pa.RecordBatch, payload: Sequence[pa.Array], numbers: Int64s
    ) -> None:
        arrays = [*keys.columns, *payload, pa.array(numbers)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._rows.append(namespace, rows, keys)

    def of(self, namespaces: Sequence[int]) -> pa.Table:
        """The rows left, namespace by namespace, each column in one chunk."""
        tables = [self._rows.rows(n) for n in namespaces]
        return pa.concat_tables(tables).combine_chunks()

    def drop(self, namespace: int) -> None:
        self._rows.drop(namespace)

    def keys_of(self, rows: pa.Table) -> pa.RecordBatch:
        columns = [flat(rows, f"key{i}") for i in range(len(self._keys))]
        return pa.RecordBatch.from_arrays(columns, schema=self._keys)


def values_of(rows: pa.Table, index: int = 0) -> pa.Array:
    """A payload column of `KeptRows`."""
    return flat(rows, f"value{index}")


def numbers_of(rows: pa.Table) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = numpy_of(flat(rows, NUMBER))
    return numbers


def flat(rows: pa.Table, name: str) -> pa.Array:
    """A column of a table as one array."""
    column = rows.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def take_rows(rows: pa.RecordBatch, at: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Some rows, of columns of any type."""
    indices = pa.array(at)
    columns = [take_column(column, indices) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def present(
    keys: pa.RecordBatch, slots: Slots, array: pa.Array
) -> tuple[pa.RecordBatch, Slots, pa.Array]:
    """The rows whose value is not null."""
    if not array.null_count:
        return keys, slots, array
    at = np.flatnonzero(numpy_of(array.is_valid()))
    return take_rows(keys, at), slots[at], take_column(array, pa.array(at))
