"""approx_count_distinct: HyperLogLog registers, 64 to a block of one cache line.

Only blocks in which a register is set exist, so a key with few values costs little. They lie in one
array per slice, found through a directory by slot and block number: no look-up by key. Registers of
several slices are merged by their maximum: an approximate count is as good over any window.

A block is an entry of a state table, under the key and the block's number; the directory is made
anew after a restore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots, numpy_of
from ...core.growing import Growing, GrowingList
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend
from ...state.hash_columns import hash_column
from ..kernels import distinct, pairs
from .base import Part
from .entries import KeyNumbers, present

REGISTERS = 64
WORDS = 8
"""int64 words of a block; one byte is a register."""

FIRST_ROOM = 64

BLOCK, REGISTERS_COLUMN = "block", "registers"


@dataclass
class Blocks:
    """The blocks of one slice. Invariants: the first `count` entries of `owners` (slot) and
    `indices` (number of the block) and their words are in use, all words behind are 0;
    directory[slot * per_slot + index] is the entry, or -1."""

    per_slot: int
    count: int = 0
    directory: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    owners: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    indices: Int64s = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    words: Int64s = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def reserve(self, slots: int, rows: int) -> None:
        """Room for so many slots, and for as many more blocks as `rows` can need."""
        size = slots * self.per_slot
        if size > len(self.directory):
            longer = np.full(max(size, 2 * len(self.directory)), -1, dtype=np.int32)
            longer[: len(self.directory)] = self.directory
            self.directory = longer
        wanted = self.count + min(rows, size)
        if wanted > len(self.owners):
            room = max(wanted, 2 * len(self.owners), FIRST_ROOM)
            self.owners = np.resize(self.owners, room)
            self.indices = np.resize(self.indices, room)
            words = np.zeros(room * WORDS, dtype=np.int64)
            words[: len(self.words)] = self.words
            self.words = words

    def add(self, hashes: npt.NDArray[np.uint64], slots: Slots, precision: int) -> None:
        arrays = (self.directory, self.owners, self.indices, self.words)
        self.count = distinct.sketch_into(
            hashes, slots, precision, self.per_slot, *arrays, self.count
        )

    def merge(self, slots: Slots, indices: Int64s, words: Int64s) -> None:
        """Other blocks, of these slots; those of negative slots are left out."""
        arrays = (self.directory, self.owners, self.indices, self.words)
        self.count = distinct.merge_blocks(
            slots, indices, words, self.per_slot, *arrays, self.count
        )

    def estimates(self, slots: int, precision: int) -> Int64s:
        return estimates_of(self.owners[: self.count], self.words, slots, precision)


def estimates_of(owners: Slots, words: Int64s, slots: int, precision: int) -> Int64s:
    """How many values the slots 0, 1, ... have seen, from their blocks."""
    starts = np.zeros(slots + 1, dtype=np.int64)
    order = np.empty(len(owners), dtype=np.int64)
    pairs.group_rows(owners, starts, order)
    found = np.empty(slots, dtype=np.float64)
    scratch = np.empty(66 - precision, dtype=np.int64)
    distinct.estimates(starts, order, words, precision, scratch, found)
    return np.rint(found).astype(np.int64)


class StoredBlocks:
    """The blocks of one slice, in a state table whose slots are their numbers.

    Invariants: directory[slot * per_slot + index] is a block's number, or -1; `owners` has the slot
    of each, in `keys`, the operator's own table of the slice."""

    def __init__(self, per_slot: int, table: ColumnTable, keys: ColumnTable) -> None:
        self._per_slot = per_slot
        self._table = table
        self._keys = keys
        self._directory = Growing(np.int32, -1)
        self._owners = GrowingList(np.int64)
        self._indices = GrowingList(np.int64)
        if len(table):
            *columns, indices = table.keys().columns
            self._enter(self._slots_of(columns), numpy_of(indices))

    @property
    def owners(self) -> Int64s:
        return self._owners.used

    @property
    def indices(self) -> Int64s:
        return self._indices.used

    @property
    def words(self) -> Int64s:
        """Those of block b from WORDS * b on."""
        registers: Int64s = self._table.column(REGISTERS_COLUMN).view(np.int64)
        return registers

    def add(self, hashes: npt.NDArray[np.uint64], slots: Slots, precision: int) -> None:
        """One value's hash per entry of `slots`."""
        self._directory.reserve(len(self._keys) * self._per_slot)
        registers = (hashes >> np.uint64(64 - precision)).astype(np.int64)
        at = slots * self._per_slot + registers // REGISTERS
        self._make(at[self._directory.array[at] < 0])
        self._table.touch(self._directory.array[at].astype(np.int64))
        distinct.sketch_into(
            hashes,
            slots,
            precision,
            self._per_slot,
            self._directory.array,
            self._owners.array,
            self._indices.array,
            self.words,
            len(self._table),
        )

    def estimates(self, slots: int, precision: int) -> Int64s:
        return estimates_of(self.owners, self.words, slots, precision)

    def _make(self, missing: Int64s) -> None:
        """Blocks at these places of the directory, which has none there."""
        if not len(missing):
            return
        places, first = np.unique(missing, return_index=True)
        places = places[np.argsort(first)]
        owners, indices = places // self._per_slot, places % self._per_slot
        columns = [*self._keys.take_keys(owners), pa.array(indices)]
        names = [*(f"key{i}" for i in range(len(columns) - 1)), BLOCK]
        made = self._table.slots(pa.RecordBatch.from_arrays(columns, names=names))
        assert made[0] == self._owners.length, "a block is made once"
        self._enter(owners, indices)

    def _enter(self, owners: Slots, indices: Int64s) -> None:
        """Blocks of these slots have the next numbers."""
        first = self._owners.length
        self._directory.reserve(len(self._keys) * self._per_slot)
        self._owners.append(owners)
        self._indices.append(indices)
        numbers = np.arange(first, self._owners.length)
        self._directory.array[owners * self._per_slot + indices] = numbers

    def _slots_of(self, columns: list[pa.Array]) -> Slots:
        schema = self._keys.keys().schema
        return self._keys.slots(pa.RecordBatch.from_arrays(columns, schema=schema))


