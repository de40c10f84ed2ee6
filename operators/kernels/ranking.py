"""Kernels of tables that keep the best rows per key: order words, ranked insertion, differences.

Order words: `width` int64 per row, row-major; a row comes before another if its words are less,
lexicographically. Entries of slot s are at s * n .. s * n + sizes[s] - 1 of `held_ids` (row ids)
and, times `width`, of `held_words`. Twins in `reference_ranking`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, int32, int64, njit
from .signatures import INTS, INTS_IN, OPTIONS

SMALL = int32[::1]


@njit(inline="always")
def precedes(left: Any, at: Any, right: Any, other: Any, width: Any) -> bool:
    """Whether words left[at:at+width] are less than right[other:other+width]."""
    for j in range(width):
        if left[at + j] != right[other + j]:
            return left[at + j] < right[other + j]  # type: ignore[no-any-return]
    return False


@njit(
    [
        int64(
            INTS_IN, INTS_IN, int64, boolean, INTS_IN, int64, INTS, SMALL, INTS, SMALL, INTS, INTS,
            INTS, INTS, INTS
        )
    ],
    **OPTIONS,
)  # fmt: skip
def best_rows(
    slots: Any,
    words: Any,
    width: int,
    later: bool,
    times: Any,
    ttl: int,
    stamps: Any,
    positions: Any,
    held_words: Any,
    entry: Any,
    touched: Any,
    before: Any,
    winner: Any,
    dropped: Any,
    counts: Any,
) -> int:
    """Which row of the batch becomes each slot's best. Of equals the earlier stays, with `later`
    the later. `positions[slot]`: the row held before, -1 for none.

    Each change is an entry: `touched` (the slot), `before` (what was held, -1 for nothing) and
    `winner` (a row). `entry` is -1 everywhere at the start and becomes each slot's entry, by first
    change; returns their number. `times` (empty: nothing expires): of each row; a slot that has
    expired for a row holds nothing, and its next entry is another. What it held without an entry is
    written to `dropped`, how many to counts[0]. Rows that are taken stamp their slot."""
    count = 0
    gone = 0
    for i in range(slots.size):
        s = slots[i]
        held = entry[s] >= 0 or positions[s] >= 0
        if held and times.size and stamps[s] <= times[i] - ttl:
            if entry[s] < 0:
                dropped[gone] = positions[s]
                gone += 1
            entry[s] = -1
            positions[s] = -1
            held = False
        if held:
            if later:
                if precedes(held_words, s * width, words, i * width, width):
                    continue
            elif not precedes(words, i * width, held_words, s * width, width):
                continue
        if entry[s] < 0:
            touched[count] = s
            before[count] = positions[s]
            entry[s] = count
            count += 1
        winner[entry[s]] = i
        for j in range(width):
            held_words[s * width + j] = words[i * width + j]
        if times.size and times[i] > stamps[s]:
            stamps[s] = times[i]
    counts[0] = gone
    return count


@njit(
    [
        int64(
            INTS_IN, INTS_IN, int64, int64, INTS_IN, int64, INTS, SMALL, INTS, SMALL, SMALL, INTS,
            INTS, INTS, INTS, INTS, INTS, INTS
        )
    ],
    **OPTIONS,
)  # fmt: skip
def insert_ranked(
    slots: Any,
    words: Any,
    width: int,
    n: int,
    times: Any,
    ttl: int,
    stamps: Any,
    sizes: Any,
    held_words: Any,
    held_ids: Any,
    marks: Any,
    touched: Any,
    before_sizes: Any,
    before_ids: Any,
    after_sizes: Any,
    after_ids: Any,
    dropped: Any,
    counts: Any,
) -> int:
    """Insert each row into its slot's first `n`, behind its equals; row i gets the id -1 - i.

    `marks` is -1 everywhere at the start and becomes the index in `touched` of changed slots, whose
    former ids are left in `before_ids` (n per slot) and `before_sizes`; returns their number.

    `times` (empty: nothing expires, and the arrays of this paragraph are not used): of each row. A
    slot that has expired for a row holds nothing, and is touched once more; the ids up to there are
    left in `after_ids` and `after_sizes` (-1 for those that are held at the end), or if it was not
    touched in `dropped`, how many in counts[0]. Rows that are inserted stamp their slot."""
    count = 0
    gone = 0
    for i in range(slots.size):
        s = slots[i]
        size = sizes[s]
        base = s * n
        if size > 0 and times.size and stamps[s] <= times[i] - ttl:
            if marks[s] < 0:
                for j in range(size):
                    dropped[gone + j] = held_ids[base + j]
                gone += size
            else:
                after_sizes[marks[s]] = size
                for j in range(size):
                    after_ids[marks[s] * n + j] = held_ids[base + j]
            marks[s] = -1
            size = 0
        if size == n and not precedes(words, i * width, held_words, (base + n - 1) * width, width):
            continue
        if marks[s] < 0:
            marks[s] = count
            touched[count] = s
            before_sizes[count] = size
            for j in range(size):
                before_ids[count * n + j] = held_ids[base + j]
            if times.size:
                after_sizes[count] = -1
            count += 1
        if size < n:
            sizes[s] = size + 1
            p = size
        else:
            p = n - 1
        while p > 0 and precedes(words, i * width, held_words, (base + p - 1) * width, width):
            held_ids[base + p] = held_ids[base + p - 1]
            for j in range(width):
                held_words[(base + p) * width + j] = held_words[(base + p - 1) * width + j]
            p -= 1
        held_ids[base + p] = -1 - i
        for j in range(width):
            held_words[(base + p) * width + j] = words[i * width + j]
        if times.size and times[i] > stamps[s]:
            stamps[s] = times[i]
    if times.size:
        counts[0] = gone
    return count


@njit([int64(INTS_IN, INTS_IN, INTS_IN, INTS_IN, INTS, INTS)], **OPTIONS)
def list_differences(
    before_starts: Any, before: Any, after_starts: Any, after: Any, ids: Any, signs: Any
) -> int:
    """For each pair of lists (CSR: list k is [starts[k], starts[k + 1])), which share their order
    of common ids: ids gone (sign -1), then ids new (+1). Returns how many were written; `ids` and
    `signs` have room for both lists."""
    total = 0
    for k in range(before_starts.size - 1):
        a, end = after_starts[k], after_starts[k + 1]
        for b in range(before_starts[k], before_starts[k + 1]):
            j = a
            while j < end and after[j] != before[b]:
                j += 1
            if j == end:
                ids[total] = before[b]
                signs[total] = -1
                total += 1
            else:
                a = j + 1
        b, end = before_starts[k], before_starts[k + 1]
        for a in range(after_starts[k], after_starts[k + 1]):
            j = b
            while j < end and before[j] != after[a]:
                j += 1
            if j == end:
                ids[total] = after[a]
                signs[total] = 1
                total += 1
            else:
                b = j + 1
    return total


@njit([int64(INTS_IN, INTS_IN, INTS_IN, INTS_IN, INTS, INTS, INTS)], **OPTIONS)
def rank_differences(
    before_starts: Any, before: Any, after_starts: Any, after: Any, ids: Any, kinds: Any, ranks: Any
) -> int:
    """Place by place: what changes between the lists, as row kinds with ranks from 1."""
    total = 0
    for k in range(before_starts.size - 1):
        b, a = before_starts[k], after_starts[k]
        had, has = before_starts[k + 1] - b, after_starts[k + 1] - a
        for p in range(max(had, has)):
            if p < had and p < has and before[b + p] == after[a + p]:
                continue
            if p < had:
                ids[total], ranks[total] = before[b + p], p + 1
                kinds[total] = 1 if p < has else 3
                total += 1
            if p < has:
                ids[total], ranks[total] = after[a + p], p + 1
                kinds[total] = 2 if p < had else 0
                total += 1
    return total
