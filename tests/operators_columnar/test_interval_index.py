"""Finding rows by key and time: the index and its kernels against plain Python; what is kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_intervals import interval_pairs
from reference_pairs import pairs
from strom.api.specs.joins import IntervalJoinSpec, JoinSides
from strom.core.batch import ColumnBatch
from strom.core.keys import ColumnKey
from strom.operators.contents import content_codes, same_rows
from strom.operators.joins import held_rows
from strom.operators.joins.pairing import join_rows
from strom.operators.joins.time_index import CELLS, FIRST_CELLS, TimeIndex
from strom.operators.kernels.intervals import PAGE
from strom.state.rows.chunks import MERGED_ROWS, RowChunks
from strom.testing.operator_harness import OperatorHarness

EDGE = 2**62
TIMES = st.integers(-50, 50) | st.sampled_from([-EDGE, -EDGE + 3, EDGE - 1, EDGE - 4])
ROWS = st.lists(st.tuples(st.integers(-2, 2), TIMES), max_size=12)


def columns(rows: list[tuple[int, int]]) -> tuple[Any, Any]:
    array = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return np.ascontiguousarray(array[:, 0]), np.ascontiguousarray(array[:, 1])


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(ROWS, max_size=4),
    ROWS,
    st.integers(-60, 60),
    st.integers(0, 60),
    st.integers(1, 70),
    st.integers(1, 5),
    st.integers(0, 10),
)
def test_probe_finds_what_the_definition_says(
    batches: list[Any], probing: Any, lower: int, span: int, width: int, limit: int, gone: int
) -> None:
    index = TimeIndex(width)
    held: list[tuple[int, int]] = []
    for batch in batches:
        index.insert(*columns(batch))
        held += batch
    index.first = first = min(gone, len(held))
    upper = lower + span
    found = [
        (i, j)
        for mine, numbers in index.probe(*columns(probing), lower, upper, limit)
        for i, j in zip(mine.tolist(), numbers.tolist(), strict=True)
    ]
    expected = {(i, j) for i, j in interval_pairs(probing, held, lower, upper) if j >= first}
    assert Counter(found) == Counter(expected)


def found_at(index: TimeIndex, key: int, at: int, lower: int, upper: int) -> list[int]:
    probed = index.probe(np.array([key]), np.array([at]), lower, upper, 100)
    return sorted(n for _, numbers in probed for n in numbers.tolist())


def test_table_grows_and_pages_are_used_again() -> None:
    """Rows come and go for ever; what is held is found, and memory is what that takes."""
    index = TimeIndex(10)
    numbers, keys, stamps = (np.empty(0, np.int64) for _ in range(3))
    for step in range(60):
        new = (np.arange(5000) % 977, step * 5 + np.arange(5000) % 5)
        numbers = np.concatenate([numbers, np.arange(index.next, index.next + 5000)])[-50_000:]
        keys, stamps = (np.concatenate(p)[-50_000:] for p in zip((keys, stamps), new, strict=True))
        index.insert(*new)
        index.first = int(numbers[0])
        at = step * 5
        mine = (keys == 3) & (stamps >= at - 30) & (stamps <= at + 2)
        assert found_at(index, 3, at, -30, 2) == numbers[mine].tolist()
    assert index.next > 10 * PAGE
    assert index.pages <= 50_000 // PAGE + 3
    assert FIRST_CELLS < index._heads.length <= CELLS * 55_000
    assert len(index._pages) == 8


def test_pages_behind_held_rows_are_swept() -> None:
    """The first row is held for ever, the others for 30 ms."""
    index = TimeIndex(10)
    index.insert(np.array([7]), np.array([10**9]))
    history: list[Any] = []
    for step in range(200):
        first, at = index.next, step * 10
        keys, stamps = np.arange(4000) % 50, at + np.arange(4000) % 10
        index.insert(keys, stamps)
        history.append(np.stack([np.arange(first, first + 4000), keys, stamps]))
        index.until = at - 30
        held = np.concatenate(history[-4:], axis=1)
        mine = held[0][(held[1] == 7) & (held[2] >= at - 15)]
        assert found_at(index, 7, at, -15, 10) == mine.tolist()
        assert found_at(index, 7, 10**9, 0, 0) == [0]
    assert index.next > 45 * PAGE
    assert index.pages <= 9
    assert index._heads.length <= CELLS * 9 * PAGE


def test_no_step_is_long() -> None:
    """Each insertion makes as many cells as its rows need, at whatever size the table is."""
    index, cells = TimeIndex(1000), []
    for step in range(100):
        index.insert(np.arange(step * 1000, step * 1000 + 1000), np.zeros(1000, np.int64))
        cells.append(index._heads.length)
    assert cells == [max(FIRST_CELLS, CELLS * 1000 * n) for n in range(1, 101)]


NUMBERED = pa.schema([("n", pa.int64())])


def numbered_chunks() -> RowChunks:
    return RowChunks("left", NUMBERED, lambda rows: rows, 128)


def append(chunks: RowChunks, first: int, stamps: list[int]) -> None:
    rows = pa.record_batch({"n": pa.array(range(first, first + len(stamps)), pa.int64())})
    times = np.array(stamps, dtype=np.int64)
    assert chunks.append(rows, rows, times, np.zeros(len(stamps), np.bool_)) == first


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 30), min_size=1, max_size=4),
            st.integers(0, 30),
            st.lists(st.integers(0, 99), max_size=4),
        ),
        max_size=20,
    )
)
def test_chunks(steps: list[Any]) -> None:
    """Rows without partner expire once each, whatever is merged and forgotten between."""
    chunks = numbered_chunks()
    stamps: dict[int, int] = {}
    matched: set[int] = set()
    until, next_number = -1, 0
    for times, advance, marks in steps:
        append(chunks, next_number, [until + 1 + t for t in times])
        for time in times:
            stamps[next_number] = until + 1 + time
            next_number += 1
        marked = [n for n in dict.fromkeys(marks) if n in stamps]
        if marked:
            twice = np.array(marked + marked, dtype=np.int64)
            assert sorted(chunks.mark(twice).tolist()) == sorted(set(marked) - matched)
            matched.update(marked)
            got = chunks.gather(np.array(marked, dtype=np.int64))
            order = np.arange(len(marked)) if got.order is None else got.order
            taken = got.rows.column("n").take(pa.array(got.at)).to_pylist()
            assert taken == [marked[i] for i in order]
            assert got.stamps[got.at].tolist() == [stamps[n] for n in taken]
        until += advance
        over = [n for n, time in stamps.items() if time <= until]
        expired = chunks.expire(until, tracked=True)
        alone = [chunk.first + row for chunk, rows in expired for row in rows.tolist()]
        assert sorted(alone) == [n for n in over if n not in matched]
        for number in over:
            del stamps[number]


def test_small_chunks_are_merged() -> None:
    chunks = numbered_chunks()
    for number in range(5000):
        append(chunks, number, [number])
    assert len(chunks.chunks) < 30
    assert max(map(len, chunks.chunks)) <= MERGED_ROWS
    assert sum(map(len, chunks.chunks)) == 5000


def interval_harness(how: str = "inner", schema: bool = True) -> OperatorHarness:
    side = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    sides = JoinSides(
        ColumnKey(("k",)), ColumnKey(("k",)), how,  # type: ignore[arg-type]
        side, side, (("k", "k"),), "_right",
    )  # fmt: skip
    return OperatorHarness(IntervalJoinSpec(sides, 0, 100))


def batch(keys: Any, stamps: Any) -> ColumnBatch:
    keys, stamps = np.asarray(keys, np.int64), np.asarray(stamps, np.int64)
    return ColumnBatch(pa.record_batch({"k": keys, "v": stamps}), stamps)


def test_memory_is_bounded_also_behind_a_row_of_the_far_future() -> None:
    """The first row never expires; the index must not grow for its sake."""
    harness = interval_harness()
    harness.push(batch([1], [10**12]), port=0)
    harness.push(batch([1], [10**12]), port=1)
    for step in range(400):
        at = step * 100
        for port in (0, 1):
            harness.push(batch(np.arange(600) + step * 600, np.full(600, at + 5)), port=port)
        harness.watermark(at)
    held = harness.operator._held  # type: ignore[attr-defined]
    assert all(side._index.next > 14 * PAGE for side in held)
    assert max(side._index.pages for side in held) <= 7
    assert all(len(side) < 30_000 for side in held)
    harness.finish(ports=2)
    assert sum(map(len, harness.batches())) == 400 * 600 + 1


def test_a_hot_key_comes_out_in_bounded_batches() -> None:
    harness = interval_harness()
    limit = 4 * harness.context.config.batch_size
    harness.push(batch(np.zeros(3000), np.zeros(3000)), port=0)
    harness.push(batch(np.zeros(70), np.ones(70)), port=1)
    sizes = list(map(len, harness.batches()))
    assert sum(sizes) == 3000 * 70
    assert max(sizes) <= limit


def test_nothing_is_kept_for_a_side_that_has_ended() -> None:
    """left  a@0 b@10 (x is held for both)    right  x@20, then ended    left  c@15 d@30"""
    met, all_of_them = [0, 10, 15], [0, 10, 15, 30]
    written = {"inner": met, "semi": met, "right": met, "left": all_of_them, "anti": [30]}
    for how, times in written.items():
        harness = interval_harness(how)
        harness.push(batch([1, 1], [0, 10]), port=0)
        harness.push(batch([1], [20]), port=1)
        harness.end_input(1)
        harness.push(batch([1, 1], [15, 30]), port=0)
        held = harness.operator._held[0]  # type: ignore[attr-defined]
        assert len(held) == {"left": 4, "anti": 3}.get(how, 0)
        harness.finish(ports=2)
        assert sorted(row[1] for row in harness.outputs()) == times


def test_hashes_only_find_candidates(monkeypatch: Any) -> None:
    """With a hash that is the same for all keys, equal keys are still told apart."""
    monkeypatch.setattr(
        held_rows, "hash_columns", lambda keys: np.zeros(keys.num_rows, dtype=np.uint64)
    )
    side = pa.schema([("k", pa.string())])
    sides = JoinSides(
        ColumnKey(("k",)), ColumnKey(("k",)), "full", side, side, (("k", "k"),), "_right"
    )
    harness = OperatorHarness(IntervalJoinSpec(sides, -5, 5))

    def push(keys: list[str], port: int) -> None:
        data = pa.record_batch({"k": pa.array(keys)})
        harness.push(ColumnBatch(data, np.full(len(keys), 10)), port=port)

    push(["a", "b"], 0)
    push(["b", "c"], 1)
    harness.finish(ports=2)
    assert sorted(harness.outputs()) == [("a",), ("b",), ("c",)]


KEY_VALUES = {
    pa.float64(): [0.0, -0.0, float("nan"), 1.0],
    pa.large_string(): ["", "a", "aa"],
    pa.list_(pa.int64()): [[], [1], [1, 2]],
    pa.bool_(): [True, False],
}


@given(st.data(), st.sampled_from(list(KEY_VALUES)))
def test_contents_are_compared(data: Any, kind: pa.DataType) -> None:
    """Row by row, and by numbers; nulls are equal, as NaN are."""
    values = st.lists(st.sampled_from([*KEY_VALUES[kind], None]), max_size=6)
    mine = data.draw(values)
    theirs = data.draw(st.permutations(mine))
    left, right = (pa.record_batch({"k": pa.array(v, kind)}) for v in (mine, theirs))
    same = [a == b or (a != a and b != b) for a, b in zip(mine, theirs, strict=True)]
    assert same_rows(left.columns, right.columns).tolist() == same
    codes = content_codes(pa.concat_batches([left, right]).columns)
    assert (codes[: len(mine)] == codes[len(mine) :]).tolist() == same


@given(
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.lists(st.integers(-1, 3), max_size=8),
    st.lists(st.integers(-1, 3), max_size=8),
    st.integers(1, 5),
)
def test_pairs_of_rows(how: str, left: list[int], right: list[int], limit: int) -> None:
    lefts, rights = np.array(left, np.int64), np.array(right, np.int64)
    parts = list(join_rows(how, lefts, rights, 4, limit))
    assert all(len(a) == len(b) <= limit for a, b in parts)
    found = [p for a, b in parts for p in zip(a.tolist(), b.tolist(), strict=True)]
    inner = [(a, b) for a, b in pairs(left, right) if left[a] >= 0]
    met, other = {a for a, _ in inner}, {b for _, b in inner}
    alone = [(a, -1) for a in range(len(left)) if a not in met]
    expected = {
        "semi": [(a, -1) for a in sorted(met)],
        "anti": alone,
        "inner": inner,
        "left": inner + alone,
        "right": inner + [(-1, b) for b in range(len(right)) if b not in other],
        "full": inner + alone + [(-1, b) for b in range(len(right)) if b not in other],
    }
    assert Counter(found) == Counter(expected[how])
