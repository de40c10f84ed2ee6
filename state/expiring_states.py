"""The row face of state that expires, in memory.

What is stored has a stamp beside it, the time it counts from:

    value, reducing, aggregating   (value, stamp)
    list                           a deque of (element, stamp)
    map                            an ordered dict: map key -> (value, stamp)

The keys of a namespace lie in an ordered dict in the order in which they were last stamped, so what
has expired is at its front: removing it in the background costs nothing for keys that live on. By
event time, where stamps may be out of order a little, some wait for those before them. Elements of
keys that live on are removed when the key is come across.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .backend import CurrentKey
from .declared_types import DeclaredType
from .expiry import UNKNOWN, Expiry
from .faces import (
    AggregatingState,
    BulkValueState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
    elements,
)
from .row_changes import MapMarks, Marks, RowChanges
from .row_states import Spaces, _RowState

if TYPE_CHECKING:
    from .expiring_spaces import ExpiringSpaces

Stamped = tuple[Any, int]

Self = TypeVar("Self", bound="_Expiring")


class _Expiring(_RowState):
    """Invariant, besides those of `_RowState`: all dicts of keys are ordered dicts."""

    _data: OrderedDict[Any, Any]

    def __init__(
        self,
        cell: CurrentKey,
        spaces: Spaces,
        expiry: Expiry,
        declared: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, declared)
        self._expiry = expiry
        self._now = expiry.now
        self._ttl = expiry.ttl
        self._event = expiry.event
        self._on_read = expiry.on_read

    def of(self: Self, namespace: Any) -> Self:
        self._namespace = namespace
        data = self._spaces.get(namespace)
        self._data = OrderedDict() if data is None else data  # type: ignore[assignment]
        if self._marks is not None:
            self.record()
        return self

    def _put(self, stored: Any) -> None:
        """Store it, as the key stamped last."""
        self._store(stored)
        self._data.move_to_end(self._cell.key)


class _OneValue(_Expiring):
    """(value, stamp) per key."""

    def _find(self, read: bool) -> Stamped | None:
        """What is stored and may be used; what has expired is removed. `read`: it lives on if this
        says so."""
        self._note_read()
        stored: Stamped | None = self._data.get(self._cell.key)
        if stored is None:
            return None
        now, stamp = self._now(), stored[1]
        if stamp <= now - self._ttl and stamp != UNKNOWN:
            self.clear()
            return stored if self._expiry.returned else None
        if read and self._on_read and now > stamp:
            self._put((stored[0], now))
        return stored

    def _write(self, value: Any) -> None:
        now = self._now()
        if self._event:
            before = self._data.get(self._cell.key)
            if before is not None and before[1] > now:
                now = before[1]
        self._put((value, now))


class ExpiringValueState(_OneValue, ValueState):
    """As `_find` and `_write` say, but written out: nothing is called more often."""

    def value(self) -> Any:
        if self._reads is not None:
            self._note_read()
        stored = self._data.get(self._cell.key)
        if stored is None:
            return None
        value, stamp = stored
        now = self._now()
        if stamp <= now - self._ttl and stamp != UNKNOWN:
            self.clear()
            return value if self._expiry.returned else None
        if self._on_read and now > stamp:
            self._put((value, now))
        return value

    def update(self, value: Any) -> None:
        declared, data, key = self._declared, self._data, self._cell.key
        if value is None:
            self.clear()
        elif declared is not None and not declared.fits(value):
            declared.refuse(value)
        elif data and not self._event:
            data[key] = (value, self._now())
            data.move_to_end(key)
            if self._marks is not None:
                self._marks[key] = True
        else:
            self._write(value)


class ExpiringReducingState(_OneValue, ReducingState):
    def __init__(
        self,
        cell: CurrentKey,
        spaces: Spaces,
        expiry: Expiry,
        function: Any,
        declared: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, expiry, declared)
        self._reduce = getattr(function, "reduce", function)

    def get(self) -> Any:
        stored = self._find(True)
        return None if stored is None else stored[0]

    def add(self, value: Any) -> None:
        stored = self._find(False)
        reduced = value if stored is None else self._reduce(stored[0], value)
        if self._declared is not None:
            self._check((value, reduced))
        self._write(reduced)


class ExpiringAggregatingState(_OneValue, AggregatingState):
    def __init__(
        self,
        cell: CurrentKey,
        spaces: Spaces,
        expiry: Expiry,
        function: Any,
        declared: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, expiry, declared)
        self._function = function

    def get(self) -> Any:
        stored = self._find(True)
        return None if stored is None else self._function.get_result(stored[0])

    def add(self, value: Any) -> None:
        stored = self._find(False)
        before = self._function.create_accumulator() if stored is None else stored[0]
        accumulator = self._function.add(value, before)
        if self._declared is not None:
            self._check((accumulator,))
        self._write(accumulator)


class ExpiringBulkValueState(BulkValueState):
    """As the ValueState with `value` and `update` of every key fetched: all of them are written."""

    def __init__(self, expiring: ExpiringSpaces, changes: RowChanges | None = None) -> None:
        self._changes = changes
        self._marks: Marks | None = None
        if changes is not None:
            changes.writers.append(self)
            self.record()
        data = expiring.spaces[None]
        assert isinstance(data, OrderedDict)
        self._data: OrderedDict[Any, Stamped] = data
        self._expiry = expiring.expiry
        self._fetched: dict[Any, Any] = {}
        self._stamps: dict[Any, int] | None = None
        """By event time: what the keys fetched are to be stamped with."""

    def record(self) -> None:
        """As `Recording` says."""
        if self._changes is not None:
            self._marks = self._changes.marks(None)

    def fetch(self, keys: Sequence[Any], times: Sequence[int] | None = None) -> dict[Any, Any]:
        if self._marks is not None:
            self._marks |= dict.fromkeys(keys, True)
        if times is not None:
            return self._fetch_at(keys, times)
        cutoff = self._expiry.now() - self._expiry.ttl
        get, gone = self._data.get, self._expiry.gone
        pairs = [(key, get(key)) for key in dict.fromkeys(keys)]
        self._fetched = {
            key: stored[0]
            for key, stored in pairs
            if stored is not None and not gone(stored[1], cutoff)
        }
        return self._fetched

    def _fetch_at(self, keys: Sequence[Any], times: Sequence[int]) -> dict[Any, Any]:
        data, ttl = self._data, self._expiry.ttl
        held: dict[Any, Any] = {}
        stamps: dict[Any, int] = {}
        for key, time in zip(keys, times, strict=True):
            stamp = stamps.get(key)
            if stamp is None:
                stored = data.get(key)
                if stored is None or self._expiry.gone(stored[1], time - ttl):
                    stamps[key] = time
                else:
                    held[key] = stored[0]
                    stamps[key] = max(time, stored[1])
            elif time > stamp:
                stamps[key] = time
        self._fetched, self._stamps = held, stamps
        return held

    def commit(self) -> None:
        if self._stamps is not None:
            for key, value in self._fetched.items():
                self._data[key] = (value, self._stamps[key])
                self._data.move_to_end(key)
            self._fetched, self._stamps = {}, None
            return
        data, now = self._data, self._expiry.now()
        for key, value in self._fetched.items():
            data[key] = (value, now)
            data.move_to_end(key)
        self._fetched = {}


class ExpiringListState(_Expiring, ListState):
    _whole = 0

    def get(self) -> Iterator[Any]:
        stored: deque[Stamped] | None = self._data.get(self._cell.key)
        if stored is None:
            return iter(())
        self._note_read()
        now = self._now()
        shown = self._live(stored, now)
        if self._expiry.returned:
            shown, live = list(stored), shown
        else:
            live = shown
        if self._on_read and live:
            self._put(deque([(element, max(stamp, now)) for element, stamp in live]))
        elif len(live) < len(stored):
            self._replace(live)
        return iter([element for element, _ in shown])

    def add(self, value: Any) -> None:
        self._check((value,))
        self._extend([value])

    def add_all(self, values: Iterable[Any]) -> None:
        added = elements(values, "add_all")
        self._check(added)
        if added:
            self._extend(added)

    def update(self, values: Iterable[Any]) -> None:
        replaced = elements(values, "update")
        self._check(replaced)
        if replaced:
            now = self._now()
            self._put(deque([(element, now) for element in replaced]))
        else:
            self.clear()

    def _extend(self, added: list[Any]) -> None:
        now = self._now()
        key = self._cell.key
        stored = self._data.get(key)
        if stored is None:
            self._put(deque([(element, now) for element in added]))
            return
        before, cutoff, gone = len(stored), now - self._ttl, self._expiry.gone
        while stored and gone(stored[0][1], cutoff):
            stored.popleft()
        if self._marks is not None:
            if len(stored) == before:
                self._marks.setdefault(key, before)
            else:
                self._marks[key] = 0
        stored.extend([(element, now) for element in added])
        self._data.move_to_end(key)

    def _live(self, stored: Iterable[Stamped], now: int) -> list[Stamped]:
        cutoff = now - self._ttl
        return [pair for pair in stored if pair[1] > cutoff or pair[1] == UNKNOWN]

    def _replace(self, live: list[Stamped]) -> None:
        """Some elements have gone; the key keeps its place."""
        if live:
            self._data[self._cell.key] = deque(live)
            if self._marks is not None:
                self._marks[self._cell.key] = 0
        else:
            self.clear()


class ExpiringMapState(_Expiring, MapState):
    _whole = None

    def __init__(
        self,
        cell: CurrentKey,
        spaces: Spaces,
        expiry: Expiry,
        declared: DeclaredType | None = None,
        declared_key: DeclaredType | None = None,
    ) -> None:
        super().__init__(cell, spaces, expiry, declared)
        self._declared_key = declared_key

    def get(self, key: Any) -> Any:
        pair = self._find(key)
        return None if pair is None else pair[0]

    def put(self, key: Any, value: Any) -> None:
        self._put_entries({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        entries = dict(dict_value)
        if entries:
            self._put_entries(entries)

    def remove(self, key: Any) -> None:
        stored = self._data.get(self._cell.key)
        if stored is not None and stored.pop(key, None) is not None:
            self._note_removed(key)
            if not stored:
                self.clear()

    def _note_removed(self, key: Any) -> None:
        """An entry is gone."""
        if self._marks is not None:
            MapMarks.removed(self._marks, self._cell.key, key)

    def _note_last(self, key: Any, before: bool) -> None:
        """An entry is the last one. `before`: it has been there."""
        if self._marks is not None:
            if before:
                MapMarks.removed(self._marks, self._cell.key, key)
            MapMarks.written(self._marks, self._cell.key, key, new=True)

    def contains(self, key: Any) -> bool:
        return self._find(key) is not None

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(key, pair[0]) for key, pair in self._read()]

    def keys(self) -> Iterable[Any]:
        return [key for key, _ in self._read()]

    def values(self) -> Iterable[Any]:
        return [pair[0] for _, pair in self._read()]

    def is_empty(self) -> bool:
        stored = self._data.get(self._cell.key)
        if stored is None or self._expiry.returned:
            return stored is None
        cutoff, gone = self._now() - self._ttl, self._expiry.gone
        return all(gone(stamp, cutoff) for _, stamp in reversed(stored.values()))

    def _find(self, key: Any) -> Stamped | None:
        """An entry that may be used, for reading; one that has expired is removed."""
        stored: OrderedDict[Any, Stamped] | None = self._data.get(self._cell.key)
        pair = None if stored is None else stored.get(key)
        if stored is None or pair is None:
            return None
        now = self._now()
        if self._expiry.gone(pair[1], now - self._ttl):
            self.remove(key)
            return pair if self._expiry.returned else None
        if self._on_read and now > pair[1]:
            stored[key] = (pair[0], now)
            stored.move_to_end(key)
            self._note_last(key, True)
            self._data.move_to_end(self._cell.key)
        elif self._reads is not None:
            MapMarks.written(self._reads, self._cell.key, key)
        return pair

    def _read(self) -> list[tuple[Any, Stamped]]:
        """All entries that may be used, likewise."""
        stored: OrderedDict[Any, Stamped] | None = self._data.get(self._cell.key)
        if stored is None:
            return []
        self._note_read()
        now = self._now()
        cutoff, gone = now - self._ttl, self._expiry.gone
        every = list(stored.items())
        live = [item for item in every if not gone(item[1][1], cutoff)]
        if len(live) < len(every):
            for key, (_, stamp) in every:
                if gone(stamp, cutoff):
                    del stored[key]
                    self._note_removed(key)
            if not stored:
                self.clear()
        if self._on_read and live:
            for key, (value, stamp) in live:
                stored[key] = (value, max(stamp, now))
            self._put(stored)
        return every if self._expiry.returned else live

    def _put_entries(self, entries: dict[Any, Any]) -> None:
        self._check(entries.values())
        if self._declared_key is not None:
            for key in entries:
                if key is not None and not self._declared_key.fits(key):
                    self._declared_key.refuse(key)
        now = self._now()
        stored: OrderedDict[Any, Stamped] | None = self._data.get(self._cell.key)
        if stored is None:
            self._put(OrderedDict((key, (value, now)) for key, value in entries.items()))
            return
        cutoff, gone = now - self._ttl, self._expiry.gone
        while stored and gone(next(iter(stored.values()))[1], cutoff):
            self._note_removed(stored.popitem(last=False)[0])
        for key, value in entries.items():
            before = stored.get(key)
            stamp = now if before is None or before[1] < now else before[1]
            stored[key] = (value, stamp)
            stored.move_to_end(key)
            self._note_last(key, before is not None)
        self._data.move_to_end(self._cell.key)
