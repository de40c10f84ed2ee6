"""Rows by key and time, for joins on an interval: chains of rows, newest first, in a table that
grows with every row.

Time is cut into buckets of `width` ms, and rows of one key and bucket hang in one chain, whose
newest row is in `heads` (-1: none), at a cell made of key and bucket. Chains may share a cell, so
rows found are compared. Rows are numbered in order of arrival. Those below `first` are forgotten: a
chain ends there.

The table has any number of cells (linear hashing): while there are between 2^k and 2^(k + 1), a
hash names the cell of its last k + 1 bits, or k if there is none. One more cell takes its rows
from the chain of the one with k bits. So growing costs each insertion a little, and none much.

Row r is three words, (key, time, link), in the page `pages[r >> BITS]` of `ring` (modulo the number
of pages, a power of two). Twin of all in `reference_intervals`.

`words` are the keys (or hashes of them).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.native import int64, njit, void
from ...state.gather_kernels import AHEAD, fetch
from .signatures import INTS, INTS_IN, OPTIONS

MAX, MIN = 2**63 - 1, -(2**63)
ROW, FOUND = 0, 1
"""In a probe's progress: the next row to probe, and how many pairs were written."""

BITS = 14
PAGE = 1 << BITS
"""Rows of a page."""

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)
_C3 = np.uint64(0xA24BAED4963EE407)
_HIGH = np.uint64(24)
"""The product's bits from here on are the hash."""


@njit(inline="always")
def _mask(cells: Any) -> Any:
    """The bits that name a cell among so many: of the least power of two that is not less."""
    size = 1
    while size < cells:
        size *= 2
    return size - 1


@njit(inline="always")
def _cell(word: Any, bucket: Any, cells: Any, mask: Any) -> Any:
    h = np.uint64(word) * _C1 + np.uint64(bucket) * _C3
    h ^= h >> np.uint64(32)
    cell = np.int64((h * _C2) >> _HIGH) & mask
    return cell if cell < cells else cell & (mask >> 1)


@njit(inline="always")
def _place(number: Any, pages: Any) -> Any:
    """Where a row begins in the ring."""
    page = pages[(number >> BITS) & (len(pages) - 1)]
    return 3 * ((page << BITS) + (number & (PAGE - 1)))


@njit(inline="always")
def _plus(time: Any, by: Any) -> Any:
    """time + by, at most the ends of int64."""
    if by >= 0:
        return time + by if time <= MAX - by else MAX
    return time + by if time >= MIN - by else MIN


@njit([void(INTS_IN, INTS_IN, int64, int64, int64, INTS_IN, INTS, INTS)], **OPTIONS)
def insert_rows(
    words: Any,
    stamps: Any,
    number: int,
    width: int,
    cells: int,
    pages: Any,
    heads: Any,
    ring: Any,
) -> None:
    """Rows `number`, `number + 1`, ... with these keys and times. Their pages are there."""
    mask = _mask(cells)
    for i in range(len(words)):
        at = _place(number + i, pages)
        cell = _cell(words[i], stamps[i] // width, cells, mask)
        ring[at] = words[i]
        ring[at + 1] = stamps[i]
        ring[at + 2] = heads[cell]
        heads[cell] = number + i


@njit([void(int64, int64, int64, int64, INTS_IN, INTS, INTS)], **OPTIONS)
def split_cells(
    cells: int, more: int, first: int, width: int, pages: Any, heads: Any, ring: Any
) -> None:
    """Make cells `cells`, `cells + 1`, ... `more - 1`, with their rows."""
    mask = _mask(cells)
    memory = ring.ctypes.data
    for new in range(cells, more):
        if new > mask:
            mask = 2 * mask + 1
        old = new & (mask >> 1)
        ahead = heads[old + AHEAD] if old + AHEAD < cells else -1
        if ahead >= first:
            fetch(memory + 8 * _place(ahead, pages))
        number = heads[old]
        ends = (-1, -1)  # The last row of the old cell's chain so far, and of the new one's.
        heads[old] = heads[new] = -1
        while number >= first:
            at = _place(number, pages)
            mine = _cell(ring[at], ring[at + 1] // width, new + 1, mask) == new
            end = ends[1] if mine else ends[0]
            if end >= 0:
                ring[end] = number
            else:
                heads[new if mine else old] = number
            ends = (ends[0], at + 2) if mine else (at + 2, ends[1])
            number = ring[at + 2]
        for end in ends:
            if end >= 0:
                ring[end] = -1


@njit([void(int64, int64, int64, int64, INTS_IN, INTS, INTS)], **OPTIONS)
def sweep_cells(
    begin: int, end: int, first: int, until: int, pages: Any, heads: Any, ring: Any
) -> None:
    """Take the rows of a time up to `until` out of the chains of these cells."""
    for cell in range(begin, end):
        number = heads[cell]
        heads[cell] = last = -1
        while number >= first:
            at = _place(number, pages)
            if ring[at + 1] > until:
                if last >= 0:
                    ring[last] = number
                else:
                    heads[cell] = number
                last = at + 2
            number = ring[at + 2]
        if last >= 0:
            ring[last] = -1


@njit(
    [
        void(
            INTS_IN, INTS_IN, int64, int64, int64, int64, int64,
            INTS_IN, INTS_IN, INTS_IN, INTS, INTS, INTS,
        )
    ],
    **OPTIONS,
)  # fmt: skip
def probe_rows(
    words: Any,
    stamps: Any,
    lower: int,
    upper: int,
    first: int,
    width: int,
    cells: int,
    pages: Any,
    heads: Any,
    ring: Any,
    progress: Any,
    probing: Any,
    found: Any,
) -> None:
    """Pairs (probing row, number of a row of its key from `lower` to `upper` after it), into
    `probing` and `found` until the next row's pairs have no room; from row progress[ROW] on, which
    becomes the next row. A probing row's pairs are never torn apart."""
    mask = _mask(cells)
    written = 0
    row = progress[ROW]
    memory = heads.ctypes.data
    while row < len(words):
        ahead = row + AHEAD
        if ahead < len(words):
            soon = _cell(words[ahead], _plus(stamps[ahead], lower) // width, cells, mask)
            fetch(memory + 8 * soon)
        begin = written
        word, low, high = words[row], _plus(stamps[row], lower), _plus(stamps[row], upper)
        bucket, last = low // width, high // width
        done = lower > 0 and stamps[row] > MAX - lower  # The interval is beyond the end of time,
        done = done or (upper < 0 and stamps[row] < MIN - upper)  # or its beginning.
        while not done:
            number = heads[_cell(word, bucket, cells, mask)]
            while number >= first:
                at = _place(number, pages)
                time = ring[at + 1]
                if ring[at] == word and low <= time and time <= high and time // width == bucket:
                    if written == len(found):
                        progress[ROW], progress[FOUND] = row, begin
                        return
                    probing[written] = row
                    found[written] = number
                    written += 1
                number = ring[at + 2]
            done = bucket >= last
            bucket += 1
        row += 1
    progress[ROW], progress[FOUND] = row, written
