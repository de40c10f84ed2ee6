"""What a type of column cannot do is told where the program says it, if the type is known there,
and by the job else; and nothing is refused that the job would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from amounts import met
from strom import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    JobFailedError,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    approx_count_distinct,
    arg_max,
    arg_min,
    collect,
    count_distinct,
    first,
    largest,
    last,
    max_,
    mean,
    min_,
    smallest,
    sum_,
)
from strom.core.config import JobConfig, NoRestart
from strom.core.errors import GraphError

TABLE = pa.table(
    {
        "k": ["a", "b", "a"],
        "n": [1, 2, 3],
        "ts": [1, 2, 3],
        "list": [[1], [2], [3]],
        "map": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
        "struct": [{"x": 1}] * 3,
        "text": ["p", None, "q"],
        "coded": pa.array(["p", "q", "p"]).dictionary_encode(),
        "uint64": pa.array([1, 2, 3], pa.uint64()),
        "bool": [True, False, True],
        "day": pa.array([1, 2, 3], pa.date32()),
    }
)
COLUMNS = TABLE.schema.names[3:]
WINDOW = TumblingEventTimeWindows.of(10)
TIMES = WatermarkStrategy.for_monotonous_timestamps()

AGGREGATES: dict[str, Callable[[str], Any]] = {
    "min": min_,
    "max": max_,
    "sum": sum_,
    "mean": mean,
    "first": first,
    "last": last,
    "distinct": count_distinct,
    "largest": lambda c: largest(c, 2),
    "smallest": lambda c: smallest(c, 2),
    "collect": collect,
    "about": approx_count_distinct,
    "arg_max by": lambda c: arg_max("n", c),
    "arg_min of": lambda c: arg_min(c, "n"),
}


class Early(EventTimeTrigger):
    """A user's: its windows run row by row."""


STREAMS: dict[str, Callable[[Any, Any], Any]] = {
    "group": lambda s, a: s.key_by("k").aggregate(x=a),
    "over all": lambda s, a: s.key_by("k").over().aggregate(x=a),
    "over rows": lambda s, a: s.key_by("k").over(rows=2).aggregate(x=a),
    "window": lambda s, a: s.key_by("k").window(WINDOW).aggregate(x=a),
    "session": lambda s, a: (
        s.key_by("k").window(EventTimeSessionWindows.with_gap(5)).aggregate(x=a)
    ),
    "by function": lambda s, a: s.key_by(lambda row: row.k).window(WINDOW).aggregate(x=a),
    "by trigger": lambda s, a: s.key_by("k").window(WINDOW).trigger(Early()).aggregate(x=a),
}

OTHERS: dict[str, Callable[[Any, str], Any]] = {
    "top_n": lambda s, c: s.key_by("k").top_n(2, c),
    "top_n of windows": lambda s, c: s.key_by("k").window(WINDOW).top_n(2, c),
    "top_n of rows": lambda s, c: s.key_by(lambda row: row.k).window(WINDOW).top_n(2, c),
    "last": lambda s, c: s.key_by("k").deduplicate("last", c),
    "first": lambda s, c: s.key_by("k").deduplicate("first", c),
    "max_by of windows": lambda s, c: s.key_by("k").window(WINDOW).max_by(c),
    "max_by of sessions": lambda s, c: (
        s.key_by("k").window(EventTimeSessionWindows.with_gap(5)).max_by(c)
    ),
    "rolling max": lambda s, c: s.key_by("k").max(c),
    "rolling min_by": lambda s, c: s.key_by("k").min_by(c),
    "event time": lambda s, c: s.with_event_time(c),
    "timestamps": lambda s, c: s.assign_timestamps_and_watermarks(TIMES.with_timestamp_assigner(c)),
}


def records(known: bool) -> Any:
    config = JobConfig(parallelism=1, restart=NoRestart())
    env = StreamExecutionEnvironment.get_execution_environment(config)
    stream = env.from_collection(TABLE).with_event_time("ts")
    return stream if known else stream.map_batches(lambda data: data)


def failure(results: Any) -> str | None:
    """What the job fails of."""
    try:
        list(results.execute_and_collect())
    except JobFailedError as error:
        return str(error)
    return None


def agreement(use: Callable[[Any], Any], column: str, always: bool = True) -> None:
    """The program is refused, by the name of the column, if the job fails of its type (of some not
    `always`), and never if the job does not."""
    text = failure(use(records(False)))
    if text is None:
        assert failure(use(records(True))) is None
    elif always:
        assert column in text or "no stable hash" in text or "'dict'" in text
        with pytest.raises(GraphError, match=f"column '{column}' holds values of type"):
            use(records(True))


WINDOWED = ("largest", "smallest", "collect", "about")
GROUPED = ("distinct", "arg_max by", "arg_min of")
MISSING = {"group": WINDOWED, "over all": WINDOWED + GROUPED, "over rows": WINDOWED + GROUPED}
"""Aggregates that a stream does not have, whatever the type."""


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("stream", STREAMS)
def test_aggregates(stream: str, column: str) -> None:
    place = list(STREAMS).index(stream), COLUMNS.index(column)
    for number, (name, aggregate) in enumerate(AGGREGATES.items()):
        if met(number, *place) and name not in MISSING.get(stream, ()):
            made = aggregate(column)
            agreement(lambda s, a=made: STREAMS[stream](s, a), column, stream[:3] != "by ")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("use", OTHERS)
def test_orders_and_times(use: str, column: str) -> None:
    agreement(lambda s: OTHERS[use](s, column), column)


def test_text_with_nulls_is_told_as_text() -> None:
    results = records(False).with_event_time("text")
    with pytest.raises(JobFailedError, match="'text' has type string"):
        list(results.execute_and_collect())


@pytest.mark.parametrize("use", ["event time", "timestamps"])
def test_columns_of_times_that_are_not_there(use: str) -> None:
    with pytest.raises(GraphError, match=r"has no column 'nope'; it has k: string, "):
        OTHERS[use](records(True), "nope")


def test_a_direction_that_is_none_is_told_as_one() -> None:
    def top(known: bool) -> Any:
        return records(known).key_by("k").top_n(2, ("n", "down"))

    hint = r"'down' is no direction either: these are \"asc\" and \"desc\""
    with pytest.raises(GraphError, match=hint):
        top(True)
    with pytest.raises(JobFailedError, match=hint):
        list(top(False).execute_and_collect())
