"""A table in memory, and records joined with it: what broadcast and lookup joins share.

The table's rows are chained by key, as the rows of a regular join are; records come and go and
leave nothing behind. The result has the records' times and, for changelogs, their row kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import ColumnBatch
from ...core.growing import GrowingList
from ...core.joined_columns import NO_ROW, JoinedColumns
from ...core.row_kind import split_kinds, with_kinds
from ...state.rows.arena import Arena
from ..kernels.change_flags import ALONE, MATCHED, PAIRS, UNTRACKED
from .assembly import BatchRows, joined
from .keyslots import KeySlots
from .walking import FOR_EVER, walk

MAX_PAIRS = 1 << 15

UNKNOWN_KEYS = 1 << 16
"""How many keys that the table does not have may be in the index, apart from as many as it has."""

KERNELS = ("operators.kernels.chains", "operators.kernels.changes", "state.gather_kernels")

_SHOW = {"inner": PAIRS, "left": PAIRS | ALONE, "semi": MATCHED, "anti": ALONE}


class TableRows:
    """Rows of a table by key. `keys`: its key columns."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], what: str) -> None:
        self.arena = Arena(schema)
        self._keys = list(keys)
        self._what = what
        self._slots = KeySlots(what)
        self._link = GrowingList(np.int32)
        self._head = GrowingList(np.int32, fill=-1)

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows with nulls in their keys are never found."""
        from ..kernels.chains import link_rows

        if not rows.num_rows:
            return
        slots = self._slots.slots(rows.select(self._keys))
        if (slots < 0).any():
            complete = np.flatnonzero(slots >= 0)
            rows, slots = ColumnBatch(rows).take(complete).data, slots[complete]
        first = len(self.arena)
        self.arena.append(rows)
        self._link.extend(len(slots))
        if len(slots):
            self._head.extend(max(0, int(slots.max()) + 1 - self._head.length))
        link_rows(slots, first, self._head.array, self._link.array)

    def slots(self, keys: pa.RecordBatch) -> Int64s:
        """Of records' keys; -1 where there is a null."""
        return self._slots.slots(keys)

    def known_keys(self) -> int:
        return len(self._slots)

    def pairs(self, slots: Int64s) -> Iterator[tuple[Int64s, Int64s, int]]:
        return walk(slots, self._head, self._link, FOR_EVER, MAX_PAIRS)

    def forget_unknown(self) -> None:
        """Take keys that only records had out of the index, when there are many. Slots of the
        table's keys stay: they were given out in order of the rows."""
        if len(self._slots) <= 2 * self._head.length + UNKNOWN_KEYS:
            return
        self._slots = KeySlots(self._what)
        at = [self.arena.schema.get_field_index(name) for name in self._keys]
        everything = np.arange(len(self.arena))
        keys = pa.RecordBatch.from_arrays(self.arena.gather(everything, at), names=self._keys)
        self._relink(self._slots.slots(keys))

    def _relink(self, slots: Int64s) -> None:
        from ..kernels.chains import link_rows

        self._head = GrowingList(np.int32, fill=-1)
        if len(slots):
            self._head.extend(int(slots.max()) + 1)
        link_rows(slots, 0, self._head.array, self._link.array)


class TableJoin:
    """How records are joined with table rows. `left_keys`, `right_keys`: column names."""

    def __init__(
        self, how: str, left_keys: Sequence[str], right_keys: Sequence[str], suffix: str
    ) -> None:
        self._how = how
        self._left_keys = list(left_keys)
        self._right_keys = list(right_keys)
        self._suffix = suffix
        self._columns: tuple[pa.Schema, pa.Schema, JoinedColumns] | None = None
        """Of the latest records: columns of both sides, and of the result."""

    def keys(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """The records' key columns, under the table's names."""
        columns = [data.column(name) for name in self._left_keys]
        return pa.RecordBatch.from_arrays(columns, names=self._right_keys)

    def join(
        self, records: ColumnBatch, table: TableRows, slots: Int64s | None = None
    ) -> Iterator[ColumnBatch]:
        """The result, in portions. `slots`: of the records in the table, if known."""
        from ..kernels.changes import settle

        data, kinds = split_kinds(records.data)
        if slots is None:
            slots = table.slots(self.keys(data))
        retracting = np.zeros(len(slots), dtype=np.bool_)
        matches = np.zeros(len(slots), dtype=np.int64)
        first = 0
        for probing, stored, done in table.pairs(slots):
            room = 2 * len(probing) + done - first
            rows, others, signs = (np.empty(room, dtype=np.int64) for _ in range(3))
            flags = (_SHOW[self._how], UNTRACKED)
            out = (matches, matches, rows, others, signs)
            found = settle(probing, stored, first, done, retracting, *flags, *out)
            first = done
            if found:
                result = self._result(data, rows[:found], table, others[:found])
                if kinds is not None:
                    result = with_kinds(result, kinds[rows[:found]])
                times = records.timestamps
                yield ColumnBatch(result, None if times is None else times[rows[:found]])

    def _result(
        self, data: pa.RecordBatch, rows: Int64s, table: TableRows, others: Int64s
    ) -> pa.RecordBatch:
        left = BatchRows(data)
        if self._how in ("semi", "anti"):
            return pa.RecordBatch.from_arrays(left.gather(rows), schema=data.schema)
        columns = self._columns_for(data.schema, table.arena.schema)
        if not len(table.arena):
            others = np.full(len(others), NO_ROW)
        return joined(columns, left, rows, table.arena, others)

    def _columns_for(self, left: pa.Schema, right: pa.Schema) -> JoinedColumns:
        known = self._columns
        if known is None or not (known[0].equals(left) and known[1].equals(right)):
            keys = (self._left_keys, self._right_keys)
            columns = JoinedColumns.of(left, right, *keys, self._suffix)
            known = self._columns = (left, right, columns)
        return known[2]
