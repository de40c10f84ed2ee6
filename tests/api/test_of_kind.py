"""Streams of several kinds, and the streams of one kind that are taken of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from drawn_ways import assert_equivalent
from strom import (
    DataStream,
    GraphError,
    OfKind,
    Row,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
    count,
    dead_letters,
)
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileSink, FileSource
from strom.core.arrow_values import to_array
from strom.core.errors import ConfigurationError, JobFailedError, TypeMismatchError
from strom.core.union_type import UnionType
from strom.testing import Ways


class Say(NamedTuple):
    at: int
    user: str


EVENT = Types.UNION({"say": Say, "leave": {"user": str, "why": str | None}})
UNION = EVENT.arrow
assert isinstance(UNION, UnionType)
SCHEMA = pa.schema([("n", pa.int64()), ("event", UNION), ("at", pa.timestamp("ms"))])
TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")


def value(n: int) -> OfKind | None:
    if n % 7 == 6:
        return None
    if n % 3:
        return OfKind("say", Row(at=n, user=f"user {n % 5} of many"))
    return OfKind("leave", Row(user=f"user {n % 5}", why=None if n % 2 else "late"))


def generate(start: int, number: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + number)
    columns = [
        pa.array(numbers),
        UNION.array([value(n) for n in numbers.tolist()]),
        pa.array(numbers.astype("datetime64[ms]")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


N = 60
SAID = [v.row for v in map(value, range(N)) if v is not None and v.kind == "say"]
LEFT = [v.row for v in map(value, range(N)) if v is not None and v.kind == "leave"]


def events(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_source(DataGenSource(generate, N, schema=SCHEMA, block=7), TIME, "events")


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def test_the_rows_of_a_kind_are_its_columns(env: StreamExecutionEnvironment) -> None:
    said = events(env).of_kind("say")
    assert said.get_type() == Types.ROW_NAMED(["at", "user"], [Types.LONG(), Types.STRING()])
    assert list(said.execute_and_collect()) == SAID


def test_every_way(env: StreamExecutionEnvironment) -> None:
    def build(env: Any) -> DataStream:
        mixed = events(env).rebalance().filter(pl.col("n") >= 0).rebalance()
        said = mixed.of_kind("say").key_by("user")
        counted = said.window(TumblingEventTimeWindows.of(10)).aggregate(n=count())
        left = mixed.of_kind("leave", "event").map(lambda row: ("left", row.user, row.why))
        return counted.map(tuple).union(left)

    windows: dict[tuple[str, int], int] = {}
    for row in SAID:
        at = (row.user, row.at // 10 * 10)
        windows[at] = windows.get(at, 0) + 1
    expected = [(user, start, start + 10, n) for (user, start), n in windows.items()]
    assert_equivalent(build, [*expected, *(("left", r.user, r.why) for r in LEFT)], Ways())


def test_kept_in_state_every_way() -> None:
    """Values of several kinds in columns of rows that operators keep."""

    def build(env: Any) -> DataStream:
        mixed = events(env)
        first = mixed.key_by("n").deduplicate()
        joined = mixed.key_by("n").join(mixed.select("n", twice=2 * pl.col("n")).key_by("n"))
        tens = mixed.key_by(pl.col("n") % 3).window(TumblingEventTimeWindows.of(10))
        held = mixed.key_by(lambda row: row.n).reduce(later)
        return (
            first.map(lambda row: ("first", row.n, row.event))
            .union(joined.map(lambda row: ("joined", row.n, row.event)))
            .union(tens.max_by("n").map(lambda row: ("last", row.n, row.event)))
            .union(held.map(lambda row: ("held", row.n, row.event)))
        )

    last = {(n // 10, n % 3): n for n in range(N)}
    expected = [(what, n, value(n)) for n in range(N) for what in ("first", "joined", "held")]
    expected += [("last", n, value(n)) for n in last.values()]
    assert_equivalent(build, expected, Ways(batch_size=5))


def later(before: Any, now: Any) -> Any:
    return max(before, now, key=lambda row: row.n)


def test_a_side_that_is_missing_has_no_kind(env: StreamExecutionEnvironment) -> None:
    mixed = events(env)
    none = mixed.filter(pl.col("n") < 0).key_by("n")
    some = mixed.select(m="n").key_by("m")
    found = some.join(none, how="left").execute_and_collect()
    assert {(row.m, row.event) for row in found} == {(n, None) for n in range(N)}


def test_objects_of_several_kinds(env: StreamExecutionEnvironment) -> None:
    mixed = events(env)
    alone = mixed.map(lambda row: row.event)
    assert list(alone.of_kind("say").execute_and_collect()) == SAID
    rows = mixed.map(lambda row: {"e": row.event, "n": row.n})
    assert list(rows.of_kind("leave", "e").execute_and_collect()) == LEFT


def test_values_declared_so(env: StreamExecutionEnvironment) -> None:
    values = [value(n) for n in range(N)]
    mixed = env.from_collection(values, EVENT)
    assert mixed.get_type() == EVENT
    said = mixed.of_kind("say")
    assert said.get_type() == Types.ROW_NAMED(["at", "user"], [Types.LONG(), Types.STRING()])
    assert list(said.execute_and_collect()) == SAID
    assert list(mixed.execute_and_collect()) == values
    with pytest.raises(Exception, match=r"declared as UNION.*'shout'"):
        mixed.map(lambda _: OfKind("shout", (1, "a")), output_type=EVENT).execute_and_collect(
            limit=1
        )


def test_expressions_see_a_struct_of_the_kinds(env: StreamExecutionEnvironment) -> None:
    said = pl.col("event").struct.field("say")
    late = events(env).filter(said.struct.field("at") > N - 10)
    assert [row.event.row for row in late.execute_and_collect()] == [
        row for row in SAID if row.at > N - 10
    ]
    named = events(env).select("event", one=pl.lit(1), at=said.struct.field("at"))
    for row in named.execute_and_collect():
        assert row.one == 1
        assert row.at == (row.event.row.at if row.event and row.event.kind == "say" else None)


@pytest.mark.parametrize("batch_format", ["polars", "pandas", "numpy"])
def test_frames_have_a_struct_of_the_kinds(
    env: StreamExecutionEnvironment, batch_format: Any
) -> None:
    def whole(frame: Any) -> list[Any]:
        column = frame["event"]
        listed = column.to_list() if batch_format == "polars" else list(column)
        return [one and {k: v for k, v in one.items() if v is not None} for one in listed]

    found = events(env).map_batches(whole, batch_format=batch_format).execute_and_collect()
    wanted = [value(n) for n in range(N)]
    for one, other in zip(found, wanted, strict=True):
        assert not one if other is None else list(one) == [other.kind]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_files_have_an_object_with_the_kind(
    env: StreamExecutionEnvironment, tmp_path: Path, form: Any
) -> None:
    events(env).select("n", "event").sink_to(FileSink(tmp_path, form))
    env.execute()
    again = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource(tmp_path, form, schema=pa.schema([("n", pa.int64()), ("event", UNION)]))
    read = again.from_source(source)
    assert sorted(tuple(row) for row in read.execute_and_collect()) == [
        (n, value(n)) for n in range(N)
    ]


def test_json_of_two_kinds_is_refused(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"event": {"say": {"user": "a"}, "leave": {"user": "a"}}}')
    source = FileSource(tmp_path, "jsonl", schema=pa.schema([("event", UNION)]))
    with pytest.raises(JobFailedError, match="has several kinds"):
        env.from_source(source).execute_and_collect(limit=1)


def test_records_for_which_a_function_raises_keep_their_kind(
    env: StreamExecutionEnvironment,
) -> None:
    def fails(row: Any) -> Any:
        raise ValueError(row.event.kind)

    said = events(env).filter(lambda row: row.event is not None and row.event.kind == "say")
    failing = said.map(fails).on_error(dead_letters(limit=None))
    letters = list(failing.get_dead_letters().execute_and_collect())
    assert len(letters) == len(SAID)
    assert [letter.record.event.row for letter in letters] == SAID


REFUSED = {
    "no such kind": (lambda s: s.of_kind("shout"), "the stream has the kinds say, leave"),
    "no such column": (lambda s: s.of_kind("say", "evnt"), "the stream has n, event, at"),
    "no union": (lambda s: s.of_kind("say", "n"), "'n' is no column of several kinds"),
    "none": (lambda s: s.select("n").of_kind("say"), "the stream has none"),
    "two": (lambda s: s.with_columns(e="event").of_kind("say"), "several, event, e: name one"),
    "values": (
        lambda s: s.map(lambda row: row.n, output_type=Types.INT()).of_kind("say"),
        "records are of type INT",
    ),
    "changelog": (
        lambda s: s.key_by("n").deduplicate("last").of_kind("say"),
        "a changelog has no records of several kinds",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_known_to_be_wrong(env: StreamExecutionEnvironment, name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(GraphError, match=message):
        build(events(env))


def test_values_are_no_keys_and_kinds_are(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeMismatchError, match=r"key_by\(lambda row: row.event.kind\)"):
        events(env).key_by("event").count_window(2).aggregate(n=count())
    said = events(env).filter(lambda row: row.event is not None)
    sizes = said.key_by(lambda row: row.event.kind).count_window(3).aggregate(n=count())
    assert {row.n for row in sizes.execute_and_collect()} == {3}


def test_what_is_found_wrong_in_the_job(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2]).map(lambda n: n)
    with pytest.raises(JobFailedError, match=r"of_kind\('say'\) takes .*: 1 is no OfKind"):
        numbers.of_kind("say").execute_and_collect(limit=1)
    columns = events(env).map_batches(lambda data: data.select(["n"]))
    with pytest.raises(JobFailedError, match=r"of the columns \['n'\] none are of kinds"):
        columns.of_kind("say").execute_and_collect(limit=1)
    others = events(env).map_batches(lambda data: data)
    with pytest.raises(JobFailedError, match="the stream has the kinds say, leave"):
        others.of_kind("shout").execute_and_collect(limit=1)


def test_kinds_are_rows() -> None:
    with pytest.raises(ConfigurationError, match="UNION: the kind 'n' is no row but INT"):
        Types.UNION({"n": Types.INT()})
    with pytest.raises(ConfigurationError, match="UNION: a union has 1 to 127 kinds"):
        Types.UNION({})


def test_expressions_over_kinds_within_other_values_are_refused(
    env: StreamExecutionEnvironment,
) -> None:
    kind = pa.struct([("n", pa.int64()), ("event", UNION)])
    schema = pa.schema([("n", pa.int64()), ("row", kind)])

    def inside(start: int, number: int) -> pa.RecordBatch:
        rows = [{"n": n, "event": value(n)} for n in range(start, start + number)]
        numbers = pa.array(range(start, start + number), pa.int64())
        return pa.RecordBatch.from_arrays([numbers, to_array(rows, kind)], schema=schema)

    stream = env.from_source(DataGenSource(inside, 8, schema=schema))
    passed = stream.filter(pl.col("n") > 5).execute_and_collect()
    assert [row.row.event for row in passed] == [value(6), value(7)]
    with pytest.raises(JobFailedError, match=r"column 'row' has type.*use a function"):
        list(stream.filter(pl.col("row").is_not_null()).execute_and_collect())


DEEP = Types.UNION({"outer": {"event": EVENT}, "none": {"n": int}})


@pytest.mark.parametrize("way", ["expression", "parquet", "jsonl", "pandas", "numpy", "polars"])
def test_kinds_within_kinds_are_refused_where_they_have_no_form(
    env: StreamExecutionEnvironment, tmp_path: Path, way: Any
) -> None:
    rows = [(n, OfKind("outer", Row(event=value(n)))) for n in range(8)]
    stream = env.from_collection(rows, Types.ROW_NAMED(["n", "deep"], [Types.INT(), DEEP]))
    said = [row.deep.row.event for row in stream.execute_and_collect()]
    assert said == [value(n) for n in range(8)]
    match way:
        case "expression":
            made = stream.filter(pl.col("deep").is_not_null())
        case "parquet" | "jsonl":
            stream.sink_to(FileSink(tmp_path, way))
            made = stream
        case _:
            made = stream.map_batches(lambda data: data, batch_format=way)
    with pytest.raises(
        JobFailedError,
        match=r"column 'deep'.*(take them apart|use a function|cast it|has no form in JSON)",
    ):
        list(made.execute_and_collect())
