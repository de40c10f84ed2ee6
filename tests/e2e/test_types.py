"""Records of nested types, through crashes, restores and other parallelisms: they stay what they
are. Every result is looked at by a function behind the operator, as text that shows its types.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    EventTimeSessionWindows,
    KeyedProcessFunction,
    ListStateDescriptor,
    OutputTag,
    ProcessFunction,
    Row,
    RowKind,
    RuntimeContext,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    WindowFunction,
    arg_max,
    collect,
    first,
    last,
)
from strom.api.types.type_info import schema_of
from strom.testing.equivalence import Ways
from strom.testing.scripted import ScriptedSource

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
NESTED = Types.ROW_NAMED(["price", "pairs"], [Types.BIG_DEC(), Types.LIST(PAIR)])
FIELDS = ["k", "ts", "nested", "map", "big", "any", "day"]
KINDS = [
    Types.INT(),
    Types.LONG(),
    NESTED,
    Types.MAP(Types.STRING(), PAIR),
    Types.BIG_INT(),
    Types.PICKLED_BYTE_ARRAY(),
    Types.SQL_DATE(),
]
ROWS = Types.ROW_NAMED(FIELDS, KINDS)
TUPLES = Types.TUPLE(KINDS)
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
    lambda record, _: record[1]
)
UTC = dt.UTC


def values(lane: int, i: int) -> tuple[Any, ...]:
    price = Decimal(i).scaleb(-i) if i % 3 else None
    return (
        10 * lane + i % 3,
        1000 + 10 * i,
        Row("price", "pairs")(price, [("x", i), None]) if i % 4 else None,
        {"a": (None, i)},
        10 ** (3 * i),
        {i, "any"},
        dt.date(2020, 1, 1) + dt.timedelta(days=i),
    )


LANES = [[values(lane, i) for i in range(40)] for lane in range(2)]
TYPES = {"rows": ROWS, "tuples": TUPLES}


def record(info: Any, one: tuple[Any, ...]) -> Any:
    return one if info is TUPLES else Row(*FIELDS)(*one)


def text(one: Any) -> str:
    """Sets in one order, all else as Python shows it."""
    fields = [sorted(v, key=str) if isinstance(v, set) else v for v in one]
    return f"{type(one).__name__} {fields!r}"


class Keep(KeyedProcessFunction):
    """Each record, and the one of its key before it, out of state."""

    def __init__(self, info: Any) -> None:
        self._info = info

    def open(self, context: RuntimeContext) -> None:
        self._last = context.get_state(ValueStateDescriptor("last", self._info))
        self._all = context.get_list_state(ListStateDescriptor("all", self._info))

    def process_element(self, value: Any, ctx: Any) -> Any:
        before = self._last.value()
        self._last.update(value)
        self._all.add(value)
        yield value if before is None else before
        yield next(iter(self._all.get()))


class Aside(ProcessFunction):
    def __init__(self, tag: OutputTag) -> None:
        self._tag = tag

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self._tag, value


class Apply(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return list(inputs)


def aside(stream: Any, info: Any) -> Any:
    tag = OutputTag("aside", info)
    return stream.process(Aside(tag)).get_side_output(tag)


PIPELINES: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda s, info: s.rebalance().map(lambda r: r, output_type=info).rebalance(),
    "side output": aside,
    "state": lambda s, info: s.key_by(lambda r: r[0]).process(Keep(info), output_type=info),
    "reduce": lambda s, info: s.key_by(lambda r: r[0]).reduce(lambda a, b: (*a[:2], *b[2:])),
    "max_by": lambda s, info: s.key_by(lambda r: r[0]).max_by(4),
    "window reduce": lambda s, info: (
        s.key_by(lambda r: r[0])
        .window(TumblingEventTimeWindows.of(40))
        .reduce(lambda a, b: (*a[:2], *b[2:]))
    ),
    "window apply": lambda s, info: (
        s.key_by(lambda r: r[0])
        .window(EventTimeSessionWindows.with_gap(25))
        .apply(Apply(), output_type=info)
    ),
    "union": lambda s, info: s.filter(lambda r: r[0] % 2).union(s.filter(lambda r: not r[0] % 2)),
}


@pytest.mark.parametrize(("name", "kind"), pairs(PIPELINES, TYPES))
def test_nested_values_survive(name: str, kind: str) -> None:
    info = TYPES[kind]
    lanes = [[record(info, one) for one in lane] for lane in LANES]

    def build(env: Any) -> Any:
        source = ScriptedSource(lanes, schema_of(info))
        stream = env.from_source(source, STRATEGY, "typed")
        return PIPELINES[name](stream, info).map(text)

    given = {text(one) for lane in lanes for one in lane}
    found = assert_equivalent(build, None, Ways(seeds=range(1)))
    assert found
    if "reduce" not in name:
        assert set(found) <= given
    elif kind == "rows":
        assert all(one.startswith("Row ") for one in found)


def keyed(stream: Any) -> Any:
    return stream.key_by("k")


COLUMNAR: dict[str, Callable[[Any, Any], Any]] = {
    "join": lambda s, t: keyed(s).join(keyed(t.select("k", other="nested"))),
    "interval join": lambda s, t: keyed(s).interval_join(keyed(t), -20, 20, how="left"),
    "window join": lambda s, t: keyed(s).window_join(keyed(t), TumblingEventTimeWindows.of(40)),
    "temporal join": lambda s, t: keyed(s).temporal_join(keyed(t), how="left"),
    "broadcast join": lambda s, t: s.broadcast_join(t, on=["k", "ts"], how="left"),
    "over": lambda s, t: keyed(s).over(rows=2).aggregate(x=first("big"), y=last("nested")),
    "deduplicate": lambda s, t: keyed(s).deduplicate(),
    "windows": lambda s, t: (
        keyed(s)
        .window(TumblingEventTimeWindows.of(40))
        .aggregate(x=collect("nested"), y=last("big"), z=arg_max("map", "ts"))
    ),
    "window top_n": lambda s, t: (
        keyed(s).window(TumblingEventTimeWindows.of(40)).top_n(1, ("ts", "desc"))
    ),
    "window max_by": lambda s, t: keyed(s).window(TumblingEventTimeWindows.of(40)).max_by("ts"),
    "sum": lambda s, t: keyed(s).sum("ts"),
    "expressions": lambda s, t: s.with_columns(late=pl.col("ts") + 1).filter(pl.col("late") > 1050),
}


@pytest.mark.parametrize("name", COLUMNAR)
def test_values_that_only_python_reads_go_through_columnar_operators(name: str) -> None:
    lanes = [[record(ROWS, one) for one in lane] for lane in LANES]

    def build(env: Any) -> Any:
        left, right = (
            env.from_source(ScriptedSource(lanes, schema_of(ROWS)), STRATEGY, side)
            for side in ("left", "right")
        )
        return COLUMNAR[name](left, right).map(text)

    found = assert_equivalent(build, None, Ways(seeds=range(1)))
    assert any("Row(price=Decimal('" in one and "pairs=[('x', " in one for one in found)


def test_changelogs_of_values_that_only_python_reads() -> None:
    rows = [record(ROWS, one) for one in LANES[0]]
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection(rows, ROWS).key_by("k")
    last_of = {row.k: row for row in rows}
    best = list(stream.top_n(1, ("ts", "desc")).execute_and_collect())
    assert {row.k: row[:-1] for row in best if row[-1] == RowKind.INSERT} == last_of
    assert {type(row.big) for row in best} == {int}
    values = stream.aggregate(x=last("nested"), y=first("big"), z=last("any"))
    found = {row.k: (row.x, row.z) for row in values.execute_and_collect()}
    assert found == {key: (row.nested, row.any) for key, row in last_of.items()}
