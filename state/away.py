"""The seam to entries of keys that may lie elsewhere than in slots.

What leaves is a key with all its entries, and it comes back so: when a batch has the key, or when
one of the entries is due. When that is the operator says of each entry, from its columns alone
(`KeyedStateBackend.entries`, `due`). Slots are the operator's: it chooses those that entries come
into, and empties those of entries that left. A key has entries in slots or away, never both.

Snapshots hold all entries, wherever they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..core.arrays import Bools, Int64s, Slots
from ..core.elements import MAX_TIMESTAMP

Entries: TypeAlias = npt.NDArray[Any]
"""Entries apart from their slots: a field for each number, code and word that is state. Codes are
of the table's stores."""

Due: TypeAlias = Callable[[Entries], Int64s]
"""When each of the entries is needed."""


def never(entries: Entries) -> Int64s:
    """Due of entries that are asked for by their keys alone."""
    return np.full(len(entries), MAX_TIMESTAMP)


@dataclass(frozen=True)
class Brought:
    """Entries that come back, all of their keys; they are away no longer."""

    owners: Slots
    """The number of each one's key."""
    entries: Entries

    def __len__(self) -> int:
        return len(self.owners)


class AwayEntries(ABC):
    """Calls: between two batches or watermarks `leaving`, `idle`, `leave`, `sparse` and `compact`,
    to make room; before a batch is added `take`, and before a watermark is acted on `take_due`.
    What these two give is `put` into slots before anything else is called."""

    @property
    @abstractmethod
    def keys_away(self) -> int:
        """Keys whose entries are away."""

    @property
    @abstractmethod
    def soonest(self) -> int:
        """No entry that is away is due before; MAX_TIMESTAMP if none is."""

    @abstractmethod
    def take(self, numbers: Slots) -> Brought:
        """The entries of those of these keys (distinct, none with entries in slots) that are
        away."""

    @abstractmethod
    def bound(self, after: int, until: int) -> int:
        """A time behind `after`, `until` at most, up to which no more is due than may be in memory,
        or all that is due first."""

    @abstractmethod
    def take_due(self, until: int) -> Brought:
        """The entries of keys of which one is due by then."""

    @abstractmethod
    def put(self, slots: Slots, brought: Brought) -> None:
        """Into these slots, which there are."""

    @abstractmethod
    def leaving(self, keys: int, entries: int) -> int:
        """How many keys have to leave, of so many that have so many entries in slots."""

    @abstractmethod
    def idle(self, most: int, may_leave: Callable[[int, int], Bools]) -> Slots:
        """Up to so many keys that leave next, none that cannot. `may_leave`: which numbers from, to
        (exclusive) have entries in slots."""

    @abstractmethod
    def leave(self, numbers: Slots, slots: Slots) -> None:
        """These keys (distinct, of those that `idle` gave last) leave, with the entries in these
        slots, which are all they have and which the operator resets next."""

    @abstractmethod
    def sparse(self, keys: int, entries: int) -> bool:
        """Whether to `compact`: much of the room is of keys and entries that are gone."""

    @abstractmethod
    def compact(self, slots: Slots) -> None:
        """Only these slots hold entries: they become 0, 1, ... in this order, and only their keys
        are known from here on, by new numbers."""


def first_due(dues: Int64s, counts: npt.NDArray[np.int64]) -> Int64s:
    """The least of each key's dues; `counts`: how many there are of each, one behind the other."""
    if not len(counts):
        return np.empty(0, np.int64)
    starts = np.cumsum(counts) - counts
    return np.minimum.reduceat(dues, starts)
