"""Rows of fixed columns at positions, written and read in bulk, positions used again.

Values of one width lie in arrays by position, the texts and bytes of a row in a block of an arena
(`Texts`); other types are kept as Python objects. Reading rows from anywhere is one gather per
column.

A row is not changed while its position is in use, and a position in use at a freeze is not used
again before the freeze has been read. So freezing copies nothing: the snapshot's thread reads the
same arrays, a chunk at a time, and growing and packing them waits for a chunk at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Groups
from ...core.errors import StateError
from ...core.growing import Growing
from ..column_index import storage_type
from ..increments import IDENTITY, SCOPE, SLOT, Layer, Since, columns_text
from ..key_groups import group_order, key_groups_of
from ..key_index import as_declared
from ..slot_columns import FrozenColumns, SlotColumns
from ..stored import KEY_GROUP, AccColumn, StateTable
from ..stores import RowsFace
from ..turns import Turns
from ..whole import Freeze, WholeWithoutCodes
from .changes import RowsChanges, RowsDelta
from .format import KIND, NUMBER_PREFIX, ROW_PREFIX, stored_rows, with_places_gone
from .payload import Payload, RowPayload
from .positions import FrozenPositions, PositionPool, Positions
from .texts import is_text, wide_text

CHUNK = 1 << 14
"""Rows that the snapshot's thread reads while the task's thread may have to wait."""


@dataclass(frozen=True)
class FrozenTable:
    """Rows at a point in time, to be read once, on any thread: as `table` or as `column`."""

    name: str
    rows: RowTable
    positions: FrozenPositions
    numbers: FrozenColumns | None
    layer: Layer = "whole"
    delta: RowsDelta | None = None
    """What is to be written; None: all."""

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group and within it by arrival; None if there are none."""
        at, delta = self._at(), self.delta
        if not len(at) and (delta is None or not len(delta.gone)):
            self.positions.over = True
            return None
        groups = self._groups(at, max_parallelism)
        order = group_order(groups)
        made = self._made(groups[order], at[order], self._numbers(), self._gone())
        self.positions.over = True
        return made

    def column(self, index: int) -> pa.ChunkedArray:
        """One column, of its stored type, in order of arrival, or of positions."""
        column = self.rows.stored_column(index, self._at())
        self.positions.over = True
        return column

    def _groups(self, at: Positions, max_parallelism: int) -> Groups:
        return key_groups_of(self.rows.stored_keys(at), max_parallelism)

    def _numbers(self) -> dict[str, npt.NDArray[Any]]:
        return {} if self.numbers is None else self.numbers.arrays()

    def _gone(self) -> Positions:
        """Places that count no more."""
        return _NONE if self.delta is None else self.delta.gone

    def _made(
        self, groups: Groups, at: Positions, numbers: dict[str, npt.NDArray[Any]], gone: Positions
    ) -> StateTable:
        """The rows at these positions, of these key groups."""
        rows = self.rows
        data = {KEY_GROUP: pa.chunked_array([pa.array(groups)])}
        for name, column in zip(rows.names, rows.stored_columns(at), strict=True):
            data[ROW_PREFIX + name] = column
        for name, values in numbers.items():
            data[NUMBER_PREFIX + name] = pa.chunked_array([pa.array(values[at])])
        if self.layer != "whole":
            data[SLOT] = pa.chunked_array([pa.array(rows.places(at))])
        table, metadata = pa.table(data), {}
        if self.delta is not None:
            table = with_places_gone(table, gone)
            metadata = {IDENTITY: columns_text([SLOT]), SCOPE: columns_text([SLOT])}
        return StateTable(self.name, KIND, table, metadata, self.layer)

    def _at(self) -> Positions:
        if self.positions.over:
            raise StateError(f"the rows '{self.name}' of one snapshot were read twice")
        if self.delta is None:
            return self.rows.arranged(self.positions.all())
        some = self.delta.positions
        return self.rows.arranged(some[self.positions.in_use(some)])


