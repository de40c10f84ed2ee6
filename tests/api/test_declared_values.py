"""Records of one value each, of a declared type: what fits comes out as such a value, whatever
operator it comes from; what does not fails by name."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from strom import (
    AggregateFunction,
    AsyncDataStream,
    BroadcastProcessFunction,
    CoMapFunction,
    ConfigurationError,
    CountTumblingWindowAssigner,
    DataStream,
    GraphError,
    JobFailedError,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    Row,
    StreamExecutionEnvironment,
    TypeMismatchError,
    Types,
    WatermarkStrategy,
    WindowFunction,
)
from strom.api.types.declared import Scalars, declared_records
from strom.testing.scripted import ScriptedSource


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def collected(stream: DataStream) -> list[Any]:
    return list(stream.execute_and_collect())


NOON = dt.datetime(2026, 1, 2, 12)

REFUSED: list[tuple[Any, Any, str]] = [
    (Types.INT(), "1", "INT: value '1' .*: a str is no whole number"),
    (Types.INT(), 1.5, "INT: value 1.5 .*truncated"),
    (Types.INT(), 2**31, "INT: value 2147483648 "),
    (Types.INT(), True, "INT: value True .*: a bool is no whole number"),
    (Types.BYTE(), 128, "BYTE: value 128 "),
    (Types.LONG(), 2**63, "LONG: value 9223372036854775808 "),
    (Types.BIG_INT(), 0.5, "BIG_INT: value 0.5 .*no whole number"),
    (Types.BIG_DEC(), 0.5, "BIG_DEC: value 0.5 .*no Decimal"),
    (Types.DOUBLE(), "1", "DOUBLE: value '1' "),
    (Types.DOUBLE(), 2**53 + 1, "DOUBLE: value 9007199254740993 "),
    (Types.FLOAT(), 1e300, "FLOAT: value 1e[+]300 .*beyond the range"),
    (Types.STRING(), 1, "STRING: value 1 .*: a int is no text"),
    (Types.STRING(), b"a", "STRING: value b'a' "),
    (Types.BOOLEAN(), 1, "BOOLEAN: value 1 "),
    (Types.SQL_DATE(), NOON, "SQL_DATE: value .*no time of day"),
    (Types.SQL_TIME(), NOON, "SQL_TIME: value "),
    (Types.SQL_TIMESTAMP(), NOON.replace(tzinfo=dt.UTC), "SQL_TIMESTAMP: .*declare an INSTANT"),
    (Types.INSTANT(), 5, "INSTANT: value 5 .*no datetime"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "a", r"PRIMITIVE_ARRAY\(BYTE\): value 'a'"),
    (Types.LIST(Types.INT()), ["a"], r"LIST\(INT\): value 'a' .*no whole number"),
    (Types.LIST(Types.INT()), 1, r"LIST\(INT\): value 1 .*no list"),
    (Types.MAP(Types.STRING(), Types.INT()), {"a": "b"}, r"MAP\(STRING, INT\): .*value 'b'"),
    (Types.OBJECT_ARRAY(Types.ROW_NAMED(["a"], [Types.INT()])), [Row(b=1)], r"OBJECT_ARRAY\("),
    (int, "1", "LONG: value '1'"),
    (pa.int16(), 2**15, "SHORT: value 32768"),
]


@pytest.mark.parametrize(("declared", "value", "message"), REFUSED)
def test_what_does_not_fit_fails_by_name(
    declared: Any, value: Any, message: str, env: StreamExecutionEnvironment
) -> None:
    stream = env.from_collection([0]).map(lambda n: value, output_type=declared).name("Wrong")
    with pytest.raises(JobFailedError, match=f"'Wrong', subtask 0: .*declared as {message}"):
        collected(stream)
    with pytest.raises(TypeMismatchError, match=f"declared as {message}"):
        env.from_collection([value], declared)


CONVERTED: list[tuple[Any, Any, Any]] = [
    (Types.INT(), 3.0, 3),
    (Types.INT(), np.int64(3), 3),
    (Types.INT(), Decimal("3.00"), 3),
    (Types.BIG_DEC(), 3, Decimal(3)),
    (Types.BIG_INT(), Decimal("1E3"), 1000),
    (Types.DOUBLE(), 3, 3.0),
    (Types.DOUBLE(), np.float32(0.5), 0.5),
    (Types.FLOAT(), 0.1, float(np.float32(0.1))),
    (Types.STRING(), np.str_("a"), "a"),
    (Types.BOOLEAN(), np.bool_(True), True),
    (Types.SQL_DATE(), dt.datetime(2026, 1, 2), dt.date(2026, 1, 2)),
    (Types.INSTANT(), NOON, NOON.replace(tzinfo=dt.UTC)),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"a"), b"a"),
    (Types.LIST(Types.DOUBLE()), (1, 2), [1.0, 2.0]),
    (Types.PRIMITIVE_ARRAY(Types.INT()), np.array([1, 2]), [1, 2]),
    (Types.LIST(Types.TUPLE([Types.INT()])), [[1]], [(1,)]),
    (Types.LIST(Types.ROW_NAMED(["a"], [Types.INT()])), [{"a": 1}], [Row(a=1)]),
    (Types.MAP(Types.STRING(), Types.FLOAT()), {"a": 1}, {"a": 1.0}),
    (Types.PICKLED_BYTE_ARRAY(), {1}, {1}),
    (Types.INT(), None, None),
]


@pytest.mark.parametrize(("declared", "value", "expected"), CONVERTED)
def test_what_fits_becomes_a_value_of_the_type(
    declared: Any, value: Any, expected: Any, env: StreamExecutionEnvironment
) -> None:
    mapped = env.from_collection([0]).map(lambda n: value, output_type=declared)
    for stream in (mapped, env.from_collection([value], declared)):
        assert stream.get_type() == declared
        [found] = collected(stream)
        assert (type(found), found) == (type(expected), expected)
        if isinstance(found, list):
            assert list(map(type, found)) == list(map(type, expected))


def test_values_that_fit_stay_the_same_objects() -> None:
    text = "a b"
    values = [text, None]
    declared = declared_records(Types.STRING())
    assert isinstance(declared, Scalars)
    assert declared.fitted(values) is values
    days = [dt.date(2026, 1, 2)]
    assert Scalars(Types.SQL_DATE()).fitted(days) is days
    assert math.isnan(Scalars(Types.DOUBLE()).fitted([math.nan])[0])


# --- every place that takes a type ---------------------------------------------------------------


class Texts(
    MapFunction, CoMapFunction, KeyedProcessFunction, ProcessWindowFunction, AggregateFunction
):
    """Gives texts, whatever it is asked for."""

    def map(self, value: Any) -> Any:
        return "text"

    def map1(self, value: Any) -> Any:
        return "text"

    def map2(self, value: Any) -> Any:
        return None

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield "text"

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield "text"

    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return "text"

    def merge(self, a: Any, b: Any) -> Any:
        return a


class Yields(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield "text"


class Applied(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return ["text"]


class Broadcast(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield "text"

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return None


async def asked(value: Any) -> list[Any]:
    return ["text"]


async def asked_batches(batch: Any) -> list[Any]:
    return ["text"]


STATE = MapStateDescriptor("rules", Types.INT(), Types.INT())
INT = Types.INT()


def single(stream: DataStream) -> Any:
    return stream.key_by(lambda n: n).window(CountTumblingWindowAssigner.of(1))


PLACES: dict[str, Callable[[DataStream], DataStream]] = {
    "map": lambda s: s.map(Texts(), output_type=INT),
    "flat_map": lambda s: s.flat_map(lambda n: ["text"], output_type=INT),
    "process": lambda s: s.process(Yields(), output_type=INT),
    "keyed map": lambda s: s.key_by(lambda n: n).map(Texts(), output_type=INT),
    "keyed process": lambda s: s.key_by(lambda n: n).process(Texts(), output_type=INT),
    "reduce": lambda s: s.key_by(lambda n: 0).reduce(lambda a, b: "text"),
    "declared reduce": lambda s: s.key_by(lambda n: 0).reduce(lambda a, b: "text", INT),
    "window reduce": lambda s: (
        s.key_by(lambda n: 0).window(CountTumblingWindowAssigner.of(2)).reduce(lambda a, b: "text")
    ),
    "window apply": lambda s: single(s).apply(Applied(), output_type=INT),
    "window process": lambda s: single(s).process(Texts(), output_type=INT),
    "window aggregate": lambda s: single(s).aggregate(Texts(), output_type=INT),
    "connected": lambda s: s.connect(s).map(Texts(), output_type=INT),
    "broadcast": lambda s: s.connect(s.broadcast(STATE)).process(Broadcast(), output_type=INT),
    "async": lambda s: AsyncDataStream.ordered_wait(s, asked, 10_000, output_type=INT),
    "map_batches": lambda s: s.map_batches(lambda batch: ["text"], output_type=INT),
    "async_map_batches": lambda s: s.async_map_batches(asked_batches, output_type=INT),
    "side output": lambda s: s.process(Aside("text")).get_side_output(OutputTag("side", INT)),
}


@pytest.mark.parametrize("name", PLACES)
def test_every_operator_keeps_its_word(name: str, env: StreamExecutionEnvironment) -> None:
    stream = PLACES[name](env.from_collection([1, 2], INT))
    assert stream.get_type() == INT
    with pytest.raises(JobFailedError, match=r"subtask 0: .*declared as INT: value 'text'"):
        collected(stream)


class Aside(ProcessFunction):
    """Gives a value, or what comes, to a side output that it says nothing of."""

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield OutputTag("side"), self._value or value


def test_the_type_survives_what_keeps_records(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1, 2], INT)
    ways = {
        "filter": stream.filter(lambda n: True),
        "union": stream.union(stream.filter(lambda n: n > 1)),
        "key_by": stream.key_by(lambda n: n),
        "rebalance": stream.rebalance(),
        "broadcast": stream.broadcast(),
        "timestamps": stream.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps()
        ),
        "max_by": stream.key_by(lambda n: n).max_by(),
        "cache": stream.cache(),
        "windows": single(stream).reduce(lambda a, b: a),
    }
    assert {name: one.get_type() for name, one in ways.items()} == dict.fromkeys(ways, INT)
    assert single(stream).get_input_type() == INT


def test_the_type_ends_where_records_become_others(env: StreamExecutionEnvironment) -> None:
    stream, pickled = env.from_collection([1, 2], INT), Types.PICKLED_BYTE_ARRAY()
    for other in (
        stream.map(lambda n: n),
        stream.union(env.from_collection([1])),
        stream.filter(pl.col("value") > 1),
        stream.key_by(lambda n: n).reduce(lambda a, b: a, Types.PICKLED_BYTE_ARRAY()),
    ):
        assert other.get_type() == pickled


def test_a_reduction_is_of_the_type_where_it_is_reduced_on(env: StreamExecutionEnvironment) -> None:
    """Ten times float32's 0.1 is exactly 1 for the next record, as it is for who reads it."""

    def reduce(so_far: float, value: float) -> float:
        return so_far * 10 if value == 0 else so_far - 1

    stream = env.from_collection([0.1, 0.0, 1.0], Types.FLOAT()).key_by(lambda value: 0)
    expected = [float(np.float32(0.1)), 1.0, 0.0]
    assert collected(stream.reduce(reduce)) == expected
    windows = stream.window(CountTumblingWindowAssigner.of(3))
    assert collected(windows.reduce(reduce)) == expected[-1:]


