"""Functions of one record: by rows, and on columns where they are compiled to them.

A harness holds one operator and is given batches of columns, of which nobody has made rows yet. The
two ways are run in turns, with the processor's time of this process: a busy machine does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from strom import (
    ColumnBatch,
    JobConfig,
    KeyedStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    count,
)
from strom.connectors.datagen import DataGenSource
from strom.testing import OperatorHarness

from .apart import apart

BLOCK = 16_384

PRICED = Types.ROW_NAMED(["item", "price"], [Types.STRING(), Types.DOUBLE()])
EVENTS = pa.schema(
    [("k", pa.int64()), ("price", pa.float64()), ("n", pa.int64()), ("s", pa.string())]
)


def windowed(keyed: KeyedStream) -> Any:
    return keyed.window(TumblingEventTimeWindows.of(1_000)).aggregate(n=count())


CASES: dict[str, Callable[[Any], Any]] = {
    "filter": lambda stream: stream.filter(lambda row: row.price > 50),
    "filter_of_three": lambda stream: stream.filter(
        lambda row: row.price > 10 and row.n % 3 and row.s != "item7"
    ),
    "map_declared": lambda stream: stream.map(
        lambda row: (row.s, row.price * row.n), output_type=PRICED
    ),
    "map_undeclared": lambda stream: stream.map(lambda row: (row.s, row.price * row.n)),
    "map_to_one_value": lambda stream: stream.map(lambda row: row.n * 2),
    "map_of_text": lambda stream: stream.map(
        lambda row: (row.s.upper().strip(), 0.0 if row.n % 2 else row.price), output_type=PRICED
    ),
    "window_by_function": lambda stream: windowed(stream.key_by(lambda row: row.k)),
    "map_beyond_64_bits": lambda stream: stream.map(lambda row: (row.n + 1) * 2**61),
}
"""The last one is tried on columns in vain."""


def records(number: int) -> ColumnBatch:
    """A batch that nobody has seen."""
    numbers = np.arange(number * BLOCK, (number + 1) * BLOCK)
    keys = numbers * 7 % 1_000
    columns = [keys, numbers % 101 * 1.25, numbers % 17, [f"item{one}" for one in keys % 50]]
    data = pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=EVENTS)
    return ColumnBatch(data, numbers // 64)


def run(case: str, batches: list[ColumnBatch], compiled: bool) -> float:
    """Nanoseconds a record, of the processor."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(DataGenSource(lambda start, n: None, BLOCK, schema=EVENTS))
    config = JobConfig(compile_functions=compiled)
    harness = OperatorHarness.of(CASES[case](stream), config=config)
    spent = 0.0
    for batch in batches:
        fresh = ColumnBatch(batch.data, batch.timestamps)
        start = time.process_time()
        harness.push(fresh)
        spent += time.process_time() - start
        harness.output.elements.clear()
    return spent / len(batches) / BLOCK * 1e9


def measure(names: list[str], events: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A line for each case, with medians, of a process of its own that is set up as a task's."""
    for name in names:
        yield apart(turns, name, events, rounds)


def turns(name: str, events: int, rounds: int) -> dict[str, Any]:
    """Both ways in turns, in this process."""
    batches = [records(number) for number in range(max(1, events // BLOCK))]
    run(name, batches[:2], True)
    taken = [[run(name, batches, compiled) for compiled in (False, True)] for _ in range(rounds)]
    by_rows, by_columns = (statistics.median(pair[way] for pair in taken) for way in (0, 1))
    return {
        "name": "functions",
        "case": name,
        "events": len(batches) * BLOCK,
        "rounds": rounds,
        "rows_ns": round(by_rows, 1),
        "columns_ns": round(by_columns, 1),
        "ratio": round(by_rows / by_columns, 2),
    }
