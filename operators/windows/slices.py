"""Records by the slices of `plan.slicing` that hold them."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Int64s
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import TypeMismatchError
from ...plan.slicing import Slicing


def slice_ends(slicing: Slicing, timestamps: Int64s) -> Int64s:
    """The end of the slice that holds each timestamp."""
    from ..kernels.slices import slice_ends

    ends = np.empty(len(timestamps), dtype=np.int64)
    stamps = np.ascontiguousarray(timestamps, dtype=np.int64)
    slice_ends(stamps, slicing.offset, slicing.slide, slicing.head, ends)
    return ends


def check_time(slicing: Slicing, name: str, timestamp: int) -> None:
    """TypeMismatchError of the operator `name` for a time whose windows begin or end beyond all
    timestamps."""
    windows = slicing.window_ends(slicing.slice_end(timestamp))
    if not windows:
        return
    first = slicing.window_start(windows[0])
    if first < MIN_TIMESTAMP or windows[-1] > MAX_TIMESTAMP:
        raise TypeMismatchError(
            f"window operator '{name}': the windows of a record at {timestamp} ms are "
            f"from {first} to {windows[-1]}, beyond {MIN_TIMESTAMP} or {MAX_TIMESTAMP}"
        )


def runs_by_slice(ends: Int64s) -> tuple[Int64s | None, list[tuple[int, int, int]]]:
    """Rows grouped by slice, slices ascending: (order, [(slice end, start, stop)]).

    `order` is the permutation of rows to which start and stop refer (stable), or None when the rows
    are in order of slices already, as they are when records come roughly in order of time."""
    from ..kernels.slices import group_runs

    starts, count = np.empty(len(ends), dtype=np.int64), np.zeros(1, dtype=np.int64)
    order: Int64s | None = None
    if not group_runs(ends, starts, count):
        order = np.argsort(ends, kind="stable")
        ends = ends[order]
        group_runs(ends, starts, count)
    begins = starts[: count[0]].tolist()
    stops = [*begins[1:], len(ends)]
    return order, [(int(ends[b]), b, e) for b, e in zip(begins, stops, strict=True)]
