"""`restore`: how long it takes until a job that starts from much state works on its first record.

A job gives each key a value of 200 bytes and is cancelled behind a checkpoint of all of it. Others
go on from what the one before has left, with one, two and three subtasks; each time the seconds are
measured from its submission until the first record has left the operator with the state, and those
that the same job takes without state: processes that start, modules that are loaded.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from strom import (
    DiscardSink,
    JobClient,
    JobConfig,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from strom.api.jobs.host import Host, open_host
from strom.connectors.datagen import DataGenSource

from .configured import job_config
from .measure import slot_cpus
from .streams import KEY_VALUE, mix, numbers

VALUE_BYTES = 200
ROW_BYTES = VALUE_BYTES + 8
SPLITS = 6
CHECKPOINT_EVERY = timedelta(seconds=1)
TIMEOUT_S = 1800.0
METRICS_EVERY = timedelta(milliseconds=50)
NO_DELAY = timedelta(0)
SLACK = 50_000
"""Records: splits are read in turns, but none is exactly as far as another."""

Condition = Callable[[dict[str, Any]], bool]


class Stored(KeyedProcessFunction):
    """A value of VALUE_BYTES for each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.stored = runtime_context.get_state(ValueStateDescriptor("stored"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        held = self.stored.value() or b""
        times = int.from_bytes(held[:8], "little") + 1
        self.stored.update(times.to_bytes(8, "little") + bytes(VALUE_BYTES - 8))
        yield value.k, times


def measure_restores(
    size: int, backends: list[str], parallelisms: list[int], host: str
) -> Iterator[dict[str, Any]]:
    """A line for each backend and step; `size`: bytes of keys and values."""
    keys = max(size // ROW_BYTES, 1)
    with opened(host) as one:
        for backend in backends:
            yield from _restores(backend, size, keys, parallelisms, one, host)


@contextmanager
def opened(host: str) -> Iterator[Host]:
    """One for all jobs: a Ray that starts with a job would be most of what it takes."""
    made = open_host(host, {"log_to_driver": False} if host == "ray" else {})
    try:
        yield made
    finally:
        close = getattr(made, "close", None)
        if close is not None:
            close()


def _restores(
    backend: str, size: int, keys: int, parallelisms: list[int], opened: Host, host: str
) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        before = parallelisms[0]
        _, path, _ = _started(backend, before, opened, folder, keys, None)
        for parallelism in parallelisms:
            empty, *_ = _started(backend, parallelism, opened, folder, 1, None)
            took, path, state_bytes = _started(backend, parallelism, opened, folder, keys, path)
            yield {
                "name": "restore",
                "backend": backend,
                "bytes": size,
                "keys": keys,
                "checkpoint_bytes": state_bytes,
                "from": before,
                "to": parallelism,
                "first_record_s": round(took, 2),
                "without_state_s": round(empty, 2),
                "restore_s": round(max(took - empty, 0.0), 2),
                "host": host,
            }
            before = parallelism


def _started(
    backend: str, parallelism: int, host: Host, folder: str, keys: int, path: str | None
) -> tuple[float, str, int]:
    """Run the job until all keys are in a checkpoint of its own; with a single key there is none.
    Seconds until its first record; where its checkpoints are; the bytes of the last one."""
    told = job_config()
    env = StreamExecutionEnvironment.get_execution_environment(
        JobConfig(
            parallelism=parallelism,
            state=replace(told.state, backend=backend),
            slot_cpus=slot_cpus(parallelism),
            metrics_interval=METRICS_EVERY,
            restore_from=path,
        ),
        host,
    )
    env.enable_checkpointing(CHECKPOINT_EVERY, storage=folder)
    source = DataGenSource(partial(records, keys), splits=SPLITS, schema=KEY_VALUE)
    read = env.from_source(source, source_name="keys").uid("keys")
    stored = read.key_by("k").process(Stored()).uid("stored")
    stored.sink_to(DiscardSink()).uid("nowhere")
    submitted = time.perf_counter()
    client = env.execute_async("restore")
    try:
        until(client, lambda metrics: arrived(metrics) > 0)
        took = time.perf_counter() - submitted
        if path is None:
            until(client, lambda metrics: arrived(metrics) >= keys * 5 // 4 + SLACK)
        if keys > 1:
            done = client.metrics()["checkpoints"]["completed"]
            until(client, lambda metrics: metrics["checkpoints"]["completed"] > done + 1)
        state_bytes = client.metrics()["checkpoints"]["last_size"] or 0
    finally:
        client.cancel()
    return took, f"{folder}/{client.get_job_id()}", state_bytes


def records(keys: int, start: int, count: int) -> pa.RecordBatch:
    """Each key once, and again."""
    at = numbers(start, count) % np.uint64(keys)
    columns = [pa.array(mix(at).view(np.int64)), pa.array(at.astype(np.int64))]
    return pa.RecordBatch.from_arrays(columns, schema=KEY_VALUE)


def arrived(metrics: dict[str, Any]) -> int:
    """Records at the sink."""
    if metrics["state"] != "RUNNING":
        return 0
    return int(metrics["operators"][-1]["records_in"])


def until(client: JobClient, condition: Condition) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition(metrics := client.metrics()):
        if metrics["state"] in ("FAILED", "CANCELED", "FINISHED"):
            client.get_job_execution_result()
        if time.monotonic() > deadline:
            raise TimeoutError(f"not there after {TIMEOUT_S} s: {metrics}")
        time.sleep(0.01)
