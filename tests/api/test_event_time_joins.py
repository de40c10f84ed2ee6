"""What may be joined, and what the columns of a stream are known to be before it runs."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from strom import (
    ConfigurationError,
    DataStream,
    EventTimeSessionWindows,
    GraphError,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TypeMismatchError,
    WatermarkStrategy,
)
from strom.api.specs.schemas import known_keys
from strom.api.streams.sides import equal_columns, two_inputs
from strom.api.streams.stream import known_schema
from strom.core.batch import ColumnBatch
from strom.core.key_types import widened
from strom.core.keys import ColumnKey, ConstantKey, ExpressionKey, FunctionKey
from strom.core.row_kind import ROW_KIND_FIELD
from strom.engine.graph.model import KeyGroups
from strom.testing.operator_harness import OperatorHarness

WINDOW = TumblingEventTimeWindows.of(10)
LEFT = pa.schema([("k", pa.int32()), ("v", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("v", pa.float64())])


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture
def left(env: Any) -> DataStream:
    return env.from_collection(LEFT.empty_table())  # type: ignore[no-any-return]


@pytest.fixture
def right(env: Any) -> DataStream:
    return env.from_collection(RIGHT.empty_table())  # type: ignore[no-any-return]


def test_known_columns(env: Any, left: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    assert known_schema(left.assign_timestamps_and_watermarks(strategy).rebalance()) == LEFT
    assert known_schema(left.filter(lambda r: True).filter(pl.col("k") > 1).key_by("k")) == LEFT
    assert known_schema(left.union(left)) == LEFT
    with pytest.raises(GraphError, match="different types"):
        left.union(left.select("k"))
    assert known_schema(left.union(left.map(lambda r: r))) is None
    assert known_schema(left.map(lambda r: r)) is None
    assert known_schema(left.map(lambda r: r, output_type={"n": int})) == pa.schema(
        [("n", pa.int64())]
    )
    assert known_schema(left.map_batches(lambda b: b, output_type={"n": int})) == pa.schema(
        [("n", pa.int64())]
    )
    assert known_schema(env.from_collection([1, 2])) is None
    assert known_schema(left.select("missing")) is None
    largest = left.key_by("k").window(WINDOW).max_by("k")
    bounds = [("window_start", pa.int64()), ("window_end", pa.int64())]
    assert known_schema(largest) == pa.schema([*LEFT, *bounds])


EXPRESSIONS = {
    "names": lambda s: s.select("v", "k"),
    "alias": lambda s: s.select(pl.col("v").alias("w"), n=pl.col("k") + 1),
    "all": lambda s: s.select(pl.all(), d=pl.col("k") * 0.5),
    "upper": lambda s: s.with_columns(v=pl.col("v").str.to_uppercase()),
    "literal": lambda s: s.with_columns(one=pl.lit(1), word=pl.lit("x")),
    "time": lambda s: s.select(t=pl.from_epoch("k", time_unit="s")),
    "view": lambda s: s.select(pl.col("v").cast(pl.Categorical), pl.col("k").cast(pl.Int8)),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_known_columns_are_those_that_come(env: Any, name: str) -> None:
    """Column expressions give, when they run, the columns that were foretold."""
    table = pa.table({"k": [1, 2], "v": ["a", "b"]}, schema=LEFT)
    stream = EXPRESSIONS[name](env.from_collection(table))
    harness = OperatorHarness.of(stream)
    harness.push(ColumnBatch(table.to_batches()[0]))
    (batch,) = harness.batches()
    assert isinstance(batch, ColumnBatch)
    assert batch.data.schema.equals(known_schema(stream))


def test_columns_of_joins(left: Any, right: Any) -> None:
    a, b = left.key_by("k"), right.key_by("k")
    joined = known_schema(a.window_join(b, WINDOW, "full"))
    assert joined is not None
    assert joined.names == ["k", "v", "v_right", "window_start", "window_end"]
    assert joined.types == [pa.int32(), pa.string(), pa.float64(), pa.int64(), pa.int64()]
    assert known_schema(a.interval_join(b, -1, 1, suffix="2")).names == ["k", "v", "v2"]  # type: ignore[union-attr]
    assert known_schema(a.interval_join(b, -1, 1, "anti")).names == ["k", "v"]  # type: ignore[union-attr]
    nested = a.interval_join(b, -1, 1).key_by("k").window_join(b, WINDOW, "left", suffix="3")
    assert known_schema(nested).names[:4] == ["k", "v", "v_right", "v3"]  # type: ignore[union-attr]
    dictionary = left.select(pl.col("k"), pl.col("v").cast(pl.Categorical)).key_by("k")
    plain = known_schema(dictionary.interval_join(b, 0, 1, "semi"))
    assert plain is not None
    assert not pa.types.is_dictionary(plain.field("v").type)


def test_undeclared_sides(left: Any, right: Any) -> None:
    unknown = right.map(lambda r: r).key_by("k")
    a = left.key_by("k")
    for how in ("inner", "right", "semi", "anti"):
        assert known_schema(a.window_join(unknown, WINDOW, how)) is None or how in ("semi", "anti")
    for how in ("left", "full"):
        with pytest.raises(GraphError, match="right_type"):
            a.window_join(unknown, WINDOW, how)
        declared = a.interval_join(unknown, 0, 1, how, right_type={"k": int, "v": float})
        assert known_schema(declared).names == ["k", "v", "v_right"]  # type: ignore[union-attr]
    with pytest.raises(GraphError, match="left_type"):
        unknown.interval_join(a, 0, 1, "right")


class Shifted(TumblingEventTimeWindows):
    """A user's, which may assign as it likes."""


