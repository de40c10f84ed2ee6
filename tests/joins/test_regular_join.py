"""The regular join against a plain-Python model that works record by record, and against the join
of the two tables at every point."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import DataStream, StreamExecutionEnvironment
from strom.core.batch import ColumnBatch
from strom.core.errors import ConfigurationError, GraphError
from strom.core.ids import KeyGroupRange
from strom.core.row_kind import ROW_KIND, RowKind, with_kinds
from strom.operators import contents
from strom.operators.joins import broadcast, regular, retraction, rowstore
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

KINDS = ("inner", "left", "right", "full", "semi", "anti")
NO_ROW = None

Record = tuple[Any, ...]
"""Key, value, and time."""


def schema(key: pa.DataType, value: str) -> pa.Schema:
    return pa.schema([("k", key), (value, pa.int64())])


def join(key: pa.DataType, how: str, **options: Any) -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in range(2))
    return left.join(right, how, left_type=schema(key, "v"), right_type=schema(key, "w"), **options)


def batch(key: pa.DataType, port: int, records: list[Record], kinds: list[int] | None) -> Any:
    columns = schema(key, "vw"[port])
    data = pa.RecordBatch.from_arrays(
        [pa.array([r[i] for r in records], columns.types[i]) for i in (0, 1)], schema=columns
    )
    if kinds is not None:
        data = with_kinds(data, np.array(kinds, dtype=np.int8))
    return ColumnBatch(data, np.array([r[2] for r in records], dtype=np.int64))


class Model:
    """Flink's rules, one record at a time. `sides`: records with their numbers of matches."""

    def __init__(self, how: str, matches: Any = None, ttl: int | None = None) -> None:
        self.how = how
        self.sides: list[list[list[Any]]] = [[], []]
        self.ttl = ttl
        self._condition = matches or (lambda left, right: True)

    def record(self, port: int, record: Record, kind: int, now: int = 0) -> list[Any]:
        """(kind, left record or None, right record or None) of each change."""
        takes = kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        sign, own, other = (-1 if takes else 1), self.sides[port], self.sides[1 - port]
        found = [r for r in other if self._live(r, now) and self._match(port, record, r[0])]
        outer = {"left": (1, 0), "right": (0, 1), "full": (1, 1)}.get(self.how, (0, 0))
        out: list[Any] = []
        for row in found:
            before = row[1]
            turned = (sign, before) in ((1, 0), (-1, 1))
            row[1] = max(0, before + sign)
            if self.how in ("semi", "anti"):
                if port == 1 and turned:
                    out.append((sign if self.how == "semi" else -sign, row[0], None))
                continue
            lone = (-sign, *self._sides(port, None, row[0]))
            pair = (sign, *self._sides(port, record, row[0]))
            lones = [lone] if turned and outer[1 - port] else []
            out += [*lones, pair] if sign > 0 else [pair, *lones]
        if self.how in ("semi", "anti"):
            if port == 0 and bool(found) == (self.how == "semi"):
                out.append((sign, record, None))
        elif not found and outer[port]:
            out.append((sign, *self._sides(port, record, None)))
        self._store(own, record, takes, len(found), now)
        return out

    def joined(self) -> Counter[Any]:
        """The join of what both sides hold."""
        lefts, rights = ([row[0] for row in side] for side in self.sides)
        matching = [(a, [b for b in rights if self._match(0, a, b)]) for a in lefts]
        matched = Counter((a, b) for a, found in matching for b in found)
        lone = Counter((a, None) for a, found in matching if not found)
        some = Counter((a, None) for a, found in matching if found)
        mine = Counter((None, b) for b in rights if not any(self._match(0, a, b) for a in lefts))
        return {
            "inner": matched,
            "left": matched + lone,
            "right": matched + mine,
            "full": matched + lone + mine,
            "semi": some,
            "anti": lone,
        }[self.how]

    def _store(self, own: list[Any], record: Record, takes: bool, found: int, now: int) -> None:
        if not takes:
            own.append([record, found, now])
            return
        equal = [r for r in own if r[0][:2] == record[:2] and self._live(r, now)]
        if equal:
            own.remove(equal[-1])

    def _live(self, row: list[Any], now: int) -> bool:
        return self.ttl is None or now < row[2] + self.ttl

    def _match(self, port: int, record: Record, other: Record) -> bool:
        left, right = (record, other) if port == 0 else (other, record)
        return left[0] is not None and left[0] == right[0] and self._condition(left, right)

    @staticmethod
    def _sides(port: int, mine: Any, other: Any) -> tuple[Any, Any]:
        return (mine, other) if port == 0 else (other, mine)


