"""What PyFlink programs rely on in the types they declare: rows by name, tuples, nested values,
decimals, types that stay. Each of these gave other values, or failed, before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from strom import (
    CountTumblingWindowAssigner,
    DataStream,
    GraphError,
    Instant,
    JobFailedError,
    OutputTag,
    PickledBytesTypeInfo,
    ProcessFunction,
    Row,
    RowTypeInfo,
    StreamExecutionEnvironment,
    TupleTypeInfo,
    TypeMismatchError,
    Types,
    count,
    count_distinct,
    max_,
    sum_,
)

AB = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()])
TI = Types.TUPLE([Types.STRING(), Types.INT()])
PRICES = Types.ROW_NAMED(["k", "price"], [Types.STRING(), Types.BIG_DEC()])
LIST = [("a", Decimal("1.50")), ("b", Decimal("1.5")), ("a", Decimal("1E-40"))]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def collected(stream: DataStream) -> list[Any]:
    return list(stream.execute_and_collect())


def test_a_row_with_names_is_mapped_by_name(env: StreamExecutionEnvironment) -> None:
    [row] = collected(env.from_collection([1]).map(lambda v: Row("b", "a")(1, 2), output_type=AB))
    assert (row.a, row.b) == (2, 1)


def test_a_row_of_other_names_is_an_error_that_names_them(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).map(lambda v: Row("x", "a")(1, 2), output_type=AB)
    with pytest.raises(JobFailedError, match=r"'Map'.*\['x', 'a'\].*\['a', 'b'\]"):
        collected(stream)


def test_side_outputs_map_rows_by_name_too(env: StreamExecutionEnvironment) -> None:
    tag = OutputTag("side", AB)

    class Aside(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield tag, Row("b", "a")(1, 2)

    side = env.from_collection([1]).process(Aside()).get_side_output(tag)
    assert collected(side.map(lambda row: (row.a, row.b))) == [(2, 1)]


def test_rolling_aggregates_of_rows_in_several_orders(env: StreamExecutionEnvironment) -> None:
    rows = [Row(k=1, v=10), Row("v", "k")(20, 1)]
    found = collected(env.from_collection(rows).key_by(lambda row: row.k).sum("v"))
    assert [(row.k, row.v) for row in found] == [(1, 10), (1, 30)]


def test_unions_of_one_schema_in_two_orders_are_refused(env: StreamExecutionEnvironment) -> None:
    other = Types.ROW_NAMED(["b", "a"], [Types.INT(), Types.INT()])
    streams = env.from_collection([(1, 2)], AB), env.from_collection([(1, 2)], other)
    with pytest.raises(GraphError, match=r"union: .*\['a', 'b'\].*\['b', 'a'\].*select"):
        streams[0].union(streams[1])
    rows = collected(streams[0].union(streams[1].select("a", "b")))
    assert sorted(rows) == [(1, 2), (2, 1)]


REDUCE: dict[str, Callable[[Any, Any], Any]] = {
    "tuples": lambda x, y: (x[0], x.b + y.b),
    "rows in another order": lambda x, y: Row("b", "a")(x.b + y.b, x.a),
    "dicts": lambda x, y: {"b": x.b + y.b, "a": x.a},
}


@pytest.mark.parametrize("name", REDUCE)
def test_a_keyed_reduce_keeps_the_declared_type(name: str, env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([(1, 1), (1, 2), (1, 3)], AB).key_by(lambda r: r.a)
    reduced = stream.reduce(REDUCE[name])
    assert reduced.get_type() == AB
    assert collected(reduced.map(lambda r: (r.a, r.b))) == [(1, 1), (1, 3), (1, 6)]


@pytest.mark.parametrize("name", REDUCE)
def test_a_windowed_reduce_keeps_the_declared_type(
    name: str, env: StreamExecutionEnvironment
) -> None:
    stream = env.from_collection([(1, 1), (1, 2), (1, 3)], AB).key_by(lambda r: r.a)
    reduced = stream.window(CountTumblingWindowAssigner.of(3)).reduce(REDUCE[name])
    assert reduced.get_type() == AB
    assert collected(reduced.map(lambda r: (r.a, r.b))) == [(1, 6)]


def test_a_reduce_of_columns_nobody_declared_gives_such_columns(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([(1, 1), (1, 2)], AB).map_batches(lambda data: data)
    reduced = stream.key_by(lambda r: r.a).reduce(lambda x, y: (x[0], x[1] + y[1]))
    assert collected(reduced.map(lambda r: r.b)) == [1, 3]


def test_a_reduce_of_another_type_needs_one_declared(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([(1, 1), (1, 2)], AB).key_by(lambda r: r.a)
    with pytest.raises(JobFailedError, match=r"'Reduce'.*field 'b': value 1\.5"):
        collected(stream.reduce(lambda x, y: (x[0], 1.5)))


def test_records_of_a_tuple_type_are_tuples(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([("a", 1)], TI)
    assert collected(stream.map(str)) == ["('a', 1)"]
    [found] = collected(stream)
    assert (type(found), found) == (tuple, ("a", 1))
    assert stream.get_type() == TI
    assert collected(stream.filter(pl.col("f1") > 0).select("f1")) == [(1,)]
    assert [type(one) for one in collected(stream.filter(pl.col("f1") > 0))] == [tuple]


def test_nested_rows_and_tuples_stay_what_they_are(env: StreamExecutionEnvironment) -> None:
    info = Types.ROW([Types.STRING(), TI, AB, Types.LIST(AB), Types.MAP(Types.STRING(), TI)])
    record = ("k", Row("a", 1), (1, 2), [Row("b", "a")(2, 1)], {"m": ("x", 3)})
    stream = env.from_collection([record], info)
    looked = stream.map(lambda v: f"{v[1]} {v[1][1]} {v[2].b} {v[3]} {v[4]}")
    assert collected(looked) == ["('a', 1) 1 2 [Row(a=1, b=2)] {'m': ('x', 3)}"]


def test_decimals_are_what_they_were(env: StreamExecutionEnvironment) -> None:
    found = collected(env.from_collection(LIST, PRICES))
    assert [str(row.price) for row in found] == ["1.50", "1.5", "1E-40"]
    assert [row.price.as_tuple() for row in found] == [price.as_tuple() for _, price in LIST]


def test_equal_decimals_are_one_key(env: StreamExecutionEnvironment) -> None:
    env.set_parallelism(2)
    keyed = env.from_collection(LIST, PRICES).key_by(lambda row: row.price)
    found = collected(keyed.reduce(lambda x, y: Row("price", "k")(x.price, x.k + y.k)))
    assert sorted((row.k, str(row.price)) for row in found)[-1][0] in ("ab", "b", "ba")
    assert sum(len(row.k) == 2 for row in found) == 1


def test_columns_that_only_python_compares_are_no_keys(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeMismatchError, match=r"'price' has type BIG_DEC.*row\.price"):
        collected(env.from_collection(LIST, PRICES).key_by("price").sum("k"))


REFUSED: dict[str, Callable[[DataStream], DataStream]] = {
    "sum": lambda s: s.key_by("k").sum("price"),
    "windowed sum": lambda s: (
        s.key_by("k").window(CountTumblingWindowAssigner.of(1)).aggregate(x=sum_("price"))
    ),
    "max": lambda s: s.key_by("k").aggregate(x=max_("price")),
    "count_distinct": lambda s: s.key_by("k").aggregate(x=count_distinct("price")),
    "top_n": lambda s: s.key_by("k").top_n(1, "price"),
    "arithmetic": lambda s: s.select(x=pl.col("price") * 2),
    "comparison": lambda s: s.filter(pl.col("price") == pl.col("price")),
    "unknown count_distinct": lambda s: (
        s.map_batches(lambda data: data).key_by("k").aggregate(x=count_distinct("price"))
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_columns_cannot_compute_on_big_decimals(name: str, env: StreamExecutionEnvironment) -> None:
    with pytest.raises((GraphError, JobFailedError), match=r"(?i)big_dec"):
        collected(REFUSED[name](env.from_collection(LIST, PRICES)))


def test_what_columns_can_do_with_big_decimals(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(LIST, PRICES).key_by("k")
    assert collected(keyed.max("price"))[-1] == ("a", Decimal("1.50"))
    assert collected(keyed.min_by("price"))[-1] == ("a", Decimal("1E-40"))
    counted = keyed.aggregate(x=count("price"))
    assert max(row.x for row in collected(counted)) == 2


def test_pickled_fields(env: StreamExecutionEnvironment) -> None:
    class Local:
        def __eq__(self, other: object) -> bool:
            return type(other).__name__ == "Local"

        __hash__ = None  # type: ignore[assignment]

    env.set_parallelism(2)
    info = Types.ROW_NAMED(["n", "any"], [Types.INT(), Types.PICKLED_BYTE_ARRAY()])
    values = [(1, {1, 2}), (2, Local()), (3, None), (4, Row(a=[1]))]
    stream = env.from_collection(values, info).rebalance().map(lambda row: row, output_type=info)
    assert sorted(collected(stream)) == values


def test_get_type(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([(1, 2)], AB)
    assert stream.get_type() == AB
    assert isinstance(stream.get_type(), RowTypeInfo)
    assert stream.filter(lambda row: True).key_by("a").get_type() == AB
    windows = stream.key_by("a").window(CountTumblingWindowAssigner.of(2))
    assert windows.get_input_type() == AB
    assert stream.select(t=pl.col("a")).get_type() == Types.ROW_NAMED(["t"], [Types.INT()])
    assert isinstance(env.from_collection([("a", 1)], TI).get_type(), TupleTypeInfo)
    assert isinstance(env.from_collection([1]).get_type(), PickledBytesTypeInfo)


def test_rows_changed_by_one_branch_are_not_changed_for_another(
    env: StreamExecutionEnvironment,
) -> None:
    def change(row: Row) -> Row:
        row["a"] = 100
        return row

    stream = env.from_collection([(1, 2)], AB).map(lambda row: row, output_type=AB)
    changed = stream.map(change, output_type=AB)
    same = stream.map(lambda row: row, output_type=AB)
    assert sorted(collected(changed.union(same))) == [(1, 2), (100, 2)]


def test_an_instant_is_a_datetime_in_utc(env: StreamExecutionEnvironment) -> None:
    at = Types.ROW_NAMED(["at"], [Types.INSTANT()])
    stream = env.from_collection([1_500]).map(lambda ms: (Instant.of_epoch_milli(ms),), at)
    [row] = collected(stream)
    assert row.at == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    finer = env.from_collection([1]).map(lambda n: (Instant(0, n),), output_type=at)
    with pytest.raises(JobFailedError, match="finer than a microsecond"):
        collected(finer)
