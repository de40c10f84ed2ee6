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

from ...api.specs.windows import TopNWindow
from ...core.arrays import Int64s, Slots
from ...core.batch import ColumnBatch, take_rows
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.column_face import SlotTable
from ..aggregates.best_rows import best_rows
from ..order_words import OrderWords
from .kept_records import KeptRecords

BAR, FULL = "bar", "full"
NUMBERING = 0
"""The scratch namespace in which keys are numbered; dropped after each use."""


class WindowTopN:
    """See above; called by the window operator."""

    def __init__(self, spec: TopNWindow) -> None:
        self._spec = spec
        self._n = spec.n

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        self._names: list[str] = batch.data.schema.names
        return list(batch.data.columns)

    @property
    def names(self) -> list[str]:
        return [*self._record.names, *([self._spec.rank] if self._spec.rank else [])]

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        return [pa.field(n, a.type) for n, a in zip(self._names, inputs, strict=True)]

    def bind(self, state: KeyedStateBackend, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._record = pa.schema(list(fields))
        self._order = OrderWords(self._spec.order, self._record, "top_n")
        columns = [AccColumn(BAR, "int64"), AccColumn(FULL, "bool", False)]
        self._table = state.table("best", keys, columns, cold=True)
        self._scratch = state.table("scratch", keys, columns)
        self._rows = KeptRecords(state, keys, self._record, self._thin_out)
        self._folding = 0
        """The slice to which rows are being added."""

    def fold(
        self, slice_end: int, keys: pa.RecordBatch, inputs: list[pa.Array], numbers: Int64s
    ) -> None:
        columns = self._rows.fitted(self._names, inputs)
        table = self._table.table(slice_end)
        promising = self._promising(table, table.slots(keys), columns)
        self._folding = slice_end
        self._rows.append(slice_end, keys, columns, numbers, promising)

    def slices(self) -> list[int]:
        return self._table.namespaces()

    def drop(self, slice_end: int) -> None:
        self._table.drop(slice_end)
        self._rows.drop(slice_end)

    def fire(
        self, slice_ends: list[int], only: pa.RecordBatch | None
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        rows = self._rows.rows(slice_ends)
        table = self._scratch.table(NUMBERING)
        limit = None if only is None else int(table.slots(only).max()) + 1
        slots = table.slots(self._rows.keys(rows))
        words = self._words(rows)
        if limit is not None:
            asked = np.flatnonzero(slots < limit)
            rows, slots = take_rows(rows, pa.array(asked)), slots[asked]
            words = words.reshape(-1, self._order.width)[asked].reshape(-1)
        chosen, places = best_rows(slots, len(table), words, self._order.width, self._n)
        self._scratch.drop(NUMBERING)
        held = take_rows(rows, pa.array(chosen))
        return self._rows.keys(held), self._records(held, places)

    def _promising(
        self, table: SlotTable, slots: Slots, columns: list[pa.Array]
    ) -> npt.NDArray[np.int64] | None:
        """The rows that no n others are known to precede; None: all of them."""
        full = table.column(FULL)[slots]
        if not self._order.lasting or not full.any():
            return None
        words = self._order.of([columns[i] for i in self._order.columns])[:: self._order.width]
        bars = table.column(BAR)[slots]
        beyond = words > bars if self._order.width > 1 else words >= bars
        return np.flatnonzero(~(full & beyond))

    def _thin_out(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The first n rows of each key in the slice being folded, in order of arrival; sets the
        bars."""
        table = self._table.table(self._folding)
        slots = table.slots(self._rows.keys(rows))
        words, width = self._words(rows), self._order.width
        chosen, places = best_rows(slots, len(table), words, width, self._n)
        last = chosen[places == self._n]
        table.column(BAR)[slots[last]] = words[last * width]
        table.column(FULL)[slots[last]] = True
        kept = np.zeros(len(slots), dtype=np.bool_)
        kept[chosen] = True
        return np.flatnonzero(kept)

    def _words(self, rows: pa.RecordBatch) -> Int64s:
        return self._order.of([self._rows.column(rows, i) for i in self._order.columns])

    def _records(self, rows: pa.RecordBatch, places: Int64s) -> pa.RecordBatch:
        records = self._rows.records(rows)
        if self._spec.rank is None:
            return records
        schema = records.schema.append(pa.field(self._spec.rank, pa.int64()))
        return pa.RecordBatch.from_arrays([*records.columns, pa.array(places)], schema=schema)
