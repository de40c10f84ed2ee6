"""approx_count_distinct: HyperLogLog registers, 64 to a block of one cache line.

Only blocks in which a register is set exist, so a key with few values costs little. They lie in one
array per slice, found through a directory by slot and block number: no look-up by key. Registers of
several slices are merged by their maximum: an approximate count is as good over any window.

The arrays are in memory; `save` writes those of changed slices to a buffer of (key, block number,
64 registers) before a snapshot, and `load` reads them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots, numpy_of
from ...state.backend import ColumnTable, KeyedStateBackend
from ...state.hash_columns import hash_column
from ...state.key_groups import key_groups_of
from ..kernels import distinct, pairs
from .base import Part
from .entries import KeyNumbers, flat, present, take_rows

REGISTERS = 64
WORDS = 8
"""int64 words of a block; one byte is a register."""

FIRST_ROOM = 64


@dataclass
class Blocks:
    """The blocks of one slice. Invariants: the first `count` entries of `owners` (slot) and
    `indices` (number of the block) and their words are in use, all words behind are 0;
    directory[slot * per_slot + index] is the entry, or -1."""

    per_slot: int
    count: int = 0
    dirty: bool = False
    """Changed since the last `save`."""
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
        starts = np.zeros(slots + 1, dtype=np.int64)
        order = np.empty(self.count, dtype=np.int64)
        pairs.group_rows(self.owners[: self.count], starts, order)
        found = np.empty(slots, dtype=np.float64)
        scratch = np.empty(66 - precision, dtype=np.int64)
        distinct.estimates(starts, order, self.words, precision, scratch, found)
        return np.rint(found).astype(np.int64)


class ApproximateCount(Part):
    """State: buffer `<prefix>_registers`, as of the last `save`."""

    def __init__(
        self, aggregate: Aggregate, prefix: str, keys: pa.Schema, state: KeyedStateBackend
    ) -> None:
        self.aggregate = aggregate
        self._keys = keys
        self._per_slot = max(1, (1 << aggregate.number) // REGISTERS)
        fields = [pa.field(f"key{i}", f.type) for i, f in enumerate(keys)]
        fields += [pa.field("block", pa.int64()), pa.field("registers", pa.binary(REGISTERS))]
        self._schema = pa.schema(fields)
        self._buffer = state.buffer(f"{prefix}_registers", self._schema)
        self._max_parallelism = state.max_parallelism
        self._numbers = KeyNumbers(state, keys)
        self._slices: dict[int, Blocks] = {}
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
        blocks = self._blocks(namespace, table)
        blocks.reserve(len(table), len(array))
        blocks.add(hash_column(array), slots, self.aggregate.number)
        blocks.dirty = True

    def _blocks(self, namespace: int, table: ColumnTable) -> Blocks:
        found = self._slices.get(namespace)
        if found is None:
            found = self._slices[namespace] = Blocks(self._per_slot)
            self._tables[namespace] = table
        return found

    def result(
        self, table: ColumnTable, namespaces: Sequence[int], at: Slots | None = None
    ) -> pa.Array:
        only = namespaces[0]
        if len(namespaces) == 1 and self._tables.get(only) is table:
            blocks = self._slices[only]
        else:
            blocks = Blocks(self._per_slot)
            for namespace in namespaces:
                self._unite(blocks, table, namespace)
        counts = blocks.estimates(len(table), self.aggregate.number)
        return pa.array(counts if at is None else counts[at])

    def _unite(self, target: Blocks, table: ColumnTable, namespace: int) -> None:
        """Add a slice's blocks of the keys that `table` holds."""
        source = self._slices.get(namespace)
        if source is None:
            return
        slots = self._numbers.of(table, self._tables[namespace].keys())
        slots[slots >= len(table)] = -1
        target.reserve(len(table), source.count)
        owners = slots[source.owners[: source.count]]
        target.merge(owners, source.indices[: source.count], source.words)

    def save(self) -> None:
        for namespace, blocks in self._slices.items():
            if not blocks.dirty:
                continue
            owners, used = blocks.owners[: blocks.count], blocks.words[: blocks.count * WORDS]
            keys = take_rows(self._tables[namespace].keys(), owners)
            indices = pa.array(blocks.indices[: blocks.count].copy())
            held = [None, pa.py_buffer(used.tobytes())]
            registers = pa.Array.from_buffers(pa.binary(REGISTERS), blocks.count, held)
            rows = pa.Table.from_arrays([*keys.columns, indices, registers], schema=self._schema)
            self._buffer.replace(namespace, rows, key_groups_of(keys, self._max_parallelism))
            blocks.dirty = False

    def load(self, namespace: int, table: ColumnTable) -> None:
        rows = self._buffer.get(namespace)[0].combine_chunks()
        if not rows.num_rows:
            return
        columns = [flat(rows, f"key{i}") for i in range(len(self._keys))]
        slots = table.slots(pa.RecordBatch.from_arrays(columns, schema=self._keys))
        blocks = self._blocks(namespace, table)
        blocks.reserve(len(table), len(slots))
        registers = flat(rows, "registers")
        words = np.frombuffer(registers.buffers()[1], dtype=np.int64)
        at = registers.offset * WORDS
        blocks.merge(slots, numpy_of(flat(rows, "block")), words[at : at + len(slots) * WORDS])

    def drop(self, namespace: int) -> None:
        self._buffer.drop(namespace)
        self._slices.pop(namespace, None)
        self._tables.pop(namespace, None)
