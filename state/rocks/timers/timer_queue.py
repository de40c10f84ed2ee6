"""A timer queue of which only what is due soonest has to fit into memory.

There is a *horizon*. Timers before it are in memory, as `MemoryTimerQueue` has them; those at it or
behind it lie in RocksDB (`timer_rows`), and a timestamp's are all on one side. As long as all fit,
it is at the end of time. When they do not, about half of what fits stays before it. When none is
left before it, it moves on, and as many come back.

What is registered or deleted behind the horizon waits in a dict, and is written in bulk: before a
batch, after some thousands, and before a snapshot. Whether a timer is there already is asked then,
of all at once, and only where it may be: behind the furthest that was ever written there is none.
Timers whose key or namespace has no bytes (`key_bytes`) are always in memory (`_kept`).

Timers of one timestamp fire in order of their numbers. They get new ones when they come back: those
of several former subtasks may have had the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from ...increments import Since
from ...stored import StateTable
from ...timer_freeze import Waiting
from ...timers import MemoryTimerQueue, Timer
from ...whole import Freeze
from ..database.layouts import Pair
from ..database.sizes import size_of
from ..database.task_database import TaskDatabase
from .far_timers import END, LAST, FarTimers
from .stored_timers import ColdTimerFreeze, StoredTimers
from .timer_rows import time_of

AROUND = 190
"""Bytes that a timer takes beside key and namespace."""

RECORDED = 180
"""Bytes that a record of a new timer takes, for the next incremental snapshot."""

SAMPLED = 4
"""Keys of so many timers are measured before a batch."""

BUFFERED = 1 << 14
"""So many changes behind the horizon are written at the latest; after so many registrations it is
looked whether all fit."""

BROUGHT = 1 << 14
"""So many timers come back at once at most, but for those of one timestamp."""

READ = 16
"""So many timers of each key group are looked at for it, if so many are wanted."""

_GONE: Final = 0


class ColdTimerQueue(MemoryTimerQueue):
    """See the module. What is inherited is what is in memory."""

    def __init__(self, name: str, database: TaskDatabase, max_parallelism: int) -> None:
        super().__init__()
        self._database = database
        self._far = FarTimers(name, database, max_parallelism)
        self._sequence = self._far.numbers
        self._horizon = self._far.first
        """A timestamp, or the end of time."""
        self._kept = 0
        """Timers in memory that are behind the horizon."""
        self._changed: dict[Timer, int] = {}
        """What changed behind the horizon: a number, of one that is registered unless RocksDB has
        it; its negative, of one that RocksDB has not, or otherwise; `_GONE` of a deleted one."""
        self._dead: list[bytes] = []
        """Places, before the horizon, that are to be deleted in RocksDB."""
        self._each = float(AROUND)
        """Bytes of a timer, about."""
        self._look_at = self._sequence + BUFFERED
        """The number at which it is looked whether all fit."""
        self._hopeless = 0
        """Up to so many timers in memory it is no use to look for some that may leave."""
        self.loaded = 0
        """Timers read from RocksDB so far."""
        database.budget.join(self)

    @property
    def spilled(self) -> int:
        """Timers written to RocksDB so far."""
        return self._far.written

    @property
    def used(self) -> int:
        """Bytes of what is in memory, about."""
        recorded = 0 if self._changes is None else len(self._changes.added)
        return int((self._count + len(self._changed)) * self._each) + recorded * RECORDED

    def __len__(self) -> int:
        """Reads all that lies in RocksDB."""
        self._flush()
        return self._count + sum(1 for _ in self._far.all())

    def register(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        if timestamp < self._horizon:
            super().register(timestamp, key, namespace)
        else:
            hash(key)
            self._sequence = number = self._sequence + 1
            timer = (timestamp, key, namespace)
            known = self._changed.get(timer)
            if known is None:
                self._changed[timer] = number
            elif known == _GONE:
                self._changed[timer] = -number
        if self._sequence >= self._look_at:
            self.make_room()

    def delete(self, timestamp: int, key: Any, namespace: Any = None) -> None:
        if timestamp < self._horizon:
            super().delete(timestamp, key, namespace)
            return
        if self._kept:
            before = self._count
            super().delete(timestamp, key, namespace)
            self._kept -= before - self._count
        if timestamp > self._far.furthest:
            self._changed.pop((timestamp, key, namespace), None)
            return
        self._changed[timestamp, key, namespace] = _GONE
        if len(self._changed) >= BUFFERED:
            self.make_room()

    def peek(self) -> int | None:
        found = super().peek()
        while self._horizon != END and (found is None or found >= self._horizon):
            self._bring()
            found = super().peek()
        return found

    def pop_due(self, until: int) -> Timer | None:
        while until >= self._horizon:
            timer = super().pop_due(int(self._horizon) - 1)
            if timer is not None:
                return timer
            self._bring()
        return super().pop_due(until)

    def sweep(self, records: int) -> None:
        """See `Sweeping`: so the task says that a batch or a watermark is done."""
        if self._count or self._changed or self._dead:
            self.make_room()

    def begin_event_time(self, watermark: int) -> None:
        """Nothing expires here."""

    def make_room(self) -> None:
        """Write to RocksDB what is more than the queue may hold."""
        self._look_at = self._sequence + BUFFERED
        limit = self._database.budget.limit(self)
        if self._database.waits(self.used, limit):
            return
        self._measure()
        most = int(limit // self._each)
        near, far = self._count - self._kept, len(self._changed)
        if near + far <= most and far < BUFFERED and not self._dead:
            return
        self._flush()
        if near > most and self._count > self._hopeless:
            self._spill(most // 2)

    def freeze(self, name: str) -> Freeze:
        self._flush()
        hot = self.freeze_all(name)
        far = self._far.view()
        return hot if far is None else ColdTimerFreeze(hot, *far)

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        """What changed in memory, if the snapshot has RocksDB's files, or if nothing is there:
        timers that left for RocksDB count as removed."""
        self._flush()
        if self._far.groups and not self._database.by_files:
            return self.freeze(name), False
        return super().freeze_since(name, since)

    def shown(self) -> Callable[[], Iterable[bytes]]:
        """Places in RocksDB that do not count, when a snapshot has been taken: none."""
        return tuple

    def restore(self, tables: Iterable[StateTable]) -> None:
        """In order of time, so that what does not fit goes to RocksDB at once. Beside what lies
        there already, numbers stay, for they say the order among both."""
        stored = StoredTimers(tables)
        inherited = bool(self._far.groups)
        if inherited:
            self._sequence = max(self._sequence, stored.last)
        for timers in stored.in_order():
            for timestamp, key, namespace, number in timers:
                if timestamp < self._horizon:
                    super().register(timestamp, key, namespace)
                    continue
                if not inherited or number < 1:
                    self._sequence = number = self._sequence + 1
                self._changed.setdefault((timestamp, key, namespace), -number)
            self.make_room()
        if inherited:
            self._tell_apart()

    def close(self) -> None:
        self._database.budget.leave(self)

    def validate(self) -> None:
        super().validate()
        self._flush()
        assert self._kept == self._kept_behind()
        assert self._horizon != END or not self._kept
        groups = {int.from_bytes(place[2:4], "big") for place, _ in self._far.all()}
        assert groups <= self._far.groups
        for place, _ in self._far.all():
            assert self._horizon <= time_of(place) <= self._far.furthest

    def _flush(self) -> None:
        """Write what changed behind the horizon: RocksDB has all of it then, and nothing else."""
        if not self._changed and not self._dead:
            return
        far, changed, self._changed = self._far, self._changed, {}
        deletes, self._dead = self._dead, []
        puts: list[Pair] = []
        asked: list[tuple[bytes, Timer, int]] = []
        for timer, number in changed.items():
            place = far.place(timer)
            if place is None:
                self._keep(timer, number)
            elif number == _GONE:
                deletes.append(place)
            elif number < 0 or timer[0] > far.furthest:
                puts.append(far.pair(place, timer, abs(number)))
            else:
                asked.append((place, timer, number))
        asked.sort(key=itemgetter(0))
        missing = far.missing([place for place, _, _ in asked]) if asked else []
        puts += [far.pair(*one) for one, new in zip(asked, missing, strict=True) if new]
        far.write(deletes, puts)

    def _keep(self, timer: Timer, number: int) -> None:
        """One that cannot leave is registered, if it is not known: behind the horizon, among
        numbers that say the order also in RocksDB."""
        timestamp, key, namespace = timer
        waiting = self._waiting.get(timestamp)
        numbers = _numbers(waiting)
        if number == _GONE or (key, namespace) in numbers:
            return
        numbers[key, namespace] = abs(number)
        self._wait(timestamp, dict(sorted(numbers.items(), key=itemgetter(1))))
        self._firing.pop(timestamp, None)
        if waiting is None:
            heapq.heappush(self._heap, timestamp)
        self._count += 1
        self._kept += 1
        if self._changes is not None:
            self._changes.added[abs(number)] = timer

    def _return(self, timestamp: int, timers: list[tuple[int, Any, Any]]) -> None:
        """Bring (number, key, namespace) of a timestamp into memory, where others of it may be; all
        of them get new numbers, in the order of those they had."""
        waiting = self._waiting.get(timestamp)
        if waiting is None and len(timers) == 1 and self._changes is None:
            self._sequence += 1
            self._waiting[timestamp] = (*timers[0][1:], self._sequence)
            heapq.heappush(self._heap, timestamp)
            self._count += 1
            return
        if waiting:
            for (key, namespace), number in _numbers(waiting).items():
                self._note_removed(number)
                timers.append((number, key, namespace))
        timers.sort(key=itemgetter(0))
        numbers: dict[tuple[Any, Any], int] = {}
        for _, key, namespace in timers:
            self._sequence = number = self._sequence + 1
            numbers[key, namespace] = number
            if self._changes is not None:
                self._changes.added[number] = (timestamp, key, namespace)
        self._wait(timestamp, numbers)
        self._firing.pop(timestamp, None)
        if waiting is None:
            heapq.heappush(self._heap, timestamp)
        self._count += len(numbers)

    def _wait(self, timestamp: int, numbers: dict[tuple[Any, Any], int]) -> None:
        if len(numbers) == 1:
            (((key, namespace), number),) = numbers.items()
            self._waiting[timestamp] = (key, namespace, number)
        else:
            self._waiting[timestamp] = numbers

    def _spill(self, keep: int) -> None:
        """Write all but about the first `keep` timers, those of the first timestamp at least, to
        RocksDB."""
        before = self._count
        times = sorted(t for t, waiting in self._waiting.items() if waiting and t < self._horizon)
        near = cut = 0
        while cut < len(times) and (cut == 0 or near < keep):
            near += _size(self._waiting[times[cut]])
            cut += 1
        if cut >= len(times):
            return
        self._horizon = times[cut]
        puts: list[Pair] = []
        for timestamp in times[cut:]:
            puts += self._leaving(timestamp)
            if len(puts) >= BUFFERED:
                self._far.write([], puts)
                puts = []
        self._far.write([], puts)
        self._heap = sorted(self._waiting)
        self._hopeless = 0
        if self._count == before:
            self._hopeless = 2 * before
            if not self._far.groups:
                self._horizon, self._kept = END, 0

    def _leaving(self, timestamp: int) -> list[Pair]:
        """The timers of a timestamp leave, but for those that cannot."""
        self._firing.pop(timestamp, None)
        far, stay, leaving = self._far, {}, []
        for (key, namespace), number in _numbers(self._waiting.pop(timestamp)).items():
            timer = (timestamp, key, namespace)
            place = far.place(timer)
            if place is None:
                stay[key, namespace] = number
            else:
                self._note_removed(number)
                leaving.append(far.pair(place, timer, number))
        if stay:
            self._wait(timestamp, stay)
            self._kept += len(stay)
        return leaving

    def _bring(self) -> None:
        """Move the horizon on, when nothing is left before it: some timers, or all of the next
        timestamp, come back from RocksDB."""
        self._flush()
        far, limit = self._far, self._database.budget.limit(self)
        wanted = max(min(int(limit // self._each) // 2, BROUGHT), 1)
        each = max(wanted // max(len(far.groups), 1), min(READ, wanted))
        found, until = far.next(self._horizon, each, END)
        found.sort()
        if until != END and (not found or found[0][0] >= until):
            until = until + 1 if until < LAST else END
            found, _ = far.next(self._horizon, END, until)
        by_time: dict[int, list[tuple[int, Any, Any]]] = {}
        for timestamp, place, data in found:
            if timestamp < until:
                by_time.setdefault(timestamp, []).append(far.read(place, data))
                self._dead.append(place)
        for timestamp, timers in by_time.items():
            self.loaded += len(timers)
            self._return(timestamp, timers)
        self._horizon = until
        self._kept = self._kept_behind() if self._kept else 0

    def _tell_apart(self) -> None:
        """Timers in memory have distinct numbers: where those of several former subtasks have not,
        all of their timestamp get new ones, also those in RocksDB."""
        self._flush()
        seen: set[int] = set()
        alike = []
        for timestamp, waiting in self._waiting.items():
            numbers = _numbers(waiting).values()
            if not seen.isdisjoint(numbers) or len(set(numbers)) < len(numbers):
                alike.append(timestamp)
            seen.update(numbers)
        for timestamp in alike:
            self._kept -= _size(self._waiting[timestamp])
            self._return(timestamp, [self._far.read(*pair) for pair in self._far.at(timestamp)])
            self._far.write([], self._leaving(timestamp))

    def _kept_behind(self) -> int:
        """Timers in memory that are behind the horizon."""
        waiting = self._waiting
        return sum(_size(waiting[t]) for t in waiting if t >= self._horizon)

    def _measure(self) -> None:
        """Look at some of the youngest timers."""
        for waiting in islice(reversed(self._waiting.values()), SAMPLED):
            for key, namespace in islice(_numbers(waiting), 1):
                size = AROUND + size_of(key) + (0 if namespace is None else size_of(namespace))
                self._each += (size - self._each) / 16


def _numbers(waiting: Waiting | None) -> dict[tuple[Any, Any], int]:
    """(key, namespace) -> number, of a timestamp."""
    if isinstance(waiting, tuple):
        return {waiting[:2]: waiting[2]}
    return {} if waiting is None else waiting


def _size(waiting: Waiting) -> int:
    return len(waiting) if isinstance(waiting, dict) else 1
