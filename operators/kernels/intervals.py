"""Rows by key and time, for joins on an interval: chains of rows in a ring, newest first.

Rows are numbered in order of arrival; row r is at `r & (len(ring) - 1)`. Time is cut into buckets
of `width` ms, and rows of one key and bucket hang in one chain, whose newest row is in `heads` (-1:
none), at a cell made of key and bucket. Chains may share a cell, so rows found are compared. Rows
below `first` are forgotten: a chain ends there, nothing is ever unlinked. Twin in
`reference_intervals`.

`words` are the keys (or hashes of them). `shift` = 64 - log2(len(heads)).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.native import int64, njit, void
from .signatures import INTS, INTS_IN, OPTIONS

MAX, MIN = 2**63 - 1, -(2**63)
ROW, FOUND = 0, 1
"""In a probe's progress: the next row to probe, and how many pairs were written."""

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)
_C3 = np.uint64(0xA24BAED4963EE407)


@njit(inline="always")
def _cell(word: Any, bucket: Any, shift: Any) -> Any:
    h = np.uint64(word) * _C1 + np.uint64(bucket) * _C3
    h ^= h >> np.uint64(32)
    return np.int64((h * _C2) >> np.uint64(shift))


@njit(inline="always")
def _plus(time: Any, by: Any) -> Any:
    """time + by, at most the ends of int64."""
    if by >= 0:
        return time + by if time <= MAX - by else MAX
    return time + by if time >= MIN - by else MIN


@njit([void(INTS_IN, INTS_IN, int64, int64, int64, INTS, INTS, INTS, INTS)], **OPTIONS)
def insert_rows(
    words: Any,
    stamps: Any,
    number: int,
    width: int,
    shift: int,
    heads: Any,
    ring_words: Any,
    ring_stamps: Any,
    ring_links: Any,
) -> None:
    """Rows `number`, `number + 1`, ... with these keys and times. The ring has room for them."""
    mask = len(ring_words) - 1
    for i in range(len(words)):
        at = (number + i) & mask
        cell = _cell(words[i], stamps[i] // width, shift)
        ring_words[at] = words[i]
        ring_stamps[at] = stamps[i]
        ring_links[at] = heads[cell]
        heads[cell] = number + i


@njit(
    [
        void(
            INTS_IN, INTS_IN, int64, int64, int64, int64, int64,
            INTS_IN, INTS_IN, INTS_IN, INTS_IN, INTS, INTS, INTS,
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
    shift: int,
    heads: Any,
    ring_words: Any,
    ring_stamps: Any,
    ring_links: Any,
    progress: Any,
    probing: Any,
    found: Any,
) -> None:
    """Pairs (probing row, number of a row of its key from `lower` to `upper` after it), into
    `probing` and `found` until the next row's pairs have no room; from row progress[ROW] on, which
    becomes the next row. A probing row's pairs are never torn apart."""
    mask = len(ring_words) - 1
    written = 0
    row = progress[ROW]
    while row < len(words):
        begin = written
        word, low, high = words[row], _plus(stamps[row], lower), _plus(stamps[row], upper)
        bucket, last = low // width, high // width
        done = lower > 0 and stamps[row] > MAX - lower  # The interval is beyond the end of time,
        done = done or (upper < 0 and stamps[row] < MIN - upper)  # or its beginning.
        while not done:
            number = heads[_cell(word, bucket, shift)]
            while number >= first:
                at = number & mask
                time = ring_stamps[at]
                if (
                    ring_words[at] == word
                    and low <= time
                    and time <= high
                    and time // width == bucket
                ):
                    if written == len(found):
                        progress[ROW], progress[FOUND] = row, begin
                        return
                    probing[written] = row
                    found[written] = number
                    written += 1
                number = ring_links[at]
            done = bucket >= last
            bucket += 1
        row += 1
    progress[ROW], progress[FOUND] = row, written
