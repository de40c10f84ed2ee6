"""Operators that make much of one batch or watermark pause between batches of bounded size, and
give the same as without pauses."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom import StreamExecutionEnvironment
from strom.api.aggregates import count
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.elements import Watermark
from strom.operators.joins.regular import MAX_PAIRS
from strom.testing.operator_harness import OperatorHarness

CONFIG = JobConfig(batch_size=500)
SIDES = tuple(pa.schema([("k", pa.int64()), (name, pa.int64())]) for name in ("l", "r"))


def records(port: int, count: int, time: int = 5, keys: int = 1) -> ColumnBatch:
    numbers = np.arange(count)
    arrays = [pa.array(numbers % keys), pa.array(numbers)]
    data = pa.RecordBatch.from_arrays(arrays, schema=SIDES[port])
    return ColumnBatch(data, np.full(count, time, dtype=np.int64))


def keyed() -> tuple[Any, Any]:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in SIDES)
    return left, right


def regular(how: str) -> Any:
    left, right = keyed()
    return left.join(right, how, left_type=SIDES[0], right_type=SIDES[1])


def run(stream: Any, pausing: bool, *pushes: Any) -> OperatorHarness:
    """Pushes: (port, records), or a watermark."""
    harness = OperatorHarness.of(stream, config=CONFIG)
    harness.pausing = pausing
    for push in pushes:
        if isinstance(push, int):
            harness.watermark(push)
        else:
            harness.push(push[1], port=push[0])
        while harness.busy:
            waiting = len(harness.batches())
            assert harness.settled == isinstance(push, int), "no checkpoint within a batch"
            harness.resume()
            assert len(harness.batches()) <= waiting + 1
    return harness


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_a_regular_join_with_many_matches_a_record(how: str) -> None:
    pushes = [(1, records(1, 1000)), (0, records(0, 100))]
    harness = run(regular(how), True, *pushes)
    sizes = [len(batch) for batch in harness.batches()]
    assert sum(sizes) >= 100_000
    assert len(sizes) > 3
    assert max(sizes) <= 2 * MAX_PAIRS + 1000
    assert Counter(harness.outputs()) == Counter(run(regular(how), False, *pushes).outputs())
    assert len(harness.outputs()) == sum(sizes)


def test_an_interval_join_with_many_matches_a_record() -> None:
    def stream() -> Any:
        left, right = keyed()
        return left.interval_join(right, -5, 5, left_type=SIDES[0], right_type=SIDES[1])

    pushes = [(1, records(1, 1000)), (0, records(0, 100))]
    harness = run(stream(), True, *pushes)
    sizes = [len(batch) for batch in harness.batches()]
    assert sum(sizes) == 100_000
    assert max(sizes) <= 4 * CONFIG.batch_size
    assert Counter(harness.outputs()) == Counter(run(stream(), False, *pushes).outputs())


def test_top_n_changes_many_places() -> None:
    def stream() -> Any:
        env = StreamExecutionEnvironment.get_execution_environment()
        return env.from_collection([]).key_by("k").top_n(100, order_by="l", rank="place")

    early = records(0, 5000, keys=50)
    better = ColumnBatch(
        early.data.set_column(1, "l", pa.array(np.arange(5000) - 10_000)), early.timestamps
    )
    harness = run(stream(), True, (0, early), (0, better))
    sizes = [len(batch) for batch in harness.batches()]
    assert len(sizes) > 3
    assert max(sizes) <= 4 * CONFIG.batch_size
    whole = run(stream(), False, (0, early), (0, better))
    assert harness.outputs() == whole.outputs()


def test_records_that_waited_for_a_watermark() -> None:
    def stream() -> Any:
        env = StreamExecutionEnvironment.get_execution_environment()
        return env.from_collection([]).key_by("k").over().aggregate(n=count())

    harness = run(stream(), True, (0, records(0, 9000, keys=7)), 10)
    sizes = [len(batch) for batch in harness.batches()]
    assert sum(sizes) == 9000
    assert max(sizes) <= 4 * CONFIG.batch_size
    assert harness.output.elements[-1] == Watermark(10)


def test_what_a_batch_function_returns() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).map_batches(
        lambda batch: pa.RecordBatch.from_arrays([pa.array(np.arange(10_000))], names=["n"])
    )
    harness = run(stream, True, (0, records(0, 3)))
    assert [len(batch) for batch in harness.batches()] == [2000] * 5
    assert [row[0] for row in harness.outputs()] == list(range(10_000))
