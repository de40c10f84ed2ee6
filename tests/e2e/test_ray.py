"""Representative pipelines on Ray: every subtask a process, data over sockets between them. One Ray
instance for all; the pipelines are those that other tests run every other way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from strom import (
    DiscardSink,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    Row,
    RuntimeContext,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    count,
    max_,
    sum_,
)
from strom.connectors.files import ParquetSink
from strom.core.config import JobConfig
from strom.testing.equivalence import (
    Ways,
    assert_equivalent,
    assert_files_equivalent,
    checkpointed,
    compare,
    run_local,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

RAY = Ways(seeds=(), local=False, ray=True)
"""The reference on the local host and the run on Ray; other tests see to the other ways."""

ODD = OutputTag("odd")
BUCKET_MS = 100


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    import ray

    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, namespace="strom")
    yield
    ray.shutdown()


class Buckets(KeyedProcessFunction):
    """State, timers, and a side output; defined here, so it travels by value."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        end = value.ts - value.ts % BUCKET_MS + BUCKET_MS
        self.sums.put(end, (self.sums.get(end) or 0) + value.v)
        ctx.timer_service().register_event_time_timer(end - 1)
        if value.v % 2:
            yield ODD, (value.k, value.v)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        yield (ctx.get_current_key(), timestamp, self.sums.get(timestamp + 1))
        self.sums.remove(timestamp + 1)


def test_state_timers_and_side_outputs(readings: Any) -> None:
    def build(env: Any) -> Any:
        main = readings.rows(env).key_by("k").process(Buckets())
        return {"main": main, "odd": main.get_side_output(ODD)}

    sums: dict[tuple[str, int], int] = {}
    for r in readings.all:
        bucket = (r.k, r.ts - r.ts % BUCKET_MS + BUCKET_MS - 1)
        sums[bucket] = sums.get(bucket, 0) + r.v
    odd = [("odd", (r.k, r.v)) for r in readings.all if r.v % 2]
    assert_equivalent(build, [*(("main", (*b, s)) for b, s in sums.items()), *odd], RAY)


class Contents(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield (key, context.window().start, tuple(r.v for r in elements))


def test_windows_on_columns_and_on_rows(readings: Any) -> None:
    assigner = SlidingEventTimeWindows.of(100, 50)

    def build(env: Any) -> Any:
        stream = readings.columns(env)
        windows = stream.key_by("k").window(assigner)
        return {
            "builtin": windows.aggregate(n=count(), total=sum_("v"), top=max_("x")),
            "contents": windows.process(Contents()),
            "all": stream.window_all(TumblingEventTimeWindows.of(100)).aggregate(n=count()),
        }

    expected: list[Any] = []
    groups: dict[tuple[str, int], list[Any]] = {}
    whole: dict[int, int] = {}
    for r in readings.all:
        late_start = r.ts - r.ts % 50
        for start in (late_start, late_start - 50):
            groups.setdefault((r.k, start), []).append(r)
        whole[r.ts - r.ts % 100] = whole.get(r.ts - r.ts % 100, 0) + 1
    for (k, start), rows in groups.items():
        values = tuple(r.v for r in rows)
        figures = (len(rows), sum(values), max(r.x for r in rows))
        expected.append(("builtin", (k, start, start + 100, *figures)))
        expected.append(("contents", (k, start, values)))
    expected += [("all", (start, start + 100, n)) for start, n in whole.items()]
    assert_equivalent(build, expected, RAY)


def test_shuffles_and_a_union(readings: Any) -> None:
    """A chain of exchanges with different parallelisms on its ends."""

    def build(env: Any) -> Any:
        wide = readings.rows(env).rebalance().map(lambda r: Row(g=r.g, v=r.v)).set_parallelism(3)
        even = wide.shuffle().filter(lambda r: r.v % 2 == 0).set_parallelism(2)
        odd = wide.partition_custom(lambda key, n: key % n, "g").filter(lambda r: r.v % 2 == 1)
        tripled = readings.columns(env).select("g", v=pl.col("v") * 3)
        united = even.union(odd.set_parallelism(2), tripled.map(lambda r: Row(g=r.g, v=r.v)))
        return united.broadcast().map(tuple).set_parallelism(2)

    once = [pair for r in readings.all for pair in ((r.g, r.v), (r.g, 3 * r.v))]
    assert_equivalent(build, once * 2, RAY)


def test_files(readings: Any) -> None:
    def build(env: Any, out: Path) -> None:
        sums = readings.columns(env).key_by("k").sum("v").select("k", "v")
        sums.sink_to(ParquetSink(out)).uid("out")

    def read(out: Path) -> list[Any]:
        paths = sorted(out.glob("part-*.parquet"))
        return [tuple(r.values()) for p in paths for r in pq.ParquetFile(p).read().to_pylist()]

    sums: dict[str, int] = {}
    expected = []
    for r in readings.all:
        sums[r.k] = sums.get(r.k, 0) + r.v
        expected.append((r.k, sums[r.k]))
    assert_files_equivalent(build, read, expected, RAY)


def test_nexmark_without_checkpoints_and_with() -> None:
    """Larger batches, many of them, through full buffers."""
    from strom.benchmarks.workloads import WORKLOADS

    query = WORKLOADS["q7"]
    expected = list(query.reference(150_000))
    build = lambda env: query.build(env, 150_000)
    config = JobConfig(parallelism=2)
    compare("ray", expected, run_local(build, config, host="ray"))
    config = checkpointed(Ways(batch_size=2_000), 2)
    compare("ray, checkpointed", expected, run_local(build, config, host="ray"))


def test_a_job_can_be_followed_from_elsewhere() -> None:
    from strom.engine.hosts.ray_host import RayJobClient

    env = StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.from_collection(range(100)).map(lambda n: n + 1).sink_to(DiscardSink())
    client = env.execute_async("followed")
    other = RayJobClient.attach(client.get_job_id())
    result = other.get_job_execution_result()
    assert result.job_id == client.get_job_id()
    assert other.get_job_status().is_terminal
    with pytest.raises(ValueError, match="strom-job-nonsense"):
        RayJobClient.attach("nonsense")
