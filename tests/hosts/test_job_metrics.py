"""What functions register, as a job's client and result tell it; on the local host."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import strom
from strom import (
    Accumulator,
    DiscardSink,
    Histogram,
    JobConfig,
    JobFailedError,
    LongCounter,
    MapFunction,
    StreamExecutionEnvironment,
)
from strom.connectors.datagen import DataGenSource
from strom.core.clock import VirtualClock
from strom.engine.task.times import TaskTimes


def environment(**options: Any) -> Any:
    config = JobConfig(metrics_interval=timedelta(milliseconds=5), **options)
    return StreamExecutionEnvironment.get_execution_environment(config)


class Everything(MapFunction):
    """One metric of each kind, and accumulators, of which one also counts its own closing."""

    def open(self, runtime_context):
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.orders = group.add_group("shop", "berlin").meter("orders")
        self.sizes = group.add_group("inner").distribution("sizes")
        group.gauge("subtask", runtime_context.get_index_of_this_subtask)
        self.lines, self.rests = LongCounter(), Histogram()
        runtime_context.add_accumulator("lines", self.lines)
        runtime_context.add_accumulator("rests", self.rests)
        runtime_context.add_accumulator("closed", LongCounter())
        self.closed = runtime_context.get_accumulator("closed")

    def map(self, value):
        self.seen.inc()
        self.orders.mark_event(2)
        self.sizes.update(value)
        self.lines.add(1)
        self.rests.add(value % 3)
        return value

    def close(self):
        self.closed.add(1)


def test_all_kinds_under_flinks_names() -> None:
    env = environment(parallelism=2)
    env.from_collection(list(range(100))).map(Everything()).name("Shop").sink_to(DiscardSink())
    result = env.execute()
    figures = result.metrics["metrics"]
    assert figures["Shop.numRecordsIn"] == figures["Shop.numRecordsOut"] == 100
    assert figures["Shop.seen"] == 100
    assert figures["Shop.shop.berlin.orders"] == pytest.approx(200.0)
    assert figures["Shop.inner.sizes"]["sum"] == 4950
    assert (figures["0.Shop.subtask"], figures["1.Shop.subtask"]) == (0, 1)
    assert figures["Shop.currentInputWatermark"] == figures["Shop.currentOutputWatermark"]
    assert figures["numRestarts"] == 0
    assert figures["numberOfCompletedCheckpoints"] == 1
    operator = next(o for o in result.metrics["operators"] if o["name"] == "Shop")
    assert operator["counters"] == {"seen": 100}
    assert operator["meters"] == {"shop.berlin.orders": {"count": 200, "rate": pytest.approx(200)}}
    assert operator["gauges"] == {"subtask": {0: 0, 1: 1}}
    task = next(name for name in figures if name.startswith("0.") and "busyTime" in name)
    shares = [figures[task.replace("busyTime", kind)] for kind in ("busyTime", "idleTime")]
    shares.append(figures[task.replace("busyTime", "backPressuredTime")])
    assert sum(shares) == pytest.approx(1000.0)


def test_operators_of_one_name_are_told_apart() -> None:
    env = environment()
    env.from_collection([1, 2]).map(str).map(len).sink_to(DiscardSink())
    result = env.execute()
    maps = [o for o in result.metrics["operators"] if o["name"] == "Map"]
    names = [f"Map ({o['id']}).numRecordsIn" for o in maps]
    assert [result.metrics["metrics"][name] for name in names] == [2, 2]


def test_accumulators_are_exact_and_hold_what_close_added() -> None:
    env = environment(parallelism=3)
    env.from_collection(list(range(100))).map(Everything()).sink_to(DiscardSink())
    client = env.execute_async()
    result = client.get_job_execution_result()
    expected = {"lines": 100, "rests": {0: 34, 1: 33, 2: 33}, "closed": 3}
    assert result.get_all_accumulator_results() == expected
    assert result.get_accumulator_result("lines") == 100
    assert client.get_accumulators() == client.get_accumulators().result() == expected
    assert client.get_accumulators().done()


def test_accumulators_of_a_running_job() -> None:
    env = environment()
    source = DataGenSource(lambda start, n: list(range(start, start + n)))
    env.from_source(source).map(Everything()).sink_to(DiscardSink())
    client = env.execute_async()
    deadline = time.monotonic() + 10.0
    while not client.get_accumulators().get("lines"):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert client.get_accumulators()["closed"] == 0
    client.cancel()


class FailsOnce(Everything):
    """Fails in its first attempt, once a checkpoint behind its 60th record is complete: the second
    one that completes after it, for one may be on its way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wanted = 0

    def open(self, runtime_context):
        super().open(runtime_context)
        self.attempt = runtime_context.get_attempt_number()

    def map(self, value):
        if self.attempt == 0 and value >= 60:
            newest = max((int(p.parent.name[4:]) for p in self.folder.glob("*/*/m*")), default=0)
            self.wanted = self.wanted or newest + 2
            if newest >= self.wanted:
                raise ValueError("once")
            time.sleep(0.0005)
        return super().map(value)


