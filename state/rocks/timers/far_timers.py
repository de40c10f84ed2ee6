"""The part of a timer queue that lies in RocksDB: see `timers`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from ...timers import Timer
from ..database.layouts import GENERATION, GROUP_AT, REST_AT, Pair
from ..database.plain_pickles import WrittenValues
from ..database.task_database import DatabaseView, TaskDatabase
from .timer_rows import (
    KEY_AT,
    NUMBERS,
    TIME_AT,
    TimerRows,
    next_generation,
    pickles_of,
    time_of,
    timers_layout,
)

Found: TypeAlias = tuple[int, bytes, bytes]
"""A timer's timestamp, place and data."""

END: Final = float("inf")
"""Of time: behind all timestamps."""

LAST: Final = (1 << 63) - 1
"""The greatest timestamp."""


class FarTimers:
    """Of one queue. It has a place in the database from the first timer on."""

    def __init__(self, name: str, database: TaskDatabase, max_parallelism: int) -> None:
        self._name = name
        self._database = database
        self._max_parallelism = max_parallelism
        self._rows: TimerRows | None = None
        self._checked: WrittenValues
        """As soon as there are rows."""
        self.groups: set[int] = set()
        """Key groups of which timers may be here."""
        self.first = END
        """No timer that came with files is before it."""
        self.furthest = -(1 << 63)
        """No timer is behind it."""
        self.numbers = 0
        """No timer that came with files has a greater number."""
        self.written = 0
        """So far."""
        self._take_over()

    def place(self, timer: Timer) -> bytes | None:
        """Where a timer lies; None: nowhere."""
        return self._own_rows().place(*timer)

    def pair(self, place: bytes, timer: Timer, number: int) -> Pair:
        """As it is to be written."""
        data = self._own_rows().value(number, timer[1], timer[2])
        for part in pickles_of(data):
            self._checked.pickle(part)
        return place, data

    def read(self, place: bytes, data: bytes) -> tuple[int, Any, Any]:
        """(number, held key, namespace) of the timer that lies there."""
        return self._own_rows().read(place, data)

    def missing(self, places: list[bytes]) -> list[bool]:
        """Whether there is none, of each place."""
        return [data is None for data in self._database.get_many(places)]

    def write(self, deletes: list[bytes], puts: list[Pair]) -> None:
        puts.sort()
        self._database.write(deletes, puts)
        if puts:
            heads = {place[GROUP_AT:REST_AT] for place, _ in puts}
            self.groups.update([int.from_bytes(head, "big") for head in heads])
            furthest = max(puts, key=_time_bytes_of)[0]
            self.furthest = max(self.furthest, time_of(furthest))
            self.written += len(puts)

    def all(self) -> Iterator[Pair]:
        return iter(()) if self._rows is None else self._database.scan(self._rows.prefix)

    def view(self) -> tuple[bytes, DatabaseView] | None:
        """All of now, and what the places begin with. None if there is nothing."""
        view = self._database.view() if self.groups else None
        return None if view is None or self._rows is None else (self._rows.prefix, view)

    def next(self, begin: float, each: float, until: float) -> tuple[list[Found], float]:
        """Timers from `begin` and before `until`, of every key group no more than `each`; and
        before which timestamp these are all there are. There is none before `begin`."""
        found: list[Found] = []
        view, rows = self._database.view(), self._rows
        if view is None or rows is None:
            return found, until
        for group in sorted(self.groups):
            read = 0
            within = view.scan(rows.start_of(group), rows.start(group, int(begin)))
            for read, (place, data) in enumerate(within, 1):
                timestamp = time_of(place)
                if timestamp >= until:
                    break
                found.append((timestamp, place, data))
                if read >= each:
                    until = timestamp
                    break
            else:
                if not read:
                    self.groups.discard(group)
        return found, until

    def at(self, timestamp: int) -> list[Pair]:
        """All timers of a timestamp."""
        found: list[Pair] = []
        view, rows = self._database.view(), self._rows
        if view is not None and rows is not None:
            for group in sorted(self.groups):
                start = rows.start(group, timestamp)
                found += view.scan(start)
        return found

    def _own_rows(self) -> TimerRows:
        if self._rows is None:
            prefix, _ = self._database.new_state(self._name, "timers", timers_layout(0))
            self._begin(prefix)
        assert self._rows is not None
        return self._rows

    def _begin(self, prefix: bytes) -> None:
        self._rows = TimerRows(self._name, prefix, self._max_parallelism)
        self._checked = WrittenValues(self._database, prefix)

    def _take_over(self) -> None:
        """Begin with timers that came with RocksDB's files, if they are as these are."""
        waiting = self._database.waiting.get(self._name)
        generation = None if waiting is None else next_generation(waiting.layout)
        if waiting is None or waiting.kind != "timers" or generation is None:
            return
        asked = timers_layout(generation - 1)
        prefix, here = self._database.new_state(self._name, "timers", asked)
        if here:
            known = self._database.layout(prefix)
            self._database.relabel(prefix, {**known, GENERATION: str(generation)})
        self._begin(prefix)
        assert self._rows is not None
        if not here:
            return
        self.numbers = generation * NUMBERS
        view, at = self._database.view(), prefix
        assert view is not None
        while (place := view.first(at)) is not None and place.startswith(prefix):
            group = int.from_bytes(place[GROUP_AT:REST_AT], "big")
            at = self._rows.start_of(group + 1)
            last = view.last(at)
            assert last is not None
            self.groups.add(group)
            self.first = min(self.first, time_of(place))
            self.furthest = max(self.furthest, time_of(last))


def _time_bytes_of(pair: Pair) -> bytes:
    return pair[0][TIME_AT:KEY_AT]
