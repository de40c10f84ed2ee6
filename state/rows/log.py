"""Rows numbered as they arrive, and what is known of each: what joins keep of their sides.

A row's columns and its `numbers` are never changed, so a freeze only looks at them. Its `marks` may
be written wherever they were touched (`SlotColumns`). Rows that are of no more use are marked as
gone, which leaves them out of snapshots; when they are many, the operator has the others numbered
anew (`keep`): they move into new arrays, and a freeze that is being read keeps the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import schema_text, take_rows
from ...core.errors import StateError
from ...core.growing import GrowingList
from ..increments import SLOT, Layer, Since
from ..slot_columns import SlotColumns
from ..stored import AccColumn, StateTable
from ..whole import Freeze, WholeWithoutCodes
from .arena import Arena, LogArena
from .changes import LogChanges, RowsDelta
from .format import FrozenRows, GroupsOf, Numbers, stored_rows

PORTION = 1 << 16
"""Rows that are moved at a time."""

_GONE = "gone"

Known = Callable[[Int64s, Int64s | slice], Numbers]
"""Makes what was known at a freeze of some rows, and of a layer their places; they are told twice,
the second time as what looks at them without copying, if that can be."""


class RowLog(WholeWithoutCodes):
    """Single-threaded, but for `FrozenRows.table`. `schema`: of the rows, as `gather` gives them.

    Invariants: numbers and marks have an entry per row; rows before `_first`, and `_count` others,
    are gone."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        numbers: Sequence[AccColumn] = (),
        marks: Sequence[AccColumn] = (),
    ) -> None:
        self.schema = schema
        self._name = name
        self._groups_of = groups_of
        self._declared = (tuple(numbers), tuple(marks))
        self._changes: LogChanges | None = None
        """None until a snapshot may be continued."""
        self._clear()

    def _clear(self) -> None:
        numbers, marks = self._declared
        self._arena = self._new_arena()
        self._numbers = {column.name: GrowingList(column.dtype) for column in numbers}
        self._marks = SlotColumns(marks) if marks else None
        self._gone: SlotColumns | None = None
        """None until a row has gone."""
        self._count = 0
        self._first = 0

    def _new_arena(self) -> LogArena:
        return Arena(self.schema)

    def __len__(self) -> int:
        """Rows that have numbers, also those that are gone."""
        return len(self._arena)

    @property
    def live(self) -> int:
        """Rows that are not gone."""
        return len(self) - self._first - self._count

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        numbers = sum(held.array.nbytes for held in self._numbers.values())
        columns = [one for one in (self._marks, self._gone) if one is not None]
        return self._arena.nbytes + numbers + sum(one.nbytes for one in columns)

    def append(
        self, rows: pa.RecordBatch, known: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> int:
        """Add rows of `schema`, or of the types they are stored in. `known`: their numbers, and
        marks that do not begin with their initial value. Returns the number of the first."""
        first = len(self)
        self._arena.append(rows)
        self._append_known(first, known or {})
        return first

    def _append_known(self, first: int, known: Mapping[str, npt.NDArray[Any]]) -> None:
        """What is known of the rows from `first` on, which were just appended."""
        end = len(self)
        for name, held in self._numbers.items():
            held.append(known[name])
        if self._marks is not None:
            self._marks.reserve(end)
            for mark in self._marks.columns:
                if mark.name in known:
                    self._marks.array(mark.name)[first:end] = known[mark.name]
        if self._gone is not None:
            self._gone.reserve(end)

    def gather(self, rows: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """These rows of these columns (None: of all), of the types of `schema`. Nulls for -1."""
        return self._arena.gather(rows, columns)

    def take(self, rows: Int64s) -> pa.RecordBatch:
        """These rows, in this order."""
        return pa.RecordBatch.from_arrays(self.gather(rows), schema=self.schema)

    def number(self, name: str) -> npt.NDArray[Any]:
        """A number, or mark, of all rows; `len(self)` entries or more. Valid until the next
        `append`. Marks are written where they were touched since the last snapshot."""
        held = self._numbers.get(name)
        if held is not None:
            return held.array
        if self._marks is None:
            raise StateError(f"the rows '{self._name}' have no number '{name}'")
        return self._marks.array(name)

    def touch(self, rows: Int64s) -> None:
        """The marks of these rows are about to be written; negative rows are none."""
        if self._marks is not None:
            self._marks.touch(rows)
            self._note(rows[rows >= 0])

    def remove(self, rows: Int64s) -> None:
        """These rows, distinct and not gone, are gone."""
        if not len(rows):
            return
        if self._gone is None:
            self._gone = SlotColumns([AccColumn(_GONE, "bool", False)], len(self))
        self._note(rows)
        self._gone.touch(rows)
        self._gone.array(_GONE)[rows] = True
        self._count += len(rows) - int((rows < self._first).sum())

    def forget(self, end: int) -> None:
        """The rows before this number are gone."""
        if end <= self._first:
            return
        if self._gone is not None:
            self._count -= int(self._gone.array(_GONE)[self._first : end].sum())
        self._first = end

    def rows(self, start: int = 0, end: int | None = None) -> Int64s:
        """The rows that are not gone, ascending; of those from `start` on and before `end`."""
        start = max(start, self._first)
        end = len(self) if end is None else max(start, min(end, len(self)))
        if self._gone is None or not self._count:
            return np.arange(start, end)
        live = ~self._gone.array(_GONE)[start:end]
        found: Int64s = np.flatnonzero(live) + start
        return found

    def keep(self, rows: Int64s) -> None:
        """Only these rows, distinct and not gone; in this order they become rows 0, 1, ..."""
        if self._changes is not None:
            self._changes.renumbered()
        old = (self._arena, self._numbers, self._marks)
        self._clear()
        for start in range(0, len(rows), PORTION):
            part = rows[start : start + PORTION]
            self._append_from(*old, part)

    def check_same(
        self, schema: pa.Schema, numbers: Sequence[AccColumn], marks: Sequence[AccColumn]
    ) -> None:
        """Asking again for the name must mean the same rows."""
        if (schema, (tuple(numbers), tuple(marks))) != (self.schema, self._declared):
            known = [[column.name for column in some] for some in self._declared]
            asked = [[column.name for column in some] for some in (numbers, marks)]
            raise StateError(
                f"rows '{self._name}' have columns {schema_text(self.schema)}, numbers {known[0]} "
                f"and marks {known[1]}; they are asked for with columns {schema_text(schema)}, "
                f"numbers {asked[0]} and marks {asked[1]}"
            )

    def freeze(
        self, name: str, layer: Layer = "whole", delta: RowsDelta | None = None
    ) -> FrozenRows:
        """The rows as they are now, or those of `delta`, to be encoded on any thread; nothing is
        copied."""
        read, gone = self._freeze_read(layer, delta), None if delta is None else delta.gone
        return FrozenRows(name, self._groups_of, read, layer, gone)

    def _freeze_read(
        self, layer: Layer, delta: RowsDelta | None
    ) -> Callable[[], tuple[pa.RecordBatch, Numbers]]:
        """As of `FrozenRows`."""
        assert isinstance(self._arena, Arena)
        rows, first = self._arena.freeze(), self._first
        known, live = self._freeze_known(layer), self._freeze_live(delta)

        def read() -> tuple[pa.RecordBatch, Numbers]:
            found, some = rows(), live()
            if len(some) == found.num_rows - first:
                return found.slice(first), known(some, slice(first, None))
            return take_rows(found, pa.array(some)), known(some, some)

        return read

    def _freeze_live(self, delta: RowsDelta | None) -> Callable[[], Int64s]:
        """Makes the rows that are not gone now, ascending, of `delta` only if there is one; later
        and on any thread."""
        count, first = len(self), self._first
        gone = self._gone.freeze(count) if self._gone is not None and self._count else None

        def live() -> Int64s:
            some = np.arange(first, count) if delta is None else delta.positions
            return some if gone is None else some[~gone.arrays()[_GONE][some]]

        return live

    def _freeze_known(self, layer: Layer) -> Known:
        numbers = {name: held.used for name, held in self._numbers.items()}
        marks = None if self._marks is None else self._marks.freeze(len(self))

        def known(rows: Int64s, at: Int64s | slice) -> Numbers:
            held = numbers if marks is None else {**numbers, **marks.arrays()}
            found = {name: values[at] for name, values in held.items()}
            return found if layer == "whole" else {**found, SLOT: rows}

        return known

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        if self._changes is None:
            self._changes = LogChanges()
        whole = name in since.whole
        delta = self._changes.advance(since, self._first, len(self), self.live, whole)
        if delta is None:
            return self.freeze(name, "base"), False
        return self.freeze(name, "delta", delta), True

    def _note(self, rows: Int64s) -> None:
        """These rows are written, or gone."""
        if self._changes is not None:
            self._changes.record.note(rows)

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty log: the rows of each former subtask, those of a key in order of arrival.

        StateError if columns or numbers are not those declared."""
        numbers, marks = self._declared
        stored = stored_rows(
            self._name, tables, self._arena.stored_schema, [*numbers, *marks], self._groups_of
        )
        for rows, known in stored:
            self.append(rows, known)

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(held.length == len(self) for held in self._numbers.values())
        assert self._marks is None or self._marks.room >= len(self)
        assert 0 <= self._first <= len(self)
        if self._gone is None:
            assert not self._count
        else:
            assert self._gone.room >= len(self)
            gone = self._gone.array(_GONE)
            assert int(gone[self._first : len(self)].sum()) == self._count
            assert not gone[len(self) :].any()
        assert len(self.rows()) == self.live

    def _append_from(
        self,
        arena: LogArena,
        numbers: Mapping[str, GrowingList],
        marks: SlotColumns | None,
        rows: Int64s,
    ) -> None:
        known = {name: held.array[rows] for name, held in numbers.items()}
        if marks is not None:
            known.update((mark.name, marks.array(mark.name)[rows]) for mark in marks.columns)
        first = len(self)
        self._arena.append_from(arena, rows)
        self._append_known(first, known)
