"""Columns of restored state against what a program declares and says: right, or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import (
    ColumnBatch,
    ConfigurationError,
    DataStream,
    EventTimeSessionWindows,
    KeyedProcessFunction,
    KeyedStream,
    OperatorError,
    Row,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    max_,
    sum_,
)
from strom.connectors.datagen import DataGenSource
from strom.core.errors import StateError, TypeMismatchError
from strom.core.ids import KeyGroupRange
from strom.core.row_kind import ROW_KIND
from strom.state.backend import AccColumn
from strom.state.column_migration import fitted, migrated
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.migration import StateMigration
from strom.state.widening import widened
from strom.testing import OperatorHarness

# --- types ----------------------------------------------------------------------------------------

NUMBERS = {
    kind: (-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
}
NUMBERS |= {kind: (0, (1 << kind.bit_width) - 1) for kind in (pa.uint8(), pa.uint16(), pa.uint32())}
KINDS = [*NUMBERS, pa.float32(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("ms")]


@settings(deadline=None)
@given(st.sampled_from(list(NUMBERS)), st.sampled_from(KINDS), st.data())
def test_a_wider_type_holds_each_value_exactly(old: Any, new: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | st.integers(*NUMBERS[old]), max_size=5))
    found = widened(pa.chunked_array([pa.array(values, old)]), new)
    if new in NUMBERS:
        wide = NUMBERS[new][0] <= NUMBERS[old][0] and NUMBERS[new][1] >= NUMBERS[old][1]
    else:
        exact = all(value is None or int(float(value)) == value for value in values)
        in_range = all(value is None or abs(value) <= 1 << 53 for value in values)
        wide = new == pa.float64() and exact and in_range
    if wide:
        assert found is not None
        assert found.type == new
        assert found.to_pylist() == values
    else:
        assert found is None or old == new


@pytest.mark.parametrize(
    ("old", "new", "becomes"),
    [
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.date32(), pa.timestamp("ms"), False),
        (pa.timestamp("ms"), pa.timestamp("us"), True),
        (pa.timestamp("us"), pa.timestamp("ms"), False),
        (pa.timestamp("ms"), pa.timestamp("us", "UTC"), False),
        (pa.string(), pa.large_string(), True),
        (pa.bool_(), pa.int64(), False),
        (pa.int64(), pa.string(), False),
        (pa.decimal128(5, 2), pa.decimal128(7, 3), True),
        (pa.decimal128(5, 2), pa.decimal128(5, 3), False),
        (pa.null(), pa.string(), True),
    ],
    ids=str,
)
def test_other_types(old: pa.DataType, new: pa.DataType, becomes: bool) -> None:
    assert (widened(pa.chunked_array([pa.nulls(2, old)]), new) is not None) is becomes


# --- tables ---------------------------------------------------------------------------------------

GROUPS = 16


def backend() -> MemoryKeyedStateBackend:
    return MemoryKeyedStateBackend(KeyGroupRange(0, GROUPS - 1), GROUPS)


def filled(key: pa.DataType, count: str) -> list[Any]:
    """A table of one count for each of the keys 1 and 2."""
    keys = pa.record_batch({"k": pa.array([1, 2], key)})
    kept = backend()
    table = kept.table("t", keys.schema, [AccColumn("n", count)]).table()
    table.column("n")[table.slots(keys)] = [10, 20]
    return list(kept.snapshot().tables())


def test_keys_and_accumulators_get_wider() -> None:
    keys = pa.record_batch({"k": pa.array([2, 1], pa.int64())})
    restored = backend()
    restored.restore(filled(pa.int32(), "int64"))
    table = restored.table("t", keys.schema, [AccColumn("n", "float64")]).table()
    assert table.column("n")[table.find(keys)].tolist() == [20.0, 10.0]
    (after,) = restored.snapshot().tables()
    assert after.data.schema.field("acc.n").type == pa.float64()
    assert after.data.schema.field("key.k").type == pa.int64(), "written in the new schema"


def test_keys_that_would_hash_otherwise_are_refused() -> None:
    restored = backend()
    restored.restore(filled(pa.int32(), "int64"))
    with pytest.raises(StateError) as refused:
        restored.table("t", pa.schema([("k", pa.float64())]), [AccColumn("n", "int64")])
    text = str(refused.value)
    assert "stored with keys [k: int32] and accumulators [n: int64]" in text
    assert "declared with keys [k: double] and accumulators [n: int64]" in text
    assert "'k' of int32 cannot become double" in text


def test_what_a_program_says_wrongly_is_refused() -> None:
    stored = filled(pa.int32(), "int64")
    for said, why in (
        (StateMigration.of("x", drop=["k"]), "'k' is a key column and cannot be dropped"),
        (StateMigration.of("x", types={"k": pa.float64()}), "'key.k' of int32 cannot become"),
    ):
        with pytest.raises(StateError, match=why):
            migrated(stored, {None: said}, "operator 'x', subtask 1")
    for settings_, why in (
        ({"rename": {"a": "b", "b": "c"}}, "'b' is the name of an old field and of a new one"),
        ({"drop": ["a"], "defaults": {"a": 1}}, "'a' is the name of an old field and of a new"),
        ({"rename": {"a": "c", "b": "c"}}, "named twice"),
        ({"drop": "ab"}, "takes a list"),
        ({"types": {"a": int}}, "give a type of Types, or an Arrow type"),
        ({"rename": {"a": 1}}, "1 is no name of a field"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            StateMigration.of("x", **settings_)  # type: ignore[arg-type]


@given(st.permutations(["a", "b", "c"]), st.sets(st.sampled_from("abcd")))
def test_columns_are_found_by_name_or_shown(order: list[str], declared: set[str]) -> None:
    data = pa.table(
        {"__key_group": pa.array([0, 1], pa.int32())} | {f"row.{n}": [1, 2] for n in order}
    )
    fields = [pa.field(f"row.{name}", pa.int64()) for name in sorted(declared)]
    if declared == {"a", "b", "c"}:
        assert fitted("rows 'r'", data, fields).column_names[1:] == ["row.a", "row.b", "row.c"]
    else:
        with pytest.raises(
            StateError, match=r"was stored with columns \[.* declared with"
        ) as found:
            fitted("rows 'r'", data, fields)
        for name in declared - set("abc"):
            assert f"['{name}'] are new" in str(found.value)


# --- operators ------------------------------------------------------------------------------------


def batch(**columns: Any) -> ColumnBatch:
    data = pa.record_batch(columns)
    return ColumnBatch(data, np.arange(data.num_rows))


def keyed() -> KeyedStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([{"k": 1}]).key_by("k")


def tumbling(stream: KeyedStream) -> Any:
    return stream.window(TumblingEventTimeWindows.of(timedelta(seconds=1)))


KEEP_RECORDS = {
    "top_n": lambda s: s.top_n(2, "v"),
    "deduplicate": lambda s: s.deduplicate("last"),
    "over_waiting": lambda s: s.over(rows=3).aggregate(t=sum_("v")),
    "over": lambda s: s.over(rows=3, order="arrival").aggregate(t=sum_("v")),
    "window_max_by": lambda s: tumbling(s).max_by("v"),
}
OTHERS = {
    "sum": lambda s: s.sum("v"),
    "aggregate": lambda s: s.aggregate(t=sum_("v"), most=max_("v")),
    "max_by": lambda s: s.max_by("v"),
}
WINDOWS = {
    "windows": lambda s: tumbling(s).aggregate(t=sum_("v"), most=max_("v")),
    "sessions": lambda s: s.window(EventTimeSessionWindows.with_gap(5)).aggregate(
        t=sum_("v"), most=max_("v")
    ),
}

KEYS = pa.array([1, 2])
OLD = {"k": KEYS, "v": pa.array([1, 2], pa.int32())}


def goes_on(build: Any, before: dict[str, Any], after: dict[str, Any], **said: Any) -> list[Any]:
    first = OperatorHarness.of(build(keyed()))
    first.push(batch(**before))
    stream: DataStream = build(keyed()).migrate_state(**said)
    second = OperatorHarness.of(stream, restored=first.snapshot())
    second.push(batch(**after))
    second.finish()
    return second.outputs()


def as_if_always(build: Any, *batches: dict[str, Any]) -> list[Any]:
    """What an operator emits, behind the first batch, that had records of the new form from the
    start."""
    harness = OperatorHarness.of(build(keyed()))
    harness.push(batch(**batches[0]))
    harness.take_outputs()
    for one in batches[1:]:
        harness.push(batch(**one))
    harness.finish()
    return harness.outputs()


@pytest.mark.parametrize("name", [*KEEP_RECORDS, *OTHERS, *WINDOWS])
def test_numbers_in_records_get_wider(name: str) -> None:
    build = (KEEP_RECORDS | OTHERS | WINDOWS)[name]
    after = {"k": KEYS, "v": pa.array([5.5, 0.5])}
    names = ("input0", "input1") if name in WINDOWS else ("v",)
    found = goes_on(build, OLD, after, types=dict.fromkeys(names, Types.DOUBLE()))
    wide = {"k": KEYS, "v": pa.array([1.0, 2.0])}
    assert list(map(repr, found)) == list(map(repr, as_if_always(build, wide, after)))


@pytest.mark.parametrize("name", KEEP_RECORDS)
def test_records_get_lose_and_rename_fields(name: str) -> None:
    build = KEEP_RECORDS[name]
    before = {**OLD, "z": pa.array([7, 8]), "old": pa.array(["a", "b"])}
    after = {**OLD, "y": pa.array([9, 9]), "w": pa.array(["x", "x"])}
    said: Any = {"rename": {"z": "y"}, "drop": ["old"], "defaults": {"w": "-"}}
    model = {**OLD, "y": before["z"], "w": pa.array(["-", "-"])}
    assert list(map(repr, goes_on(build, before, after, **said))) == list(
        map(repr, as_if_always(build, model, after))
    )


@pytest.mark.parametrize("join", ["regular", "interval", "window", "temporal"])
def test_the_side_of_a_join(join: str) -> None:
    def build() -> DataStream:
        env = StreamExecutionEnvironment.get_execution_environment()
        left, right = (env.from_collection([{"k": 1}]).key_by("k") for _ in range(2))
        if join == "regular":
            return left.join(right)
        if join == "temporal":
            return left.temporal_join(right)
        if join == "interval":
            return left.interval_join(right, -timedelta(hours=1), timedelta(hours=1))
        return left.window_join(right, TumblingEventTimeWindows.of(timedelta(seconds=1)))

    first = OperatorHarness.of(build())
    first.push(batch(**OLD, old=pa.array(["a", "b"])))
    first.push(batch(k=KEYS, u=pa.array([5, 6])), port=1)
    stream = build().migrate_state(
        "left", drop=["old"], rename={"v": "value"}, types={"value": pa.int64()}, defaults={"w": 0}
    )
    second = OperatorHarness.of(stream, restored=first.snapshot())
    second.push(batch(k=pa.array([1]), u=pa.array([50])), port=1)
    second.finish(2)
    rows = [row for row in second.outputs() if row.u == 50]
    assert [(row.k, row.value, row.w) for row in rows] == [(1, 1, 0)]


def temporal_join() -> DataStream:
    env = StreamExecutionEnvironment.get_execution_environment()
    records, versions = (env.from_collection([{"k": 1}]).key_by("k") for _ in range(2))
    return records.temporal_join(versions)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"types": {"u": pa.int64()}}, {"u": 5, "gone": "a"}),
        ({"rename": {"u": "w"}}, {"w": 5, "gone": "a"}),
        ({"defaults": {"z": 0}}, {"u": 5, "gone": "a", "z": 0}),
        ({"drop": ["gone"]}, {"u": 5}),
    ],
)
def test_the_versions_of_a_temporal_join(said: Any, shown: dict[str, Any]) -> None:
    first = OperatorHarness.of(temporal_join())
    first.push(batch(k=KEYS, u=pa.array([5, 6], pa.int32()), gone=pa.array(["a", "b"])), port=1)
    stream = temporal_join().migrate_state("right", **said)
    second = OperatorHarness.of(stream, restored=first.snapshot())
    second.push(batch(k=pa.array([1]), v=pa.array([3])))
    second.finish(2)
    (row,) = second.outputs()
    assert row.as_dict() == {"k": 1, "v": 3, **shown}


def test_the_table_of_a_broadcast_join_widens_and_is_refused_otherwise() -> None:
    def goes_on_with(**table: Any) -> list[Any]:
        env = StreamExecutionEnvironment.get_execution_environment()
        records, rows = (env.from_collection([{"k": 1}]) for _ in range(2))
        stream = records.broadcast_join(rows, on="k")
        first = OperatorHarness.of(stream)
        first.push(batch(k=KEYS, u=pa.array([5, 6], pa.int32())), port=1)
        first.push(batch(k=pa.array([1]), v=pa.array([3], pa.int32())))
        second = OperatorHarness.of(stream, restored=first.snapshot())
        second.push(batch(k=KEYS, **table), port=1)
        second.push(batch(k=pa.array([2]), v=pa.array([4])))
        second.finish(2)
        return sorted((row.k, row.v, row.u) for row in second.outputs())

    found = goes_on_with(u=pa.array([7, 8]))
    assert found == [(1, 3, 5), (1, 3, 7), (2, 4, 6), (2, 4, 8)]
    with pytest.raises(OperatorError, match=r"no columns \['u'\], only \['k', 'w'\]"):
        goes_on_with(w=pa.array([7, 8]))


def broadcast_join(on: str = "k") -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    records, rows = (env.from_collection([{on: 1}]) for _ in range(2))
    return records.broadcast_join(rows, on=on)


def test_both_sides_of_a_broadcast_join_become_what_is_said_of_them() -> None:
    """The table, of a changelog, and the records that wait for it; twice, told the same."""
    first = OperatorHarness.of(broadcast_join())
    kinds = pa.array([0, 0, 0], pa.int8())
    table = pa.record_batch(
        {"k": [1, 2, 3], "u": pa.array([5, 6, 7], pa.int32()), "x": ["a"] * 3, ROW_KIND: kinds}
    )
    first.push(ColumnBatch(table), port=1)
    first.push(batch(k=pa.array([1]), v=pa.array([3], pa.int32())))
    snapshot = first.snapshot()
    for _ in range(2):
        stream = broadcast_join("id").migrate_state(
            "right", rename={"k": "id", "u": "w"}, types={"w": pa.int64()}, drop=["x"]
        )
        stream.migrate_state("left", rename={"k": "id"}, defaults={"n": 0})
        second = OperatorHarness.of(stream, restored=snapshot)
        snapshot = second.snapshot()
    taken = pa.record_batch({"id": [3], "w": [7], ROW_KIND: pa.array([3], pa.int8())})
    second.push(ColumnBatch(taken), port=1)
    second.push(batch(id=pa.array([2, 3]), v=pa.array([4, 9], pa.int32()), n=pa.array([8, 8])))
    second.finish(2)
    found = [row.as_dict() for row in second.outputs()]
    assert found == [{"id": 1, "v": 3, "n": 0, "w": 5}, {"id": 2, "v": 4, "n": 8, "w": 6}]


def test_what_the_table_of_a_broadcast_join_cannot_become_is_refused() -> None:
    first = OperatorHarness.of(broadcast_join())
    first.push(batch(k=KEYS, u=pa.array(["a", "b"])), port=1)
    stream = broadcast_join().migrate_state("right", types={"u": pa.int64()})
    with pytest.raises(StateError, match=r"state 'right': column 'row\.u' of string cannot become"):
        OperatorHarness.of(stream, restored=first.snapshot())


def test_records_kept_by_the_place_of_their_fields_are_refused() -> None:
    with pytest.raises(StateError, match=r"\[k: int64, k: int64, v: int32\] by the place"):
        goes_on(OTHERS["max_by"], OLD, OLD, defaults={"w": 0})


def test_without_a_word_a_changed_record_is_refused() -> None:
    with pytest.raises(TypeMismatchError, match=r"\['k', 'w'\] now and had \['k', 'v'\]"):
        goes_on(KEEP_RECORDS["deduplicate"], OLD, {"k": KEYS, "w": KEYS})


def test_a_state_is_spoken_of_once() -> None:
    stream = keyed().sum("v").migrate_state(drop=["a"])
    with pytest.raises(ConfigurationError, match="twice for the same state"):
        stream.migrate_state(drop=["b"])


# --- keys of Python objects -----------------------------------------------------------------------


class Latest(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.latest = runtime_context.get_state(ValueStateDescriptor("latest"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, self.latest.value()
        self.latest.update(value)


def by(selector: Any, restored: Any = None) -> OperatorHarness:
    """As of another job, where something is restored."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1]).key_by(selector).process(Latest())
    return OperatorHarness.of(stream, restored=restored, of_another_job=True)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (lambda n: n, str, "type int and keys are of type str"),
        (lambda n: (n, 1), lambda n: (n, 1, 1), "tuple of 2 and keys are of type tuple of 3"),
        (lambda n: (n, 1), lambda n: n, "tuple of 2 and keys are of type int"),
        (lambda n: Row(a=n), lambda n: n / 2, "type float"),
    ],
)
def test_another_type_of_key_is_refused(before: Any, after: Any, told: str) -> None:
    first = by(before)
    first.push([1, 2])
    snapshot = first.snapshot()
    with pytest.raises((StateError, OperatorError), match=told):
        by(after, snapshot).push([1, 2])
    same = by(before, snapshot)
    same.push([3, 2])
    assert same.outputs() == [(3, None), (2, 2)]


