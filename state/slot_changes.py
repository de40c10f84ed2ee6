"""What changed in a slot table since a snapshot, and a frozen view of that alone.

A table records which slots were written (`SlotColumns.take_changes`). Slots keep their keys for
good, so a snapshot that failed costs nothing but joining two records; only where a table gives its
keys new numbers the record means nothing any more, and the table is written whole again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from ..core.arrays import Slots
from .change_bits import Bits, count_of, either, slots_of
from .key_index import CompositeIndex
from .slot_columns import FrozenColumns
from .slot_encoding import DEAD, Columns, encoded
from .value_store import Codes

MOST_CHANGED: Final = 0.5
"""Where a larger share of the keys changed, a new base is written: a delta would be about as large,
and the base under it would stay."""


class Recorded(Protocol):
    """Where it is recorded which slots were written."""

    def take_changes(self, count: int) -> Bits | None:
        """See `SlotColumns`."""
        ...


class SlotChanges:
    """The record of one table over its snapshots.

    Invariant: `_since` are the slots below `known` that were written between the newest complete
    snapshot, which held slots 0..known-1, and the last one, which held `_last`."""

    def __init__(self) -> None:
        self.known: int | None = None
        """None: the newest complete snapshot does not have this table as it is numbered now."""
        self._since: Bits | None = None
        self._last: int | None = None
        """None: nor has the last one."""

    def renumbered(self) -> None:
        """Slots mean other keys from here on."""
        self.known = self._since = self._last = None

    def advance(self, numbers: Recorded, count: int, completed: bool) -> tuple[Bits, int] | None:
        """A snapshot of slots 0..count-1 is being taken; `completed`: the last one was. The slots
        to write, as `change_bits.slots_of` takes them; None: all, for there is no record."""
        live = numbers.take_changes(count)
        if completed:
            self.known, self._since = self._last, live
        elif self.known is not None and self._since is not None and live is not None:
            self._since = either(self._since, live)
        self._last = count
        if self.known is None or self._since is None:
            self.known = self._since = None
            return None
        return self._since, self.known

    @staticmethod
    def number(changes: tuple[Bits, int], count: int) -> int:
        """About how many slots these are."""
        bits, known = changes
        return count_of(bits) + count - known


@dataclass(frozen=True)
class FrozenChanges:
    """The changed slots of one table at a point in time. `index` may go on growing."""

    index: CompositeIndex
    numbers: FrozenColumns
    dead: FrozenColumns | None
    values: Mapping[str, Callable[[Codes], pa.Array]]
    bits: Bits
    known: int

    def read(self) -> tuple[list[pa.Array], Columns, list[pa.Array]]:
        """Key columns and columns of changed keys that are there, key columns of those that are
        not, but were; once, on any thread."""
        slots = slots_of(self.bits, self.known, self.numbers.count)
        gone: Slots = slots[:0]
        if self.dead is not None:
            dead = self.dead.take()[DEAD][slots]
            gone, slots = slots[dead & (slots < self.known)], slots[~dead]
        columns = encoded(self.numbers.columns, self.numbers.take(slots), self.values)
        return self.index.take(slots), columns, self.index.take(np.ascontiguousarray(gone))
