"""The columns foretold behind joins, tables and windows are those that come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from strom import (
    CountTrigger,
    DataStream,
    EventTimeSessionWindows,
    GlobalWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    approx_count_distinct,
    arg_max,
    collect,
    count,
    count_distinct,
    first,
    largest,
    max_,
    mean,
    min_,
    stddev,
    sum_,
)
from strom.api.streams.stream import known_schema
from strom.core.batch import ColumnBatch
from strom.core.row_kind import ROW_KIND, ROW_KIND_FIELD
from strom.testing.operator_harness import OperatorHarness

WINDOW = TumblingEventTimeWindows.of(10)

RECORDS = pa.table(
    {
        "k": pa.array([1, 1, 3, 2], pa.int32()),
        "t": pa.array(["a", "b", "c", None]),
        "d": pa.array(["x", "y", "x", "x"]).dictionary_encode(),
        "w": pa.array(["p", "q", "p", "p"], pa.string_view()),
        "f": pa.array([0.5, None, 2.5, 1.0], pa.float32()),
        "day": pa.array([date(2024, 1, 1 + n) for n in range(4)]),
        "cost": pa.array([Decimal("1.50")] * 4, pa.decimal128(9, 2)),
        "l": pa.array([[1], [], None, [2, 3]], pa.list_(pa.int16())),
        "n": pa.array([1, 2, 3, 4]),
    }
)
OTHERS = pa.table({"k": pa.array([1, 2, 2]), "t": ["u", "v", "w"], "n": [7, 8, 9]})
CHANGES = OTHERS.append_column(ROW_KIND_FIELD, pa.array([0, 0, 2], pa.int8()))

Build = Callable[[Any, Any, Any], DataStream]
"""From streams of RECORDS, OTHERS and CHANGES."""

RUNNING = {
    "rows": count(),
    "some": count("t").where(pl.col("k") > 1),
    "total": sum_("k"),
    "floats": sum_("f"),
    "average": mean("n"),
    "spread": stddev("n"),
    "least": min_("day"),
    "text": max_("w"),
    "doubled": max_(pl.col("f") * 2),
    "who": arg_max("k", "n"),
    "kinds": count_distinct("d"),
}
WINDOWED = {
    **RUNNING,
    "coded": max_("d"),
    "start": first("cost"),
    "longest": first("l"),
    "texts": collect("t"),
    "best": largest("day", 2),
    "about": approx_count_distinct("t"),
}
SESSIONS = EventTimeSessionWindows.with_gap(5)
EACH_RECORD = CountTrigger.of(1)

CASES: dict[str, Build] = {
    "group": lambda a, b, c: a.key_by("k").aggregate(**RUNNING),
    "group by text": lambda a, b, c: a.key_by("d", "w").aggregate(n=count(), changelog="upsert"),
    "group by expression": lambda a, b, c: a.key_by(pl.col("k") * 2).aggregate(top=max_("n")),
    "group of changes": lambda a, b, c: c.key_by("k").aggregate(top=max_("t"), n=sum_("n")),
    "top_n": lambda a, b, c: a.key_by("k").top_n(2, "n"),
    "top_n ranked": lambda a, b, c: a.key_by("k").top_n(2, ("t", "desc"), rank="place"),
    "top_n of changes": lambda a, b, c: c.key_by("k").top_n(1, "n", rank="place"),
    "first": lambda a, b, c: a.key_by("k").deduplicate(),
    "first of changes": lambda a, b, c: c.key_by("k").deduplicate(),
    "first in order": lambda a, b, c: a.key_by("k").deduplicate(order_by="n"),
    "last": lambda a, b, c: a.key_by("d").deduplicate("last"),
    "over": lambda a, b, c: (
        a.key_by("k").over(2, order="arrival").aggregate(rows=count(), top=max_("day"))
    ),
    "over all": lambda a, b, c: a.key_by("k").over().aggregate(m=sum_("f"), o=first("n")),
    "event time": lambda a, b, c: a.with_event_time("n"),
    "window": lambda a, b, c: a.key_by("k").window(WINDOW).aggregate(**WINDOWED),
    "window of expressions": lambda a, b, c: (
        a.key_by("k").window(WINDOW).aggregate(upper=min_(pl.col("t").str.to_uppercase()))
    ),
    "window by text": lambda a, b, c: a.key_by("d", "w").window(WINDOW).aggregate(n=count()),
    "window by expression": lambda a, b, c: (
        a.key_by(pl.col("t").str.slice(0, 1)).window(WINDOW).aggregate(n=count())
    ),
    "window on rows": lambda a, b, c: (
        a.key_by("k").window(WINDOW).trigger(EACH_RECORD).aggregate(**WINDOWED)
    ),
    "window of all": lambda a, b, c: a.window_all(WINDOW).aggregate(n=count(), text=max_("t")),
    "clock": lambda a, b, c: (
        a.key_by("k").window(TumblingProcessingTimeWindows.of(10)).aggregate(n=count())
    ),
    "sessions": lambda a, b, c: a.key_by("k", "t").window(SESSIONS).aggregate(**RUNNING),
    "sessions on rows": lambda a, b, c: a.key_by("k").window(SESSIONS).aggregate(**WINDOWED),
    "counted": lambda a, b, c: a.key_by("k").count_window(1).aggregate(n=count(), top=max_("t")),
    "global": lambda a, b, c: (
        a.key_by("k").window(GlobalWindows.create()).trigger(EACH_RECORD).aggregate(n=count())
    ),
    "window top_n": lambda a, b, c: a.key_by("k").window(WINDOW).top_n(1, "n", rank="place"),
    "session top_n": lambda a, b, c: a.key_by("k").window(SESSIONS).top_n(1, "n", rank="place"),
    "window max_by": lambda a, b, c: a.key_by("k").window(WINDOW).max_by("n"),
    "session max_by": lambda a, b, c: a.key_by("k").window(SESSIONS).max_by("n"),
    "temporal": lambda a, b, c: a.key_by("k").temporal_join(b.key_by("k"), "left"),
    "temporal of changes": lambda a, b, c: a.key_by("k").temporal_join(c.key_by("k"), "left"),
    "broadcast": lambda a, b, c: a.broadcast_join(b, "k"),
    "broadcast left": lambda a, b, c: c.broadcast_join(b, "k", "left"),
    "broadcast semi": lambda a, b, c: a.broadcast_join(c, "k", "semi"),
    "lookup": lambda a, b, c: a.lookup_join(OTHERS, "k"),
    "lookup left": lambda a, b, c: c.lookup_join(OTHERS, "k", "left", suffix="2"),
    "lookup anti": lambda a, b, c: a.lookup_join(lambda keys: OTHERS.slice(0, 1), "k", "anti"),
}
for _how in ("inner", "left", "right", "full", "semi", "anti"):
    CASES[f"join {_how}"] = lambda a, b, c, how=_how: a.key_by("k").join(b.key_by("k"), how)
CASES["join of changes"] = lambda a, b, c: a.key_by("k").join(c.key_by("k"))
CASES["join to changes"] = lambda a, b, c: c.key_by("k").join(a.key_by("k"))


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def _streams(env: Any) -> list[DataStream]:
    return [env.from_collection(table.slice(0, 0)) for table in (RECORDS, OTHERS, CHANGES)]


def _timed(table: pa.Table) -> ColumnBatch:
    (batch,) = table.combine_chunks().to_batches()
    return ColumnBatch(batch, batch.column("n").to_numpy())


def _pushed(stream: DataStream) -> list[Any]:
    """What comes out for the records of the stream's inputs: the result may be any batches."""
    harness = OperatorHarness.of(stream)
    operator = stream._inputs[0].source
    tables: dict[int, Any] = {0: None, 1: None}
    for one in operator.inputs:
        schema = one.source.spec.source.schema  # type: ignore[attr-defined]
        (tables[one.port],) = [t for t in (RECORDS, OTHERS, CHANGES) if t.schema.equals(schema)]
    for port in (1, 0):
        table = tables[port]
        if table is not None:
            harness.push(_timed(table), port=port)
            if port == 1:
                harness.end_input(1)
    harness.watermark(100)
    harness.advance_processing_time(100)
    return harness.batches()


