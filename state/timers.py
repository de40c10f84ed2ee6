"""Timers in memory: those of one timestamp together, and a heap of timestamps.

Many keys wait for the same moment (a window's end), and a heap of numbers is cheap where each waits
for its own. Deleting the last timer of a timestamp leaves its number in the heap, which is dropped
when it comes up; the heap is rebuilt when most of it is dead. Ties fire in order of registration,
also after a restore: snapshots keep the registration's sequence number. By it a delta says which
timers are gone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

from ..core.key_kinds import held_keys
from ..core.keys import findable
from .backend import StateTable, TimerQueue
from .encoding import decode
from .increments import Since
from .timer_changes import TimerChanges
from .timer_freeze import TimerFreeze, Waiting
from .whole import Freeze, WholeWithoutCodes

Timer = tuple[int, Any, Any]
"""(timestamp ms, held key, namespace)"""


_MIN_DEAD = 64


class MemoryTimerQueue(TimerQueue, WholeWithoutCodes):
    """Invariant: every timestamp in `_waiting` is in `_heap`."""

    def __init__(self) -> None:
        self._waiting: dict[int, Waiting] = {}
        self._firing: dict[int, list[tuple[tuple[Any, Any], int]]] = {}
        """Where timers of a timestamp have fired: those that came after them, the next one last.
        Some may have been deleted since; those registered since are not among them."""
        self._heap: list[int] = []
        self._sequence = 0
        self._count = 0
        self._changes: TimerChanges | None = None
        """What was registered and removed; None until a snapshot may be continued."""

    def __len__(self) -> int:
        return self._count

    def register(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        hash(key)  # what cannot be a key, or is none yet, says so here
        self._sequence = sequence = self._sequence + 1
        waiting = self._waiting.get(timestamp)
        if waiting is None:
            self._waiting[timestamp] = (key, namespace, sequence)
            heapq.heappush(self._heap, timestamp)
        elif isinstance(waiting, dict):
            if waiting.setdefault((key, namespace), sequence) != sequence:
                return
        elif waiting[:2] != (key, namespace):
            first = waiting[:2]
            self._waiting[timestamp] = {first: waiting[2], (key, namespace): sequence}
        else:
            return
        self._count += 1
        if self._changes is not None:
            self._changes.added[sequence] = (timestamp, key, namespace)

    def delete(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        waiting = self._waiting.get(timestamp)
        if waiting is None:
            return
        if isinstance(waiting, dict):
            sequence = waiting.pop((key, namespace), None)
            if sequence is None:
                return
            self._note_removed(sequence)
            if waiting:
                return
        elif waiting[:2] != (key, namespace):
            return
        else:
            self._note_removed(waiting[2])
        self._forget(timestamp)
        if len(self._heap) > 2 * len(self._waiting) + _MIN_DEAD:
            self._heap = sorted(self._waiting)

    def peek(self) -> int | None:
        heap = self._heap
        while heap:
            if self._waiting.get(heap[0]):
                return heap[0]
            self._forget(heapq.heappop(heap))
        return None

    def pop_due(self, until: int) -> Timer | None:
        heap = self._heap
        while heap and heap[0] <= until:
            timestamp = heap[0]
            waiting = self._waiting.get(timestamp)
            if isinstance(waiting, dict) and waiting:
                return (timestamp, *self._next_of(timestamp, waiting))
            self._forget(heapq.heappop(heap))
            if isinstance(waiting, tuple):
                self._note_removed(waiting[2])
                return (timestamp, waiting[0], waiting[1])
        return None

    def _note_removed(self, sequence: int) -> None:
        self._count -= 1
        if self._changes is not None:
            self._changes.remove(sequence)

    def _forget(self, timestamp: int) -> None:
        self._waiting.pop(timestamp, None)
        self._firing.pop(timestamp, None)

    def _next_of(self, timestamp: int, waiting: dict[tuple[Any, Any], int]) -> tuple[Any, Any]:
        """Remove the first of several. Removing from the front of a dict one by one would pass over
        all the removed ones each time, so they are listed once."""
        while True:
            listed = self._firing.get(timestamp)
            if not listed:
                listed = self._firing[timestamp] = list(reversed(waiting.items()))
            timer, sequence = listed.pop()
            if not listed:
                del self._firing[timestamp]
            if waiting.get(timer) == sequence:
                del waiting[timer]
                self._note_removed(sequence)
                return timer

    def freeze(self, name: str) -> Freeze:
        return self.freeze_all(name)

    def freeze_all(self, name: str) -> TimerFreeze:
        """A point in time of what is in memory."""
        waiting = [
            (timestamp, w.copy() if isinstance(w, dict) else w)
            for timestamp, w in self._waiting.items()
        ]
        return TimerFreeze(name, waiting)

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        if self._changes is None:
            self._changes = TimerChanges()
        return self._changes.freeze(lambda: self.freeze_all(name), self._count, name, since)

    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty queue: timers of several former subtasks, merged by sequence number."""
        entries: list[tuple[Any, ...]] = []
        for table in tables:
            what = f"timers '{table.name}'"
            columns = [
                table.data.column("sequence").to_pylist(),
                table.data.column("timestamp").to_pylist(),
                keys_of(table),
                decode(table.data.column("namespace"), table.metadata["namespace"], what),
            ]
            entries.extend(zip(*columns, strict=True))
        for _, timestamp, key, namespace in sorted(entries, key=lambda entry: entry[0]):
            self.register(timestamp, key, namespace)

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._waiting.keys() <= set(self._heap)
        assert all(self._heap[(i - 1) // 2] <= self._heap[i] for i in range(1, len(self._heap)))
        if self._changes is not None:
            self._changes.validate(self.freeze_all("").timers())
        sequences = [sequence for *_, sequence in self.freeze_all("").timers()]
        assert len(set(sequences)) == len(sequences) == self._count
        assert all(sequence <= self._sequence for sequence in sequences)
        for timestamp, listed in self._firing.items():
            waiting = self._waiting[timestamp]
            assert isinstance(waiting, dict)
            assert listed


def keys_of(table: StateTable) -> list[Any]:
    """The keys of a snapshot's timers, as they are held."""
    what = f"key of timers '{table.name}'"
    return held_keys(findable(decode(table.data.column("key"), table.metadata["key"], what)))