def row(how: str, change: Any) -> tuple[Any, ...]:
    """A change as the operator gives it: kind, key, values, time."""
    sign, left, right = change
    kind = RowKind.INSERT if sign > 0 else RowKind.DELETE
    key = left[0] if left is not None else right[0]
    time = max(side[2] for side in (left, right) if side is not None)
    v = None if left is None else left[1]
    if how in ("semi", "anti"):
        return (int(kind), key, v, time)
    return (int(kind), key, v, None if right is None else right[1], time)


def given_out(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    """What came out since the last call, as `row` makes it."""
    rows = []
    for out in harness.batches():
        names = out.data.schema.names
        kinds = out.data.column(ROW_KIND).to_pylist() if ROW_KIND in names else [0] * len(out)
        plain = out.data.drop_columns([ROW_KIND]) if ROW_KIND in names else out.data
        columns = [column.to_pylist() for column in plain.columns]
        assert out.timestamps is not None
        rows += list(zip(kinds, *columns, out.timestamps.tolist(), strict=True))
    harness.output.elements.clear()
    return rows


def halves(snapshot: OperatorSnapshotTables, groups: KeyGroupRange) -> OperatorSnapshotTables:
    """The part of a snapshot that belongs to these key groups."""
    from dataclasses import replace

    def cut(table: Any) -> Any:
        found = table.data.column("__key_group").to_numpy()
        chosen = np.flatnonzero((found >= groups.first) & (found <= groups.last))
        return replace(table, data=table.data.take(pa.array(chosen)))

    return OperatorSnapshotTables(
        tuple(map(cut, snapshot.keyed)), snapshot.operator, snapshot.now_ms
    )


def split_and_merged(stream: DataStream, snapshot: OperatorSnapshotTables) -> OperatorHarness:
    """Restored as two subtasks, snapshotted again, and restored as one."""
    parts = []
    for groups in (KeyGroupRange(0, 63), KeyGroupRange(64, 127)):
        half = OperatorHarness.of(stream, restored=halves(snapshot, groups), key_groups=groups)
        half.operator.validate()  # type: ignore[attr-defined]
        parts.append(half.snapshot())
    merged = OperatorSnapshotTables(
        tuple(t for part in parts for t in part.keyed), (), snapshot.now_ms
    )
    return OperatorHarness.of(stream, restored=merged)


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(
            st.tuples(st.integers(0, 3) | st.none(), st.integers(0, 2), st.integers(0, 9)),
            min_size=1,
            max_size=6,
        ),
        st.integers(0, 2**30),
    ),
    max_size=8,
)


def with_retractions(records: list[Record], held: list[Record], chance: int) -> Any:
    """Some records taken back, from those held: a valid changelog. Returns records and kinds."""
    changes: list[tuple[Record, int]] = []
    for i, record in enumerate(records):
        held.append(record)
        changes.append((record, RowKind.INSERT))
        if chance >> i & 1:
            back = held.pop((chance >> 8) % len(held))
            changes.append((back, RowKind.DELETE))
    return [c[0] for c in changes], [int(c[1]) for c in changes]


KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "int64": (pa.int64(), lambda k: k),
    "string": (pa.string(), lambda k: f"key {k}"),
    "view": (pa.string_view(), lambda k: f"a key longer than twelve bytes {k}"),
    "date": (pa.date32(), lambda k: __import__("datetime").date(2020, 1, 1 + k)),
}


@pytest.mark.parametrize("how", KINDS)
@given(RECORDS, st.booleans(), st.booleans(), st.sampled_from(sorted(KEYS)), st.integers(0, 8))
@settings(max_examples=examples(60), deadline=None)
def test_equals_the_model(
    how: str, steps: Any, changelog: bool, condition: bool, key: str, stop: int
) -> None:
    kind, make = KEYS[key]
    options = {"where": pl.col("v") <= pl.col("w")} if condition else {}
    stream = join(kind, how, **options)
    harness = OperatorHarness.of(stream)
    model = Model(how, (lambda a, b: a[1] <= b[1]) if condition else None)
    table: Counter[Any] = Counter()
    held: list[list[Record]] = [[], []]
    for number, (port, records, chance) in enumerate(steps):
        records = [(None if r[0] is None else make(r[0]), *r[1:]) for r in records]
        kinds = None
        if changelog:
            # Equal contents at equal times: which of two equal records is taken cannot be told.
            records = [(r[0], r[1], 10 * r[1]) for r in records]
            records, kinds = with_retractions(records, held[port], chance)
        if number == stop:
            harness = split_and_merged(stream, harness.snapshot())
        harness.push(batch(kind, port, records, kinds), port=port)
        harness.operator.validate()  # type: ignore[attr-defined]
        expected = [
            row(how, change)
            for record, each in zip(records, kinds or [0] * len(records), strict=True)
            for change in model.record(port, record, each)
        ]
        found = given_out(harness)
        assert Counter(found) == Counter(expected)
        for record in found:
            table[record[1:]] += 1 if record[0] == RowKind.INSERT else -1
            assert table[record[1:]] >= 0, "taken away before it was added"
        whole = [row(how, (1, *pair))[1:] for pair in model.joined().elements()]
        assert +table == Counter(whole)


