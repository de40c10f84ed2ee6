"""Compiled kernels of the Nexmark generator: every value is a function of event number and seed.

Randomness is counter based: `draw(seed, column, number)` mixes the three with the finaliser of
splitmix64 (Steele, Lea, Flood 2014). There is no generator state, so any split, any batch size and
any set of columns give the same events.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.native import Array, int32, int64, intrinsic, njit, uint8, uint64, void

EPOCH = 50
"""Events per epoch: 1 person, 3 auctions, 46 bids."""

CHUNK = 32
"""Strings are copied in pieces of this many bytes; string pools end in that much padding."""

INLINE = 12
"""Bytes of the longest string that a view holds itself."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_COLUMN = np.uint64(0xD6E8FEB86659FD93)
_S27, _S30, _S31, _S32 = (np.uint64(s) for s in (27, 30, 31, 32))
_LOW32 = np.uint64(0xFFFFFFFF)
_LN_MILLION = 13.815510557964274
_UNIT = 2.0**-53
_S11 = np.uint64(11)


@njit(inline="always")
def draw(seed: Any, column: Any, number: Any) -> Any:
    """64 random bits."""
    z = seed + np.uint64(column) * _COLUMN + np.uint64(number) * _GOLDEN
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@njit(inline="always")
def below(bits: Any, bound: Any) -> Any:
    """The low 32 of `bits` scaled to 0..bound-1 (bound < 2**31)."""
    return np.int64(((bits & _LOW32) * np.uint64(bound)) >> _S32)


_IN = Array(int64, 1, readonly=True)
_BYTES_IN, _OFFSETS_IN = Array(uint8, 1, readonly=True), Array(int32, 1, readonly=True)
_OUT, _OFFSETS = int64[::1], int32[::1]
_VIEWS, _KINDS = int32[::1], uint8[::1]
_DRAW = (_IN, uint64, int64)
"""numbers, seed, column: what every random column starts from."""
_OPTIONS = {"cache": True, "nogil": True}

Int64s = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Views = npt.NDArray[np.int32]
Kinds = npt.NDArray[np.uint8]


@njit(int64(_IN, _IN, int64, int64, int64, _OUT), **_OPTIONS)
def _select_numbers(starts: Any, counts: Any, group: int, first: int, last: int, out: Any) -> int:
    size = 0
    for run in range(starts.size):
        for position in range(starts[run], starts[run] + counts[run]):
            number = position
            if group > 1:
                base = position - position % group
                number = base + (position * 953) % group
            slot = number % EPOCH
            out[size] = number
            size += first <= slot and slot <= last
    return size


def select_numbers(starts: Int64s, counts: Int64s, group: int, first: int, last: int) -> Int64s:
    """Adjusted numbers of the events at positions [start, start + count) of each run whose slot in
    the epoch is in first..last; `group`: the size of out-of-order groups (1: in order)."""
    out = np.empty(int(counts.sum()) + 1, dtype=np.int64)
    return out[: _select_numbers(starts, counts, group, first, last, out)]


@njit(void(_IN, int64, int64, _OUT), **_OPTIONS)
def _event_times(numbers: Any, base_ms: int, rate: int, out: Any) -> None:
    for i in range(numbers.size):
        out[i] = base_ms + numbers[i] * 1000 // rate


def event_times(numbers: Int64s, base_ms: int, rate: int) -> Int64s:
    out = np.empty_like(numbers)
    _event_times(numbers, base_ms, rate, out)
    return out


