"""`TopNWindow`: the first n records per key and window in an order.

Per slice a buffer holds the records that may be among the first n of their key, and a table each
key's *bar*: the first order word of its n-th record, once there are n. Records beyond the bar are
dropped on arrival (vectorised); the bars are set, and the buffer thinned out to n records per key,
whenever it has doubled. A window's first n are chosen from its slices' records when it fires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs import TopNWindow
from ...core.arrays import numpy_of
from ...core.batch import ColumnBatch, take_column, take_rows
from ...core.errors import TypeMismatchError
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend, Slots
from ..aggregates.best_rows import best_rows
from ..columns import fit, held_type, retyped
from ..tables.order_words import OrderWords
from .compacting_buffer import CompactingBuffer
from .slices import Int64s

NUMBER = "number"
BAR, FULL = "bar", "full"
NUMBERING = 0
"""The scratch namespace in which keys are numbered; dropped after each use."""


class WindowTopN:
    """Rows in the buffer: key columns k0.., input columns c0.., sequence number."""

    def __init__(self, spec: TopNWindow) -> None:
        self._spec = spec
        self._n = spec.n

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        self._names: list[str] = batch.data.schema.names
        return list(batch.data.columns)

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        return [pa.field(n, a.type) for n, a in zip(self._names, inputs, strict=True)]

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._keys = keys
        self._record = pa.schema(list(fields))
        self._order = OrderWords(self._spec.order, self._record, "top_n")
        columns = [AccColumn(BAR, "int64"), AccColumn(FULL, "bool", False)]
        self._table = state.table("best", keys, columns)
        self._scratch = state.table("scratch", keys, columns)
        self._schema = pa.schema(
            [pa.field(f"k{i}", held_type(field.type)) for i, field in enumerate(keys)]
            + [pa.field(f"c{i}", held_type(field.type)) for i, field in enumerate(fields)]
            + [pa.field(NUMBER, pa.int64())]
        )
        buffer = state.buffer("records", self._schema)
        self._rows = CompactingBuffer(buffer, state.max_parallelism, self._thin_out)
        self._folding = 0
        """The slice to which rows are being added."""

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        if self._names != self._record.names:
            raise TypeMismatchError(
                f"records have columns {self._names} now and had {self._record.names} before"
            )
        columns = [
            fit(array, field.type, f"column '{field.name}'")
            for array, field in zip(inputs, self._record, strict=True)
        ]
        table = self._table.table(slice_end)
        kept = self._promising(table, table.slots(keys), columns)
        if kept is not None:
            if not len(kept):
                return
            at = pa.array(kept)
            keys, numbers = take_rows(keys, at), numbers[kept]
            columns = [take_column(column, at) for column in columns]
        arrays = retyped([*keys.columns, *columns, pa.array(numbers)], self._schema.types)
        self._folding = slice_end
        self._rows.append(slice_end, pa.RecordBatch.from_arrays(arrays, schema=self._schema), keys)

    def slices(self) -> list[int]:
        return self._table.namespaces()

    def drop(self, slice_end: int) -> None:
        self._table.drop(slice_end)
        self._rows.drop(slice_end)

    def save(self) -> None:
        """Everything is in keyed state."""

    def fire(
        self, slice_ends: list[int], only: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = _one(pa.concat_tables([self._rows.rows(end) for end in slice_ends]))
        if len(slice_ends) > 1:
            numbers = numpy_of(rows.column(rows.num_columns - 1))
            rows = take_rows(rows, pa.array(np.argsort(numbers)))
        table = self._scratch.table(NUMBERING)
        limit = None if only is None else int(table.slots(only).max()) + 1
        slots = table.slots(self._key_columns(rows))
        words = self._words(rows)
        if limit is not None:
            asked = np.flatnonzero(slots < limit)
            rows, slots = take_rows(rows, pa.array(asked)), slots[asked]
            words = words.reshape(-1, self._order.width)[asked].reshape(-1)
        chosen, places = best_rows(slots, len(table), words, self._order.width, self._n)
        self._scratch.drop(NUMBERING)
        held = take_rows(rows, pa.array(chosen))
        return self._key_columns(held), self._records(held, places)

    def _promising(
        self, table: ColumnTable, slots: Slots, columns: list[pa.Array]
    ) -> npt.NDArray[np.int64] | None:
        """The rows that no n others are known to precede; None: all of them."""
        full = table.column(FULL)[slots]
        if not self._order.lasting or not full.any():
            return None
        words = self._order.of([columns[i] for i in self._order.columns])[:: self._order.width]
        bars = table.column(BAR)[slots]
        beyond = words > bars if self._order.width > 1 else words >= bars
        return np.flatnonzero(~(full & beyond))

    def _thin_out(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """The first n rows of each key in the slice being folded, in order of arrival; sets the
        bars."""
        batch = _one(rows)
        table = self._table.table(self._folding)
        slots = table.slots(self._key_columns(batch))
        words, width = self._words(batch), self._order.width
        chosen, places = best_rows(slots, len(table), words, width, self._n)
        last = chosen[places == self._n]
        table.column(BAR)[slots[last]] = words[last * width]
        table.column(FULL)[slots[last]] = True
        kept = np.zeros(len(slots), dtype=np.bool_)
        kept[chosen] = True
        return np.flatnonzero(kept)

    def _words(self, rows: pa.RecordBatch) -> Int64s:
        first = len(self._keys)
        return self._order.of([rows.column(first + i) for i in self._order.columns])

    def _key_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = retyped(rows.columns[: len(self._keys)], self._keys.types)
        return pa.RecordBatch.from_arrays(columns, schema=self._keys)

    def _records(self, rows: pa.RecordBatch, places: Int64s) -> pa.RecordBatch:
        columns = retyped(rows.columns[len(self._keys) : -1], self._record.types)
        schema = self._record
        if self._spec.rank is not None:
            columns = [*columns, pa.array(places)]
            schema = schema.append(pa.field(self._spec.rank, pa.int64()))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _one(rows: pa.Table) -> pa.RecordBatch:
    """The table as one batch."""
    batches = rows.combine_chunks().to_batches()
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], rows.schema)
