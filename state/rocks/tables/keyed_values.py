"""Values of keys of which any may lie in RocksDB: see `KeyedValuesFace`.

Each pair of key and value is a row of a table (`pair_table`), so a value that comes to a key that
has very many is one row to read and to write. Rows that were changed are written when they leave
memory and before a snapshot, which has of these values what RocksDB has; where there are snapshots
also between two batches, when there are `UNWRITTEN` of them. Values that all fit, and never left
memory, are a table in a snapshot.

    state (2 bytes) | key group (2) | 0 | key | value, or none  ->  rows of a slot table

Tables of a snapshot are as `slot_values` has them: heads are made anew, and what they hold is not
known then (`held`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Bools, Int64s, Slots, numpy_of
from ....core.errors import StateError
from ...column_index import storage_type
from ...increments import Since
from ...names import ACC_PREFIX, KEY_PREFIX
from ...slot_values import COUNT_PREFIX, KIND, VALUE, fitted, stored_kind
from ...stored import KEY_GROUP, AccColumn, StateTable
from ...stores import KeyedValuesFace
from ...table_state import MemoryTableState, TableFreeze
from ...value_store import Values, ValueStore
from ...whole import Freeze
from ..database.freeze import PieceFreeze
from ..database.layouts import LAYOUT, Layout, Pair, tables_of
from ..database.task_database import DatabaseView, TaskDatabase
from .key_columns import plain_column
from .pair_table import PAIRS, PairTable, is_head
from .slot_layout import slots_table, valued_pieces
from .slot_rows import fits
from .table_state import RESTORED, WRITTEN, ColdTableState
from .valued_rows import new_codes, values_fit

NAME, VIEWS = "keyed_values", "views"
"""Of the layout: its name, and how many views there are."""

UNWRITTEN = 1 << 13
"""So many changed rows are written between two batches: a snapshot has no more of them to write."""

SMALL = 1 << 20
"""Bytes of values that are not worth a local database."""


def keyed_values_fit(keys: pa.Schema, kind: pa.DataType) -> bool:
    """Whether values of this type, of such keys, have places and bytes."""
    return fits(_pair_schema(keys, kind), []) and values_fit({"": lambda: ValueStore(kind)})


def _pair_schema(keys: pa.Schema, kind: pa.DataType) -> pa.Schema:
    name = VALUE
    while name in keys.names:
        name += "_"
    fields = [*((field.name, storage_type(field.type)) for field in keys), (name, kind)]
    return pa.schema([(name, storage_type(kind)) for name, kind in fields])


class ColdKeyedValues(ColdTableState, KeyedValuesFace):
    """See the module."""

    stored_as: ClassVar[str] = KIND

    def __init__(
        self,
        name: str,
        keys: pa.Schema,
        kind: pa.DataType,
        views: int,
        extremes: int,
        database: TaskDatabase,
        max_parallelism: int,
    ) -> None:
        self._asked = keys, kind, views, extremes
        self._keys, self.kind, self.views = keys, kind, views
        plain = storage_type(kind)
        counts = [AccColumn(f"{COUNT_PREFIX}{view}", "int64") for view in range(views)]
        held = [f"x{index}" for index in range(extremes)]
        columns = [AccColumn(PAIRS, "int64", -1), *counts]
        columns += [AccColumn(name, "int64", -1) for name in held]
        values = {name: lambda: ValueStore(plain) for name in held}
        of = name, _pair_schema(keys, kind), columns, len(keys), database, max_parallelism, values
        self._continued = False
        """Whether snapshots look for the values in RocksDB, so that little is left to them."""
        super().__init__(*of)

    def check_asked(self, keys: pa.Schema, kind: pa.DataType, views: int, extremes: int) -> None:
        """Asking again for the name must mean the same values."""
        if self._asked != (keys, kind, views, extremes):
            raise StateError(
                f"values '{self._name}' are of {self._asked}, and are asked for as of "
                f"{(keys, kind, views, extremes)} (keys, type, views, extremes)"
            )

    def heads(self, keys: pa.RecordBatch) -> Slots:
        return self._pairs.heads(self._plain_keys(keys))

    def find_heads(self, keys: pa.RecordBatch) -> Slots:
        return self._pairs.find_heads(self._plain_keys(keys))

    def pairs(self, heads: Slots, values: pa.Array) -> Slots:
        return self._pairs.pairs(heads, plain_column(values, self._schema.types[-1]))

    def settle(self, pairs: Slots, before: Bools) -> None:
        table, there = self._pairs, self.there(pairs)
        counts = table.column(PAIRS)
        np.add.at(counts, table.owners(pairs), there.astype(np.int64) - before)
        table.release(pairs[~there])

    def there(self, pairs: Slots) -> Bools:
        counted = [self.counts(view)[pairs] != 0 for view in range(self.views)]
        there: Bools = np.logical_or.reduce(counted)
        return there

    def touch(self, slots: Slots) -> None:
        self._pairs.touch(slots)

    def counts(self, view: int) -> Int64s:
        counts: Int64s = self._pairs.column(f"{COUNT_PREFIX}{view}")
        return counts

    def held(self, index: int, heads: Slots) -> pa.Array:
        codes, store = self._held(index)
        return store.stored(codes[heads]).cast(self._schema.types[-1])

    def holds(self, index: int, heads: Slots) -> Bools:
        codes, _ = self._held(index)
        holds: Bools = codes[heads] >= 0
        return holds

    def hold(self, index: int, heads: Slots, values: pa.Array) -> None:
        codes, store = self._held(index)
        codes[heads] = new_codes(store, plain_column(values, store.wide))

    def values_of(self, pairs: Slots) -> pa.Array:
        return self._pairs.values(pairs)

    def heads_of(self, pairs: Slots) -> Slots:
        return self._pairs.owners(pairs)

    @property
    def links(self) -> Int64s:
        return self._pairs.links

    def elsewhere(self, heads: Slots) -> Iterator[tuple[Slots, pa.Array, list[Int64s]]]:
        for _, owners, values, numbers in self._elsewhere(heads):
            counts = [
                np.ascontiguousarray(numbers[f"{COUNT_PREFIX}{view}"]) for view in range(self.views)
            ]
            yield owners, values, counts

    def release(self, heads: Slots, pairs: Slots) -> None:
        for places, *_ in self._elsewhere(heads):
            self.delete(places)
        self._pairs.release(pairs)
        self._pairs.release(heads)

    def tidy(self, heads: Slots) -> None:
        table = self._pairs
        table.release(heads[table.column(PAIRS)[heads] == 0])
        table.tidy()

    def sweep(self, records: int) -> None:
        if self._continued:
            slots, limit = self._pairs.unwritten(), self._database.budget.limit(self)
            if len(slots) > UNWRITTEN and not self._database.waits(self.used, limit):
                self._write(slots)
        super().sweep(records)

    def begin_snapshot(self, continued: bool) -> None:
        """Have in RocksDB what the snapshot is to find there. `continued`: it may hold RocksDB's
        files."""
        if self.cold_groups or (continued and (self._database.open or self.used > SMALL)):
            self._continued = True
            self._delete()
            self._write(self._pairs.unwritten())

    def freeze(self, name: str) -> KeyedValuesFreeze:  # type: ignore[override]
        """After `begin_snapshot`."""
        cold = bool(self.cold_groups)
        view = self._database.view() if cold and not self._database.by_files else None
        hot = None if cold else self._hot(name)
        return KeyedValuesFreeze(name, self.layout, self.rows.prefix, view, hot)

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        return self.freeze(name), False

    def shown(self) -> Callable[[], Iterable[bytes]]:
        """Nothing in RocksDB that does not count is left there by a snapshot."""
        return tuple

    def restore(self, tables: Iterable[StateTable]) -> None:
        for table in tables:
            data = fitted(table.data, self._name, self._keys, self.kind, self.views)
            for start in range(0, data.num_rows, RESTORED):
                self._take_in(data.slice(start, RESTORED).combine_chunks())
                self.make_room()

    def validate(self) -> None:
        """Assert the invariants."""
        self._pairs.validate()

    def _take_in(self, data: pa.Table) -> None:
        """Stored pairs, distinct and new."""
        columns = [column.combine_chunks() for column in data.columns[1:]]
        kinds, width = self._schema.types, len(self._keys)
        plain = [plain_column(*pair) for pair in zip(columns, kinds, strict=False)]
        heads = self._pairs.heads(plain[:width])
        pairs = self._pairs.pairs(heads, plain[width])
        self.touch(heads)
        self.touch(pairs)
        for view, column in enumerate(columns[width + 1 :]):
            counts, stored = self.counts(view), numpy_of(column)
            counts[pairs] = stored
            np.add.at(counts, heads, stored != 0)
        self.settle(pairs, np.zeros(len(pairs), dtype=np.bool_))

    def _layout(self, layout: dict[str, str]) -> dict[str, str]:
        return layout | {LAYOUT: NAME, VIEWS: str(self.views)}

    def _new_table(self, namespace: int) -> PairTable:
        stores = {name: make() for name, make in self._values.items()}
        of = self._name, self._schema, self._accumulators, self._room, self, namespace
        table = PairTable(*of, stores)
        table.begin()
        return table

    @property
    def _pairs(self) -> PairTable:
        table = self.table()
        assert isinstance(table, PairTable)
        return table

    def _plain_keys(self, keys: pa.RecordBatch) -> list[pa.Array]:
        pairs = zip(keys.columns, self._schema.types, strict=False)
        return [plain_column(column, kind) for column, kind in pairs]

    def _held(self, index: int) -> tuple[Int64s, Values]:
        """By slot the codes of what heads hold under an index, and what these stand for."""
        name = f"x{index}"
        return self._pairs.column(name), self._pairs.stores[name]

    def _elsewhere(
        self, heads: Slots
    ) -> Iterator[tuple[list[bytes], Slots, pa.Array, npt.NDArray[Any]]]:
        table = self._pairs
        heads = table.away(heads)
        if not len(heads):
            return iter(())
        places = self.rows.places(table.keys_of(heads))
        return table.elsewhere(self.under(place) for place in places)

    def _write(self, slots: Slots) -> None:
        for start in range(0, len(slots), WRITTEN):
            puts = self._pairs.write_out(slots[start : start + WRITTEN])
            for place, _ in puts if self._deletes else ():
                self._deletes.pop(place, None)
            self._database.write([], puts)
            self.spilled += len(puts)

    def _hot(self, name: str) -> TableFreeze:
        return MemoryTableState.freeze(self, name)


@dataclass(frozen=True)
class KeyedValuesFreeze(PieceFreeze):
    """A point in time of such values: in RocksDB (`view`; None if the snapshot has its files), or
    `hot`, if nothing lies there."""

    name: str
    layout: Layout
    prefix: bytes
    view: DatabaseView | None
    hot: TableFreeze | None

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        if self.view is not None:
            found = self.view.scan(self.prefix)
            yield from tables_of(self.name, KIND, self.layout, found, max_parallelism)
        table = None if self.hot is None else self.hot.table(max_parallelism)
        if table is not None:
            yield _as_values(table, self.layout)


def values_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    table = slots_table(name, kind, layout, pairs, max_parallelism)
    return _as_values(table, layout)


def pieces_of_values(layout: Layout, pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """All but heads, in lists that are bounded by bytes, too."""
    return valued_pieces(layout, (pair for pair in pairs if not is_head(pair[1])))


def _as_values(table: StateTable, layout: Layout) -> StateTable:
    """Rows of the table as snapshots have values, without heads."""
    data, views = table.data, int(layout[VIEWS])
    names = [name for name in data.column_names if name.startswith(KEY_PREFIX)]
    there = data.column(names[-1]).is_valid()
    made = {KEY_GROUP: data.column(KEY_GROUP)}
    for name, shown in zip(names, [*names[:-1], VALUE], strict=True):
        column = data.column(name)
        made[shown] = column.cast(stored_kind(column.type))
    for view in range(views):
        made[f"{COUNT_PREFIX}{view}"] = data.column(f"{ACC_PREFIX}{COUNT_PREFIX}{view}")
    return StateTable(table.name, KIND, pa.table(made).filter(there))
