"""End-to-end delay of a record through source, hash exchange, keyed state and sink.

Each record is stamped with the wall clock when its batch leaves the source, and measured when it
arrives at the sink. Source and sink may be different processes of one machine: one clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from strom import Sink, SinkWriter
from strom.connectors.datagen import DataGenSource

from .measure import Setting, environment
from .streams import KEY_VALUE, key_values

WARM_UP = 0.2
"""This part of the delays, from the beginning, is left out."""


def stamp(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace the values by the time in ns at which the batch leaves the source."""
    now = pa.array(np.full(batch.num_rows, time.time_ns(), dtype=np.int64))
    return pa.RecordBatch.from_arrays([batch.column(0), now], schema=KEY_VALUE)


class DelaySink(Sink):
    """Publishes the delays (ns) of the records it saw."""

    def create_writer(self, context: Any) -> DelayWriter:
        return DelayWriter(context)


class DelayWriter(SinkWriter):
    """Keeps one array per batch until the end."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._delays: list[npt.NDArray[np.int64]] = []

    def write(self, batch: Any) -> None:
        self._delays.append(time.time_ns() - batch.data.column("v").to_numpy())

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        delays, self._delays = self._delays, []
        return [(f"{self._context.subtask}-{checkpoint_id}", d.tolist()) for d in [_join(delays)]]

    def commit(self, committables: Sequence[Any]) -> None:
        for key, delays in committables:
            self._context.publish(key, delays)


def _join(arrays: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def measure_latency(rate: int, seconds: float, parallelism: int, host: str) -> dict[str, Any]:
    """One line: percentiles in ms over all records after the warm-up."""
    events = round(rate * seconds)
    env = environment(Setting("latency", events, parallelism, host))
    source = DataGenSource(key_values, events, schema=KEY_VALUE, rate=rate, block=64)
    stream = env.from_source(source, source_name="paced").map_batches(stamp).key_by("k").max("v")
    stream.sink_to(DelaySink()).name("delays")
    operators = [o for vertex in env.get_job_graph().vertices for o in vertex.operators]
    sink = next(o.operator_id for o in operators if o.name == "delays")
    client = env.execute_async("latency")
    delays = [np.array(d) for d in client.published(sink)]
    result = client.get_job_execution_result()
    measured = np.concatenate([d[round(len(d) * WARM_UP) :] for d in delays]) / 1e6
    p50, p99, p999 = np.percentile(measured, [50, 99, 99.9])
    return {
        "name": "latency",
        "rate": rate,
        "events": events,
        "seconds": round(result.net_runtime_ms / 1000, 3),
        "parallelism": parallelism,
        "host": host,
        "p50_ms": round(float(p50), 2),
        "p99_ms": round(float(p99), 2),
        "p999_ms": round(float(p999), 2),
        "max_ms": round(float(measured.max()), 2),
    }
