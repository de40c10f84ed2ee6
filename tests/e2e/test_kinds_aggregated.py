"""Aggregates over a column of several kinds see the values that are there, as over any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    Aggregate,
    DataStream,
    EventTimeSessionWindows,
    OfKind,
    Row,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    arg_max,
    collect,
    count,
    first,
    last,
)
from strom.testing import Ways

KINDS = Types.UNION({"a": {"x": int}, "b": {"s": str}})
COLUMNS = Types.ROW_NAMED(
    ["i", "k", "text", "kind"], [Types.INT(), Types.INT(), Types.STRING(), KINDS]
)


def kind_of(text: str | None) -> OfKind | None:
    if text is None:
        return None
    return OfKind("b", Row(s=text)) if text < "n" else OfKind("a", Row(x=ord(text)))


def rows(texts: str) -> list[tuple[Any, ...]]:
    """A letter each, of which those of the second half of the alphabet are of another kind; a dot
    is None."""
    made = [None if letter == "." else letter for letter in texts]
    return [(i, i % 2, text, kind_of(text)) for i, text in enumerate(made)]


DATA = rows("..az.zb..c...yd..e.z" * 8)

EVEN = pl.col("i") % 3 == 0

AGGREGATES: dict[str, Callable[[str], Aggregate]] = {
    "count": count,
    "first": first,
    "last": last,
    "collect": collect,
    "arg_max": lambda column: arg_max(column, by="i"),
}

Build = Callable[[DataStream, Aggregate], DataStream]

STREAMS: dict[str, Build] = {
    "windows": lambda s, a: s.key_by("k").window(TumblingEventTimeWindows.of(6)).aggregate(of=a),
    "all": lambda s, a: s.window_all(TumblingEventTimeWindows.of(5)).aggregate(of=a),
    "sessions": lambda s, a: (
        s.filter(pl.col("i") % 7 < 4)
        .set_parallelism(1)
        .key_by("k")
        .window(EventTimeSessionWindows.with_gap(3))
        .aggregate(of=a)
    ),
    "counted": lambda s, a: s.key_by("k").count_window(3).aggregate(of=a),
}


def aggregated(env: StreamExecutionEnvironment, build: Build, aggregate: Aggregate) -> DataStream:
    """A key's records come one after the other, from one subtask."""
    records = env.from_collection(DATA, COLUMNS).with_event_time("i").set_parallelism(1)
    return build(records, aggregate).map(tuple)


def kinds_in(result: Any) -> Any:
    """Texts as the values of several kinds."""
    if isinstance(result, (list, tuple)):
        return type(result)([kinds_in(one) for one in result])
    return kind_of(result) if isinstance(result, str) else result


@pytest.mark.parametrize(("stream", "name"), pairs(STREAMS, AGGREGATES))
@pytest.mark.parametrize("where", [False, True])
def test_as_over_texts(stream: str, name: str, where: bool) -> None:
    def made(column: str) -> Aggregate:
        aggregate = AGGREGATES[name](column)
        return aggregate.where(EVEN) if where else aggregate

    env = StreamExecutionEnvironment.get_execution_environment()
    expected = list(aggregated(env, STREAMS[stream], made("text")).execute_and_collect())
    assert any(row[-1] for row in expected)
    assert_equivalent(
        lambda env: aggregated(env, STREAMS[stream], made("kind")),
        [kinds_in(row) for row in expected],
        Ways(seeds=range(1), batch_size=4),
    )


FRAMES: dict[str, Build] = {
    "rows": lambda s, a: s.key_by("k").over(rows=3, order="arrival").aggregate(of=a),
    "range": lambda s, a: s.key_by("k").over(range=4).aggregate(of=a),
    "running": lambda s, a: s.key_by("k").aggregate(of=a),
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("where", [False, True])
def test_over_frames_and_all_so_far(frame: str, where: bool) -> None:
    def results(name: str, column: str) -> list[Any]:
        aggregate = AGGREGATES[name](column)
        aggregate = aggregate.where(EVEN) if where else aggregate
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        rows = aggregated(env, FRAMES[frame], aggregate).execute_and_collect()
        return [row[1 if frame == "running" else -1] for row in rows]  # its last is the row's kind

    for name in ("count", "first", "last"):
        expected = results(name, "text")
        assert any(expected), name
        assert results(name, "kind") == kinds_in(expected), name
