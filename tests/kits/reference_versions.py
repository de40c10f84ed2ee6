"""What the kernels of `versions` do, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

MIN = -(2**63)


def valid_at(slots: Sequence[int], times: Sequence[int], slot: int, asked: int) -> int:
    """The row of a slot with the greatest time not beyond `asked`, the last of equal ones; -1."""
    best = -1
    for row, (mine, time) in enumerate(zip(slots, times, strict=True)):
        if mine == slot and time <= asked and (best < 0 or time >= times[best]):
            best = row
    return best


def useful(
    slots: Sequence[int], times: Sequence[int], ends: Sequence[bool], watermark: int
) -> list[bool]:
    """Which versions may still be found by records of times beyond the watermark: the later ones,
    and the one valid at it, unless that is an end of validity."""
    kept = []
    for row, (slot, time) in enumerate(zip(slots, times, strict=True)):
        valid = valid_at(slots, times, slot, watermark) == row
        kept.append(time > watermark or (valid and not ends[row]))
    return kept
