"""What the kernels of `over` do, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence


def frame_sums(
    values: Sequence[float], valid: Sequence[bool], starts: Sequence[int], ends: Sequence[int]
) -> list[float]:
    return [
        sum((values[row] for row in range(start, end) if valid[row]), 0.0)
        for start, end in zip(starts, ends, strict=True)
    ]


def frame_extremes(
    words: Sequence[int],
    valid: Sequence[bool],
    starts: Sequence[int],
    ends: Sequence[int],
    largest: bool,
) -> list[int]:
    found = []
    for start, end in zip(starts, ends, strict=True):
        rows = [row for row in range(start, end) if valid[row]]
        best = (max if largest else min)(rows, key=lambda row: words[row], default=-1)
        found.append(best)
    return found


def range_frames(
    keys: Sequence[int], times: Sequence[int], rows: Sequence[int], length: int, peers: bool
) -> list[tuple[int, int]]:
    """(start, end) of the frame of each of `rows`."""
    found = []
    for row in rows:
        mine = [
            other
            for other in range(len(keys))
            if keys[other] == keys[row] and times[row] - length <= times[other] <= times[row]
        ]
        found.append((mine[0], (mine[-1] if peers else row) + 1))
    return found


def running_pick(
    slots: Sequence[int], values: Sequence[int | None], last: bool
) -> list[int | None]:
    """The slot's first (or last) value that is not null, up to each row."""
    held: dict[int, int] = {}
    found = []
    for slot, value in zip(slots, values, strict=True):
        if value is not None and (last or slot not in held):
            held[slot] = value
        found.append(held.get(slot))
    return found
