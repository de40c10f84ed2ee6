"""The threads for calls that block."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest
from strom.operators.async_io.helpers import HELPERS, Helpers


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    made = Helpers("helper")
    yield made
    made.shutdown(cancel_futures=True)
    assert not any(thread.name.startswith("helper_") for thread in threading.enumerate())


def test_calls_have_results_and_errors(helpers: Helpers) -> None:
    assert helpers.submit(divmod, 7, 2).result(20) == (3, 1)
    assert helpers.submit(int, "11", base=2).result(20) == 3
    with pytest.raises(SystemExit):
        helpers.submit(sys.exit, 3).result(20)
    assert list(helpers.map(abs, [-1, 2, -3], timeout=20)) == [1, 2, 3]


def test_one_thread_serves_calls_one_after_the_other(helpers: Helpers) -> None:
    names = set()
    for _ in range(50):
        names.add(helpers.submit(lambda: threading.current_thread().name).result(20))
        while helpers._idle < 1:
            time.sleep(0.001)
    assert names == {"helper_0"}


def test_as_many_calls_as_there_are_threads_run_at_once(helpers: Helpers) -> None:
    together = threading.Barrier(HELPERS)
    free = threading.Event()

    def meet() -> bool:
        together.wait(20)
        return free.wait(20)

    calls = [helpers.submit(meet) for _ in range(HELPERS)]
    more = helpers.submit(lambda: free.is_set())
    free.set()
    assert all(call.result(20) for call in calls)
    assert more.result(20)
    assert len(helpers._started) == HELPERS


def test_what_has_not_begun_is_cancelled_at_the_end() -> None:
    helpers, free = Helpers("ends"), threading.Event()
    begun = threading.Barrier(HELPERS + 1)

    def block() -> bool:
        begun.wait(20)
        return free.wait(20)

    running = [helpers.submit(block) for _ in range(HELPERS)]
    begun.wait(20)
    waiting = helpers.submit(abs, 1)
    helpers.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(CancelledError):
        waiting.result(20)
    with pytest.raises(RuntimeError, match="after shutdown"):
        helpers.submit(abs, 1)
    free.set()
    helpers.shutdown()
    assert all(call.result(0) for call in running)


def test_what_has_begun_or_waits_is_done_at_a_patient_end() -> None:
    helpers, free = Helpers("patient"), threading.Event()
    calls = [helpers.submit(free.wait, 20) for _ in range(HELPERS + 5)]
    helpers.shutdown(wait=False)
    free.set()
    helpers.shutdown()
    assert all(call.result(0) for call in calls)


def test_nothing_is_kept_when_a_call_is_over(helpers: Helpers) -> None:
    class Big:
        pass

    def same(big: Any) -> Any:
        return big

    big = Big()
    kept = weakref.ref(big)
    assert helpers.submit(same, big).result(20) is big
    while helpers._idle < 1:
        time.sleep(0.001)
    del big
    assert kept() is None


PROGRAM = """
import asyncio, time
from strom import AsyncDataStream, JobFailedError, NoRestart, StreamExecutionEnvironment, JobConfig

async def ask(value):
    if value == 3:
        await asyncio.sleep(0.05)
        raise ValueError("no")
    await asyncio.to_thread(time.sleep, 3600)
    return [value]

env = StreamExecutionEnvironment.get_execution_environment(JobConfig(restart=NoRestart()), "local")
try:
    AsyncDataStream.unordered_wait(env.from_collection([1, 2, 3]), ask, 0).print()
    env.execute()
except JobFailedError:
    print("failed")
"""


def test_a_call_that_blocks_does_not_keep_the_program() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], timeout=60, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "failed"