def test_metrics_and_accumulators_are_of_the_last_attempt(tmp_path: Path) -> None:
    env = environment(batch_size=1)
    env.enable_checkpointing(1, storage=str(tmp_path))
    env.set_restart_strategy(strom.RestartStrategies.fixed_delay_restart(1, 1))
    source = DataGenSource(lambda start, n: list(range(start, start + n)), count=5000)
    env.from_source(source).map(FailsOnce(tmp_path)).name("Shop").sink_to(DiscardSink())
    result = env.execute()
    assert result.restarts == result.metrics["metrics"]["numRestarts"] == 1
    records = result.metrics["metrics"]["Shop.numRecordsIn"]
    assert 0 < records <= 4940  # those before its checkpoint were an earlier attempt's
    assert result.metrics["metrics"]["Shop.seen"] == records
    assert result.get_accumulator_result("lines") == records


def test_at_another_parallelism_they_begin_anew_as_well(tmp_path: Path) -> None:
    """The second job starts behind the last record of the first."""
    points: list[str | None] = [None]
    found = []
    for parallelism in (2, 3):
        env = environment(parallelism=parallelism, restore_from=points[-1])
        env.enable_checkpointing(1, storage=str(tmp_path))
        env.from_collection(list(range(10))).map(Everything()).name("Shop").sink_to(DiscardSink())
        result = env.execute()
        figures = result.metrics["metrics"]
        gauges = [name for name in figures if name.endswith("Shop.subtask")]
        lines = result.get_accumulator_result("lines")
        found.append((figures["Shop.seen"], figures["Shop.inner.sizes"]["count"], lines, gauges))
        last = result.metrics["checkpoints"]["last_id"]
        points.append(str(tmp_path / result.job_id / f"chk-{last}"))
    assert found == [
        (10, 10, 10, ["0.Shop.subtask", "1.Shop.subtask"]),
        (0, 0, 0, ["0.Shop.subtask", "1.Shop.subtask", "2.Shop.subtask"]),
    ]


class Unshippable(Accumulator):
    def __init__(self):
        self.held = threading.Lock()

    def add(self, value):
        """Nothing."""

    def get_local_value(self):
        return 0

    def reset_local(self):
        """Nothing."""

    def merge(self, other):
        """Nothing."""


class AddsUnshippable(MapFunction):
    def open(self, runtime_context):
        self.one = Unshippable()
        runtime_context.add_accumulator("file", self.one)

    def map(self, value):
        return value


def test_an_accumulator_that_cannot_travel_fails_the_job_by_name() -> None:
    env = environment()
    env.from_collection([1]).map(AddsUnshippable()).name("Files").sink_to(DiscardSink())
    with pytest.raises(JobFailedError, match=r"'Files'.*accumulator 'file'"):
        env.execute()


def test_how_a_task_spends_its_time() -> None:
    clock = VirtualClock()
    times = TaskTimes(clock.monotonic)

    def step(took_ms: int, did: bool, blocked: bool = False, then_ms: int = 0) -> None:
        times.begin()
        clock.advance_ms(took_ms)
        times.end(did, blocked)
        clock.advance_ms(then_ms)

    step(300, did=True)
    step(0, did=False, blocked=True, then_ms=200)
    step(0, did=False, then_ms=500)
    times.begin()
    expected = {
        "busyTimeMsPerSecond": 300.0,
        "backPressuredTimeMsPerSecond": 200.0,
        "idleTimeMsPerSecond": 500.0,
        "accumulateBusyTimeMs": 300.0,
        "accumulateBackPressuredTimeMs": 200.0,
        "accumulateIdleTimeMs": 500.0,
    }
    assert times.report() == pytest.approx(expected)
    clock.advance_ms(100)
    times.end(True, False)
    clock.advance_ms(100)
    times.begin()
    later = times.report()
    assert later["busyTimeMsPerSecond"] == pytest.approx(500.0)
    assert later["accumulateBusyTimeMs"] == pytest.approx(400.0)
