"""End-to-end delay of a record through source, hash exchange, keyed state and sink.

Each record is stamped with the wall clock when its batch leaves the source.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
from strom import DataStream, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource

from .delays import SINK, DelaySink, percentiles, run
from .measure import Setting, environment
from .streams import KEY_VALUE, key_values

WARM_UP = 0.2
"""This part of the delays, from the beginning, is left out."""


def stamp(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace the values by the time in ns at which the batch leaves the source."""
    now = pa.array(np.full(batch.num_rows, time.time_ns(), dtype=np.int64))
    return pa.RecordBatch.from_arrays([batch.column(0), now], schema=KEY_VALUE)


def delayed_environment(
    name: str, events: int, parallelism: int, host: str, buffer_timeout: int | None
) -> StreamExecutionEnvironment:
    env = environment(Setting(name, events, parallelism, host))
    return env if buffer_timeout is None else env.set_buffer_timeout(buffer_timeout)


def through_keyed_stage(stamped: DataStream, sample: int = 1) -> None:
    """The greatest stamp so far per key is that of the record itself, or nearly. One record in
    `sample` is measured."""
    stamped.key_by("k").max("v").sink_to(DelaySink(sample)).name(SINK)


def measure_latency(
    rate: int, seconds: float, parallelism: int, host: str, buffer_timeout: int | None = None
) -> dict[str, Any]:
    """One line: percentiles in ms over all records after the warm-up.

    buffer_timeout: ms; None: the engine's default.
    """
    events = round(rate * seconds)
    env = delayed_environment("latency", events, parallelism, host, buffer_timeout)
    source = DataGenSource(key_values, events, schema=KEY_VALUE, rate=rate, block=64)
    through_keyed_stage(env.from_source(source, source_name="paced").map_batches(stamp))
    timeout = env.get_buffer_timeout()
    parts, result = run(env, "latency")
    measured = np.concatenate([part[1][round(part.shape[1] * WARM_UP) :] for part in parts])
    return {
        "name": "latency",
        "rate": rate,
        "events": events,
        "seconds": round(result.net_runtime_ms / 1000, 3),
        "parallelism": parallelism,
        "host": host,
        "buffer_timeout_ms": timeout,
        **percentiles(measured),
    }
