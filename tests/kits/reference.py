"""The kernels in plain Python: what each must compute, row by row. Tests hold the two equal."""

from __future__ import annotations

from typing import Any

import numpy as np

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def _rows(slots: Any, valid: Any) -> list[tuple[int, int]]:
    return [(i, int(s)) for i, s in enumerate(slots) if not len(valid) or valid[i]]


def better(value: Any, than: Any, largest: bool) -> bool:
    if largest:
        return bool(value > than or (value != value and than == than))
    return bool(value < than or (than != than and value == value))


def count_into(slots: Any, valid: Any, counts: Any) -> None:
    for _, s in _rows(slots, valid):
        counts[s] += 1


def add_into(slots: Any, values: Any, acc: Any) -> None:
    for s, value in zip(slots, values, strict=True):
        acc[s] += value


def _plus(total: Any, value: Any) -> tuple[Any, bool]:
    """The sum as the array holds it (integers wrap), and whether an integer sum overflowed."""
    if isinstance(value, np.floating):
        return total + value, False
    exact = int(total) + int(value)
    wrapped = (exact - INT64_MIN) % 2**64 + INT64_MIN
    return wrapped, wrapped != exact


def sum_into(slots: Any, values: Any, valid: Any, acc: Any, seen: Any) -> bool:
    overflow = False
    for i, s in _rows(slots, valid):
        acc[s], over = _plus(acc[s], values[i])
        seen[s] = True
        overflow = overflow or over
    return overflow


def mean_into(slots: Any, values: Any, valid: Any, acc: Any, counts: Any) -> None:
    for i, s in _rows(slots, valid):
        acc[s] += values[i]
        counts[s] += 1


def extreme_into(slots: Any, values: Any, valid: Any, acc: Any, seen: Any, largest: bool) -> None:
    for i, s in _rows(slots, valid):
        if not seen[s] or better(values[i], acc[s], largest):
            acc[s] = values[i]
            seen[s] = True


def earliest_into(
    slots: Any, values: Any, valid: Any, numbers: Any, acc: Any, best: Any, latest: bool
) -> None:
    for i, s in _rows(slots, valid):
        if best[s] < 0 or (numbers[i] > best[s] if latest else numbers[i] <= best[s]):
            acc[s], best[s] = values[i], numbers[i]


def arg_extreme_into(
    slots: Any, values: Any, valid: Any, rows: Any, acc: Any, seen: Any, largest: bool
) -> None:
    for i, s in _rows(slots, valid):
        if not seen[s] or better(values[i], acc[s], largest):
            acc[s], rows[s], seen[s] = values[i], i, True


def candidates(
    slots: Any,
    values: Any,
    valid: Any,
    acc: Any,
    seen: Any,
    largest: bool,
    ties: bool,
    chosen: Any,
) -> None:
    before = {int(s): (acc[s], bool(seen[s])) for s in slots}
    extreme_into(slots, values, valid, acc, seen, largest)
    chosen[:] = False
    done = set()
    for i, s in _rows(slots, valid):
        same = not better(acc[s], values[i], largest)
        if ties:
            chosen[i] = same
            continue
        old, known = before[s]
        if same and s not in done and (not known or better(values[i], old, largest)):
            chosen[i] = True
            done.add(s)


def running_sum(
    slots: Any, values: Any, valid: Any, acc: Any, seen: Any, out: Any, out_valid: Any
) -> bool:
    overflow = False
    for i, s in enumerate(slots):
        if not len(valid) or valid[i]:
            acc[s], over = _plus(acc[s], values[i])
            seen[s] = True
            overflow = overflow or over
        out[i], out_valid[i] = acc[s], seen[s]
    return overflow


def running_extreme(
    slots: Any,
    values: Any,
    valid: Any,
    acc: Any,
    seen: Any,
    largest: bool,
    out: Any,
    out_valid: Any,
) -> None:
    for i, s in enumerate(slots):
        at = slice(i, i + 1)
        extreme_into(slots[at], values[at], valid[at], acc, seen, largest)
        out[i], out_valid[i] = acc[s], seen[s]


def running_holder(
    slots: Any,
    values: Any,
    valid: Any,
    acc: Any,
    seen: Any,
    held: Any,
    largest: bool,
    takes: Any,
) -> None:
    for i, s in enumerate(slots):
        wins = (not len(valid) or valid[i]) and (not seen[s] or better(values[i], acc[s], largest))
        takes[i] = wins or not held[s]
        held[s] = True
        if wins:
            acc[s], seen[s] = values[i], True


def running_record(slots: Any, takes: Any, values: Any, acc: Any, out: Any) -> None:
    for i, s in enumerate(slots):
        if takes[i]:
            acc[s] = values[i]
        out[i] = acc[s]


def slice_ends(timestamps: Any, offset: int, slide: int, head: int, ends: Any) -> None:
    for i, ts in enumerate(timestamps):
        into = (int(ts) - offset) % slide
        ends[i] = int(ts) - into + (head if into < head else slide)


def group_runs(ends: Any, starts: Any, count: Any) -> bool:
    if (np.diff(ends) < 0).any():
        return False
    at = [i for i in range(len(ends)) if i == 0 or ends[i] != ends[i - 1]]
    starts[: len(at)] = at
    count[0] = len(at)
    return True
