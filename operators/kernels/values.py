"""Kernels over the values of each group: how often each occurs, how many there are, the extremes.

A pair is one (group, value), numbered in order of first appearance. `heads[group]` and
`links[pair]` chain the pairs of a group, -1 at the end. Twins in `reference_values`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, int64, njit, void
from .signatures import BOOLS_IN, INTS, INTS_IN, OPTIONS


@njit([void(INTS_IN, int64, INTS, INTS)], **OPTIONS)
def chain_pairs(groups: Any, first: int, heads: Any, links: Any) -> None:
    """Chain the new pairs first, first + 1, ... of these groups."""
    for i in range(groups.size):
        links[first + i] = heads[groups[i]]
        heads[groups[i]] = first + i


@njit([boolean(INTS_IN, INTS_IN, BOOLS_IN, int64, INTS, INTS)], **OPTIONS)
def count_values(
    groups: Any, pairs: Any, valid: Any, sign: int, counts: Any, distinct: Any
) -> bool:
    """Add `sign` to counts[pair] for each valid row (`valid` empty: all); distinct[group] follows
    the number of its pairs whose count is not 0. What would make a count negative is left out;
    returns whether there was any such."""
    dense = valid.size == 0
    below = False
    for i in range(groups.size):
        if dense or valid[i]:
            p = pairs[i]
            old = counts[p]
            if old + sign < 0:
                below = True
                continue
            counts[p] = old + sign
            if old == 0:
                distinct[groups[i]] += 1
            elif old + sign == 0:
                distinct[groups[i]] -= 1
    return below


@njit([void(INTS_IN, INTS_IN, BOOLS_IN, INTS_IN, boolean, INTS)], **OPTIONS)
def raise_extremes(
    groups: Any, pairs: Any, valid: Any, words: Any, largest: bool, best: Any
) -> None:
    """best[group] = the pair with the greatest (or least) word of itself (-1: none) and the valid
    rows'. `words` by pair."""
    dense = valid.size == 0
    for i in range(groups.size):
        if dense or valid[i]:
            g, p = groups[i], pairs[i]
            b = best[g]
            if b < 0 or (words[p] > words[b] if largest else words[p] < words[b]):
                best[g] = p


@njit([void(INTS_IN, INTS_IN, INTS_IN, INTS_IN, INTS_IN, boolean, INTS)], **OPTIONS)
def find_extremes(
    groups: Any, heads: Any, links: Any, counts: Any, words: Any, largest: bool, best: Any
) -> None:
    """Where best[group] is no more (its count is 0): the best of the group's pairs that are."""
    for i in range(groups.size):
        g = groups[i]
        if best[g] < 0 or counts[best[g]] != 0:
            continue
        b = -1
        p = heads[g]
        while p >= 0:
            if counts[p] != 0 and (
                b < 0 or (words[p] > words[b] if largest else words[p] < words[b])
            ):
                b = p
            p = links[p]
        best[g] = b


@njit([int64(INTS_IN, INTS_IN, INTS_IN, INTS_IN, INTS)], **OPTIONS)
def collect_pairs(groups: Any, heads: Any, links: Any, counts: Any, out: Any) -> int:
    """The pairs of these groups, distinct, whose count is not 0, as far as they fit into `out`;
    returns how many there are."""
    total = 0
    for i in range(groups.size):
        p = heads[groups[i]]
        while p >= 0:
            if counts[p] != 0:
                if total < out.size:
                    out[total] = p
                total += 1
            p = links[p]
    return total
