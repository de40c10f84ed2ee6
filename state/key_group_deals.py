"""Key groups dealt to subtasks by load: contiguous ranges whose busiest has as little as can be.

`range_for` gives each subtask as many groups as the others, which is even only where groups are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt
from typing import Final

from ..core.errors import ConfigurationError
from ..core.ids import EVEN, Deal, KeyGroupRange
from .key_groups import range_for

WORTH: Final = 0.02
"""As of `worth`, of many records."""


@dataclass(frozen=True)
class Balance:
    """What the busiest of a vertex's subtasks gets of its records, as a share: `before`, and
    `after` if keys stay as frequent as they were. `limit`: what keeps it from being less, though
    it is more than its part; empty: nothing that is known."""

    before: float
    after: float
    limit: str = ""


def deal(loads: Sequence[int], parallelism: int) -> list[KeyGroupRange]:
    """One range for each subtask, none of them empty, in order; no other contiguous ranges have a
    smaller maximal load. `loads`: of each key group, at least 0.

    Exact: by bisection over the greatest load that one may have, with the least number of ranges
    for it: each takes groups until the next would be too much. Below that each has about as much as
    those behind it.

    >>> [(r.first, r.last) for r in deal([9, 1, 1, 1, 1, 5], 3)]
    [(0, 0), (1, 4), (5, 5)]
    >>> [(r.first, r.last) for r in deal([9, 1, 1, 1, 1, 1], 3)]
    [(0, 0), (1, 2), (3, 5)]
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
        if _fits(sums, parallelism, middle):
            high = middle
        else:
            low = middle + 1
    ends = _evened(sums, parallelism, low)
    starts = [0, *ends[:-1]]
    return [KeyGroupRange(first, end - 1) for first, end in zip(starts, ends, strict=True)]


def as_deal(ranges: Sequence[KeyGroupRange]) -> Deal:
    """EVEN if they are those of `even_deal`."""
    if list(ranges) == even_deal(len(ranges), ranges[-1].last + 1):
        return EVEN
    return tuple(groups.first for groups in ranges)


def ranges_of(deal: Deal, parallelism: int, max_parallelism: int) -> list[KeyGroupRange]:
    """What each subtask has."""
    return [
        range_for(subtask, parallelism, max_parallelism, deal) for subtask in range(parallelism)
    ]


def loads_of(loads: Sequence[int], ranges: Sequence[KeyGroupRange]) -> list[int]:
    """What each range has."""
    sums = [0, *accumulate(loads)]
    return [sums[groups.last + 1] - sums[groups.first] for groups in ranges]


def even_deal(parallelism: int, max_parallelism: int) -> list[KeyGroupRange]:
    """As groups are dealt without loads."""
    return ranges_of(EVEN, parallelism, max_parallelism)


def worth(records: int) -> float:
    """Of so many that were counted so many more have to be with the busiest subtask than need be,
    before a job that has the right parallelism is dealt anew. Of few that is more: two standard
    deviations of a count that is half of them, as the next ones will not be quite like these."""
    return max(WORTH * records, sqrt(records))


def best_deal(loads: Sequence[int], now: Deal, before: int, parallelism: int) -> Deal:
    """Of `parallelism` subtasks, where `before` have the groups as of `now`: that of now if it is
    as good as any, an even one if that is, else that of `deal`."""
    total, groups = sum(loads), len(loads)
    found = deal(loads, parallelism)
    least = max(loads_of(loads, found))
    if parallelism == before:
        busiest = max(loads_of(loads, ranges_of(now, before, groups)))
        if busiest - least <= worth(total):
            return now
    if max(loads_of(loads, even_deal(parallelism, groups))) == least:
        return EVEN
    return as_deal(found)


def _fits(sums: Sequence[int], parallelism: int, most: int) -> bool:
    """Whether so many ranges are enough for all, with at most `most` each. That some may be without
    groups does no harm: there are enough groups, and part of a range has no more than all of it."""
    start = 0
    for _ in range(parallelism):
        start = bisect_right(sums, sums[start] + most) - 1
    return start == len(sums) - 1


def _evened(sums: Sequence[int], parallelism: int, most: int) -> list[int]:
    """Where ranges end that have at most `most` each, none of them empty: of the ends that leave
    the others a way to do so, the one nearest to an equal part of what is left."""
    groups, total = len(sums) - 1, sums[-1]
    earliest = [groups]
    """From where on so many ranges are enough for what is left."""
    for _ in range(parallelism - 1):
        earliest.append(bisect_left(sums, sums[earliest[-1]] - most))
    ends, start = list[int](), 0
    for left in range(parallelism - 1, 0, -1):
        low = max(start + 1, earliest[left])
        high = min(bisect_right(sums, sums[start] + most) - 1, groups - left)
        part = sums[start] + (total - sums[start]) // (left + 1)
        above = bisect_left(sums, part, lo=start)
        below = max(start, above - 1)
        near = above if sums[above] - part <= part - sums[below] else below
        start = min(max(near, low), high)
        ends.append(start)
    return [*ends, groups]
