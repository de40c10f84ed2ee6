"""Key groups dealt to subtasks by load: contiguous ranges whose busiest has as little as can be.

`range_for` gives each subtask as many groups as the others, which is even only where groups are.
Nothing deals by load yet: it is what a rescale would ask.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from ..core.errors import ConfigurationError
from ..core.ids import KeyGroupRange
from .key_groups import range_for


def deal(loads: Sequence[int], parallelism: int) -> list[KeyGroupRange]:
    """One range for each subtask, none of them empty, in order; no other contiguous ranges have a
    smaller maximal load. `loads`: of each key group, at least 0.

    Exact: by bisection over the greatest load that one may have, with the least number of ranges
    for it: each takes groups until the next would be too much.

    >>> [(r.first, r.last) for r in deal([9, 1, 1, 1, 1, 5], 3)]
    [(0, 0), (1, 4), (5, 5)]
    """
    if not 1 <= parallelism <= len(loads):
        raise ConfigurationError(
            f"need 1 <= parallelism <= key groups, have parallelism {parallelism} and "
            f"{len(loads)} key groups"
        )
    if min(loads) < 0:
        raise ConfigurationError(f"loads of key groups are at least 0, one is {min(loads)}")
    sums = [0, *accumulate(loads)]
    low, high = max(max(loads), -(-sums[-1] // parallelism)), sums[-1]
    while low < high:
        middle = (low + high) // 2
        if _cut(sums, parallelism, middle) is None:
            low = middle + 1
        else:
            high = middle
    ends = _cut(sums, parallelism, low)
    assert ends is not None
    starts = [0, *ends[:-1]]
    return [KeyGroupRange(first, end - 1) for first, end in zip(starts, ends, strict=True)]


def loads_of(loads: Sequence[int], ranges: Sequence[KeyGroupRange]) -> list[int]:
    """What each range has."""
    sums = [0, *accumulate(loads)]
    return [sums[groups.last + 1] - sums[groups.first] for groups in ranges]


def even_deal(parallelism: int, max_parallelism: int) -> list[KeyGroupRange]:
    """As groups are dealt without loads."""
    return [range_for(subtask, parallelism, max_parallelism) for subtask in range(parallelism)]


def moved(before: Sequence[KeyGroupRange], after: Sequence[KeyGroupRange]) -> int:
    """How many key groups another subtask would own, whose state it would have to get."""
    stay = sum(
        max(0, min(a.last, b.last) - max(a.first, b.first) + 1)
        for a, b in zip(before, after, strict=False)
    )
    return sum(len(groups) for groups in after) - stay


def _cut(sums: Sequence[int], parallelism: int, most: int) -> list[int] | None:
    """Where ranges end that have at most `most` each, as many as there are subtasks; None: it takes
    more of them. So many groups are left over that each later subtask gets one."""
    groups, ends, start = len(sums) - 1, list[int](), 0
    for left in range(parallelism - 1, -1, -1):
        end = min(bisect_right(sums, sums[start] + most) - 1, groups - left)
        ends.append(end)
        start = end
    return ends if ends[-1] == groups else None
