"""Kernels of the table operators equal their plain-Python twins."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import reference_over as plain_over
import reference_ranking as plain_ranking
import reference_values as plain_values
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.operators.kernels import over, ranking, values
from strom.operators.key_expiry import NEVER

SLOTS = 4


def ints(numbers: Any) -> Any:
    return np.array(numbers, dtype=np.int64)


def flat(lists: list[list[int]]) -> tuple[Any, Any]:
    return ints(np.cumsum([0, *map(len, lists)])), ints([one for many in lists for one in many])


batches = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, SLOTS - 1),
            st.tuples(st.integers(0, 3), st.integers(-2, 2)),
            st.integers(0, 30),
        ),
        min_size=1,
    ),
    max_size=4,
)
TTL = 10


def columns(batch: Any, expire: bool) -> tuple[Any, Any, Any, Any]:
    """Slots, words and times of a batch, and times as kernels take them."""
    slots, words, times = ([row[at] for row in batch] for at in range(3))
    return slots, words, times, ints(times if expire else [])


@settings(deadline=None)
@given(batches, st.booleans(), st.booleans())
def test_best_rows(batches: Any, later: bool, expire: bool) -> None:
    model = plain_ranking.Ranked(1, TTL if expire else None)
    words, entry = np.zeros(2 * SLOTS, np.int64), np.full(SLOTS, -1, np.int32)
    positions, stamps = np.full(SLOTS, -1, np.int32), np.full(SLOTS, NEVER, np.int64)
    done = 0
    for batch in batches:
        slots, new, times, asked = columns(batch, expire)
        want = model.insert(slots, new, times, done, later)
        touched, before, winner, dropped = np.empty((4, len(batch)), np.int64)
        gone = np.zeros(1, np.int64)
        rules = (2, later, asked, TTL, stamps)
        held = (positions, words, entry)
        out = (touched, before, winner, dropped, gone)
        count = ranking.best_rows(ints(slots), ints(new).reshape(-1), *rules, *held, *out)
        touched, before, winner = touched[:count], before[:count], winner[:count] + done
        befores = [[one] if one >= 0 else [] for one in before.tolist()]
        afters = [[one] for one in winner.tolist()]
        assert list(zip(touched.tolist(), befores, afters, strict=True)) == want
        assert sorted(dropped[: gone[0]].tolist()) == sorted(model.dropped)
        last = entry[touched] == np.arange(count)
        entry[touched] = -1
        assert (entry == -1).all()
        positions[touched[last]] = winner[last]
        for slot, rows in model.held.items():
            assert (tuple(words[2 * slot : 2 * slot + 2]), positions[slot]) == rows[0]
        done += len(batch)


@settings(deadline=None)
@given(batches, st.integers(1, 4), st.booleans())
def test_insert_ranked(batches: Any, n: int, expire: bool) -> None:
    model = plain_ranking.Ranked(n, TTL if expire else None)
    sizes, marks = np.zeros(SLOTS, np.int32), np.full(SLOTS, -1, np.int32)
    words, ids = np.zeros(SLOTS * n * 2, np.int64), np.zeros(SLOTS * n, np.int32)
    stamps, done = np.full(SLOTS, NEVER, np.int64), 0
    for batch in batches:
        slots, new, times, asked = columns(batch, expire)
        want = model.insert(slots, new, times, done)
        touched, before_sizes, after_sizes = np.empty((3, len(batch)), np.int64)
        before, after, dropped = np.empty((3, len(batch) * n), np.int64)
        gone = np.zeros(1, np.int64)
        out = (touched, before_sizes, before, after_sizes, after, dropped, gone)
        rules, held = (2, n, asked, TTL, stamps), (sizes, words, ids, marks)
        count = ranking.insert_ranked(ints(slots), ints(new).reshape(-1), *rules, *held, *out)
        found = []
        for k, slot in enumerate(touched[:count].tolist()):
            rows = ids[slot * n :][: sizes[slot]].tolist()
            if expire and after_sizes[k] >= 0:
                rows = after[k * n :][: after_sizes[k]].tolist()
            rows = [row if row >= 0 else done - 1 - row for row in rows]
            found.append((slot, before[k * n :][: before_sizes[k]].tolist(), rows))
        assert found == want
        assert sorted(dropped[: gone[0]].tolist()) == sorted(model.dropped)
        marks[touched[:count]] = -1
        assert (marks == -1).all()
        for slot, rows in model.held.items():
            mine = ids[slot * n :][: sizes[slot]]
            mine[mine < 0] = done - 1 - mine[mine < 0]
            at = words[slot * n * 2 :][: 2 * len(mine)].reshape(-1, 2)
            held_now = [(tuple(w), r) for w, r in zip(at.tolist(), mine.tolist(), strict=True)]
            assert held_now == rows
        done += len(batch)


@st.composite
def list_pairs(draw: Any) -> Any:
    """Pairs of lists that share the order of what they have in common."""
    pairs = []
    for k in range(draw(st.integers(0, 4))):
        order = draw(st.permutations(range(10 * k, 10 * k + 6)))
        picks = [draw(st.lists(st.booleans(), min_size=6, max_size=6)) for _ in range(2)]
        pairs.append(
            [[one for one, take in zip(order, pick, strict=True) if take] for pick in picks]
        )
    return pairs


@settings(deadline=None)
@given(list_pairs())
def test_differences(pairs: Any) -> None:
    before, after = flat([p[0] for p in pairs]), flat([p[1] for p in pairs])
    room = len(before[1]) + len(after[1])
    ids, signs, kinds, ranks = (np.empty(room, np.int64) for _ in range(4))
    count = ranking.list_differences(*before, *after, ids, signs)
    got = list(zip(ids[:count].tolist(), signs[:count].tolist(), strict=True))
    assert got == [one for p in pairs for one in plain_ranking.list_differences(*p)]
    count = ranking.rank_differences(*before, *after, ids, kinds, ranks)
    found = zip(*(a[:count].tolist() for a in (ids, kinds, ranks)), strict=True)
    assert list(found) == [one for p in pairs for one in plain_ranking.rank_differences(*p)]


changes = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=8), max_size=4
)


@settings(deadline=None)
@given(changes, st.lists(st.booleans(), min_size=4, max_size=4))
def test_values(batches: Any, signs: Any) -> None:
    numbers: dict[tuple[int, int], int] = {}
    heads, links = np.full(3, -1), np.full(15, -1)
    counts, words, distinct = np.zeros(15, np.int64), np.zeros(15, np.int64), np.zeros(3, np.int64)
    high, low = np.full(3, -1), np.full(3, -1)
    state: dict[int, Counter[int]] = {}
    for batch, add in zip(batches, signs, strict=False):
        if not add:
            taken: Counter[Any] = Counter()
            kept = []
            for group, value in batch:
                taken[group, value] += 1
                if state.get(group, Counter())[value] >= taken[group, value]:
                    kept.append((group, value))
            batch = kept
        first = len(numbers)
        pairs = [numbers.setdefault(pair, len(numbers)) for pair in batch]
        fresh = list(numbers)[first:]
        values.chain_pairs(ints([g for g, _ in fresh]), first, heads, links)
        words[first : len(numbers)] = [value for _, value in fresh]
        groups = ints([g for g, _ in batch])
        none = np.empty(0, np.bool_)
        below = values.count_values(groups, ints(pairs), none, 1 if add else -1, counts, distinct)
        assert not below
        if add:
            values.raise_extremes(groups, ints(pairs), none, words, True, high)
            values.raise_extremes(groups, ints(pairs), none, words, False, low)
        touched = ints(sorted(set(groups.tolist())))
        values.find_extremes(touched, heads, links, counts, words, True, high)
        values.find_extremes(touched, heads, links, counts, words, False, low)
        want = plain_values.count_values(state, batch, 1 if add else -1)
        for group, number in want.items():
            assert distinct[group] == number
            for best, largest in ((high, True), (low, False)):
                found = None if best[group] < 0 else int(words[best[group]])
                assert found == plain_values.extreme(state[group], largest)
            out = np.empty(15, np.int64)
            total = values.collect_pairs(ints([group]), heads, links, counts, out)
            assert sorted(words[out[:total]]) == sorted(v for v, n in state[group].items() if n)


@st.composite
def frames(draw: Any) -> Any:
    """Values, validity, frames that move on; two keys, one behind the other."""
    starts, ends, size = [], [], 0
    for _ in range(2):
        length = draw(st.integers(0, 8))
        start, end = size, size
        for row in range(size, size + length):
            start = draw(st.integers(start, row))
            end = max(end, draw(st.integers(row + 1, size + length)))
            if draw(st.booleans()):
                starts.append(start)
                ends.append(end)
        size += length
    numbers = draw(st.lists(st.integers(-4, 4), min_size=size, max_size=size))
    valid = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return numbers, valid, starts, ends


@settings(deadline=None)
@given(frames(), st.booleans())
def test_frames(run: Any, largest: bool) -> None:
    numbers, valid, starts, ends = run
    mask = np.array(valid, dtype=np.bool_)
    out = np.empty(len(starts))
    over.frame_sums(
        np.array(numbers, float), mask, ints(starts), ints(ends), np.empty(len(numbers)), out
    )
    assert out.tolist() == plain_over.frame_sums(numbers, valid, starts, ends)
    found = np.empty(len(starts), np.int64)
    queue = np.empty(len(numbers), dtype=np.int64)
    over.frame_extremes(ints(numbers), mask, ints(starts), ints(ends), largest, queue, found)
    want = plain_over.frame_extremes(numbers, valid, starts, ends, largest)
    of = [None if row < 0 else numbers[row] for row in found.tolist()]
    assert of == [None if row < 0 else numbers[row] for row in want]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1), max_size=3),
    st.integers(0, 6),
    st.booleans(),
)
def test_range_frames(by_key: Any, length: int, peers: bool) -> None:
    keys, times, rows = [], [], []
    for key, mine in enumerate(by_key):
        for time, asked in sorted(mine, key=lambda one: one[0]):
            if asked:
                rows.append(len(keys))
            keys.append(key)
            times.append(time)
    edges = ints(np.cumsum([0, *map(len, by_key)]))
    starts, ends = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    over.range_frames(edges, ints(times), ints(rows), length, peers, starts, ends)
    got = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert got == plain_over.range_frames(keys, times, rows, length, peers)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 9)))), st.booleans()
)
def test_running_pick(rows: Any, last: bool) -> None:
    slots, values = [slot for slot, _ in rows], [value for _, value in rows]
    valid = np.array([value is not None for value in values], dtype=np.bool_)
    acc, seen = np.zeros(3, np.int64), np.zeros(3, np.bool_)
    out, some = np.empty(len(rows), np.int64), np.empty(len(rows), np.bool_)
    numbers = ints([value or 0 for value in values])
    over.running_pick(ints(slots), numbers, valid, acc, seen, last, out, some)
    got = [int(v) if s else None for v, s in zip(out, some, strict=True)]
    if len(rows):
        assert got == plain_over.running_pick(slots, values, last)
