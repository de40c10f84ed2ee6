"""Timers in memory: a heap in time order, and a dict of those alive.

Deleting only forgets the timer in the dict; the heap's entry is dropped when it comes up, and the
heap is rebuilt when most of it is dead. Ties fire in order of registration, also after a restore:
snapshots keep the registration's sequence number.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .backend import KEY_GROUP, StateTable, TimerQueue
from .encoding import decode, encode
from .key_groups import group_order
from .row_tables import groups_of_keys

Timer = tuple[int, Any, Any]
"""(timestamp ms, key, namespace)"""

_MIN_DEAD = 64


class MemoryTimerQueue(TimerQueue):
    """Invariant: every timer in `_live` has exactly one heap entry with its sequence number."""

    def __init__(self) -> None:
        self._live: dict[Timer, int] = {}
        self._heap: list[tuple[int, int, Any, Any]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._live)

    def register(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        timer = (timestamp, key, namespace)
        if timer in self._live:
            return
        self._sequence += 1
        self._live[timer] = self._sequence
        heapq.heappush(self._heap, (timestamp, self._sequence, key, namespace))

    def delete(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        if self._live.pop((timestamp, key, namespace), None) is None:
            return
        if len(self._heap) > 2 * len(self._live) + _MIN_DEAD:
            self._rebuild()

    def peek(self) -> int | None:
        heap = self._heap
        while heap:
            timestamp, sequence, key, namespace = heap[0]
            if self._live.get((timestamp, key, namespace)) == sequence:
                return timestamp
            heapq.heappop(heap)
        return None

    def pop_due(self, until: int) -> Timer | None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            timestamp, sequence, key, namespace = heapq.heappop(heap)
            timer = (timestamp, key, namespace)
            if self._live.get(timer) == sequence:
                del self._live[timer]
                return timer
        return None

    def freeze(self, name: str) -> TimerFreeze:
        """The synchronous half of a snapshot."""
        return TimerFreeze(name, list(self._live), list(self._live.values()))

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty queue: timers of several former subtasks, merged by sequence number."""
        entries: list[tuple[Any, ...]] = []
        for table in tables:
            what = f"timers '{table.name}'"
            columns = [
                table.data.column("sequence").to_pylist(),
                table.data.column("timestamp").to_pylist(),
                decode(table.data.column("key"), table.metadata["key"], f"key of {what}"),
                decode(table.data.column("namespace"), table.metadata["namespace"], what),
            ]
            entries.extend(zip(*columns, strict=True))
        for _, timestamp, key, namespace in sorted(entries, key=lambda entry: entry[0]):
            self.register(timestamp, key, namespace)

    def validate(self) -> None:
        """Assert the invariant."""
        alive = [
            (timestamp, key, namespace)
            for timestamp, sequence, key, namespace in self._heap
            if self._live.get((timestamp, key, namespace)) == sequence
        ]
        assert len(alive) == len(self._live), (len(alive), len(self._live))
        assert all(sequence <= self._sequence for sequence in self._live.values())

    def _rebuild(self) -> None:
        self._heap = [
            (timestamp, sequence, key, namespace)
            for (timestamp, key, namespace), sequence in self._live.items()
        ]
        heapq.heapify(self._heap)


@dataclass(frozen=True)
class TimerFreeze:
    """A point in time of a timer queue: `__key_group | timestamp | sequence | namespace | key`."""

    name: str
    timers: list[Timer]
    sequences: list[int]

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group and within it by registration; None if there is nothing."""
        if not self.timers:
            return None
        timestamps, keys, namespaces = map(list, zip(*self.timers, strict=True))
        what = f"timers '{self.name}'"
        key_column, key_encoding = encode(keys, f"key of {what}")
        groups = groups_of_keys(keys, key_column, key_encoding, max_parallelism)
        order = group_order(groups)
        namespace_column, namespace_encoding = encode(namespaces, f"namespace of {what}")
        data = pa.table(
            {
                KEY_GROUP: pa.array(groups),
                "timestamp": pa.array(timestamps, type=pa.int64()),
                "sequence": pa.array(self.sequences, type=pa.int64()),
                "namespace": namespace_column,
                "key": key_column,
            }
        )
        metadata = {"key": key_encoding, "namespace": namespace_encoding}
        return StateTable(self.name, "timers", data.take(pa.array(order)), metadata)
