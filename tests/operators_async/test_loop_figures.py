"""What asynchronous functions count, reported while they count it: whole, by the loop, and exact at
the end."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from strom import (
    AsyncDataStream,
    AsyncFunction,
    DiscardSink,
    Histogram,
    JobConfig,
    JobFailedError,
    LongCounter,
    NoRestart,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from strom.operators.async_io import figures as loop_figures
from strom.operators.async_io.figures import LoopFigures
from strom.operators.async_io.loops import ThreadLoop

RECORDS = 30_000

CONFIG = JobConfig(restart=NoRestart(), metrics_interval=timedelta(milliseconds=1))


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def ran(function: Any, records: int = RECORDS) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment(CONFIG, "local")
    stream = env.from_collection(list(range(records)))
    asked = AsyncDataStream.unordered_wait(stream, function, 30_000, 1000)
    asked.name("Ask").sink_to(DiscardSink())
    return env.execute()


class Counts(AsyncFunction[int, int]):
    """Counts in every way there is, under names that appear as it goes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.group = runtime_context.get_metrics_group()
        self.counters: dict[str, Any] = {}
        self.sizes = self.group.distribution("sizes")
        self.seen = self.group.meter("seen")
        self.kinds = Histogram()
        runtime_context.add_accumulator("kinds", self.kinds)
        self.group.gauge("tasks", lambda: len(asyncio.all_tasks()) >= 0)

    async def async_invoke(self, value: int) -> list[int]:
        name = str(value % 3000)
        if name not in self.counters:
            self.counters[name] = self.group.counter(name)
        self.counters[name].inc()
        self.sizes.update(value)
        self.seen.mark_event()
        self.kinds.add(value % 5000)
        await asyncio.sleep(0)
        return [value]


@pytest.mark.usefixtures("impatient")
def test_reports_while_a_function_counts() -> None:
    result = ran(Counts())
    metrics = result.metrics["metrics"]
    assert sum(metrics[f"Ask.{n}"] for n in range(3000)) == RECORDS
    sizes = metrics["Ask.sizes"]
    assert (sizes["count"], sizes["sum"]) == (RECORDS, RECORDS * (RECORDS - 1) // 2)
    assert metrics["Ask.seen"] > 0
    assert metrics["0.Ask.tasks"] is True
    assert result.get_accumulator_result("kinds") == dict.fromkeys(range(5000), RECORDS // 5000)


class CountsAtTheEnd(AsyncFunction[int, int]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.lines = LongCounter()
        runtime_context.add_accumulator("lines", self.lines)

    async def async_invoke(self, value: int) -> list[int]:
        self.lines.add(1)
        return []

    async def close(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0.001)
        self.lines.add(1000)


def test_what_close_adds_counts() -> None:
    assert ran(CountsAtTheEnd(), 10).get_accumulator_result("lines") == 1010


class Unpicklable(CountsAtTheEnd):
    async def async_invoke(self, value: int) -> list[int]:
        self.lines.add(1)
        self.lines.lock = threading.Lock()  # type: ignore[attr-defined]
        return []


def test_what_cannot_be_told_fails_the_job_by_name() -> None:
    with pytest.raises(JobFailedError, match=r"operator 'Ask', subtask 0: .*accumulator 'lines'"):
        ran(Unpicklable(), 10)


class Threads:
    """A loop on a thread, which can be held up."""

    def __init__(self) -> None:
        self.loop = ThreadLoop("figures", logging.error)  # type: ignore[arg-type]
        self.figures = LoopFigures(self.loop)
        self.free = threading.Event()
        self.thread = self.told(lambda: threading.current_thread().name, True)

    def told(self, make: Any, exact: bool) -> Any:
        return self.figures.told("a", make, exact)


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.free.set()
    made.loop.close(10)


def test_a_report_does_not_wait_for_the_loop(threads: Threads, monkeypatch: Any) -> None:
    assert threads.thread == "figures"
    threads.loop.soon(lambda: threads.free.wait(20) and None)
    assert threads.told(lambda: 1, False) == "figures"  # as told last
    assert threads.told(lambda: 2, False) == "figures"
    monkeypatch.setattr(loop_figures, "EXACT_S", 0.01)
    assert threads.told(lambda: 3, True) == "figures"
    threads.free.set()
    monkeypatch.setattr(loop_figures, "EXACT_S", 20)
    assert threads.told(lambda: 4, True) == 4
    assert threads.told(lambda: 5, False) == 4
    assert threads.told(lambda: 6, True) == 6
    assert threads.loop.close(20)
    threads.figures.end()
    assert threads.told(lambda: 7, False) == 7


def test_what_is_raised_on_the_loop_comes_out_of_the_report(threads: Threads) -> None:
    with pytest.raises(ZeroDivisionError):
        threads.told(lambda: 1 // 0, True)
    assert threads.told(lambda: 1, True) == 1
