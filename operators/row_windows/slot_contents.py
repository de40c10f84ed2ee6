"""Built-in functions in windows that run row by row: the accumulators of the kernels, over slots.

Each (key, window) that holds records has a slot in an entry table of state. A record is only noted:
its slot and its row. What was noted is folded in one call, and what fired is read in one call, when
it can wait no longer (`settle`): before two windows merge, when a batch of results is there, and at
the end of each batch and of each round of timers, so that nothing is noted while a snapshot is
taken. So results are those of the kernels, numbered in order of arrival like there, and no Arrow
call is made per record or firing.

A window that has fired and takes another record begins a *segment*, as windows by count do that
fire within a batch: what it then gives is what it holds and all segments up to there, accumulated.

Keys may leave memory with all their windows (`leaving_slots`); here nobody knows of those.

A window that is purged or cleared gives its slot away: the slot is emptied when all before is done,
and a record that comes gets another one.

State: entries "__window_slots"; a key is an object by code (`state.object_keys`), whatever made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from ...core.arrays import Slots
from ...core.batch import Batch, take_column
from ...core.key_kinds import held_keys
from ...core.preload import preload
from ...state.away import never
from ...state.backend import COLUMN_STATE, AccColumn, KeyedStateBackend
from ...state.column_face import SlotTable
from ...state.numbered_table import NumberedTable
from ...state.object_values import ObjectValues
from ..aggregates.base import Source
from ..slots.slot_aggregates import SlotAggregates
from ..slots.slot_prefixes import merge_before
from ..window_fields import needed_columns
from .leaving_slots import LeavingSlots
from .window_contents import WindowContents
from .window_namespace import Namespace

OWNER, WINDOW = "owner", "window"
"""Columns: the key's number, and the window's code."""

SEGMENT = 1 << 40
"""Segments have numbers from here on, slots those below."""


@dataclass(frozen=True)
class Fired:
    """Results in the order in which windows fired, with the key and window of each."""

    keys: list[Any]
    windows: list[Any]
    results: list[pa.Array]


class Segment(NamedTuple):
    """Records that a window got since it fired. `before`: the segment or slot that it goes on."""

    before: int
    slot: int
    key: Any
    namespace: Namespace


class SlotContents(WindowContents):
    """See the module. What `get` gives is the slot, or the segment that is noted for it last.

    Invariants: `_slots` has that of each (window, key) that holds records, of those noted too;
    `_noted` slots and rows are parallel; one in `_fired` was not noted since; those in `_left` are
    in `_slots` no more, and those in `_free` are empty."""

    def __init__(
        self,
        state: KeyedStateBackend,
        name: str,
        aggregates: SlotAggregates,
        fields: list[str] | None,
    ) -> None:
        """`name`: the operator's. `fields`: of records that the aggregates need; None: all."""
        preload(*COLUMN_STATE)
        self._state = state
        self._current = state.current
        self._name = name
        self._aggregates = aggregates
        self._fields = fields
        self._slots: dict[Namespace, dict[Any, int]] = {}
        self._inputs: list[pa.Array] = []
        self._first = 0
        """The sequence number of the batch's first record."""
        self._noted_slots: list[int] = []
        self._noted_rows: list[int] = []
        self._fired: dict[int, tuple[Any, Any]] = {}
        """Slot or segment -> key and window, in order of firing."""
        self._segments: list[Segment] = []
        self._left: list[int] = []
        self._free: list[int] = []
        self._opened: list[tuple[int, Any, Namespace]] = []
        """Slots whose key and window state does not say yet."""
        self._used = 0
        """Slots given out."""
        self._results: list[Fired] = []
        self._ready = 0
        """Results in there."""
        self._leaving: LeavingSlots | None = None
        """None where no key ever leaves."""
        self._adding = False
        """Whether a batch is being added: its keys stay."""

    def bind(self, fields: Sequence[pa.Field]) -> None:
        """Once, before all that follow. `fields`: of the aggregates' layout."""
        aggregates = self._aggregates
        aggregates.bind(fields)
        self._keys = self._state.object_keys(f"window operator '{self._name}'")
        self._schema = pa.schema([pa.field("key", self._keys.kind)])
        own = [AccColumn(OWNER, "int64", -1), AccColumn(WINDOW, "int64", -1)]
        self._table = self._state.entries(
            "__window_slots",
            self._schema,
            [*own, *aggregates.columns],
            OWNER,
            {WINDOW: self._stored_windows, **aggregates.values()},
            due=never,
        )
        self._windows = cast(ObjectValues, self._table.stores[WINDOW])
        self._used = len(self._table)  # what former subtasks wrote is in the first slots
        slots, away = self.live(), self._table.away
        (column,) = self._table.take_owners(self._table.column(OWNER)[slots])
        self.find(slots, keys := held_keys(self._keys.objects(column)))
        if away is not None:
            self._leaving = LeavingSlots(self._table, away, OWNER, self._keys, self)
            for key in keys:
                self._leaving.opened(key)

    def inputs(self, batch: Batch) -> list[pa.Array]:
        """The columns of a batch that are folded."""
        return self._aggregates.inputs(needed_columns(batch, self._fields))

    def begin(self, keys: Sequence[Any], inputs: list[pa.Array], first: int) -> None:
        """A batch comes, of these keys as they are held; records are numbered from `first` on."""
        self._state.forget_object_keys()
        if self._leaving is not None:
            self._leaving.recall(keys)
        self._inputs, self._first, self._adding = inputs, first, True

    def recall(self) -> None:
        leaving, key = self._leaving, self._current.key
        if leaving is not None and not leaving.has(key):
            if leaving.crowded:
                self.settle()
                leaving.make_room()
            leaving.recall([key])

    def add(self, namespace: Namespace, value: Any) -> None:
        key = self._current.key
        held = self._slots.get(namespace)
        if held is None:
            held = self._slots[namespace] = {}
        slot = held.get(key)
        if slot is None:
            slot = held[key] = self._open(key, namespace)
        elif slot in self._fired:
            self._segments.append(Segment(slot, self._slot_of(slot), key, namespace))
            slot = held[key] = SEGMENT + len(self._segments) - 1
        self._noted_slots.append(slot)
        self._noted_rows.append(self.row)

    def get(self, namespace: Namespace) -> int | None:
        held = self._slots.get(namespace)
        return None if held is None else held.get(self._current.key)

    def merge(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        self.settle()
        for source in sources:
            slot = self._take(source)
            if slot is None:
                continue
            into = self.get(target)
            if into is None:
                self._slots.setdefault(target, {})[self._current.key] = slot
                if self._leaving is not None:
                    self._leaving.opened(self._current.key)
                self._table.touch(np.array([slot]))
                self._table.column(WINDOW)[slot] = self._windows.put([target])[0]
            else:
                self._merge(into, slot)

    def clear(self, namespace: Namespace) -> None:
        slot = self._take(namespace)
        if slot is not None:
            self._left.append(self._slot_of(slot))

    def fire(self, slot: int, key: Any, window: Any) -> None:
        """What the slot, as `get` gave it, holds now is a result."""
        if slot in self._fired:
            slot = self._slot_of(slot)
            self.settle()
        self._fired[slot] = (key, window)

    @property
    def waiting(self) -> int:
        """Results that are there or can be read; windows of several records count as one."""
        return len(self._fired) + self._ready

    def results(self) -> list[Fired]:
        """All there are, in order; they are forgotten here."""
        self.settle()
        results, self._results, self._ready = self._results, [], 0
        return results

    def settle(self) -> None:
        """Fold what is noted, read what has fired, empty what was left."""
        if self._opened:
            self._enter()
        if self._segments:
            self._fold_segments()
        elif self._noted_slots:
            self._fold(self._table, np.array(self._noted_slots))
        if self._fired:
            slots = list(self._fired)
            self._read(self._table, slots, np.array(slots))
        if self._left:
            self._table.reset(np.array(self._left))
            self._free += self._left
            self._left = []

    def end(self) -> None:
        """The batch is over: all is settled."""
        self.settle()
        self._inputs, self._adding = [], False
        self.tidy()

    def validate(self) -> None:
        """Assert the invariants, between batches; for tests."""
        assert not [*self._noted_slots, *self._fired, *self._left, *self._opened, *self._segments]
        owners = self._table.column(OWNER)[: self._used]
        slots = [slot for held in self._slots.values() for slot in held.values()]
        assert sorted([*slots, *self._free]) == list(range(self._used))
        assert (owners[self._free] < 0).all()
        assert (self._table.column(self._aggregates.rows)[slots] > 0).all()
        (keys,) = self._table.take_owners(owners[slots])
        told = zip(held_keys(self._keys.objects(keys)), self._window_of(slots), slots, strict=True)
        assert all(self._slots[window][key] == slot for key, window, slot in told)

    def _window_of(self, slots: list[int]) -> list[Namespace]:
        return self._windows.take(self._table.column(WINDOW)[slots])

    def _stored_windows(self) -> ObjectValues:
        return ObjectValues(f"window operator '{self._name}': a window")

    def _open(self, key: Any, namespace: Namespace) -> int:
        """An empty slot for a window that holds nothing."""
        slot = self._empty_slot()
        self._opened.append((slot, key, namespace))
        if self._leaving is not None:
            self._leaving.opened(key)
        return slot

    def _empty_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._used += 1
        return self._used - 1

    def _take(self, namespace: Namespace) -> int | None:
        """The window's slot, which is not its own any more."""
        held = self._slots.get(namespace)
        if held is None:
            return None
        slot = held.pop(self._current.key, None)
        if not held:
            del self._slots[namespace]
        if slot is not None and self._leaving is not None:
            self._leaving.closed(self._current.key)
        return slot

    def _enter(self) -> None:
        """Tell state whose the new slots are."""
        table = self._table
        if self._used > len(table):
            table.resize(self._used)
        slots = np.array([slot for slot, _, _ in self._opened])
        table.touch(slots)
        column = self._keys.column([key for _, key, _ in self._opened])
        keys = pa.RecordBatch.from_arrays([column], schema=self._schema)
        table.column(OWNER)[slots] = table.numbers(keys)
        distinct = dict.fromkeys(namespace for _, _, namespace in self._opened)
        codes = dict(zip(distinct, self._windows.put(distinct).tolist(), strict=True))
        table.column(WINDOW)[slots] = [codes[namespace] for _, _, namespace in self._opened]
        self._opened = []

    def _slot_of(self, noted: int) -> int:
        return noted if noted < SEGMENT else self._segments[noted - SEGMENT].slot

    def _fold_segments(self) -> None:
        """Fold and read where windows fired between their records."""
        segments, self._segments = self._segments, []
        before = {SEGMENT + at: one.before for at, one in enumerate(segments)}
        slot_of = {SEGMENT + at: one.slot for at, one in enumerate(segments)}
        noted = dict.fromkeys([*self._noted_slots, *self._fired, *before, *slot_of.values()])
        places = {one: place for place, one in enumerate(noted)}
        previous = np.array([places[before[one]] if one in before else -1 for one in noted])
        slots = np.array([slot_of.get(one, one) for one in noted])
        table = self._table
        part = NumberedTable(self._aggregates.columns, len(noted), table.stores)
        first = np.flatnonzero(previous < 0)
        self._aggregates.merge(part, first, Source((table, slots[first])))
        self._fold(part, np.array([places[one] for one in self._noted_slots]))
        merge_before(self._aggregates, part, previous)
        fired = list(self._fired)
        self._read(part, fired, np.array([places[one] for one in fired]))
        newest = dict(zip(slots[first].tolist(), first.tolist(), strict=True))
        for at, one in enumerate(segments):
            newest[one.slot] = places[SEGMENT + at]
            held = self._slots.get(one.namespace)
            if held is not None and held.get(one.key) == SEGMENT + at:
                held[one.key] = one.slot
        owners, held_in = np.array(list(newest)), np.array(list(newest.values()))
        table.touch(owners)
        for column in self._aggregates.columns:
            table.column(column.name)[owners] = part.column(column.name)[held_in]

    def _fold(self, table: SlotTable, slots: Slots) -> None:
        """Fold what is noted into these slots of a table."""
        rows = np.array(self._noted_rows)
        self._noted_slots, self._noted_rows = [], []
        first, count = int(rows[0]), len(rows)
        if int(rows[-1]) - first + 1 == count and (np.diff(rows) == 1).all():
            inputs = [array.slice(first, count) for array in self._inputs]
        else:
            at = pa.array(rows)
            inputs = [take_column(array, at) for array in self._inputs]
        table.touch(slots)
        self._aggregates.fold(table, slots, inputs, rows + self._first)

    def _read(self, table: SlotTable, fired: list[int], slots: Slots) -> None:
        """The results of what has fired, which is in these slots of a table."""
        told_of = {at: self._fired[one] for at, one in zip(slots.tolist(), fired, strict=True)}
        self._fired = {}
        shown, results = self._aggregates.emitted(table, slots)
        told = [told_of[slot] for slot in shown.tolist()]
        if told:
            keys, windows = map(list, zip(*told, strict=True))
            self._results.append(Fired(keys, windows, results))
            self._ready += len(keys)

    def _merge(self, into: int, slot: int) -> None:
        """Fold what a slot holds into another; it is empty then, and free."""
        table, target, source = self._table, np.array([into]), np.array([slot])
        table.touch(target)
        self._aggregates.merge(table, target, Source((table, source)))
        table.reset(source)
        self._free.append(slot)

    def tidy(self) -> None:
        """When all is settled: forget keys and values of no slot, if there are many, and let keys
        leave where more are here than fit."""
        self._table.tidy()
        self._table.tidy_owners(self._used - len(self._free), self._owners)
        if self._leaving is not None and not self._adding:
            self._leaving.make_room()

    def live(self) -> Slots:
        """See `Windowed`, as of those that follow."""
        return np.flatnonzero(self._table.column(OWNER)[: self._used] >= 0)

    def enter(self, count: int) -> Slots:
        slots = np.array([self._empty_slot() for _ in range(count)], dtype=np.int64)
        if self._used > len(self._table):
            self._table.resize(self._used)
        return slots

    def find(self, slots: Slots, keys: Sequence[Any]) -> None:
        windows = self._windows.take(self._table.column(WINDOW)[slots])
        for slot, key, namespace in zip(slots.tolist(), keys, windows, strict=True):
            self._slots.setdefault(namespace, {})[key] = slot

    def lose(self, slots: Slots, keys: Sequence[Any]) -> None:
        windows = self._windows.take(self._table.column(WINDOW)[slots])
        for key, namespace in zip(keys, windows, strict=True):
            held = self._slots[namespace]
            del held[key]
            if not held:
                del self._slots[namespace]
        self._free += slots.tolist()

    def renumber(self, slots: Slots) -> None:
        moved = dict(zip(slots.tolist(), range(len(slots)), strict=True))
        for held in self._slots.values():
            for key, slot in held.items():
                held[key] = moved[slot]
        self._used, self._free = len(slots), []

    def _owners(self) -> Slots:
        owners = np.unique(self._table.column(OWNER)[: self._used])
        live: Slots = owners[owners >= 0]
        return live
