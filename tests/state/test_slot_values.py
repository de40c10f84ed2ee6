"""Values of slots, counted or seen, against dictionaries: stored and restored at any time."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import reference_seen_pairs
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.operators.tables.distinct_values import DistinctValues
from strom.state.backend import KEY_GROUP, StateTable
from strom.state.counted_values import CountedValues
from strom.state.key_groups import key_groups_of
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.seen_values import SeenValues
from strom.testing.fuzz.limits import small_limits

GROUPS, VIEWS = 8, 9
KEYS = pa.schema({"a": pa.string(), "b": pa.int64()})
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int32(), [1, 2, 3, -4]),
    "text": (pa.string_view(), ["", "u", "a text of more than twelve bytes"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["u", "v", "w"]),
    "lists": (pa.list_(pa.int64()), [[1], [], [1, 2]]),
}
Pairs = dict[tuple[Any, Any], Counter[int]]
"""(key, value as text) -> view -> count."""


class Store:
    """A backend with a table of keys, and values of its slots."""

    def __init__(
        self, kind: pa.DataType, counted: bool, tables: list[StateTable] | None = None
    ) -> None:
        self.state = MemoryKeyedStateBackend(KeyGroupRange(0, GROUPS - 1), GROUPS)
        if tables is not None:
            self.state.restore(tables)
        self.table = self.state.table("keys", KEYS, []).table(0)
        self.kind, self.counted = kind, counted
        make = self.state.counted_values if counted else self.state.seen_values
        self.values = make("values", KEYS, kind, VIEWS)
        self.values.own(self.table)

    def add(self, rows: list[tuple[Any, Any]], views: list[int], sign: int = 1) -> None:
        slots = self.slots([key for key, _ in rows])
        array = pa.array([value for _, value in rows], self.kind)
        if isinstance(self.values, CountedValues):
            pairs = self.values.pairs(slots, array)
            for view in views:
                np.add.at(self.values.counts(view), pairs, sign)
            return
        at = self.values.find(slots, array)
        for view in views:
            bits, bit = self.values.bits(view)
            bits[at] |= np.uint8(bit)

    def slots(self, keys: list[Any]) -> np.ndarray:
        columns = [pa.array(c, t) for c, t in zip(zip(*keys, strict=True), KEYS.types, strict=True)]
        return self.table.slots(pa.RecordBatch.from_arrays(columns, schema=KEYS))

    def again(
        self,
        tables: list[StateTable],
        counted: bool | None = None,
        kind: pa.DataType | None = None,
    ) -> Store:
        return Store(kind or self.kind, self.counted if counted is None else counted, tables)


def read(tables: list[StateTable]) -> Pairs:
    """What is stored, and that it is sorted by the key groups of the keys."""
    found: Pairs = {}
    for table in tables:
        if table.name != "values":
            continue
        data = table.data
        keys = data.select(["key.a", "key.b"]).combine_chunks().to_batches()[0]
        groups = key_groups_of(keys, GROUPS).tolist()
        assert data.column(KEY_GROUP).to_pylist() == groups == sorted(groups)
        for row in data.to_pylist():
            counts = Counter({v: row[f"n{v}"] for v in range(VIEWS) if row[f"n{v}"]})
            pair = ((row["key.a"], row["key.b"]), str(row["value"]))
            assert pair not in found
            found[pair] = counts
    return found


KEY = st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 2))
STEP = st.tuples(
    st.sampled_from(["add", "add", "add", "take", "freeze", "encode", "restore"]),
    st.lists(st.tuples(KEY, st.integers(0, 2)), min_size=1, max_size=8),
    st.sets(st.integers(0, VIEWS - 1), min_size=1),
)


@settings(max_examples=examples(80), deadline=None)
@given(st.sampled_from(list(KINDS)), st.booleans(), st.lists(STEP, max_size=20))
def test_any_order_of_changes_freezes_and_restores(
    name: str, counted: bool, steps: list[Any]
) -> None:
    kind, some = KINDS[name]
    with small_limits():
        store, model, frozen = Store(kind, counted), {}, []
        for step, picked, views in steps:
            rows = [(key, some[i]) for key, i in picked]
            if step == "add":
                store.add(rows, sorted(views))
                for key, value in rows:
                    counts = model.setdefault((key, str(value)), Counter())
                    for view in views:
                        counts[view] = counts[view] + 1 if counted else 1
            elif step == "take" and counted and model:
                (key, text), counts = next(iter(model.items()))
                value = next(v for v in some if str(v) == text)
                store.add([(key, value)], list(counts), -1)
                model[key, text] = +Counter({view: n - 1 for view, n in counts.items()})
            elif step == "freeze":
                frozen.append((store.state.snapshot(), live(model)))
            elif step == "encode" and frozen:
                snapshot, want = frozen.pop(len(frozen) // 2)
                assert read(list(snapshot.tables())) == want
            elif step == "restore":
                store = store.again(list(store.state.snapshot().tables()))
        for snapshot, want in frozen:
            assert read(list(snapshot.tables())) == want
        assert read(list(store.state.snapshot().tables())) == live(model)


def live(model: Pairs) -> Pairs:
    return {pair: Counter(counts) for pair, counts in model.items() if counts}


@pytest.mark.parametrize("counted", [False, True])
def test_another_thread_encodes_while_values_come(counted: bool) -> None:
    random = np.random.default_rng(3)
    store = Store(pa.int64(), counted)
    keys = [("k", i) for i in range(50)]
    for _ in range(3):
        store.add([(keys[i % 50], int(random.integers(3000))) for i in range(10_000)], [0, 8])
        want = read(list(store.state.snapshot().tables()))
        snapshot, found = store.state.snapshot(), []
        thread = threading.Thread(
            target=lambda s=snapshot, to=found: to.append(list(s.tables())), daemon=True
        )
        thread.start()
        for step in range(10):
            rows = [(keys[i % 50], int(random.integers(6000))) for i in range(1000)]
            store.add(rows, [step % VIEWS])
        thread.join()
        assert read(found[0]) == want


def test_counted_values_keep_some_slots() -> None:
    """Those kept are numbered anew; what counts nothing is left behind. A snapshot is not."""
    store = Store(pa.string(), True)
    keys = [("x", i) for i in range(5)]
    store.add([(key, f"value {key[1]} {n}") for key in keys for n in range(100)], [0, 3])
    store.add([(keys[1], "value 1 7")], [0, 3], -1)
    before, snapshot = read(list(store.state.snapshot().tables())), store.state.snapshot()
    with small_limits():
        store.table.release(np.array([0, 2, 3]))
        assert store.table.tidy().tolist() == [-1, 0, -1, -1, 1]
    store.values.keep(np.array([1, 4]))
    assert len(store.values) == 199
    assert store.values.slots_of(slice(199)).tolist() == [0] * 99 + [1] * 100
    assert store.values.values_of(np.array([0, 198])).to_pylist() == ["value 1 0", "value 4 99"]
    assert store.values.counts(3)[:199].tolist() == [1] * 199
    want = {pair: counts for pair, counts in before.items() if pair[0] in (keys[1], keys[4])}
    assert read(list(store.state.snapshot().tables())) == want
    assert read(list(snapshot.tables())) == before
    store.values.keep(np.array([], dtype=np.int64))
    assert len(store.values) == 0


def test_values_nobody_asked_for_are_carried_along() -> None:
    store = Store(pa.int64(), True)
    store.add([(("x", 1), 5)], [0])
    tables = list(store.state.snapshot().tables())
    state = MemoryKeyedStateBackend(KeyGroupRange(0, GROUPS - 1), GROUPS)
    state.restore(tables)
    assert read(list(state.snapshot().tables())) == read(tables)
    state.counted_values("values", KEYS, pa.int64(), VIEWS)
    assert read(list(state.snapshot().tables())) == read(tables)


def test_what_was_counted_may_be_seen_and_the_other_way_round() -> None:
    store = Store(pa.int64(), True)
    store.add([(("x", 1), 5), (("x", 1), 5), (("y", 1), 6)], [0, 8])
    seen = store.again(list(store.state.snapshot().tables()), counted=False)
    once = {pair: Counter({0: 1, 8: 1}) for pair in [(("x", 1), "5"), (("y", 1), "6")]}
    tables = list(seen.state.snapshot().tables())
    assert read(tables) == once
    assert read(list(store.again(tables).state.snapshot().tables())) == once


def test_errors() -> None:
    store = Store(pa.int64(), True)
    with pytest.raises(StateError, match="CountedValues of keys"):
        store.state.seen_values("values", KEYS, pa.int64(), VIEWS)
    with pytest.raises(StateError, match="asked for as CountedValues"):
        store.state.counted_values("values", KEYS, pa.int32(), VIEWS)
    store.add([(("x", 1), 5)], [0])
    tables = list(store.state.snapshot().tables())
    with pytest.raises(StateError, match="were stored as"):
        Store(pa.int32(), True, tables)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "values", "becomes"),
    [
        (pa.int32(), pa.int64(), [5, -6, None], [5, -6, None]),
        (pa.int16(), pa.float64(), [5, 7], [5.0, 7.0]),
        (pa.float32(), pa.float64(), [0.5], [0.5]),
        (pa.string(), pa.string_view(), ["a", "bcd"], ["a", "bcd"]),
        (pa.timestamp("s"), pa.timestamp("us"), [1], [1_000_000]),
    ],
    ids=str,
)
def test_values_get_wider(counted: bool, old: Any, new: Any, values: Any, becomes: Any) -> None:
    store = Store(old, counted)
    store.add([(("x", n), value) for n, value in enumerate(values)], [0, 3])
    store.add([(("y", 1), values[0])], [8])
    wide = store.again(list(store.state.snapshot().tables()), kind=new)
    same = Store(new, counted)
    columns = pa.array(becomes, new)
    pairs = [(("x", n), value) for n, value in enumerate(columns.to_pylist())]
    same.add(pairs, [0, 3])
    same.add([(("y", 1), columns[0].as_py())], [8])
    found, expected = wide.state.snapshot().tables(), same.state.snapshot().tables()
    stored, declared = list(found), list(expected)
    assert read(stored) == read(declared)
    assert [t.data.schema for t in stored] == [t.data.schema for t in declared]
    wide.add(pairs, [1])
    same.add(pairs, [1])
    assert len(wide.values) == len(same.values), "they are found again"


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        (pa.int64(), pa.int32(), 5),
        (pa.int64(), pa.string(), 5),
        (pa.int64(), pa.float64(), (1 << 53) + 1),
        (pa.timestamp("us"), pa.timestamp("s"), 5),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), 5),
    ],
    ids=str,
)
def test_what_would_change_values_is_refused(old: Any, new: Any, value: Any) -> None:
    store = Store(old, True)
    store.add([(("x", 1), value)], [0])
    with pytest.raises(StateError, match=r"were stored as .* and are declared as"):
        store.again(list(store.state.snapshot().tables()), kind=new)


rows_of = st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(-20, 2000)))


def distinct_values(views: int, tables: list[StateTable] | None = None) -> tuple[Any, Any, Any]:
    """A backend, distinct values in it, and the slots of groups 0, 1 and 2."""
    state = MemoryKeyedStateBackend(KeyGroupRange(0, GROUPS - 1), GROUPS)
    if tables is not None:
        state.restore(tables)
    keys = pa.schema({"k": pa.int64()})
    table = state.table("keys", keys, []).table(0)
    slots = table.slots(pa.record_batch({"k": [0, 1, 2]}))
    values = DistinctValues(state.seen_values("values", keys, pa.int64(), views))
    values.own(table)
    values.grow(3)
    return state, values, slots


@settings(deadline=None)
@given(st.lists(st.tuples(rows_of, st.sets(st.integers(0, VIEWS - 1))), max_size=5))
def test_distinct_values(batches: Any) -> None:
    """Each batch is seen by some of more views than a byte has bits."""
    (state, values, _), model = distinct_values(VIEWS), {}
    for batch, views in batches:
        groups = np.array([g for g, _ in batch], np.int64)
        array = pa.array([v for _, v in batch], pa.int64())
        masks = [np.full(len(batch), view in views) for view in range(VIEWS)]
        values.fold(groups, array, masks, 1)
        for view in views:
            reference_seen_pairs.see_pairs(model, [r for r in batch if r[1] is not None], view)
    _, again, slots = distinct_values(VIEWS, list(state.snapshot().tables()))
    for view in range(VIEWS):
        want = reference_seen_pairs.distinct(model, view, 3)
        assert values.distinct(view, np.arange(3)).to_pylist() == want
        assert again.distinct(view, slots).to_pylist() == want
    assert len(again) == len(model)


def test_a_set_keeps_its_pairs_while_it_grows() -> None:
    _, values, _ = distinct_values(2)
    for start in range(0, 300_000, 30_000):
        array = pa.array(np.arange(start, start + 30_000))
        masks = [np.empty(0, np.bool_), np.arange(30_000) % 3 == 0]
        for _ in range(2):
            values.fold(np.arange(30_000) % 2, array, masks, 1)
    assert values.distinct(0, np.arange(2)).to_pylist() == [150_000, 150_000]
    assert values.distinct(1, np.arange(2)).to_pylist() == [50_000, 50_000]
    assert isinstance(values._stored, SeenValues)
    assert len(values) * 4 <= values._stored._pairs.cells * 3