class Level(IntEnum):
    LOW = 1


BERN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("stored", "new", "refused"),
    [
        ([None], 7, False),  # None is a key of any type
        ([None, "a"], 7, True),
        ([None, (1, "x")], 7, True),
        ([(1, "x"), 7], 8, False),  # of several types, whichever is first in the snapshot
        ([7, (1, "x")], "a", False),
        ([np.int64(1)], 2, False),  # equal keys of these have one hash
        ([Level.LOW], 2, False),
        ([2], Level.LOW, False),
        ([datetime(2026, 1, 1)], datetime(2026, 1, 1, tzinfo=BERN), True),
        ([datetime(2026, 1, 1, tzinfo=UTC)], datetime(2026, 1, 1, tzinfo=BERN), False),
    ],
)
def test_what_counts_as_another_type_of_key(stored: list[Any], new: Any, refused: bool) -> None:
    first = by(lambda key: key)
    first.push(stored)
    again = by(lambda key: key, first.snapshot())
    if refused:
        with pytest.raises((StateError, OperatorError), match="was stored under keys of type"):
            again.push([new])
    else:
        again.push([new])
        again.push([stored[0]])
        assert again.outputs() == [(new, None), (stored[0], stored[0])]


@pytest.mark.parametrize("gap", [None, 5])
def test_another_type_of_key_is_refused_of_windows_on_columns(gap: int | None) -> None:
    """Of another job's state: a job's own keys may be of several types."""
    schema = pa.schema([("n", pa.int64()), ("t", pa.int64())])

    def by_key(key: Any, restored: Any = None, another: bool = True) -> OperatorHarness:
        env = StreamExecutionEnvironment.get_execution_environment()
        rows = env.from_source(DataGenSource(lambda s, c: [], 0, schema=schema))
        keyed = rows.with_event_time("t").key_by(key)
        windows = TumblingEventTimeWindows(10)
        window = windows if gap is None else EventTimeSessionWindows.with_gap(gap)
        stream = keyed.window(window).aggregate(total=sum_("n"))
        return OperatorHarness.of(stream, restored=restored, of_another_job=another)

    def batch(*times: int) -> ColumnBatch:
        data = pa.record_batch([pa.array([1] * len(times)), pa.array(times)], schema=schema)
        return ColumnBatch(data, np.array(times))

    first = by_key(lambda row: row.n)
    first.push(batch(1, 2))
    snapshot = first.snapshot()
    with pytest.raises(StateError, match=r"type int and keys are of type str now: .* another hash"):
        by_key(lambda row: str(row.n), snapshot).push(batch(3))
    same = by_key(lambda row: row.n, snapshot)
    same.push(batch(3))
    same.watermark(100)
    assert [row.total for row in same.outputs()] == [3]
    own = by_key(lambda row: str(row.n), snapshot, another=False)
    own.push(batch(3))
