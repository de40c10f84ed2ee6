"""Plain Python twins of `operators.kernels.whole_sums`: the sums are Python's, which are exact."""

from __future__ import annotations

from typing import Any


def whole_sum_into(
    slots: Any, values: Any, unsigned: bool, valid: Any, sums: Any, rests: Any, counts: Any
) -> None:
    for i, s in enumerate(slots):
        if not len(valid) or valid[i]:
            _add(sums, rests, s, _value(values[i], unsigned))
            counts[s] += 1


def whole_sum_out(
    slots: Any, values: Any, unsigned: bool, valid: Any, sums: Any, rests: Any, counts: Any
) -> None:
    for i, s in enumerate(slots):
        if not len(valid) or valid[i]:
            _add(sums, rests, s, -_value(values[i], unsigned))
            counts[s] -= 1
            if counts[s] == 0:
                sums[s] = rests[s] = 0.0


def merge_whole_sums(slots: Any, sums_in: Any, rests_in: Any, sums: Any, rests: Any) -> None:
    for i, s in enumerate(slots):
        _add(sums, rests, s, int(sums_in[i]) + int(rests_in[i]))


def running_whole_sum(
    slots: Any,
    values: Any,
    unsigned: bool,
    valid: Any,
    sums: Any,
    rests: Any,
    seen: Any,
    out: Any,
    out_valid: Any,
) -> None:
    for i, s in enumerate(slots):
        if not len(valid) or valid[i]:
            _add(sums, rests, s, _value(values[i], unsigned))
            seen[s] = True
        out[i], out_valid[i] = sums[s], seen[s]


def _value(bits: Any, unsigned: bool) -> int:
    return int(bits) % 2**64 if unsigned else int(bits)


def _add(sums: Any, rests: Any, s: Any, value: int) -> None:
    total = int(sums[s]) + int(rests[s]) + value
    sums[s] = float(total)
    rests[s] = float(total - int(float(total)))
