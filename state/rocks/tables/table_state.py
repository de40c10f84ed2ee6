"""A table state of which rows may lie in RocksDB: its namespaces, and what of them leaves.

Once rows have left, each batch makes room for what it brings: about as many leave as came. The rows
in memory are at most two thirds of what fits, so that slots get new numbers once for every third
that leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np
import pyarrow as pa

from ....core.arrays import Bools, Slots
from ...increments import Since
from ...key_index import as_declared
from ...slot_table import MemorySlotTable
from ...stored import AccColumn, StateTable
from ...table_state import MemoryTableState, TableFreeze
from ...value_store import MakeStores
from ...whole import Freeze
from ..database.freeze import PieceFreeze
from ..database.layouts import tables_of
from ..database.task_database import DatabaseView, TaskDatabase
from .passing_rows import PassingRows
from .slot_layout import make_rows, slot_groups, slots_layout
from .slot_rows import SlotRows, space_of
from .slot_table import ColdSlotTable
from .valued_rows import values_schema

RESTORED = 1 << 16
"""So many restored rows are taken in before room is made."""

RESTORED_BYTES = 16 << 20
"""Of rows with values, no more than so many bytes."""

WRITTEN = 1 << 16
"""So many rows that leave, or are deleted with their namespace, are written at once."""

LOOKED_AT = 4
"""Of so many records one is worth a look at a row in RocksDB that may have expired."""

AT_ONCE = 16
"""Of so many rows with values in memory one leaves, or none: some stores look at all they have for
what is of a few."""

LIVE = 2 / 3
"""How much of what fits into memory are rows in use; the rest is for slots of rows that left."""


class ColdTableState(MemoryTableState):
    """See the module. Slots are good until the next batch begins."""

    leaves = True

    stored_as: ClassVar[str] = "table"
    """The kind of its tables in snapshots."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        accumulators: Sequence[AccColumn],
        key_columns: int | None,
        database: TaskDatabase,
        max_parallelism: int,
        values: MakeStores | None = None,
    ) -> None:
        """`values`: of which all have bytes (`values_fit`)."""
        super().__init__(name, schema, accumulators, key_columns, values)
        self._database = database
        valued = values_schema(accumulators, self._values)
        self.layout = self._layout(slots_layout(schema, accumulators, self._key_columns, valued))
        prefix, here = database.new_state(name, self.stored_as, self.layout)
        of = prefix, schema, accumulators, self._key_columns, max_parallelism
        self.rows = make_rows(*of, valued)
        self.spilled = self.loaded = 0
        """Rows written to RocksDB, and read from it, so far."""
        self._cold: dict[int, ColdSlotTable] = {}
        """All of `_tables`."""
        self._turn = 0
        """Which namespace is looked at first when rows have to leave."""
        self._deletes: dict[bytes, None] = {}
        """Places that are to be deleted in RocksDB."""
        self._expires: tuple[str, Callable[[Slots], Bools]] | None = None
        self._forgotten: Callable[[pa.RecordBatch], None] | None = None
        """Who is told of the keys whose rows have expired there."""
        self._hand = prefix
        """Where in RocksDB to look next for what has expired."""
        database.budget.join(self)
        if here:
            self.adopt(slot_groups(database, prefix))

    def table(self, namespace: int = 0) -> ColdSlotTable:
        table = self._cold.get(namespace)
        if table is None:
            table = self._new_table(namespace)
            self._cold[namespace] = self._tables[namespace] = table
        return table

    def _layout(self, layout: dict[str, str]) -> dict[str, str]:
        """What it says of how its rows are to be read; `layout`: as rows of a slot table."""
        return layout

    def _new_table(self, namespace: int) -> ColdSlotTable:
        stores = {name: make() for name, make in self._values.items()}
        of = self._name, self._schema, self._accumulators, self._room, self, namespace
        return ColdSlotTable(*of, stores)

    def drop(self, namespace: int) -> None:
        table = self._cold.pop(namespace, None)
        if table is not None:
            for group in table.groups:
                places = (place for place, _ in self.stored(group, namespace))
                while some := list(islice(places, WRITTEN)):
                    self._database.write(some, [])
        super().drop(namespace)

    def expire(
        self,
        column: str,
        gone: Callable[[Slots], Bools],
        forgotten: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        self._expires = column, gone
        self._forgotten = forgotten

    @property
    def used(self) -> int:
        tables = list(self._cold.values())  # other threads ask, too
        return sum(table.used for table in tables if len(table))

    @property
    def cold_groups(self) -> dict[int, list[int]]:
        """By namespace, the key groups of which RocksDB may hold rows."""
        return {ns: sorted(table.groups) for ns, table in self._cold.items() if table.groups}

    def adopt(self, groups: Mapping[int, Collection[int]]) -> None:
        """As `cold_groups`, of what was put into RocksDB under the prefix of this state before it
        is restored. Rows that are restored count over those."""
        for namespace, some in groups.items():
            self.table(namespace).adopt(some)

    def get(self, places: list[bytes]) -> list[bytes | None]:
        """The rows that lie there."""
        found = self._database.get_many(places)
        if self._deletes:
            gone = self._deletes
            found = [
                None if place in gone else row for place, row in zip(places, found, strict=True)
            ]
        return found

    def stored(self, group: int, namespace: int) -> Iterator[tuple[bytes, bytes]]:
        """What RocksDB holds of a namespace and a key group, and where."""
        return self.under(self.rows.prefix_of(group, namespace))

    def under(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What RocksDB holds at places that begin so, and where."""
        gone = self._deletes
        return (pair for pair in self._database.scan(prefix) if pair[0] not in gone)

    def delete(self, places: Iterable[bytes]) -> None:
        """In RocksDB; no later than the next batch begins."""
        self._deletes.update(dict.fromkeys(places))

    def sweep(self, records: int) -> None:
        """See `Sweeping`: so the task says that a batch or a watermark is done."""
        if self._expires is not None and not self._database.waits(0, 0):
            self._look(*self._expires, records // LOOKED_AT + 1)
        self.make_room()

    def begin_event_time(self, watermark: int) -> None:
        """Stamps are numbers here."""

    def make_room(self) -> None:
        """Write to RocksDB what is more than the state may hold. No slot is valid after it."""
        limit = self._database.budget.limit(self)
        if self._database.waits(self.used, limit):
            return
        self._delete()
        if self.used <= limit and not self.spilled:
            return
        if self._values and self.used > limit:
            for table in self._tables_in_turn():
                table.forget_values()
        live = self._live()
        excess = live - self._most(limit)
        if self._values and excess > 0:
            excess = max(excess, live // AT_ONCE)
        self._evict(excess)
        if self.used <= limit:
            return
        for table in self._tables_in_turn():
            table.compact()
        used = self.used
        if used > limit:  # many small tables, of which each has some room to spare
            self._evict(self._live() - int(self._live() * LIVE * limit / used))
            for table in self._tables_in_turn():
                table.compact()

    def close(self) -> None:
        self._database.budget.leave(self)

    def freeze(self, name: str) -> ColdTableFreeze:
        self._delete()
        hot = super().freeze(name)
        return ColdTableFreeze(
            hot.name,
            hot.schema,
            hot.parts,
            hot.key_columns,
            hot.stored,
            rows=self.rows.frozen(),
            older={namespace: self._cold[namespace].older() for namespace, _ in hot.parts},
            view=self._view(),
        )

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        """What changed, as long as nothing lies in RocksDB; then all of it."""
        if self._database.by_files:
            return self.freeze_hot(name, since)
        if self.cold_groups:
            return self.freeze(name), False
        return super().freeze_since(name, since)

    def freeze_hot(self, name: str, since: Since) -> tuple[Freeze, bool]:
        """As `freeze_since`, of the rows in memory alone, for a checkpoint that holds RocksDB's
        files as they are right after this: rows that left count as removed, and those in memory
        count over those of the files."""
        self._delete()
        return super().freeze_since(name, since)

    def shown(self) -> Callable[[], Iterable[bytes]]:
        """Places in RocksDB whose rows do not count, as it is now, but for those that the tables of
        the snapshot tell (`slot_layout.places_in`); to be called once, on any thread."""
        if not self.cold_groups or not self.rows.of_objects:
            return tuple
        rows, tables = (
            self.rows.frozen(),
            [(n, table) for n, table in self._cold.items() if len(table)],
        )
        parts = [(n, table.freeze_keys(), table.older()) for n, table in tables]
        return lambda: _shown(rows, parts)

    def restore(self, tables: Iterable[StateTable]) -> None:
        super().restore(tables)
        self.make_room()

    def _fill(self, table: MemorySlotTable, rows: pa.Table) -> None:
        most = RESTORED
        if self._values:
            most = max(1, min(most, RESTORED_BYTES * rows.num_rows // max(rows.nbytes, 1)))
        for start in range(0, rows.num_rows, most):
            piece = rows.slice(start, most).combine_chunks()
            if self.rows.of_objects:
                assert isinstance(table, ColdSlotTable)
                piece = self._fill_beside(table, piece)
            if piece.num_rows:
                super()._fill(table, piece)
                self.make_room()

    def _fill_beside(self, table: ColdSlotTable, rows: pa.Table) -> pa.Table:
        """Put restored rows whose keys are objects into RocksDB, if there is no room for them: keys
        that pass through are not to be known for longer. What is left of them, which has to be in
        memory."""
        more = table.bytes_for(rows.num_rows) + (rows.nbytes if self._values else 0)
        if self.used + more <= LIVE * self._database.budget.limit(self):
            return rows
        (kind,) = self._schema.types
        passing = PassingRows(rows, self._schema.names[0], kind.keys, self._name)
        places, packed, groups = passing.packed(self.rows, table.namespace, self._accumulators)
        for place in places if self._deletes else ():
            self._deletes.pop(place, None)
        table.adopt(groups)
        self._database.write([], list(zip(places, packed, strict=True)))
        self.spilled += len(places)
        return passing.left

    def _view(self) -> DatabaseView | None:
        return None if self._database.by_files or not self.cold_groups else self._database.view()

    def _live(self) -> int:
        return sum(table.live for table in self._cold.values())

    def _most(self, limit: int) -> int:
        """How many rows may be in memory."""
        largest = max(self._cold.values(), key=len, default=None)
        if largest is None:
            return 0
        low, high = 0, max(limit // 8, 1)
        while high - low > max(low >> 6, 1):
            middle = (low + high) // 2
            if largest.bytes_for(middle) <= limit:
                low = middle
            else:
                high = middle
        return int(low * LIVE)

    def _look(self, column: str, gone: Callable[[Slots], Bools], count: int) -> None:
        """Delete what has expired among the next rows in RocksDB. Those in memory that are as they
        are there have expired, too."""
        view = self._database.view()
        if view is None:
            return
        found = list(islice(view.scan(self.rows.prefix, self._hand), count))
        self._hand = found[-1][0] + b"\x00" if len(found) == count else self.rows.prefix
        stamps = self.rows.unpacked([row for _, row in found])[column]
        over = [found[at] for at in np.flatnonzero(gone(stamps)).tolist()]
        if self._forgotten is not None and over:
            self._tell(over, self._forgotten)
        self._database.write([place for place, _ in over], [])

    def _tell(
        self, over: list[tuple[bytes, bytes]], forgotten: Callable[[pa.RecordBatch], None]
    ) -> None:
        """Of these rows, which have expired, but for those of keys that are in memory, too: such a
        key is the operator's to forget."""
        places, rows = [place for place, _ in over], [row for _, row in over]
        columns = self.rows.keys_in(places, rows, self._name)
        spaces = np.array([space_of(place) for place in places])
        away = np.ones(len(over), dtype=np.bool_)
        for namespace, table in self._cold.items():
            at = np.flatnonzero(spaces == namespace)
            away[at] = ~table.holds([column.take(pa.array(at)) for column in columns])
        if away.any():
            keys = [column.filter(pa.array(away)) for column in columns]
            pairs = zip(keys, self._schema.types, strict=True)
            named = [as_declared(column, kind) for column, kind in pairs]
            forgotten(pa.RecordBatch.from_arrays(named, schema=self._schema))

    def _evict(self, excess: int) -> None:
        for table in self._tables_in_turn():
            if excess <= 0:
                return
            slots = table.idle(excess)
            excess -= len(slots)
            self._turn = table.namespace
            most = table.piece(WRITTEN)
            for start in range(0, len(slots), most):
                places, rows = table.evict(slots[start : start + most])
                for place in places if self._deletes else ():
                    self._deletes.pop(place, None)
                self._database.write([], list(zip(places, rows, strict=True)))
                self.spilled += len(places)

    def _tables_in_turn(self) -> list[ColdSlotTable]:
        spaces = sorted(namespace for namespace, table in self._cold.items() if len(table))
        at = int(np.searchsorted(spaces, self._turn))
        return [self._cold[namespace] for namespace in [*spaces[at:], *spaces[:at]]]

    def _delete(self) -> None:
        if self._deletes:
            deletes, self._deletes = self._deletes, {}
            self._database.write(list(deletes), [])


@dataclass(frozen=True, kw_only=True)
class ColdTableFreeze(TableFreeze, PieceFreeze):
    """A point in time of a table, in memory and in RocksDB."""

    rows: SlotRows
    older: Mapping[int, Bools]
    view: DatabaseView | None

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        if self.view is not None:
            parts = [(n, part.keys, self.older[n]) for n, part in self.parts]
            shown = frozenset(_shown(self.rows, parts))
            found = (pair for pair in self.view.scan(self.rows.prefix) if pair[0] not in shown)
            rows = self.rows
            layout = slots_layout(self.schema, rows.columns, self.key_columns, rows.values)
            yield from tables_of(self.name, "table", layout, found, max_parallelism)
        table = self.table(max_parallelism)
        if table is not None:
            yield table


def _shown(
    rows: SlotRows, parts: Iterable[tuple[int, Callable[[], list[pa.Array]], Bools]]
) -> list[bytes]:
    """Places whose rows do not count: of those in memory that RocksDB has, too. `parts`: of each
    namespace the keys, and which are such."""
    shown: list[bytes] = []
    for namespace, keys, older in parts:
        slots = np.flatnonzero(older)
        if len(slots):
            at = pa.array(slots)
            shown += rows.places([column.take(at) for column in keys()], namespace)
    return shown