@pytest.mark.parametrize("how", KINDS)
@given(RECORDS, st.integers(0, 8))
@settings(max_examples=examples(40), deadline=None)
def test_rows_live_for_their_time(how: str, steps: Any, stop: int) -> None:
    stream = join(pa.int64(), how, ttl=10)
    harness = OperatorHarness.of(stream)
    model = Model(how, ttl=10)
    for number, (port, records, wait) in enumerate(steps):
        harness.advance_processing_time(harness.clock.now_ms() + wait % 7)
        if number == stop:
            harness = split_and_merged(stream, harness.snapshot())
        now = harness.clock.now_ms()
        harness.push(batch(pa.int64(), port, records, None), port=port)
        harness.operator.validate()  # type: ignore[attr-defined]
        expected = [row(how, c) for r in records for c in model.record(port, r, 0, now)]
        assert Counter(given_out(harness)) == Counter(expected)


def test_expired_and_retracted_rows_are_removed(monkeypatch: Any) -> None:
    monkeypatch.setattr(regular, "FIRST_COMPACTION", 10)
    harness = OperatorHarness.of(join(pa.int64(), "inner", ttl=100))
    for i in range(100):
        harness.advance_processing_time(10 * i)
        harness.push(
            batch(pa.int64(), i % 2, [(i * 5 + j, j, i) for j in range(5)], None), port=i % 2
        )
    operator: Any = harness.operator
    assert sum(len(store) for store in operator._stores) < 150
    assert len(operator._slots) < 500
    harness.advance_processing_time(5000)
    assert sum(len(store) for store in operator._stores) == 0

    harness = OperatorHarness.of(join(pa.int64(), "left"))
    for i in range(100):
        records = [(i, i, 0), (i, i, 0)]
        harness.push(batch(pa.int64(), 0, records, [RowKind.INSERT, RowKind.DELETE]), port=0)
    operator = harness.operator
    operator.validate()
    assert len(operator._stores[0]) <= 30


def test_a_key_with_many_rows_comes_out_in_portions(monkeypatch: Any) -> None:
    monkeypatch.setattr(regular, "MAX_PAIRS", 7)
    for how in KINDS:
        harness = OperatorHarness.of(join(pa.int64(), how, where=pl.col("v") != pl.col("w")))
        model = Model(how, lambda a, b: a[1] != b[1])
        for port in (0, 1, 0):
            records = [(1, i % 5, 0) for i in range(10)]
            harness.push(batch(pa.int64(), port, records, None), port=port)
            assert all(len(out) <= 3 * 7 for out in harness.batches())
            expected = [row(how, c) for r in records for c in model.record(port, r, 0)]
            assert Counter(given_out(harness)) == Counter(expected)


def test_an_inner_join_that_only_grows_has_no_row_kinds() -> None:
    harness = OperatorHarness.of(join(pa.int64(), "inner"))
    harness.push(batch(pa.int64(), 0, [(1, 2, 3)], None), port=0)
    harness.push(batch(pa.int64(), 1, [(1, 4, 5)], None), port=1)
    assert harness.stamped_outputs() == [((1, 2, 4), 5)]


def test_object_records_and_several_keys() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("a", "b") for _ in range(2))
    harness = OperatorHarness.of(left.join(right))
    harness.push([{"a": 1, "b": "x", "v": 1}, {"a": 1, "b": None, "v": 2}], port=0)
    harness.push([{"a": 1, "b": "x", "v": 3}, {"a": 1, "b": "y", "v": 4}], port=1)
    assert harness.outputs() == [(1, "x", 1, 3)]
    assert harness.outputs()[0]._fields == ("a", "b", "v", "v_right")


def test_row_kinds_of_objects_are_seen() -> None:
    harness = OperatorHarness.of(join(pa.int64(), "inner"))
    harness.push([{"k": 1, "v": 2, ROW_KIND: 0}, {"k": 1, "v": 3, ROW_KIND: 0}], port=0)
    harness.push([{"k": 1, "v": 2, ROW_KIND: 3}], port=0)
    harness.push([{"k": 1, "w": 5}], port=1)
    assert harness.outputs() == [(1, 3, 5, 0)]


