"""Chains, changes, versions and gathering against their twins; rows in growing columns."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import reference_chains
import reference_versions
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.batch import take_column
from strom.operators.joins.arena import Arena, to_stored
from strom.operators.joins.keyslots import KeySlots
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


@given(st.lists(st.integers(-1, 4), max_size=20), SLOTS, st.integers(1, 5), st.integers(-1, 20))
@settings(deadline=None)
def test_walking_finds_the_pairs_in_portions(
    probing: list[int], stored: list[int], room: int, cutoff: int
) -> None:
    head, link = chains(stored)
    born = list(range(len(stored))) if cutoff >= 0 else []
    cursor, found = ints([0, FRESH]), []
    while cursor[0] < len(probing):
        rows, others = np.empty(room, np.int64), np.empty(room, np.int64)
        n = walk_pairs(ints(probing), head, link, ints(born), cutoff, cursor, rows, others)
        found += list(zip(rows[:n].tolist(), others[:n].tolist(), strict=True))
    assert found == reference_chains.chained_pairs(probing, stored, born, cutoff)


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
    removed, befores = np.empty((2, len(slots)), np.int64)
    for begin, end in ((0, len(first)), (len(first), len(records))):
        part = slice(begin, end)
        batch = (ints(slots[part]), ints(range(begin, end)), np.array(retracting[part], np.bool_))
        hashed = ints(contents[part])
        held = (head, link, ints([]), 0, hashes, alive, removed[part], befores[part])
        state = [head.copy(), alive.copy(), link.copy()]
        apply_changes(*batch, hashed, *held)
        undo_changes(*batch, removed[part], befores[part], head, link, alive)
        assert head.tolist() == state[0].tolist()
        assert alive[:begin].tolist() == state[1][:begin].tolist()
        chained = np.flatnonzero(alive[:begin])
        assert link[chained].tolist() == state[2][chained].tolist()
        apply_changes(*batch, hashed, *held)
    assert np.flatnonzero(alive).tolist() == reference_chains.remaining(slots, contents, retracting)


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
    find_versions(which, when, head, link, times, ends, none, 0, found)
    expected = [reference_versions.valid_at(slots, times.tolist(), *a) for a in asked]
    assert found.tolist() == [-1 if row >= 0 and ends[row] else row for row in expected]
    useful = np.zeros(len(versions), np.bool_)
    mark_useful(head, link, times, ends, none, 0, watermark, useful)
    kept = reference_versions.useful(slots, times.tolist(), ends.tolist(), watermark)
    assert useful.tolist() == kept


COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "int8": (pa.int8(), lambda i: i % 100),
    "int64": (pa.int64(), lambda i: i),
    "float": (pa.float32(), lambda i: i / 4),
    "bool": (pa.bool_(), lambda i: i % 3 == 0),
    "string": (pa.string(), lambda i: "é" * (i % 20)),
    "view": (pa.string_view(), lambda i: f"text of more than twelve bytes {i}"),
    "binary": (pa.binary(), lambda i: bytes([i % 256])),
    "fixed": (pa.binary(3), lambda i: b"abc"),
    "decimal": (pa.decimal128(20, 2), lambda i: decimal.Decimal(i) / 4),
    "timestamp": (pa.timestamp("us"), lambda i: datetime.datetime(2020, 1, 1, 0, 0, i % 60)),
    "list": (pa.list_(pa.int64()), lambda i: [i] * (i % 3)),
    "struct": (pa.struct([("a", pa.int64())]), lambda i: {"a": i}),
    "null": (pa.null(), lambda i: None),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(st.lists(st.lists(st.none() | st.integers(0, 300), max_size=5), max_size=6), st.randoms())
@settings(max_examples=15, deadline=None)
def test_an_arena_gives_back_what_it_was_given(name: str, batches: Any, random: Any) -> None:
    kind, make = COLUMNS[name]
    arena, values = Arena(pa.schema([("a", kind), ("n", pa.int64())])), []
    for numbers in batches:
        made = [None if n is None else make(n) for n in numbers]
        column = pa.array([None, *made], kind).slice(1)  # with an offset
        order = pa.array(range(len(values), len(values) + len(made)), pa.int64())
        arena.append(pa.RecordBatch.from_arrays([column, order], schema=arena.schema))
        before = arena.stored()
        values += made
        assert [list(map(str, a.to_pylist())) for a in before] == [
            list(map(str, (pa.array(values, kind).cast(before[0].type)).to_pylist())),
            list(map(str, range(len(values)))),
        ]
    rows = [random.randrange(-1, len(values)) for _ in range(10)] if values else [-1, -1]
    found = arena.gather(ints(rows))
    assert found[0].type == kind
    expected = pa.array([None if row < 0 else values[row] for row in rows], kind)
    found[0].validate(full=True)
    assert found[0].to_pylist() == expected.to_pylist()
    assert found[1].to_pylist() == [None if row < 0 else row for row in rows]


def test_stored_rows_stay_while_the_arena_grows() -> None:
    arena = Arena(pa.schema([("t", pa.string())]))
    arena.append(pa.record_batch({"t": ["a", "b"]}))
    stored = arena.stored()[0]
    for _ in range(5):
        arena.append(pa.record_batch({"t": ["c" * 1000] * 1000}))
    assert stored.to_pylist() == ["a", "b"]
    assert to_stored(pa.record_batch({"t": ["a"]})).schema.types == [pa.large_string()]


def test_key_slots_know_nulls_and_groups() -> None:
    slots = KeySlots(128, "join")
    first = pa.record_batch(
        {"a": pa.array([1, None, 2, 1], pa.int32()), "b": ["x", "y", None, "x"]}
    )
    assert slots.slots(first).tolist() == [0, -1, -1, 0]
    second = pa.record_batch({"a": [2, 1], "c": pa.array(["y", "x"], pa.string_view())})
    found = slots.slots(second)
    assert found.tolist() == [1, 0]
    assert slots.groups(found).tolist() == key_groups_of(second, 128).tolist()


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
