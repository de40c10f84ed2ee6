"""Kernels over frames: row i's aggregate is over rows starts[i] .. ends[i] - 1 of the same array.

Rows come key by key, each key's in order, so that within a key starts and ends never decrease; a
frame does not reach into another key's rows and is not empty. Twins in `reference_over`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, int64, njit, void
from .signatures import BOOLS, BOOLS_IN, FLOATS, FLOATS_IN, INTS, INTS_IN, OPTIONS, VALUES


@njit([void(FLOATS_IN, BOOLS_IN, INTS_IN, INTS_IN, FLOATS, FLOATS)], **OPTIONS)
def frame_sums(values: Any, valid: Any, starts: Any, ends: Any, suffix: Any, out: Any) -> None:
    """Float sums of the valid rows, without ever subtracting: what is far greater, infinite or NaN
    leaves no trace when it leaves the frame.

    A frame is a front part, for which sums from each of its rows to its end are stored, and a back
    part with one sum. When the front is used up, the back becomes the front.
    `suffix`: scratch, one entry per row of values."""
    dense = valid.size == 0
    split = 0  # rows before it are in the front part
    end = 0  # rows from `split` to it are in the back part
    back = 0.0
    for i in range(starts.size):
        start, stop = starts[i], ends[i]
        if start >= end:
            split, end, back = start, start, 0.0
        while end < stop:
            if dense or valid[end]:
                back += values[end]
            end += 1
        if start >= split:
            total = 0.0
            for row in range(end - 1, start - 1, -1):
                if dense or valid[row]:
                    total += values[row]
                suffix[row] = total
            split, back = end, 0.0
        out[i] = suffix[start] + back


@njit([void(INTS_IN, BOOLS_IN, INTS_IN, INTS_IN, boolean, INTS, INTS)], **OPTIONS)
def frame_extremes(
    words: Any, valid: Any, starts: Any, ends: Any, largest: bool, queue: Any, out: Any
) -> None:
    """The row with the greatest (or least) word among the valid ones, the first of several; -1.

    `queue`: scratch, one entry per word: the rows that may still be an extreme, best first."""
    dense = valid.size == 0
    head = tail = 0
    end = 0
    for i in range(starts.size):
        start, stop = starts[i], ends[i]
        if start >= end:
            head = tail = 0
            end = start
        while end < stop:
            if dense or valid[end]:
                word = words[end]
                while tail > head and (
                    words[queue[tail - 1]] < word if largest else words[queue[tail - 1]] > word
                ):
                    tail -= 1
                queue[tail] = end
                tail += 1
            end += 1
        while head < tail and queue[head] < start:
            head += 1
        out[i] = queue[head] if head < tail else -1


@njit([void(INTS_IN, INTS_IN, INTS_IN, int64, boolean, INTS, INTS)], **OPTIONS)
def range_frames(
    edges: Any, times: Any, rows: Any, length: int, peers: bool, starts: Any, ends: Any
) -> None:
    """Frames of `rows`, ascending: the rows of its key (rows edges[k] .. edges[k + 1] - 1, in order
    of time) from `length` before its time to itself, or with `peers` to the last of its time."""
    key = start = end = 0
    for i in range(rows.size):
        row = rows[i]
        while row >= edges[key + 1]:
            key += 1
        start = max(start, edges[key])
        while times[row] - times[start] > length:
            start += 1
        end = max(end, row + 1)
        if peers:
            while end < edges[key + 1] and times[end] == times[row]:
                end += 1
        starts[i] = start
        ends[i] = end if peers else row + 1


@njit([void(INTS_IN, v, BOOLS_IN, a, BOOLS, boolean, a, BOOLS) for v, a in VALUES], **OPTIONS)
def running_pick(
    slots: Any, values: Any, valid: Any, acc: Any, seen: Any, last: bool, out: Any, some: Any
) -> None:
    """out[i] = the slot's first (or last) valid value up to row i, some[i] = whether there is."""
    dense = valid.size == 0
    for i in range(slots.size):
        s = slots[i]
        if (dense or valid[i]) and (last or not seen[s]):
            acc[s] = values[i]
            seen[s] = True
        out[i] = acc[s]
        some[i] = seen[s]