@pytest.mark.parametrize("name", CASES)
def test_known_columns_are_those_that_come(env: Any, name: str) -> None:
    stream = CASES[name](*_streams(env))
    known = known_schema(stream)
    batches = _pushed(stream)
    assert known is not None
    assert batches
    for batch in batches:
        assert batch.data.schema.names == known.names
        assert batch.data.schema.types == known.types


def test_changelogs_are_known(env: Any) -> None:
    records, _, changes = _streams(env)
    for name, build in CASES.items():
        known = known_schema(build(*_streams(env)))
        assert known is not None
        assert known.names.count(ROW_KIND) <= 1, name
        assert ROW_KIND not in known.names[:-1], name
    kinds = {name: _changes(CASES[name](*_streams(env))) for name in CASES}
    assert kinds["join inner"] is kinds["first"] is kinds["temporal of changes"] is False
    assert kinds["join of changes"]
    assert kinds["first of changes"]
    assert kinds["broadcast left"]
    assert known_schema(records.key_by("k").join(changes.key_by("k"), "semi"))


def _changes(stream: DataStream) -> bool:
    known = known_schema(stream)
    return known is not None and ROW_KIND in known.names


def test_columns_that_are_not_known(env: Any) -> None:
    records, others, _ = _streams(env)
    anything = records.map(lambda r: r)
    keyed = anything.key_by("k")
    right = {"k": int, "x": str}
    streams = [
        keyed.aggregate(n=count()),
        keyed.top_n(1, "n"),
        keyed.deduplicate(),
        keyed.over(order="arrival").aggregate(n=count()),
        keyed.window(WINDOW).aggregate(n=count()),
        anything.with_event_time("n"),
        keyed.join(others.key_by("k")),
        others.key_by("k").join(keyed),
        # Whether records of a declared type are a changelog is not known either.
        others.key_by("k").join(keyed, right_type=right),
        anything.lookup_join(OTHERS, "k"),
        records.lookup_join(lambda keys: OTHERS, "k"),
        anything.broadcast_join(others, "k", left_type=right),
        records.key_by(lambda r: r.k).window(WINDOW).aggregate(n=count()),
        records.key_by("k").aggregate(n=sum_("missing")),
        records.key_by("missing").aggregate(n=count()),
        records.key_by("k").aggregate(n=sum_(pl.col("missing"))),
    ]
    assert [known_schema(stream) for stream in streams] == [None] * len(streams)
    outer = others.key_by("k").join(keyed, "left", right_type=right)
    assert known_schema(outer) is not None


def test_an_outer_join_behind_tables_needs_no_declaration(env: Any) -> None:
    records, others, _ = _streams(env)
    totals = others.key_by("k").aggregate(total=sum_("n"))
    joined = known_schema(records.select("k", "n").key_by("k").join(totals.key_by("k"), "left"))
    assert joined is not None
    assert joined.names == ["k", "n", "total", ROW_KIND]
