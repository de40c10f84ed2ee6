"""Loops on threads of their own, in jobs on the local host: errors by name, bounded ends, nothing
left behind."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from async_kit import BEGUN, ENDED, RELEASE, Hangs, blocks, stubborn
from strom import (
    AsyncDataStream,
    AsyncFunction,
    JobConfig,
    JobFailedError,
    NoRestart,
    RuntimeContext,
    StreamExecutionEnvironment,
)

CONFIG = JobConfig(parallelism=2, restart=NoRestart(), cancellation_timeout=timedelta(seconds=30))


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(CONFIG, "local")


def loops() -> list[str]:
    """The threads of event loops that are alive, and of their helpers."""
    return [t.name for t in threading.enumerate() if "-loop" in t.name]


def soon(condition: Any) -> bool:
    """Whether it holds before ten seconds are over."""
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        threading.Event().wait(0.01)
    return bool(condition())


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    yield
    assert soon(lambda: not loops()), loops()


def results(function: Any, values: Any = range(10), order: str = "ordered", **settings: Any) -> Any:
    wait = getattr(AsyncDataStream, f"{order}_wait")
    stream = wait(environment().from_collection(list(values)), function, 30_000, **settings)
    return list(stream.execute_and_collect())


async def double(value: int) -> list[int]:
    await asyncio.sleep(0.001)
    return [2 * value]


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("capacity", [1, 7, 1000])
def test_a_job(order: str, capacity: int) -> None:
    found = results(double, range(200), order, capacity=capacity)
    assert sorted(found) == [2 * value for value in range(200)]


def test_blocking_calls_have_threads() -> None:
    async def blocking(value: int) -> list[int]:
        return [await asyncio.to_thread(lambda: value + 1)]

    assert sorted(results(blocking)) == list(range(1, 11))


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(4), StopIteration("end")])
def test_an_error_fails_the_job_by_name(error: BaseException) -> None:
    async def broken(value: int) -> list[int]:
        await asyncio.sleep(0.001)
        if value == 7:
            raise error
        return [value]

    what = f"operator 'OrderedWait', subtask [01]: .* for the record 7: {type(error).__name__}"
    with pytest.raises(JobFailedError, match=what):
        results(broken)


def test_an_error_of_a_task_of_the_users_own_that_ends_the_loop() -> None:
    class Background(AsyncFunction[int, int]):
        async def open(self, runtime_context: RuntimeContext) -> None:  # type: ignore[override]
            self.task = asyncio.create_task(self.work())

        async def work(self) -> None:
            await asyncio.sleep(0.02)
            raise SystemExit("enough")

        async def async_invoke(self, value: int) -> list[int]:
            await asyncio.sleep(3600)
            return [value]

    with pytest.raises(JobFailedError, match=r"operator 'OrderedWait', .*SystemExit: enough"):
        results(Background())


@pytest.mark.parametrize("coroutine", [True, False])
def test_an_error_in_open_fails_the_job_by_name(coroutine: bool) -> None:
    def fail(self: Any, runtime_context: Any) -> None:
        raise LookupError("no server")

    async def fail_later(self: Any, runtime_context: Any) -> None:
        await asyncio.sleep(0.001)
        raise LookupError("no server")

    class Broken(AsyncFunction[int, int]):
        open = fail_later if coroutine else fail  # type: ignore[assignment]

        async def async_invoke(self, value: int) -> list[int]:
            return [value]

    with pytest.raises(JobFailedError, match=r"operator 'OrderedWait', .*LookupError: no server"):
        results(Broken())


def test_an_error_in_close_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            return [value]

        async def close(self) -> None:  # type: ignore[override]
            raise LookupError("left open")

    assert sorted(results(Broken())) == list(range(10))
    assert (
        "operator 'OrderedWait', subtask 1: closing its function failed: LookupError" in caplog.text
    )


def cancelled(function: Any) -> float:
    """Seconds that it takes to cancel a job that waits for this function."""
    BEGUN.clear()
    stream = environment().from_collection(list(range(10)))
    AsyncDataStream.unordered_wait(stream, function, 0, 4).print()
    client = stream.get_execution_environment().execute_async("hangs")
    assert BEGUN.wait(20)
    start = time.monotonic()
    client.cancel()
    return time.monotonic() - start


def test_a_cancelled_job_cancels_the_coroutines() -> None:
    ENDED.clear()
    assert cancelled(Hangs()) < 5
    assert len(ENDED) in range(1, 9)


@pytest.mark.parametrize(
    ("function", "told"),
    [(blocks, "blocks the event loop"), (stubborn, "go on though they were cancelled")],
)
def test_what_does_not_end_is_told_and_left(
    function: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    RELEASE.clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert cancelled(function) < 20
    finally:
        RELEASE.set()
    assert "operator 'UnorderedWait', subtask " in caplog.text
    assert told in caplog.text


def test_a_blocked_loop_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("runner", "operator"):
        monkeypatch.setattr(f"strom.operators.async_io.{module}.SILENT_S", 0.05)

    async def blocked(value: int) -> list[int]:
        threading.Event().wait(0.6 if value == 3 else 0)
        return [value]

    assert sorted(results(blocked)) == list(range(10))
    told = [one for one in caplog.messages if "has blocked its event loop for" in one]
    assert told
    assert all("operator 'OrderedWait', subtask " in one for one in told)


def test_a_burst_of_answers_is_one_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one per record."""
    from strom.engine.task.chain_node import ChainNode

    wakes = []
    wake = ChainNode.wake
    monkeypatch.setattr(
        ChainNode, "wake", lambda self, now_ms: (wakes.append(now_ms), wake(self, now_ms))[1]
    )

    async def at_once(value: int) -> list[int]:
        await asyncio.sleep(0)
        return [value]

    assert len(results(at_once, range(4000), capacity=2000)) == 4000
    assert len(wakes) < 400
