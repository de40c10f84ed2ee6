"""Values of every type cross the bridge unchanged, both ways."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from strom import StreamExecutionEnvironment
from strom.api.connectors.base import EnumeratorContext, ReaderContext, WriterContext
from strom.connectors.spark import (
    SparkParquetSink,
    SparkParquetSource,
    from_dataframe,
    to_dataframe,
)
from strom.connectors.spark.bridge import storable
from strom.connectors.spark.types import arrow_schema, fitted
from strom.core.batch import ColumnBatch
from strom.core.clock import SystemClock

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SPARK = """
    b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f32 FLOAT, f64 DOUBLE,
    d9 DECIMAL(9, 2), d38 DECIMAL(38, 18), s STRING, x BINARY, day DATE,
    at TIMESTAMP, local TIMESTAMP_NTZ,
    l ARRAY<BIGINT>, ll ARRAY<ARRAY<STRING>>, m MAP<STRING, DECIMAL(5, 1)>,
    r STRUCT<a: INT, b: STRUCT<at: TIMESTAMP, x: BINARY>>,
    lr ARRAY<STRUCT<k: STRING, at: TIMESTAMP_NTZ>>, ml MAP<INT, ARRAY<DATE>>
"""

ARROW = pa.schema(
    [
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("d9", pa.decimal128(9, 2)),
        ("d38", pa.decimal128(38, 18)),
        ("s", pa.string()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("l", pa.list_(pa.int64())),
        ("ll", pa.list_(pa.list_(pa.string()))),
        ("m", pa.map_(pa.string(), pa.decimal128(5, 1))),
        (
            "r",
            pa.struct(
                {
                    "a": pa.int32(),
                    "b": pa.struct({"at": pa.timestamp("us", "UTC"), "x": pa.binary()}),
                }
            ),
        ),
        ("lr", pa.list_(pa.struct({"k": pa.string(), "at": pa.timestamp("us")}))),
        ("ml", pa.map_(pa.int32(), pa.list_(pa.date32()))),
    ]
)

INSTANT = st.datetimes(datetime(1601, 1, 1), datetime(2400, 1, 1))
"""Spark 3.5 itself shifts times before 1601 in zones that had no hours then."""
AWARE = INSTANT.map(lambda t: t.replace(tzinfo=UTC))
DAY = st.dates(date(1601, 1, 1), date(9999, 12, 31))
TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20)


def decimals(digits: int, places: int) -> Any:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda n: Decimal(f"{n}E-{places}"))


def integers(bits: int) -> Any:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def floats(width: int) -> Any:
    return st.floats(width=width, allow_nan=False)


def maybe(values: Any) -> Any:
    return st.none() | values


ROW = st.tuples(
    *map(
        maybe,
        (
            st.booleans(),
            *map(integers, (8, 16, 32, 64)),
            floats(32),
            floats(64),
            decimals(9, 2),
            decimals(38, 18),
            TEXT,
            st.binary(max_size=20),
            DAY,
            AWARE,
            INSTANT,
            st.lists(maybe(integers(64)), max_size=4),
            st.lists(maybe(st.lists(maybe(TEXT), max_size=3)), max_size=3),
            st.dictionaries(TEXT, maybe(decimals(5, 1)), max_size=3),
            st.tuples(
                maybe(integers(32)), maybe(st.tuples(maybe(AWARE), maybe(st.binary(max_size=5))))
            ),
            st.lists(maybe(st.tuples(maybe(TEXT), maybe(INSTANT))), max_size=3),
            st.dictionaries(integers(32), maybe(st.lists(maybe(DAY), max_size=3)), max_size=3),
        ),
    )
)


def expected(rows: list[Any]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([_array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], schema=ARROW)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([_arrow(v, kind) for v in values], kind)


def _arrow(value: Any, kind: pa.DataType) -> Any:
    """As pyarrow takes it: structs are dicts, maps lists of pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: _arrow(v, f.type) for f, v in zip(kind, value, strict=True)}
    if pa.types.is_map(kind):
        return [(_arrow(k, kind.key_type), _arrow(value[k], kind.item_type)) for k in sorted(value)]
    if pa.types.is_list(kind):
        return [_arrow(v, kind.value_type) for v in value]
    return value


