"""A sink that tells how old records are: what the latency benchmarks measure with.

Records carry a time in ns of the wall clock in the column `v`. Source and sink may be different
processes of one machine: one clock.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from strom import JobClient, JobExecutionResult, Sink, SinkWriter, StreamExecutionEnvironment

from ..core.arrays import Int64s

SINK = "delays"


class DelaySink(Sink):
    """Publishes when records came (ns), and how old they were (ns), of one in `sample`."""

    def __init__(self, sample: int = 1) -> None:
        self._sample = sample

    def create_writer(self, context: Any) -> DelayWriter:
        return DelayWriter(context, self._sample)


class DelayWriter(SinkWriter):
    """Keeps one array per batch until the next checkpoint, or the end."""

    def __init__(self, context: Any, sample: int) -> None:
        self._context = context
        self._sample = sample
        self._next = 0
        """How many more records to leave out."""
        self._times: list[Int64s] = []

    def write(self, batch: Any) -> None:
        every = batch.data.column("v").to_numpy()
        stamped = every[self._next :: self._sample]
        self._next = (self._next - len(every)) % self._sample
        came = np.full(len(stamped), time.time_ns(), dtype=np.int64)
        self._times.append(np.stack([came, came - stamped]))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        times, self._times = self._times, []
        return [(f"{self._context.subtask}-{checkpoint_id}", joined(times))]

    def commit(self, committables: Sequence[Any]) -> None:
        for key, times in committables:
            self._context.publish(key, times)


def joined(parts: list[Int64s]) -> Int64s:
    """2 x n: when records came, how old they were."""
    return np.concatenate(parts, axis=1) if parts else np.empty((2, 0), dtype=np.int64)


def run(env: StreamExecutionEnvironment, name: str) -> tuple[list[Int64s], JobExecutionResult]:
    """Run the job whose sink is named SINK: what each of its subtasks published, in order."""
    operators = [o for vertex in env.get_job_graph().vertices for o in vertex.operators]
    sink = next(o.operator_id for o in operators if o.name == SINK)
    client: JobClient = env.execute_async(name)
    parts = [np.asarray(part) for part in client.published(sink)]
    return parts, client.get_job_execution_result()


def percentiles(delays_ns: Int64s) -> dict[str, float]:
    """In ms."""
    names = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
    values = np.percentile(delays_ns / 1e6, [50, 99, 99.9, 100])
    return {name: round(float(value), 2) for name, value in zip(names, values, strict=True)}
