"""Columns of Nexmark events from their numbers.

The formulas are Beam's generator's; `extra` pads an event to its kind's mean size (bid 100, person
200, auction 500 bytes) within 20 %, where, as there, a bid's channel and URL are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from . import nexmark_kernels as kernels
from .nexmark_schemas import TIME, Kind
from .nexmark_strings import (
    CITIES,
    COLD_CHANNELS,
    FIRST_NAMES,
    HOT_CHANNELS,
    LAST_NAMES,
    STATES,
    Bytes,
    Int64s,
    StringPool,
    StringTable,
    channel_tables,
    lengths,
    of_one_length,
)

FIRST_ID = 1000
FIRST_CATEGORY = 10
CATEGORIES = 5
IN_FLIGHT_AUCTIONS = 100
AUCTIONS_AHEAD = 10
ACTIVE_PEOPLE = 1000
PEOPLE_AHEAD = 10
AUCTION_EVENTS = IN_FLIGHT_AUCTIONS * kernels.EPOCH // 3
MEAN_SIZES = {"person": 200, "auction": 500, "bid": 100}
BASE_TIME_MS = 1_436_918_400_000
"""Time of event 0: 2015-07-15T00:00:00Z."""

DIGITS = np.array([list(f"{i:04d}".encode()) for i in range(10_000)], np.uint8)

_HASH_COLUMNS = {"person": 100, "auction": 200, "bid": 300}
"""Each kind draws from hash columns of its own, so two kinds never share random bits."""


class NexmarkStrings:
    """The tables and pools of one seed; about 2 MB, never changed. `views`: what is taken of them
    are views. Use `strings_of`."""

    def __init__(self, seed: np.uint64, views: bool) -> None:
        self.views = views
        self.letters = StringPool(seed, 1, space_every=0, views=views)
        self.text = StringPool(seed, 2, space_every=13, views=views)
        self.channels, self.urls = channel_tables(seed, self.letters, views)
        self.names = StringTable([f"{a} {b}" for a in FIRST_NAMES for b in LAST_NAMES], views)
        self.cities = StringTable(CITIES, views)
        self.states = StringTable(STATES, views)


@lru_cache(maxsize=4)
def strings_of(seed: np.uint64, views: bool = False) -> NexmarkStrings:
    """Shared by the readers of one process, because making them takes a while."""
    return NexmarkStrings(seed, views)


class EventColumns:
    """One kind's columns for these event numbers; each is made when asked for, once."""

    kind: Kind

    def __init__(
        self, numbers: Int64s, seed: np.uint64, rate: int, strings: NexmarkStrings
    ) -> None:
        self.numbers = numbers
        self.seed = seed
        self.rate = rate
        self.strings = strings

    @cached_property
    def times(self) -> Int64s:
        """Event times, ms since the epoch."""
        times: Int64s = kernels.event_times(self.numbers, BASE_TIME_MS, self.rate)
        return times

    @property
    def dateTime(self) -> pa.Array:
        return _time_array(self.times)

    def columns(self, names: Iterable[str]) -> list[pa.Array]:
        return [getattr(self, name) for name in names]

    def column(self, index: int) -> int:
        """The hash column `index` of this kind."""
        return _HASH_COLUMNS[self.kind] + index

    def uniform(self, index: int, bound: int, low: int = 0) -> Int64s:
        drawn: Int64s = kernels.uniform(self.numbers, self.seed, self.column(index), low, bound)
        return drawn

    def prices(self, index: int) -> Int64s:
        drawn: Int64s = kernels.prices(self.numbers, self.seed, self.column(index))
        return drawn

    def people(self, index: int, hot_offset: int) -> pa.Array:
        return pa.array(
            kernels.people(
                self.numbers,
                self.seed,
                self.column(index),
                hot_offset,
                ACTIVE_PEOPLE,
                PEOPLE_AHEAD,
            )
        )

    def pick(self, index: int, table: StringTable) -> pa.Array:
        return table.pick(self.uniform(index, len(table)))

    def cut(self, index: int, pool: StringPool, low: int, spread: int) -> pa.Array:
        return pool.cut(self.numbers, self.seed, self.column(index), low, spread)

    def pad(self, index: int, sizes: Int64s) -> pa.Array:
        """`extra` for events that already have these sizes in bytes (one for all, or one each)."""
        missing = np.maximum(MEAN_SIZES[self.kind] - sizes, 0)
        delta = np.rint(missing * 0.2).astype(np.int64)
        return self.strings.letters.cut(
            self.numbers, self.seed, self.column(index), missing - delta, np.maximum(2 * delta, 1)
        )


