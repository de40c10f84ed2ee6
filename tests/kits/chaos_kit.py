"""What the chaos tests share: deadlines, jobs that must not hang, and what a job left behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import strom
from strom import (
    CheckpointConfig,
    ExponentialDelayRestart,
    JobConfig,
    JobFailedError,
    NoRestart,
    Sink,
    SinkWriter,
    StreamExecutionEnvironment,
)

RETRY = ExponentialDelayRestart(
    initial=timedelta(milliseconds=5), maximum=timedelta(milliseconds=20), jitter=0.0
)


class HangError(AssertionError):
    """Something did not happen before its deadline."""


PATIENCE = 4.0
"""How much longer than on an idle machine something may take before it is called a hang: a busy one
has several test runs beside each other, and starts processes slowly. How fast something is, a test
measures itself."""


def until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """Poll `condition` until it is true; its value. HangError after `seconds` of an idle machine,
    see PATIENCE."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    pause = 0.002
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise HangError(f"not within {seconds} s: {what}")
        time.sleep(pause)
        pause = min(1.3 * pause, 0.1)  # a condition may be a call to Ray
    return value


def within(seconds: float, what: str, call: Callable[[], Any]) -> Any:
    """The result of `call()`, or what it raises; HangError if it takes longer than that on an idle
    machine, see PATIENCE."""
    seconds *= PATIENCE
    box: list[Any] = []

    def run() -> None:
        try:
            box.append((call(), None))
        except BaseException as error:
            box.append((None, error))

    thread = threading.Thread(target=run, name=f"test-{what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not box:
        raise HangError(f"not over after {seconds} s: {what}")
    value, error = box[0]
    if error is not None:
        raise error
    return value


def config(
    folder: Path | str | None = None,
    *,
    parallelism: int = 2,
    interval_ms: int | None = None,
    restart: Any = None,
    retained: int = 3,
    tolerable: int = 0,
    cancellation_s: float = 2.0,
    **more: Any,
) -> JobConfig:
    """A job's settings: no restart without checkpoints, quick retries with them."""
    checkpoint = CheckpointConfig(
        interval=None if interval_ms is None else timedelta(milliseconds=interval_ms),
        storage=None if folder is None else str(folder),
        retained=retained,
        tolerable_failures=tolerable,
    )
    default = NoRestart() if interval_ms is None else RETRY
    more.setdefault("metrics_interval", timedelta(milliseconds=20))
    return JobConfig(
        parallelism=parallelism,
        checkpoint=checkpoint,
        restart=restart or default,
        cancellation_timeout=timedelta(seconds=cancellation_s),
        **more,
    )


def environment(settings: JobConfig, host: str = "local", **options: Any) -> Any:
    return StreamExecutionEnvironment.get_execution_environment(settings, host=host, **options)


def gather(stream: Any, seconds: float = 20.0, name: str = "chaos") -> list[Any]:
    """Run the job that makes `stream` and return its records. Raises what the job ends with;
    HangError, with the job cancelled, if it is not over in time."""
    results = stream.execute_and_collect(name)
    try:
        return list(within(seconds, name, lambda: list(results)))
    except HangError as error:
        figures = results.client.metrics()
        within(15.0, f"cancel of {name}", results.client.cancel)
        raise HangError(f"{error}: {figures}") from None


def failure(stream: Any, seconds: float = 20.0) -> str:
    """The text of the JobFailedError the job ends with."""
    try:
        found = gather(stream, seconds)
    except JobFailedError as error:
        return str(error)
    raise AssertionError(f"the job did not fail; it gave {found[:5]!r}")


def strom_threads() -> list[str]:
    """Names of live threads that jobs started in this process."""
    return [t.name for t in threading.enumerate() if t.name.startswith("strom-")]


def open_files() -> int:
    return psutil.Process().num_fds()


# --- paced columns: key, value and time are functions of the record's number ----------------

PAIRS = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("time", pa.int64())])
KEYS = 7
STEP_MS = 10
WINDOW_MS = 1000
BLOCK = 20


def pairs(start: int, count: int) -> pa.RecordBatch:
    """Records `start..start + count - 1`: key n mod 7, value n, ten milliseconds apart."""
    n = np.arange(start, start + count, dtype=np.int64)
    return pa.RecordBatch.from_arrays([n % KEYS, n, n * STEP_MS], schema=PAIRS)


