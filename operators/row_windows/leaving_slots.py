"""Windows of keys that leave their slots for the state's away entries, and come back.

A key leaves with all its windows. It is back before a record of it is added, and before a timer of
it asks for one of its windows. What is due is said by timers, which are state of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Slots
from ...core.key_kinds import held_keys
from ...state.away import AwayEntries
from ...state.column_face import EntryState
from ...state.object_keys import ObjectKeys

COME = 1 << 14
"""So many keys come back, one by one, before room is made."""


class Windowed(Protocol):
    """What is asked of the contents, all of whose slots are settled."""

    def live(self) -> Slots:
        """The slots that hold something."""
        ...

    def enter(self, count: int) -> Slots:
        """Empty slots for so many windows."""
        ...

    def find(self, slots: Slots, keys: Sequence[Any]) -> None:
        """The windows of these keys are in these slots now."""
        ...

    def lose(self, slots: Slots, keys: Sequence[Any]) -> None:
        """They are not any more; the slots are free."""
        ...

    def renumber(self, slots: Slots) -> None:
        """What these slots hold, which are all that hold something, is in 0, 1, ... now."""
        ...


class LeavingSlots:
    """`_windows`: of each key that has windows in slots, how many."""

    def __init__(
        self, table: EntryState, away: AwayEntries, owner: str, keys: ObjectKeys, of: Windowed
    ) -> None:
        """`owner`: the table's column of keys' numbers."""
        self._table = table
        self._away = away
        self._owner = owner
        self._keys = keys
        self._contents = of
        self._schema = pa.schema([pa.field("key", keys.kind)])
        self._windows: dict[Any, int] = {}
        self._come = 0
        """Since room was made."""

    def opened(self, key: Any) -> None:
        """The key has a window more."""
        self._windows[key] = self._windows.get(key, 0) + 1

    def closed(self, key: Any) -> None:
        """And one less."""
        left = self._windows[key] - 1
        if left:
            self._windows[key] = left
        else:
            del self._windows[key]

    def has(self, key: Any) -> bool:
        """Whether all windows of a key are in slots, if it has any."""
        return key in self._windows or not self._away.keys_away

    @property
    def crowded(self) -> bool:
        """Whether to make room."""
        return self._come > COME

    def recall(self, keys: Iterable[Any]) -> None:
        """Have the windows of these keys in slots."""
        if not self._away.keys_away:
            return
        strangers = [key for key in dict.fromkeys(keys) if key not in self._windows]
        if not strangers:
            return
        column = self._keys.column(strangers)
        numbers = self._table.numbers(pa.RecordBatch.from_arrays([column], schema=self._schema))
        brought = self._away.take(numbers)
        if len(brought):
            slots = self._contents.enter(len(brought))
            self._away.put(slots, brought)
            keys = self._keys_of(brought.owners)
            self._contents.find(slots, keys)
            for key in keys:
                self.opened(key)
            self._come += len(set(keys))

    def make_room(self) -> None:
        """Let keys go that are more than the state may hold. All is settled."""
        self._come = 0
        keys, slots = len(self._windows), self._contents.live()
        count = self._away.leaving(keys, len(slots))
        if count > 0:
            slots = self._go(count, slots)
        if self._away.sparse(len(self._windows), len(slots)):
            self._away.compact(slots)
            self._contents.renumber(slots)

    def _go(self, count: int, slots: Slots) -> Slots:
        """Returns the slots that hold something after it."""
        owners = self._owners[slots]
        there = np.zeros(self._table.owners, dtype=np.bool_)
        there[owners] = True

        def may_leave(start: int, stop: int) -> Bools:
            return there[start:stop]

        numbers = self._away.idle(count, may_leave)
        goes = np.isin(owners, numbers)
        gone = slots[goes]
        if len(gone):
            keys = self._keys_of(owners[goes])
            self._contents.lose(gone, keys)
            for key in dict.fromkeys(keys):
                del self._windows[key]
            self._away.leave(numbers, gone)
            self._table.reset(gone)
        return slots[~goes]

    def _keys_of(self, owners: Slots) -> list[Any]:
        (column,) = self._table.take_owners(owners)
        keys: list[Any] = held_keys(self._keys.objects(column))
        return keys

    @property
    def _owners(self) -> Slots:
        owners: Slots = self._table.column(self._owner)
        return owners