class BidColumns(EventColumns):
    kind = "bid"

    @property
    def auction(self) -> pa.Array:
        return pa.array(
            kernels.bid_auctions(
                self.numbers, self.seed, self.column(0), IN_FLIGHT_AUCTIONS, AUCTIONS_AHEAD
            )
        )

    @property
    def bidder(self) -> pa.Array:
        return self.people(1, hot_offset=1)

    @property
    def price(self) -> pa.Array:
        return pa.array(self.prices(2))

    @cached_property
    def _channels(self) -> Int64s:
        rows: Int64s = kernels.channels(
            self.numbers, self.seed, self.column(3), len(HOT_CHANNELS), COLD_CHANNELS
        )
        return rows

    @property
    def channel(self) -> pa.Array:
        return self.strings.channels.pick(self._channels)

    @property
    def url(self) -> pa.Array:
        return self.strings.urls.pick(self._channels)

    @property
    def extra(self) -> pa.Array:
        return self.pad(4, np.array([32]))


class AuctionColumns(EventColumns):
    kind = "auction"

    @property
    def id(self) -> pa.Array:
        epoch, slot = np.divmod(self.numbers, kernels.EPOCH)
        return pa.array(FIRST_ID + 3 * epoch + slot - 1)

    @cached_property
    def itemName(self) -> pa.Array:
        return self.cut(0, self.strings.text, 3, 17)

    @cached_property
    def description(self) -> pa.Array:
        return self.cut(1, self.strings.text, 3, 97)

    @cached_property
    def _initial(self) -> Int64s:
        return self.prices(2)

    @property
    def initialBid(self) -> pa.Array:
        return pa.array(self._initial)

    @property
    def reserve(self) -> pa.Array:
        return pa.array(self._initial + self.prices(3))

    @property
    def expires(self) -> pa.Array:
        return _time_array(
            kernels.expiries(
                self.numbers, self.seed, self.column(4), BASE_TIME_MS, self.rate, AUCTION_EVENTS
            )
        )

    @property
    def seller(self) -> pa.Array:
        return self.people(5, hot_offset=0)

    @property
    def category(self) -> pa.Array:
        return pa.array(self.uniform(6, CATEGORIES, FIRST_CATEGORY))

    @property
    def extra(self) -> pa.Array:
        return self.pad(7, 56 + lengths(self.itemName) + lengths(self.description))


class PersonColumns(EventColumns):
    kind = "person"

    @property
    def id(self) -> pa.Array:
        return pa.array(FIRST_ID + self.numbers // kernels.EPOCH)

    @cached_property
    def name(self) -> pa.Array:
        return self.pick(0, self.strings.names)

    @cached_property
    def emailAddress(self) -> pa.Array:
        letters, n = self.strings.letters, self.numbers
        user = letters.block(n, self.seed, self.column(1), 7)
        host = letters.block(n, self.seed, self.column(2), 5)
        return self._joined(user, b"@", host, b".com")

    @cached_property
    def creditCard(self) -> pa.Array:
        one, two, three, four = [DIGITS[self.uniform(3 + i, len(DIGITS))] for i in range(4)]
        return self._joined(one, b" ", two, b" ", three, b" ", four)

    @cached_property
    def city(self) -> pa.Array:
        return self.pick(7, self.strings.cities)

    @cached_property
    def state(self) -> pa.Array:
        return self.pick(8, self.strings.states)

    def _joined(self, *parts: bytes | Bytes) -> pa.Array:
        """Per event the parts one after the other; a part is the same for all, or a row each."""
        count = len(self.numbers)
        whole = [
            np.broadcast_to(np.frombuffer(part, np.uint8), (count, len(part)))
            if isinstance(part, bytes)
            else part
            for part in parts
        ]
        return of_one_length(np.concatenate(whole, axis=1), self.strings.views)

    @property
    def extra(self) -> pa.Array:
        parts = (self.name, self.emailAddress, self.creditCard, self.city, self.state)
        return self.pad(9, np.sum([lengths(part) for part in parts], axis=0) + 16)


ColumnsOf = Callable[[Int64s, np.uint64, int, NexmarkStrings], EventColumns]
COLUMNS: dict[str, ColumnsOf] = {
    "person": PersonColumns,
    "auction": AuctionColumns,
    "bid": BidColumns,
}


def _time_array(times: Int64s) -> pa.Array:
    return pa.Array.from_buffers(TIME, len(times), [None, pa.py_buffer(times)])