@pytest.mark.parametrize(
    "value",
    [[1, 2], {"a": 1}, 1.5, True, b"x", __import__("decimal").Decimal("1.25")],
    ids=str,
)
def test_rows_of_any_type_can_be_taken_back(value: Any) -> None:
    kind = pa.array([value]).type
    columns = pa.schema([("k", pa.int64()), ("v", kind)])
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in range(2))
    harness = OperatorHarness.of(left.join(right, left_type=columns))
    for kinds in ([0, 0], [3, 0]):
        data = pa.RecordBatch.from_arrays(
            [pa.array([1, 2]), pa.array([value, None], kind)], schema=columns
        )
        harness.push(ColumnBatch(with_kinds(data, np.array(kinds, np.int8))), port=0)
    harness.push([{"k": 1, "w": 5}, {"k": 2, "w": 6}], port=1)
    assert harness.outputs() == [(2, None, 6, 0), (2, None, 6, 0)]


HASHES = {"one value": 0, "two values": 1, "all bits": -1}


def shortened(bits: int) -> Any:
    """A hash of row contents of which only these bits differ."""
    return lambda columns: contents.hash_rows(columns) & bits


@pytest.mark.parametrize("bits", HASHES.values(), ids=HASHES)
@given(RECORDS, st.integers(0, 8))
@settings(max_examples=examples(40), deadline=None)
def test_rows_whose_hashes_collide_are_told_apart(bits: int, steps: Any, stop: int) -> None:
    """Texts, numbers and nulls by content, whatever the hash; rows added, taken back and added
    again within a batch and between batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowstore, "hash_rows", shortened(bits))
        stream = join(pa.int64(), "left")
        harness, model = OperatorHarness.of(stream), Model("left")
        held: list[list[Record]] = [[], []]
        for number, (port, found, chance) in enumerate(steps):
            records = [(k, None if v == 2 else v, 10) for k, v, _ in found]
            records, kinds = with_retractions(records, held[port], chance)
            if number == stop:
                harness = split_and_merged(stream, harness.snapshot())
            harness.push(batch(pa.int64(), port, records, kinds), port=port)
            harness.operator.validate()  # type: ignore[attr-defined]
            expected = [
                row("left", change)
                for record, each in zip(records, kinds, strict=True)
                for change in model.record(port, record, each)
            ]
            assert Counter(given_out(harness)) == Counter(expected)
        stores = [s for s in harness.operator._stores if s]  # type: ignore[attr-defined]
        for store in stores:
            if store._hashes is not None:
                numbers = np.arange(len(store))
                assert (store._hashes.used == rowstore.hash_rows(store.log.gather(numbers))).all()


def test_many_collisions_cost_columns_not_records(monkeypatch: Any) -> None:
    """Every hash is the same: the contents are numbered once per batch, not once per record."""
    calls = []
    monkeypatch.setattr(rowstore, "hash_rows", shortened(0))
    monkeypatch.setattr(
        retraction, "content_codes", lambda c: calls.append(len(c[0])) or contents.content_codes(c)
    )
    harness = OperatorHarness.of(join(pa.int64(), "inner"))
    rows = [(i % 7, i, 0) for i in range(1000)]
    harness.push(batch(pa.int64(), 0, rows, [0] * 1000), port=0)
    taken = rows[:990]
    harness.push(batch(pa.int64(), 0, taken, [3] * 990), port=0)
    assert len(calls) == 1
    harness.push(batch(pa.int64(), 1, [(k, 0, 0) for k in range(7)], None), port=1)
    assert sorted(r[2] for r in given_out(harness)) == list(range(990, 1000))


def test_a_broadcast_changelog_is_told_apart_by_content() -> None:
    rows = pa.record_batch({"k": [1, 1, 1, 2], "v": ["a", "b", "a", None]})
    one = with_kinds(rows, np.array([0, 0, 3, 0], np.int8))
    left = broadcast._current([one], rows.schema)
    assert left.to_pydict() == {"k": [1, 2], "v": ["b", None]}


def test_what_cannot_be_joined_is_said_at_once() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([])
    with pytest.raises(GraphError, match="right_type"):
        stream.key_by("k").join(stream.key_by("k"), "left")
    with pytest.raises(ConfigurationError, match="how must be"):
        stream.key_by("k").join(stream.key_by("k"), "outer")
    with pytest.raises(ConfigurationError, match="keyed stream"):
        stream.key_by("k").join(stream)
    with pytest.raises(ConfigurationError, match="at least 1 ms"):
        stream.key_by("k").join(stream.key_by("k"), ttl=0)
    with pytest.raises(ConfigurationError, match="where must be"):
        stream.key_by("k").join(stream.key_by("k"), where="v < w")
