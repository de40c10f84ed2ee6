"""A stream whose columns change their type: what may be taken for the same, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom import (
    DataStream,
    EventTimeSessionWindows,
    JobConfig,
    JobFailedError,
    KeyedStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
)
from strom.connectors.datagen import DataGenSource
from strom.core.errors import TypeMismatchError
from strom.operators.columns import fit, fit_keys

TIME = WatermarkStrategy.for_bounded_out_of_orderness(1000).with_timestamp_assigner("time")
BLOCK = 20
DICTIONARY = pa.dictionary(pa.int32(), pa.string())

Build = Callable[[Any], DataStream]

KEYED: dict[str, Build] = {
    "window": lambda s: s.window(TumblingEventTimeWindows.of(1000)).aggregate(n=count()),
    "session": lambda s: s.window(EventTimeSessionWindows.with_gap(5)).aggregate(n=count()),
    "group": lambda s: s.aggregate(n=count()),
    "rolling": lambda s: s.sum("value"),
    "deduplicate": lambda s: s.deduplicate("last"),
}


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(JobConfig(batch_size=BLOCK))


def keyed(
    env: StreamExecutionEnvironment, first: pa.DataType, then: pa.DataType, name: str = "keys"
) -> KeyedStream:
    """Keys 0..4, of another type in the second half."""

    def generate(start: int, number: int) -> pa.RecordBatch:
        numbers = np.arange(start, start + number)
        keys = pa.array(numbers % 5).cast(first if start < 5 * BLOCK else then)
        return pa.record_batch({"k": keys, "value": pa.array(numbers), "time": pa.array(numbers)})

    source = DataGenSource(generate, 10 * BLOCK, block=BLOCK)
    return env.from_source(source, TIME, name).key_by("k")


def run(build: Build, first: pa.DataType, then: pa.DataType) -> list[Any]:
    return list(build(keyed(environment(), first, then)).execute_and_collect())


@pytest.mark.parametrize("then", [pa.string(), pa.float64(), pa.timestamp("ms")], ids=str)
@pytest.mark.parametrize("name", KEYED)
def test_a_key_does_not_become_another(name: str, then: pa.DataType) -> None:
    """5, "5" and 5.0 are sent to different subtasks: they cannot be one key."""
    with pytest.raises(JobFailedError, match=r"'k' was \S+ in earlier batches and is"):
        run(KEYED[name], pa.int64(), then)


def test_a_wider_integer_is_the_same_key() -> None:
    found = run(KEYED["window"], pa.int64(), pa.int32())
    assert sorted((row.k, row.n) for row in found) == [(key, 40) for key in range(5)]


def test_what_is_aggregated_may_become_another_number() -> None:
    assert fit(pa.array([1.0]), pa.int64(), "x").to_pylist() == [1]
    assert fit(pa.array([1]), pa.float64(), "x").to_pylist() == [1.0]
    assert fit(pa.nulls(2), pa.string(), "x").to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (pa.array(["5"]), pa.int64()),
        (pa.array([5]), pa.string()),
        (pa.array([5]), pa.timestamp("ms")),
        (pa.array([True]), pa.int64()),
        (pa.array([1.5]), pa.int64()),
    ],
    ids=str,
)
def test_values_of_another_kind_are_refused(value: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(TypeMismatchError, match=f"x was .* is {value.type} now"):
        fit(value, kind, "x")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (pa.array([5], pa.int32()), pa.int64()),
        (pa.array(["a"]), pa.string_view()),
        (pa.array(["a"]), DICTIONARY),
        (pa.array(["a"], DICTIONARY), pa.string()),
        (pa.nulls(1), pa.int64()),
    ],
    ids=str,
)
def test_keys_may_change_their_encoding(value: pa.Array, kind: pa.DataType) -> None:
    schema = pa.schema([("k", kind)])
    got = fit_keys(pa.RecordBatch.from_arrays([value], names=["k"]), schema)
    assert got.schema == schema
    assert got.column(0).to_pylist() == value.to_pylist()


JOINS: dict[str, Callable[[Any, Any], DataStream]] = {
    "regular": lambda left, right: left.join(right),
    "window": lambda left, right: left.window_join(right, TumblingEventTimeWindows.of(1000)),
    "interval": lambda left, right: left.interval_join(right, 0, 5),
    "temporal": lambda left, right: left.temporal_join(right),
}


@pytest.mark.parametrize("name", JOINS)
def test_a_join_does_not_take_other_keys(name: str) -> None:
    """5.0 is sent to another subtask than 5."""
    env, int64 = environment(), pa.int64()
    left = keyed(env, int64, pa.float64(), "changing")
    joined = JOINS[name](left, keyed(env, int64, int64, "constant"))
    with pytest.raises(JobFailedError, match=r"'k' was int64 in earlier batches and is double now"):
        list(joined.execute_and_collect())
