"""Representative pipelines on Ray: every subtask a process, data over sockets between them. One Ray
instance for all; the pipelines are those that other tests run every other way."""

from __future__ import annotations

import asyncio
import os
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from chaos_kit import until
from shared_ray import ray_of
from strom import (
    AsyncDataStream,
    AsyncFunction,
    DiscardSink,
    FixedDelayRestart,
    JobFailedError,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    Row,
    RuntimeContext,
    SlidingEventTimeWindows,
    SlotSharingGroup,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    count,
    max_,
    sum_,
)
from strom.connectors.files import ParquetSink
from strom.core.config import JobConfig
from strom.core.job_files import files_root
from strom.testing.equivalence import (
    Ways,
    assert_equivalent,
    assert_files_equivalent,
    checkpointed,
    compare,
    run_local,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

RAY = Ways(seeds=(), local=False, ray=True)
"""The reference on the local host and the run on Ray; other tests see to the other ways."""

ODD = OutputTag("odd")
BUCKET_MS = 100


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


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


@pytest.mark.soak
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


@pytest.mark.soak
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
    with pytest.raises(ValueError, match="this cluster has no job 'nonsense'"):
        RayJobClient.attach("nonsense")


def test_functions_import_the_python_files_of_the_program(tmp_path: Path) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "strom_sent_in_a_folder.py").write_text("SEVEN = 7\n")
    (tmp_path / "strom_sent_alone.py").write_text("def plus(n):\n    return n + 1\n")

    def use_both(n: int) -> int:
        from strom_sent_alone import plus  # type: ignore[import-not-found]
        from strom_sent_in_a_folder import SEVEN  # type: ignore[import-not-found]

        return int(plus(n) + SEVEN)

    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(), host="ray")
    env.add_python_file(str(tmp_path / "strom_sent_alone.py"))
    env.add_python_file(str(folder))
    assert env.from_collection([1, 2]).map(use_both).execute_and_collect(limit=2) == [9, 10]


class ReadsFiles(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.file = runtime_context.get_distributed_cache().get_file
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value: Any) -> Any:
        if self.attempt == 0:
            os._exit(1)
        large = self.file("folder") / "large.bin"
        return {
            "archive": Path("data.zip/data/a.txt").read_text(),
            "large": large.stat().st_size,
            "made": large.stat().st_ctime_ns,
            "runs": os.access(self.file("tool"), os.X_OK),
            "process": os.getpid(),
        }


def test_tasks_have_the_files_of_their_job(tmp_path: Path) -> None:
    """Also those whose processes were started anew."""
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("data/a.txt", "of a zip")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "large.bin").write_bytes(np.random.default_rng(1).bytes(20 << 20))
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    here = Path.cwd()
    before = set(files_root().glob("*")) if files_root().exists() else set()

    once = FixedDelayRestart(1, timedelta(0))
    config = JobConfig(parallelism=3, restart=once)
    env = StreamExecutionEnvironment.get_execution_environment(config, host="ray")
    env.add_python_archive(str(tmp_path / "data.zip"))
    env.register_cached_file(str(tmp_path / "folder"), "folder")
    env.register_cached_file(str(tmp_path / "tool"), "tool", executable=True)
    stream = env.from_collection(list(range(30))).key_by(lambda n: n).map(ReadsFiles())
    found = stream.execute_and_collect(limit=30)
    assert len({one["process"] for one in found}) == 3
    assert {(one["archive"], one["large"], one["runs"]) for one in found} == {
        ("of a zip", 20 << 20, True)
    }
    assert len({one["made"] for one in found}) == 1, "one copy for the machine"
    assert Path.cwd() == here
    until(lambda: set(files_root().glob("*")) <= before, "the end of the job's folder")


class Rated(KeyedBroadcastProcessFunction):
    """Rules are the least of the broadcast values by group; all are here when event time ends."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(2**60)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        known = rules[value.g]
        rules[value.g] = value.v if known is None else min(value.v, known)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        yield (ctx.get_current_key(), *[rules[g] for g in sorted(rules)])


RULES = MapStateDescriptor("rules")


def test_broadcast_state(readings: Any) -> None:
    def build(env: Any) -> Any:
        rows = readings.rows(env)
        return rows.key_by(lambda r: r.k).connect(rows.broadcast(RULES)).process(Rated())

    groups = sorted({r.g for r in readings.all})
    least = [min(r.v for r in readings.all if r.g == g) for g in groups]
    assert_equivalent(build, [(k, *least) for k in {r.k for r in readings.all}], RAY)


def test_slots_take_what_their_group_says() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        JobConfig(slot_cpus=0.5, slot_request_timeout=timedelta(seconds=1)), host="ray"
    )
    small = SlotSharingGroup.builder("small").set_cpu_cores(0.25).set_task_heap_memory_mb(16)
    stream = env.from_collection([1, 2]).map(lambda n: n + 1)
    stream.slot_sharing_group(small.build())
    assert sorted(stream.execute_and_collect(limit=2)) == [2, 3]

    asking = small.set_external_resource("strom_test_resource", 1).build()
    stream.slot_sharing_group(asking)
    with pytest.raises(JobFailedError) as raised, stream.execute_and_collect() as results:
        list(results)
    text = str(raised.value)
    assert "1 slots of 0.25 CPU, 16777216 memory, 1 strom_test_resource" in text
    assert "0 strom_test_resource are free" in text


class Asks(AsyncFunction[Any, Any]):
    """Its loop runs in the subtask's process."""

    async def open(self, runtime_context: RuntimeContext) -> None:  # type: ignore[override]
        self.loop = asyncio.get_running_loop()

    async def async_invoke(self, value: Any) -> list[Any]:
        assert self.loop is asyncio.get_running_loop()
        await asyncio.sleep(0.001 * (value.v % 4))
        return [(value.k, value.v)] * (value.v % 3)


def test_asynchronous_requests(readings: Any) -> None:
    async def same(batch: Any) -> Any:
        await asyncio.sleep(0.002)
        return batch

    def program(env: Any) -> Any:
        rows, columns = readings.stream(env, "rows"), readings.stream(env, "columns")
        return {
            "ordered": AsyncDataStream.ordered_wait(rows, Asks(), 60_000, 5),
            "unordered": AsyncDataStream.unordered_wait(columns, Asks(), 60_000, 50),
            "batches": columns.async_map_batches(same, capacity=2).map(lambda r: (r.k, r.v)),
        }

    each = [(r.k, r.v) for r in readings.all]
    want = [(name, r) for name in ("ordered", "unordered") for r in each for _ in range(r[1] % 3)]
    assert_equivalent(program, [*want, *(("batches", r) for r in each)], RAY)


def test_what_notebooks_show(capsys: pytest.CaptureFixture[str]) -> None:
    """`show`, `plot` and a client's figures, of jobs whose records come from other processes."""
    with StreamExecutionEnvironment.get_execution_environment(host="ray") as env:
        numbers = env.from_collection([{"n": n, "square": n * n} for n in range(100)])
        numbers.show(2)
        assert capsys.readouterr().out.endswith("the first 2 records\n")
        figure = numbers.plot("n", "square")
        (line,) = figure.axes[0].get_lines()
        assert list(line.get_ydata()) == [n * n for n in range(100)]
        with pytest.raises(JobFailedError, match="ZeroDivisionError"):
            numbers.map(lambda row: 1 // row["n"]).show()
        numbers.sink_to(DiscardSink()).name("the end")
        client = env.execute_async()
        client.show(timedelta(milliseconds=100))
        assert "state FINISHED" in capsys.readouterr().out
        assert "the end" in client._repr_html_()