def test_refused(env: Any, left: Any, right: Any) -> None:
    a, b = left.key_by("k"), right.key_by("k")
    with pytest.raises(ConfigurationError, match="Python function"):
        left.key_by(lambda r: r.k).window_join(b, WINDOW)
    with pytest.raises(ConfigurationError, match="equally many"):
        left.key_by("k", "v").window_join(b, WINDOW)
    with pytest.raises(ConfigurationError, match="key_by"):
        a.window_join(right, WINDOW)
    with pytest.raises(ConfigurationError, match="Session"):
        a.window_join(b, EventTimeSessionWindows.with_gap(5))
    with pytest.raises(ConfigurationError, match=r"not .*Shifted"):
        a.window_join(b, Shifted.of(10))
    with pytest.raises(ConfigurationError, match="outer"):
        a.window_join(b, WINDOW, "outer")
    with pytest.raises(ConfigurationError, match="no time lies between"):
        a.interval_join(b, 5, 5, upper_exclusive=True)
    with pytest.raises(ConfigurationError, match="suffix"):
        a.interval_join(b, 5, 5, suffix=None)
    with pytest.raises(TypeMismatchError, match=r"'v' of the left side is string.*'v'.*double"):
        left.key_by("v").interval_join(right.key_by("v"), 0, 1)
    with pytest.raises(GraphError, match="v_right"):
        left.with_columns(v_right=pl.lit(1)).key_by("k").interval_join(b, 0, 1)
    with pytest.raises(GraphError, match="window_start"):
        left.with_columns(window_start=pl.lit(1)).key_by("k").window_join(b, WINDOW)
    changes = pa.schema([*LEFT, ROW_KIND_FIELD])
    with pytest.raises(GraphError, match="changelog"):
        left.map(lambda r: r, output_type=changes).key_by("k").window_join(b, WINDOW)
    other = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(GraphError, match="different environments"):
        a.window_join(other.from_collection(RIGHT.empty_table()).key_by("k"), WINDOW)


def test_inputs_and_names(left: Any, right: Any) -> None:
    both = two_inputs(left.union(left).key_by("k"), right.key_by("k"))
    assert [one.port for one in both] == [0, 0, 1]
    assert all(isinstance(one.partitioner, KeyGroups) for one in both)
    joined = left.key_by("k").window_join(right.key_by("k"), SlidingEventTimeWindows.of(10, 5))
    assert joined.get_name() == "WindowJoin(inner)"


def test_key_columns() -> None:
    k, v = pl.col("k"), pl.col("v")
    assert equal_columns(ColumnKey(("k", "v")), ColumnKey(("a", "v"))) == (["k", "v"], ["a", "v"])
    assert equal_columns(ExpressionKey((k + 1, v)), ColumnKey(("k", "v"))) == (["v"], ["v"])
    assert known_keys(LEFT, ExpressionKey((k + 1,))) == pa.schema([("k", pa.int32())])
    assert known_keys(LEFT, ColumnKey(("nope",))) is None
    assert known_keys(LEFT, ExpressionKey((pl.col("nope"),))) is None
    assert known_keys(LEFT, FunctionKey(str)) is None
    assert known_keys(LEFT, ConstantKey()) == pa.schema([("__all", pa.int64())])
    assert known_keys(None, ColumnKey(("k",))) is None


@pytest.mark.parametrize(
    ("kind", "wide"),
    [
        (pa.int8(), pa.int64()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.uint64()),
        (pa.float32(), pa.float64()),
        (pa.string_view(), pa.large_string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
        (pa.binary(3), pa.large_binary()),
        (pa.date64(), pa.date32()),
        (pa.time32("s"), pa.time64("us")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ns", tz="Asia/Tokyo"), pa.timestamp("ns", tz="UTC")),
        (pa.duration("ms"), pa.duration("us")),
        (pa.bool_(), pa.bool_()),
        (pa.decimal128(5, 2), pa.decimal128(5, 2)),
    ],
)
def test_widened_keys(kind: pa.DataType, wide: pa.DataType) -> None:
    assert widened(kind) == wide
