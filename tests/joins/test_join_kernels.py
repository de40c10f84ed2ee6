"""Chains, changes and versions against their twins; keys as slots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import reference_chains
import reference_versions
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.batch import take_column
from strom.core.keys import ColumnKey
from strom.operators.joins.keyslots import KeySlots, groups_by
from strom.operators.kernels.chains import FRESH, apply_changes, link_rows, undo_changes, walk_pairs
from strom.operators.kernels.changes import settle
from strom.operators.kernels.versions import find_versions, insert_versions, mark_useful
from strom.state.key_groups import key_groups_of

SLOTS = st.lists(st.integers(0, 4), max_size=20)


def ints(values: Any) -> Any:
    return np.array(values, dtype=np.int64)


def chains(slots: list[int]) -> tuple[Any, Any]:
    head, link = np.full(5, -1, dtype=np.int32), np.empty(len(slots), dtype=np.int32)
    half = len(slots) // 2
    link_rows(ints(slots[:half]), 0, head, link)
    link_rows(ints(slots[half:]), half, head, link)
    return head, link


PROBING = st.lists(
    st.tuples(st.integers(-1, 4), st.integers(-1, 20), st.integers(0, 20)), max_size=20
)


@given(PROBING, SLOTS, st.integers(1, 5), st.sampled_from(["for ever", "by arrival", "by event"]))
@settings(deadline=None)
def test_walking_finds_the_pairs_in_portions(
    rows_of: list[tuple[int, int, int]], stored: list[int], room: int, expire: str
) -> None:
    head, link = chains(stored)
    probing = [row[0] for row in rows_of]
    born: list[int] = []
    oldest, latest = [row[1] for row in rows_of], []
    if expire == "by arrival":
        born, oldest = list(range(len(stored))), oldest[:1] * len(oldest)
    elif expire == "by event":
        born, latest = [7 * row % 20 for row in range(len(stored))], [row[2] for row in rows_of]
    lifespans = (ints(born), ints(oldest), ints(latest))
    cursor, found = ints([0, FRESH]), []
    while cursor[0] < len(probing):
        rows, others = np.empty(room, np.int64), np.empty(room, np.int64)
        n = walk_pairs(ints(probing), head, link, *lifespans, cursor, rows, others)
        found += list(zip(rows[:n].tolist(), others[:n].tolist(), strict=True))
    assert found == reference_chains.chained_pairs(probing, stored, born, oldest, latest)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 4)), max_size=15),
    st.lists(st.integers(0, 2), min_size=5, max_size=5),
    st.integers(0, 7),
    st.integers(0, 2),
    st.integers(0, 15),
)
@settings(deadline=None)
def test_changes_are_those_of_the_twin(
    rows: list[Any], counts: list[int], show: int, track: int, cut: int
) -> None:
    pairs = [(row, other) for row, (n, _, _) in enumerate(rows) for other in range(n)]
    retracting = [takes for _, takes, _ in rows]
    expected_counts, found_counts = list(counts), ints(counts)
    expected = list(reference_chains.changes(pairs, retracting, show, track, expected_counts))
    matches, found = np.zeros(len(rows), np.int64), []
    cut = min(cut, len(pairs))
    first = 0
    for part, done in (
        (pairs[:cut], pairs[cut][0] if cut < len(pairs) else len(rows)),
        (pairs[cut:], len(rows)),
    ):
        out = [np.empty(2 * len(part) + len(rows), np.int64) for _ in range(3)]
        probing, others = ints([p for p, _ in part]), ints([o for _, o in part])
        flags = np.array(retracting, dtype=np.bool_)
        n = settle(probing, others, first, done, flags, show, track, matches, found_counts, *out)
        found += list(zip(*(array[:n].tolist() for array in out), strict=True))
        first = done
    assert found == expected
    assert found_counts.tolist() == expected_counts


CHANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.booleans()), max_size=10)


@given(CHANGES, CHANGES)
@settings(deadline=None)
def test_retractions_take_the_newest_equal_row(first: list[Any], second: list[Any]) -> None:
    """Also after the second batch was done, undone, and done again."""
    records = first + second
    slots, contents, retracting = ([r[i] for r in records] for i in range(3))
    head, link = np.full(3, -1, np.int32), np.empty(20, np.int32)
    hashes, alive = np.empty(20, np.int64), np.zeros(20, np.bool_)

    def note(batch: Any, removed: Any) -> None:
        alive[batch[1][~batch[2]]] = True
        alive[removed[removed >= 0]] = False

    removed, befores = np.empty((2, len(slots)), np.int64)
    for begin, end in ((0, len(first)), (len(first), len(records))):
        part = slice(begin, end)
        batch = (ints(slots[part]), ints(range(begin, end)), np.array(retracting[part], np.bool_))
        hashed = ints(contents[part])
        held = (head, link, ints([]), ints([]), True, hashes, removed[part], befores[part])
        state = [head.copy(), link.copy()]
        apply_changes(*batch, hashed, *held)
        undo_changes(*batch, removed[part], befores[part], head, link)
        assert head.tolist() == state[0].tolist()
        chained = np.flatnonzero(alive[:begin])
        assert link[chained].tolist() == state[1][chained].tolist()
        apply_changes(*batch, hashed, *held)
        note(batch, removed[part])
    assert np.flatnonzero(alive).tolist() == reference_chains.remaining(slots, contents, retracting)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans(), st.integers(0, 12)),
        max_size=12,
    )
)
@settings(deadline=None)
def test_retractions_take_what_has_not_expired(records: list[Any]) -> None:
    """By event time: rows of a chain are in any order of time."""
    slots, contents, retracting, when = ([r[i] for r in records] for i in range(4))
    head, link = np.full(2, -1, np.int32), np.empty(12, np.int32)
    hashes, born = np.empty(12, np.int64), ints([*when, *[0] * (12 - len(when))])
    removed, befores = np.empty((2, len(slots)), np.int64)
    numbers, flags = ints(range(len(slots))), np.array(retracting, np.bool_)
    oldest = ints([time - 5 for time in when])
    held = (head, link, born, oldest, False, hashes, removed, befores)
    apply_changes(ints(slots), numbers, flags, ints(contents), *held)
    alive: list[int] = []
    for row, takes in enumerate(retracting):
        if not takes:
            alive.append(row)
            assert removed[row] == -1
            continue
        equal = [
            other
            for other in alive
            if (slots[other], contents[other]) == (slots[row], contents[row])
            and when[other] + 5 > when[row]
        ]
        assert removed[row] == (equal[-1] if equal else -1)
        if equal:
            alive.remove(equal[-1])


VERSIONS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.booleans()), max_size=15)


@given(VERSIONS, VERSIONS, st.integers(-1, 9))
@settings(deadline=None)
def test_versions_are_those_of_the_twin(
    before: list[Any], after: list[Any], watermark: int
) -> None:
    versions = before + after
    slots = [v[0] for v in versions]
    times, ends = ints([v[1] for v in versions]), np.array([v[2] for v in versions], np.bool_)
    head, link = np.full(3, -1, np.int64), np.empty(len(versions), np.int64)
    none = ints([])
    insert_versions(ints(slots[: len(before)]), times, 0, -1, head, link)
    insert_versions(ints(slots[len(before) :]), times, len(before), watermark, head, link)
    asked = [(slot, time) for slot in range(4) for time in range(watermark + 1, 12)]
    found = np.empty(len(asked), np.int64)
    which, when = ints([a[0] for a in asked]), ints([a[1] for a in asked])
    expected = [reference_versions.valid_at(slots, times.tolist(), *a) for a in asked]
    for life in (0, 3):
        find_versions(which, when, head, link, times, ends, none, 0, life, found)
        over = [
            row >= 0 and (ends[row] or 0 < life <= a[1] - times[row])
            for row, a in zip(expected, asked, strict=True)
        ]
        assert found.tolist() == [
            -1 if gone else row for gone, row in zip(over, expected, strict=True)
        ]
    useful = np.zeros(len(versions), np.bool_)
    mark_useful(head, link, times, ends, none, 0, watermark, useful)
    kept = reference_versions.useful(slots, times.tolist(), ends.tolist(), watermark)
    assert useful.tolist() == kept


def test_key_slots_know_nulls() -> None:
    slots = KeySlots("join")
    first = pa.record_batch(
        {"a": pa.array([1, None, 2, 1], pa.int32()), "b": ["x", "y", None, "x"]}
    )
    assert slots.slots(first).tolist() == [0, -1, -1, 0]
    second = pa.record_batch({"a": [2, 1], "c": pa.array(["y", "x"], pa.string_view())})
    assert slots.slots(second).tolist() == [1, 0]
    assert len(slots) == 2


def test_key_groups_are_those_of_the_exchange() -> None:
    """Also of keys as they are stored: wider, and plain."""
    numbers, texts = [1, 2, None], ["a", None, "a text of more than twelve bytes"]
    narrow = pa.record_batch(
        {"a": pa.array(numbers, pa.int32()), "b": pa.array(texts, pa.string_view())}
    )
    wide = pa.record_batch(
        {"a": pa.array(numbers, pa.int64()), "b": pa.array(texts, pa.large_string())}
    )
    groups_of = groups_by(ColumnKey(("a", "b")), 128)
    assert groups_of(narrow).tolist() == groups_of(wide).tolist()
    assert groups_of(wide).tolist() == key_groups_of(narrow, 128).tolist()


@given(
    st.lists(st.none() | st.integers(0, 40), min_size=1, max_size=20),
    st.lists(st.none() | st.integers(0, 100), max_size=20),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_views_are_taken_like_any_column(lengths: Any, rows: Any, offset: int) -> None:
    values = [None if n is None else "x" * n for n in lengths]
    column = pa.array([None] * offset + values, pa.string_view()).slice(offset)
    indices = [None if row is None else row % len(values) for row in rows]
    taken = take_column(column, pa.array(indices, pa.int64()))
    taken.validate(full=True)
    assert taken.to_pylist() == [None if row is None else values[row] for row in indices]