@njit(void(*_DRAW, int64, int64, _OUT), **_OPTIONS)
def _bid_auctions(
    numbers: Any, seed: Any, column: int, in_flight: int, ahead: int, out: Any
) -> None:
    for i in range(numbers.size):
        bits = draw(seed, column, numbers[i])
        newest = 3 * (numbers[i] // EPOCH) + 2
        if bits >> np.uint64(63):
            out[i] = 1000 + newest // 100 * 100
        else:
            oldest = max(newest - in_flight, 0)
            out[i] = 1000 + oldest + below(bits, newest - oldest + 1 + ahead)


def bid_auctions(
    numbers: Int64s, seed: np.uint64, column: int, in_flight: int, ahead: int
) -> Int64s:
    """Half the bids go to the hot auction, the others to one of those in flight or soon to come."""
    out = np.empty_like(numbers)
    _bid_auctions(numbers, seed, column, in_flight, ahead, out)
    return out


@njit(void(*_DRAW, int64, int64, int64, _OUT), **_OPTIONS)
def _people(
    numbers: Any, seed: Any, column: int, hot_offset: int, active: int, ahead: int, out: Any
) -> None:
    for i in range(numbers.size):
        bits = draw(seed, column, numbers[i])
        newest = numbers[i] // EPOCH
        if bits >> np.uint64(62):
            out[i] = 1000 + newest // 100 * 100 + hot_offset
        else:
            recent = min(newest + 1, active)
            out[i] = 1000 + newest + 1 - recent + below(bits, recent + ahead)


def people(
    numbers: Int64s, seed: np.uint64, column: int, hot_offset: int, active: int, ahead: int
) -> Int64s:
    """Bidders (hot_offset 1) and sellers (0): three in four are the hot person."""
    out = np.empty_like(numbers)
    _people(numbers, seed, column, hot_offset, active, ahead, out)
    return out


@njit(void(*_DRAW, _OUT), **_OPTIONS)
def _prices(numbers: Any, seed: Any, column: int, out: Any) -> None:
    for i in range(numbers.size):
        u = np.float64(draw(seed, column, numbers[i]) >> _S11) * _UNIT
        out[i] = np.int64(np.exp(u * _LN_MILLION) * 100.0 + 0.5)


def prices(numbers: Int64s, seed: np.uint64, column: int) -> Int64s:
    """round(100 * 10**(6u)), u uniform in [0, 1)."""
    out = np.empty_like(numbers)
    _prices(numbers, seed, column, out)
    return out


@njit(void(*_DRAW, int64, int64, _OUT), **_OPTIONS)
def _uniform(numbers: Any, seed: Any, column: int, low: int, bound: int, out: Any) -> None:
    for i in range(numbers.size):
        out[i] = low + below(draw(seed, column, numbers[i]), bound)


def uniform(numbers: Int64s, seed: np.uint64, column: int, low: int, bound: int) -> Int64s:
    """low + uniform in 0..bound-1."""
    out = np.empty_like(numbers)
    _uniform(numbers, seed, column, low, bound, out)
    return out


@njit(void(*_DRAW, int64, int64, int64, _OUT), **_OPTIONS)
def _expiries(
    numbers: Any, seed: Any, column: int, base_ms: int, rate: int, ahead: int, out: Any
) -> None:
    for i in range(numbers.size):
        now = base_ms + numbers[i] * 1000 // rate
        horizon = base_ms + (numbers[i] + ahead) * 1000 // rate - now
        out[i] = now + 1 + below(draw(seed, column, numbers[i]), max(2 * horizon, 1))


def expiries(
    numbers: Int64s, seed: np.uint64, column: int, base_ms: int, rate: int, ahead: int
) -> Int64s:
    """Event time + 1 + uniform in [0, 2h) ms, h: the time of the next `ahead` events."""
    out = np.empty_like(numbers)
    _expiries(numbers, seed, column, base_ms, rate, ahead, out)
    return out


@njit(void(*_DRAW, int64, int64, _OUT), **_OPTIONS)
def _channels(numbers: Any, seed: Any, column: int, hot: int, cold: int, out: Any) -> None:
    for i in range(numbers.size):
        bits = draw(seed, column, numbers[i])
        if bits >> np.uint64(63):
            out[i] = below(bits, hot)
        else:
            out[i] = hot + below(bits, cold)


def channels(numbers: Int64s, seed: np.uint64, column: int, hot: int, cold: int) -> Int64s:
    """Row of the channel table: 0..hot-1 for half the bids, else hot..hot+cold-1."""
    out = np.empty_like(numbers)
    _channels(numbers, seed, column, hot, cold, out)
    return out


@njit(void(*_DRAW, _IN, _IN, int64, _OUT, _OFFSETS), **_OPTIONS)
def _slices(
    numbers: Any,
    seed: Any,
    column: int,
    low: Any,
    spread: Any,
    pool: int,
    starts: Any,
    offsets: Any,
) -> None:
    end = 0
    offsets[0] = 0
    for i in range(numbers.size):
        bits = draw(seed, column, numbers[i])
        j = i if low.size > 1 else 0
        length = low[j] + below(bits, spread[j])
        starts[i] = below(bits >> _S32, pool - length)
        end += length
        offsets[i + 1] = end


def slices(
    numbers: Int64s, seed: np.uint64, column: int, low: Int64s, spread: Int64s, pool: int
) -> tuple[Int64s, Offsets]:
    """Random slices of a pool of `pool` bytes: lengths low[i] + uniform in 0..spread[i]-1 (one
    entry of `low` and `spread` for all rows, or one each). Returns starts and offsets."""
    starts, offsets = np.empty_like(numbers), np.empty(len(numbers) + 1, dtype=np.int32)
    _slices(numbers, seed, column, low, spread, pool, starts, offsets)
    return starts, offsets


@njit(void(_IN, _IN, _OUT, _OFFSETS), **_OPTIONS)
def _table_rows(rows: Any, table_offsets: Any, starts: Any, offsets: Any) -> None:
    end = 0
    offsets[0] = 0
    for i in range(rows.size):
        first = table_offsets[rows[i]]
        starts[i] = first
        end += table_offsets[rows[i] + 1] - first
        offsets[i + 1] = end


def table_rows(rows: Int64s, table_offsets: Int64s) -> tuple[Int64s, Offsets]:
    """Starts and offsets of the strings in these rows of a string table."""
    starts, offsets = np.empty_like(rows), np.empty(len(rows) + 1, dtype=np.int32)
    _table_rows(rows, table_offsets, starts, offsets)
    return starts, offsets


@njit(inline="always")
def _put_view(text: Any, start: Any, length: Any, views: Any, i: Any) -> None:
    """Arrow's view of text[start : start + length]: length, then up to 12 bytes of it; of longer
    ones the first 4, which buffer (0), and where in it."""
    views[4 * i] = length
    if length > INLINE:
        views[4 * i + 1] = _word(text, start)
        views[4 * i + 2] = 0
        views[4 * i + 3] = start
        return
    for word in range(3):
        packed = np.uint32(0)
        for at in range(4 * word, min(4 * word + 4, length)):
            packed |= np.uint32(text[start + at]) << np.uint32(8 * (at - 4 * word))
        views[4 * i + 1 + word] = np.int32(packed)


@njit(inline="always")
def _word(text: Any, start: Any) -> Any:
    """Four bytes as a little-endian number."""
    word = np.uint32(text[start]) | np.uint32(text[start + 1]) << np.uint32(8)
    word |= np.uint32(text[start + 2]) << np.uint32(16)
    return np.int32(word | np.uint32(text[start + 3]) << np.uint32(24))


@njit(void(*_DRAW, _IN, _IN, int64, _BYTES_IN, _VIEWS), **_OPTIONS)
def _slice_views(
    numbers: Any,
    seed: Any,
    column: int,
    low: Any,
    spread: Any,
    pool: int,
    text: Any,
    views: Any,
) -> None:
    for i in range(numbers.size):
        bits = draw(seed, column, numbers[i])
        j = i if low.size > 1 else 0
        length = low[j] + below(bits, spread[j])
        _put_view(text, below(bits >> _S32, pool - length), length, views, i)


def slice_views(
    numbers: Int64s,
    seed: np.uint64,
    column: int,
    low: Int64s,
    spread: Int64s,
    pool: int,
    text: Bytes,
) -> Views:
    """The same slices as `slices`, as Arrow's views of `text`, the pool."""
    views = np.empty(4 * len(numbers), dtype=np.int32)
    _slice_views(numbers, seed, column, low, spread, pool, text, views)
    return views


@njit(void(_BYTES_IN, _IN, _VIEWS), **_OPTIONS)
def _text_views(text: Any, ends: Any, views: Any) -> None:
    start = 0
    for i in range(ends.size):
        _put_view(text, start, ends[i] - start, views, i)
        start = ends[i]


def text_views(text: Bytes, ends: Int64s) -> Views:
    """Arrow's views of strings that lie one after the other in `text`, by where each ends."""
    views = np.empty(4 * len(ends), dtype=np.int32)
    _text_views(text, ends, views)
    return views


@njit(int64(_IN, _KINDS, _OFFSETS, _OUT, _OUT, _OUT), **_OPTIONS)
def _by_kind(numbers: Any, kinds: Any, places: Any, persons: Any, auctions: Any, bids: Any) -> int:
    person, auction = 0, 0
    for i in range(numbers.size):
        slot = numbers[i] % EPOCH
        bid = i - person - auction
        if slot > 3:
            kinds[i], places[i], bids[bid] = 2, bid, numbers[i]
        elif slot > 0:
            kinds[i], places[i], auctions[auction] = 1, auction, numbers[i]
            auction += 1
        else:
            kinds[i], places[i], persons[person] = 0, person, numbers[i]
            person += 1
    packed: int = person * (numbers.size + 1) + auction
    return packed


def by_kind(numbers: Int64s) -> tuple[Kinds, Offsets, list[Int64s]]:
    """Of each event its kind (0 person, 1 auction, 2 bid) and how many of that are before it; and
    of each kind its numbers."""
    count = len(numbers)
    kinds, places = np.empty(count, np.uint8), np.empty(count, np.int32)
    persons, auctions, bids = (np.empty(count, np.int64) for _ in range(3))
    found = _by_kind(numbers, kinds, places, persons, auctions, bids)
    person, auction = divmod(found, count + 1)
    return kinds, places, [persons[:person], auctions[:auction], bids[: count - person - auction]]


@intrinsic
def _copy_chunk(typing: Any, out: Any, at: Any, source: Any, start: Any) -> Any:
    """out[at : at + CHUNK] = source[start : start + CHUNK], as a few vector moves.

    A byte loop takes 80 ns for a URL, this 5 ns; numba has no memory copy of its own.
    """
    from numba.core import cgutils, types

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to_array, to_index, from_array, from_index = (
            context.make_array(kind)(context, builder, value) if hasattr(kind, "dtype") else value
            for kind, value in zip(signature.args, args, strict=True)
        )
        target = builder.gep(to_array.data, [to_index])
        origin = builder.gep(from_array.data, [from_index])
        cgutils.raw_memcpy(builder, target, origin, context.get_constant(types.intp, CHUNK), 1)
        return context.get_dummy_value()

    return types.void(out, types.intp, source, types.intp), generate


@njit(void(_BYTES_IN, _IN, _OFFSETS_IN, uint8[::1]), **_OPTIONS)
def _copy_strings(source: Any, starts: Any, offsets: Any, out: Any) -> None:
    for i in range(starts.size):
        start = starts[i] - offsets[i]
        for at in range(offsets[i], offsets[i + 1], CHUNK):
            _copy_chunk(out, at, source, start + at)


def copy_strings(source: Bytes, starts: Int64s, offsets: Offsets) -> Bytes:
    """The bytes source[starts[i] : starts[i] + length i], one after the other.

    Copies whole chunks, so `source` must have CHUNK bytes to spare behind its last string; what is
    written past the end of a string is overwritten by the next one.
    """
    total = int(offsets[-1])
    out = np.empty(total + CHUNK, dtype=np.uint8)
    _copy_strings(source, starts, offsets, out)
    return out[:total]