class RowTable(RowsFace, WholeWithoutCodes):
    """Single-threaded, but for `FrozenTable`. `keys`: the columns that are a row's key and decide
    its key group. `ordered`: rows are given back in their order of arrival, which takes a number
    per row.

    Invariant: all columns have room for `_room` positions, at least as many as were given out."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[int],
        numbers: Sequence[AccColumn] = (),
        ordered: bool = True,
        max_parallelism: int = 1,
    ) -> None:
        """`max_parallelism`: of those that are restored."""
        self._name = name
        self._schema = schema
        self._keys = tuple(keys)
        self._ordered = ordered
        self._max_parallelism = max_parallelism
        kinds = [storage_type(kind) for kind in schema.types]
        self._kinds = kinds
        self._turns = Turns()
        self._payload: Payload = RowPayload(kinds, self._turns)
        self._stored = pa.schema(
            field.with_type(wide_text(kind) if is_text(kind) else kind)
            for field, kind in zip(schema, kinds, strict=True)
        )
        self._numbers = SlotColumns(numbers) if numbers else None
        self._sequence = Growing(np.int64)
        """When the row at a position came, if `ordered`."""
        self._arrived = 0
        self._changes: RowsChanges | None = None
        """None until a snapshot may be continued."""
        self._pool = PositionPool()
        self._room = 0

    def __len__(self) -> int:
        return len(self._pool)

    @property
    def nbytes(self) -> int:
        numbers = 0 if self._numbers is None else self._numbers.nbytes
        return self._payload.nbytes + numbers + int(self._sequence.array.nbytes)

    def add(
        self, rows: pa.RecordBatch, numbers: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> Positions:
        self._drop(self._pool.reclaim())
        positions = self._pool.take(rows.num_rows)
        if self._pool.end > self._room:
            self._grow(self._pool.end)
        self._payload.write(positions, rows.columns)
        if self._ordered:
            arrived = self._arrived + len(positions)
            self._sequence.array[positions] = np.arange(self._arrived, arrived)
            self._arrived = arrived
        if self._changes is not None:
            self._changes.record.note(positions)
        if self._numbers is not None:
            self._numbers.reset(positions)
            for name, values in (numbers or {}).items():
                self._numbers.array(name)[positions] = values
        return positions

    def read(self, positions: Positions) -> pa.RecordBatch:
        arrays = self.columns(range(len(self._schema)), positions)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def column(self, index: int, positions: Positions) -> pa.Array:
        return self.columns([index], positions)[0]

    def columns(self, indices: Iterable[int], positions: Positions) -> list[pa.Array]:
        at = list(indices)
        arrays = self._payload.read(at, positions)
        return [self._declared(i, array) for i, array in zip(at, arrays, strict=True)]

    def number(self, name: str) -> npt.NDArray[Any]:
        if self._numbers is None:
            raise StateError(f"the rows '{self._name}' have no numbers")
        return self._numbers.array(name)

    def touch(self, positions: Positions) -> None:
        if self._numbers is not None:
            self._numbers.touch(positions)
        if self._changes is not None:
            self._changes.record.note(positions[positions >= 0])

    def release(self, positions: Positions) -> None:
        if len(positions):
            if self._changes is not None:
                self._changes.record.note(positions)
                if self._ordered:
                    self._changes.released(self._sequence.array[positions])
            self._drop(self._pool.release(positions))

    def positions(self) -> Positions:
        return self.arranged(self._pool.used())

    def check_same(
        self,
        schema: pa.Schema,
        keys: Sequence[int],
        numbers: Sequence[AccColumn] = (),
        ordered: bool = True,
    ) -> None:
        """Asking again for the name must mean the same rows."""
        held = () if self._numbers is None else self._numbers.columns
        known = (self._schema, self._keys, held, self._ordered)
        if (schema, tuple(keys), tuple(numbers), ordered) != known:
            raise StateError(
                f"rows '{self._name}' have columns {_text(self._schema)}, keys {list(self._keys)} "
                f"and numbers {[c.name for c in held]}; they are asked for with columns "
                f"{_text(schema)}, keys {list(keys)} and numbers {[c.name for c in numbers]}, or "
                "in another order"
            )

    def freeze(self, name: str, delta: RowsDelta | None = None) -> FrozenTable:
        """The rows as they are now, or those of `delta`; nothing is copied."""
        numbers, changes = None, None if delta is None else delta.changes
        if self._numbers is not None:
            numbers = self._numbers.freeze(self._pool.end, changes)
        layer: Layer = "whole" if delta is None else "delta"
        return FrozenTable(name, self, self._pool.freeze(), numbers, layer, delta)

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        if self._changes is None:
            self._changes = RowsChanges()
        arrived = self._arrived if self._ordered else None
        whole = name in since.whole
        delta = self._changes.advance(since, self._pool.end, len(self), arrived, whole)
        if delta is None:
            return replace(self.freeze(name), layer="base"), False
        return self.freeze(name, delta), True

    def places(self, positions: Positions) -> Positions:
        """What tells the rows at positions in use apart, in their order; on any thread."""
        if not self._ordered:
            return positions
        with self._turns.reading():
            return self._sequence.array[positions]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self._schema.names)

    def stored_column(self, index: int, positions: Positions) -> pa.ChunkedArray:
        """One column at positions that are not used again meanwhile, of its stored type; on any
        thread."""
        chunks = []
        for start in range(0, len(positions), CHUNK):
            with self._turns.reading():
                chunks += self._payload.read([index], positions[start : start + CHUNK])
        return pa.chunked_array(chunks, self._stored.types[index])

    def stored_columns(self, positions: Positions) -> list[pa.ChunkedArray]:
        """All columns, as `stored_column`."""
        return [self.stored_column(index, positions) for index in range(len(self._schema))]

    def stored_keys(self, positions: Positions) -> pa.RecordBatch:
        """The key columns, as `stored_column`."""
        columns = [self.stored_column(index, positions).combine_chunks() for index in self._keys]
        names = [self._schema.names[index] for index in self._keys]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def arranged(self, positions: Positions) -> Positions:
        """Ascending positions in order of arrival, if `ordered`; on any thread."""
        if not self._ordered:
            return positions
        return positions[np.argsort(self.places(positions), kind="stable")]

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty table: the rows of each former subtask in order of arrival.

        StateError if columns or numbers are not those declared."""
        declared = () if self._numbers is None else self._numbers.columns
        for rows, numbers in stored_rows(
            self._name, tables, self._stored, declared, self._groups_of
        ):
            for start in range(0, rows.num_rows, CHUNK):
                part = {name: values[start : start + CHUNK] for name, values in numbers.items()}
                self.add(rows.slice(start, CHUNK), part)

    def _groups_of(self, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        names = [self._schema.names[index] for index in self._keys]
        return key_groups_of(rows.select(names), self._max_parallelism)

    def validate(self) -> None:
        """Assert the invariants."""
        self._pool.validate()
        assert self._room >= self._pool.end
        self._payload.validate()

    def _declared(self, index: int, array: pa.Array) -> pa.Array:
        """A column as it was stored, of its declared type."""
        kind = self._kinds[index]
        plain = array if array.type == kind else array.cast(kind)
        return as_declared(plain, self._schema.types[index])

    def _drop(self, positions: Positions) -> None:
        """Nobody reads any more what lies at these positions."""
        if len(positions):
            self._payload.release(positions)

    def _grow(self, size: int) -> None:
        with self._turns.moving():
            self._payload.grow(size)
            rooms = [self._payload.room]
            if self._ordered:
                self._sequence.reserve(size)
                rooms.append(len(self._sequence.array))
        if self._numbers is not None:
            self._numbers.reserve(size)
            rooms.append(self._numbers.room)
        self._room = min(rooms)


_NONE: Positions = np.empty(0, np.int64)


def _text(schema: pa.Schema) -> str:
    return "[" + ", ".join(f"{field.name}: {field.type}" for field in schema) + "]"