class ApproximateCount(Part):
    """State: table `<prefix>_registers`, of key columns and block number."""

    def __init__(
        self, aggregate: Aggregate, prefix: str, keys: pa.Schema, state: KeyedStateBackend
    ) -> None:
        self.aggregate = aggregate
        self._per_slot = max(1, (1 << aggregate.number) // REGISTERS)
        fields = [pa.field(f"key{i}", f.type) for i, f in enumerate(keys)]
        schema = pa.schema([*fields, pa.field(BLOCK, pa.int64())])
        words = tuple(f"registers{i}" for i in range(WORDS))
        columns = [AccColumn(REGISTERS_COLUMN, f"V{REGISTERS}", 0, words)]
        self._state = state.table(f"{prefix}_registers", schema, columns, len(keys))
        self._numbers = KeyNumbers(state, keys)
        self._slices: dict[int, StoredBlocks] = {}
        self._tables: dict[int, ColumnTable] = {}
        """The operator's table of each slice in `_slices`, whose slots own the blocks."""

    def fold(
        self,
        namespace: int,
        table: ColumnTable,
        keys: pa.RecordBatch,
        slots: Slots,
        array: pa.Array,
        numbers: Int64s,
    ) -> None:
        _, slots, array = present(keys, slots, array)
        if len(slots):
            self._blocks(namespace, table).add(hash_column(array), slots, self.aggregate.number)

    def _blocks(self, namespace: int, table: ColumnTable) -> StoredBlocks:
        found = self._slices.get(namespace)
        if found is None:
            stored = self._state.table(namespace)
            found = self._slices[namespace] = StoredBlocks(self._per_slot, stored, table)
            self._tables[namespace] = table
        return found

    def result(
        self, table: ColumnTable, namespaces: Sequence[int], at: Slots | None = None
    ) -> pa.Array:
        only = namespaces[0]
        found: Any
        if len(namespaces) == 1 and self._tables.get(only) is table:
            found = self._slices[only]
        else:
            found = Blocks(self._per_slot)
            for namespace in namespaces:
                self._unite(found, table, namespace)
        counts: Int64s = found.estimates(len(table), self.aggregate.number)
        return pa.array(counts if at is None else counts[at])

    def _unite(self, target: Blocks, table: ColumnTable, namespace: int) -> None:
        """Add a slice's blocks of the keys that `table` holds."""
        source = self._slices.get(namespace)
        if source is None:
            return
        slots = self._numbers.of(table, self._tables[namespace].keys())
        slots[slots >= len(table)] = -1
        target.reserve(len(table), len(source.owners))
        target.merge(slots[source.owners], source.indices, source.words)

    def load(self, namespace: int, table: ColumnTable) -> None:
        self._blocks(namespace, table)

    def drop(self, namespace: int) -> None:
        self._state.drop(namespace)
        self._slices.pop(namespace, None)
        self._tables.pop(namespace, None)