@settings(
    max_examples=6,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=st.lists(ROW, min_size=1, max_size=20))
def test_values_go_there_and_back(spark: Any, rows: list[Any]) -> None:
    frame = spark.createDataFrame(rows, SPARK).coalesce(1)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    stream = from_dataframe(env, frame)
    back = to_dataframe(stream, spark).coalesce(1)
    assert back.dtypes == frame.dtypes
    assert back.collect() == frame.collect()
    found = [_row(row) for row in from_dataframe(env, frame).execute_and_collect()]
    assert pa.Table.from_pylist(found, ARROW).equals(expected(rows))


def _row(row: Any) -> dict[str, Any]:
    """Entries of a map come in any order."""
    found = dict(zip(row._fields, row, strict=True))
    for name in ("m", "ml"):
        found[name] = found[name] and sorted(found[name].items())
    return found


def test_spark_types_have_arrow_types(spark: Any) -> None:
    frame = spark.createDataFrame([], SPARK)
    found = arrow_schema(frame.schema)
    empty = pa.RecordBatch.from_pylist([], schema=found)
    assert fitted(empty, ARROW).schema.equals(ARROW)
    assert [str(f.type) for f in found][:14] == [str(f.type) for f in ARROW][:14]
    nothing = spark.sql("SELECT NULL AS n")
    env = StreamExecutionEnvironment.get_execution_environment()
    assert [tuple(r) for r in from_dataframe(env, nothing).execute_and_collect()] == [(None,)]


def test_a_session_that_writes_old_timestamps_is_told_otherwise_for_the_while(spark: Any) -> None:
    name = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(name, "INT96")
    try:
        env = StreamExecutionEnvironment.get_execution_environment()
        frame = spark.sql("SELECT timestamp_seconds(-1) AS at")
        (row,) = from_dataframe(env, frame).execute_and_collect()
        assert row.at == datetime(1970, 1, 1, tzinfo=UTC) - timedelta(seconds=1)
        assert spark.conf.get(name) == "INT96"
    finally:
        spark.conf.unset(name)


def test_values_go_through_the_object_store(gateway: Any, until: Any, tmp_path: Path) -> None:
    """What Spark's Parquet sink and source carry: the same types, and those that become others."""
    instant = datetime(2024, 2, 29, 12, 30, 0, 123456)
    row = (
        *(True, 1, -2, 3, 2**40, 1.5, -2.5, Decimal("1.25"), Decimal("3.5"), "é", b"\0x"),
        *(date(2024, 2, 29), instant.replace(tzinfo=UTC), instant, [1, None], [["a"], None]),
        *({"k": Decimal("1.5")}, (1, (instant.replace(tzinfo=UTC), b"y")), [("k", instant)]),
        {7: [date(2024, 1, 1), None]},
    )
    table = expected([row, (None,) * len(row)])
    table = table.append_column("dict", pa.array(["a", None]).dictionary_encode())
    table = table.append_column("large", pa.array([["a"], None], pa.list_(pa.large_string())))
    context = WriterContext("out", "op", "job", 0, 1, 0, SystemClock(), lambda k, v: None, True)
    it = SparkParquetSink(str(tmp_path)).create_writer(context)
    for batch in table.to_batches():
        it.write(ColumnBatch(batch))
    it.commit(it.prepare_commit(1)())  # type: ignore[operator]
    source = SparkParquetSource(str(tmp_path))
    splits = source.create_enumerator(EnumeratorContext("in", 1, "job"), None)
    reader = source.create_reader(ReaderContext("in", 0, 1, 100, SystemClock()))
    reader.add_splits(until(lambda: splits.next_splits(0), "the splits"))
    emit = until(lambda: getattr(reader.poll(), "batch", None), "the rows")
    found = fitted(emit.data, storable(table.schema))
    assert pa.Table.from_batches([found]).equals(table.cast(storable(table.schema)))