def window_sums(count: int) -> list[tuple[int, int, int, int]]:
    """(key, window start, records, sum of values) of `pairs(0, count)` in one-second windows."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for n in range(count):
        at = (n % KEYS, n * STEP_MS // WINDOW_MS * WINDOW_MS)
        records, total = sums.get(at, (0, 0))
        sums[at] = (records + 1, total + n)
    return sorted((key, start, *figures) for (key, start), figures in sums.items())


def as_window_sums(rows: Iterable[Any]) -> list[tuple[int, int, int, int]]:
    return sorted((r.key, r.window_start, r.n, r.total) for r in rows)


def windowed(
    env: Any,
    count: int | None,
    rate: float | None,
    behind_source: strom.MapFunction | None = None,
) -> Any:
    """Paced `pairs` -> (a function on its rows) -> windows; see `windows_of`."""
    from strom.connectors.datagen import DataGenSource

    source = DataGenSource(pairs, count, splits=2, rate=rate, schema=PAIRS, block=BLOCK)
    return windows_of(env, source, behind_source)


def windows_of(env: Any, source: Any, behind_source: strom.MapFunction | None = None) -> Any:
    """Source of `pairs` -> keyed one-second windows: columns key, window_start, n, total."""
    strategy = strom.WatermarkStrategy.for_bounded_out_of_orderness(
        timedelta(milliseconds=10 * STEP_MS * BLOCK)
    ).with_timestamp_assigner("time")
    window = strom.TumblingEventTimeWindows.of(timedelta(milliseconds=WINDOW_MS))
    stream = env.from_source(source, strategy, source_name="paced")
    if behind_source is not None:
        stream = stream.map(behind_source, output_type=PAIRS).name("behind the source")
    return (
        stream.key_by("key")
        .window(window)
        .aggregate(n=strom.count(), total=strom.sum_("value"))
        .name("sums")
    )


# --- failing once ---------------------------------------------------------------------------


class Once:
    """Raises at the `after`-th call of all calls in all attempts, and never again. The count is
    in a file, so that copies of the object in other attempts, threads and processes agree."""

    def __init__(self, folder: Path | str, after: int = 1) -> None:
        self.marker = os.path.join(str(folder), "raised")
        self.after = after
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls < self.after or os.path.exists(self.marker):
            return
        with open(self.marker, "x"):
            pass
        raise RuntimeError("boom, once")


class Always:
    """Raises at every call."""

    def __call__(self) -> None:
        raise RuntimeError("boom, always")


class ListSink(Sink):
    """Publishes in the manner of CollectSink, and calls `trip()` in the method named `where`."""

    def __init__(self, where: str, trip: Callable[[], None]) -> None:
        self.where = where
        self.trip = trip

    def reached(self, where: str) -> None:
        if where == self.where:
            self.trip()

    def create_writer(self, context: Any) -> SinkWriter:
        self.reached("create_writer")
        return _ListWriter(self, context)


class _ListWriter(SinkWriter):
    def __init__(self, sink: ListSink, context: Any) -> None:
        self.sink = sink
        self.context = context
        self.pending: list[Any] = []

    def write(self, batch: Any) -> None:
        self.sink.reached("write")
        self.pending.extend(batch.rows())

    def prepare_commit(self, checkpoint_id: int) -> Any:
        self.sink.reached("prepare_commit")
        values, self.pending = self.pending, []
        key = f"{self.context.subtask}-{checkpoint_id}"

        def later() -> Sequence[Any]:
            self.sink.reached("prepare_commit in the background")
            return [(key, values)] if values else []

        return later

    def commit(self, committables: Sequence[Any]) -> None:
        self.sink.reached("commit")
        for key, values in committables:
            self.context.publish(key, values)

    def close(self) -> None:
        self.sink.reached("close")


def run_into(stream: Any, sink: Sink, seconds: float = 20.0) -> list[Any]:
    """Like `gather`, through `sink` instead of CollectSink."""
    env = stream.get_execution_environment()
    spec = stream.sink_to(sink).name("the sink").operator.spec
    graph = env.get_job_graph("chaos")
    operator = next(o.operator_id for v in graph.vertices for o in v.operators if o.spec is spec)
    client = env._submit(graph)
    published = client.published(operator)

    def all_of_it() -> list[Any]:
        values = [value for values in published for value in values]
        client.get_job_execution_result()
        return values

    try:
        return list(within(seconds, "chaos", all_of_it))
    except HangError as error:
        figures = client.metrics()
        within(15.0, "cancel", client.cancel)
        raise HangError(f"{error}: {figures}") from None
