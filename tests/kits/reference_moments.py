"""What the kernels of `moments` do, in plain Python. Tests hold the two equal."""

from __future__ import annotations

from typing import Any

from reference import _plus, _rows, better


def moments_into(slots: Any, values: Any, valid: Any, n: Any, mean: Any, m2: Any) -> None:
    for i, s in _rows(slots, valid):
        n[s] += 1
        delta = values[i] - mean[s]
        mean[s] += delta / n[s]
        m2[s] += delta * (values[i] - mean[s])


def moments_out(slots: Any, values: Any, valid: Any, n: Any, mean: Any, m2: Any) -> None:
    for i, s in _rows(slots, valid):
        n[s] -= 1
        if n[s] == 0:
            mean[s], m2[s] = 0.0, 0.0
            continue
        delta = values[i] - mean[s]
        mean[s] -= delta / n[s]
        m2[s] = max(m2[s] - delta * (values[i] - mean[s]), 0.0)


def merge_moments(
    slots: Any, n_in: Any, mean_in: Any, m2_in: Any, n: Any, mean: Any, m2: Any
) -> None:
    for i, s in enumerate(slots):
        if n[s] == 0 and n_in[i]:
            n[s], mean[s], m2[s] = n_in[i], mean_in[i], m2_in[i]
        elif n_in[i]:
            total, delta = n[s] + n_in[i], mean_in[i] - mean[s]
            m2[s] += m2_in[i] + delta * delta * (n[s] * (n_in[i] / total))
            mean[s] += delta * (n_in[i] / total)
            n[s] = total


def counted_sum_into(slots: Any, values: Any, valid: Any, acc: Any, counts: Any) -> bool:
    overflow = False
    for i, s in _rows(slots, valid):
        acc[s], over = _plus(acc[s], values[i])
        counts[s] += 1
        overflow = overflow or over
    return overflow


def counted_sum_out(slots: Any, values: Any, valid: Any, acc: Any, counts: Any) -> None:
    for i, s in _rows(slots, valid):
        counts[s] -= 1
        acc[s] = 0 if counts[s] == 0 else acc[s] - values[i]


def count_out(slots: Any, valid: Any, counts: Any) -> None:
    for _, s in _rows(slots, valid):
        counts[s] -= 1


def held_value_into(
    slots: Any,
    by: Any,
    valid: Any,
    numbers: Any,
    values: Any,
    values_valid: Any,
    acc_by: Any,
    best: Any,
    acc: Any,
    acc_valid: Any,
    largest: bool,
) -> None:
    for i, s in _rows(slots, valid):
        earlier = numbers[i] < best[s] and not better(acc_by[s], by[i], largest)
        if best[s] < 0 or better(by[i], acc_by[s], largest) or earlier:
            acc_by[s], best[s], acc[s] = by[i], numbers[i], values[i]
            acc_valid[s] = not len(values_valid) or values_valid[i]


def carry_into(slots: Any, carried: Any, valid: Any, acc: Any, seen: Any, largest: bool) -> int:
    for i, s in _rows(slots, valid.copy()):
        if not seen[s]:
            acc[s], seen[s], valid[i] = carried[i], True, False
        elif better(carried[i], acc[s], largest):
            carried[i], acc[s] = acc[s], carried[i]
    return int(valid.sum())