def test_side_outputs_are_of_the_type_that_is_asked_for(env: StreamExecutionEnvironment) -> None:
    aside = env.from_collection([1, 2]).process(Aside())
    assert collected(aside.get_side_output(OutputTag("side", Types.DOUBLE()))) == [1.0, 2.0]
    with pytest.raises(GraphError, match=r"'side' declared twice, as .*DOUBLE.* and as .*INT"):
        aside.get_side_output(OutputTag("side", INT))
    rows = env.from_collection([(1, 2)]).process(Aside())
    named = Types.ROW_NAMED(["a", "b"], [INT, INT])
    side = rows.get_side_output(OutputTag("side", named))
    assert side.get_type() == named
    assert collected(side.select("b")) == [(2,)]


def test_records_of_a_source_are_checked(env: StreamExecutionEnvironment) -> None:
    texts = env.from_source(ScriptedSource([["a", 1]]), type_info=Types.STRING())
    assert texts.get_type() == Types.STRING()
    with pytest.raises(JobFailedError, match="declared as STRING: value 1"):
        collected(texts)
    columns = ScriptedSource([[(1,)]], pa.schema({"a": pa.int64()}))
    with pytest.raises(ConfigurationError, match=r"declares LONG, but .* gives columns"):
        env.from_source(columns, type_info=Types.LONG())


def test_tables_hold_no_single_values(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ConfigurationError, match=r"records of a table are rows.*INT"):
        env.from_collection(pa.table({"a": [1]}), INT)


@pytest.mark.parametrize("method", ["map_batches", "async_map_batches"])
def test_columns_are_no_single_values(method: str, env: StreamExecutionEnvironment) -> None:
    async def later(batch: Any) -> Any:
        return batch

    function = later if method.startswith("async") else lambda batch: batch
    stream = getattr(env.from_collection([1]), method)(function, output_type=INT)
    with pytest.raises(JobFailedError, match=r"declared as INT, .* are columns \['value'\]"):
        collected(stream)


def test_a_cached_stream_is_what_it_was(env: StreamExecutionEnvironment) -> None:
    cached = env.from_collection([1, 2], INT).map(lambda n: n * 2, output_type=INT).cache()
    for _ in range(2):
        assert collected(cached) == [2, 4]
        assert cached.get_type() == INT
