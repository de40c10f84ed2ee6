"""When a job has lost its program: scripts over a virtual clock.

r   a renewal          .   a second passes, and the coordinator looks
z   ten seconds pass without a look: the coordinator is stopped
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from typing import Any

import pytest
from strom.core.clock import SystemClock, VirtualClock
from strom.core.errors import JobCancelledError
from strom.core.job_status import JobStatus
from strom.engine.hosts.coordinator_inbox import Cancel
from strom.engine.hosts.lease import Lease
from strom.engine.hosts.loop_signal import LoopSignal, wait_until
from strom.engine.hosts.placement import wait_for
from strom.engine.hosts.ray_coordinator import JobCoordinator


def lost_at(script: str) -> int | None:
    """The second at which a lease of three misses, a second each, is found lost."""
    clock = VirtualClock()
    lease = Lease(clock, period_s=1.0, misses=3)
    started = clock.now_ms()
    for step in script:
        match step:
            case "r":
                lease.renew()
            case ".":
                clock.advance_ms(1000)
                if lease.look():
                    return (clock.now_ms() - started) // 1000
            case "z":
                clock.advance_ms(10_000)
    return None


@pytest.mark.parametrize(
    ("script", "second"),
    [
        ("r.r.r.r.r.r.", None),
        ("...", 3),  # never a sign of life
        ("r....", 4),
        ("r...r...r...", None),  # two of three are missing, again and again
        ("r.r.rzr.r.", None),  # the coordinator wakes, and so does the program
        ("r.r.z.", None),  # whatever was slept through is one miss,
        ("r.r.z...", 15),  # and the program has time for the others
    ],
)
def test_renewals_in_a_row_must_be_missing(script: str, second: int | None) -> None:
    assert lost_at(script) == second


def test_looking_often_does_not_count_more() -> None:
    clock = VirtualClock()
    lease = Lease(clock, period_s=1.0, misses=2)
    for _ in range(19):
        clock.advance_ms(100)
        assert not lease.look()
    assert lease.next_look_s() == pytest.approx(0.1)
    clock.advance_ms(100)
    assert lease.look()


def test_a_dead_program_is_not_waited_for() -> None:
    lease = Lease(VirtualClock())
    lease.renew()
    assert not lease.look()
    lease.lose()
    lease.renew()
    assert lease.look()


# --- the coordinator's part -------------------------------------------------------------------


class NoCluster:
    def on_cancelled(self) -> None:
        """Nothing is being deployed."""


def made(misses: int = 3) -> Any:
    """A started coordinator whose lease lasts for so many hundredths of a second."""
    coordinator: Any = JobCoordinator("id")
    coordinator._cluster = NoCluster()
    coordinator._lease = Lease(SystemClock(), 0.01, misses)
    coordinator._started.set()
    return coordinator


def test_a_job_whose_lease_runs_out_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = made()
    with caplog.at_level(logging.WARNING):
        asyncio.run(coordinator._watch_lease())
    assert isinstance(coordinator._inbox.get_nowait(), Cancel)
    assert "the program that it was attached to is gone" in caplog.text


def test_a_renewed_job_and_a_detached_one_are_not() -> None:
    async def live() -> None:
        coordinator = made(misses=20)
        watching = asyncio.create_task(coordinator._watch_lease())
        for _ in range(30):
            assert await coordinator.renew()
            await asyncio.sleep(0.01)
        await coordinator.detach()
        await asyncio.wait_for(watching, 10.0)
        assert not await coordinator.renew()
        assert coordinator._inbox.empty()

    asyncio.run(live())


def test_questions_before_the_start_wait_for_it() -> None:
    async def ask() -> None:
        coordinator = made()
        coordinator._started.clear()
        coordinator._driver = type("Driver", (), {"state": JobStatus.CREATED})
        asked = asyncio.create_task(coordinator.state())
        await asyncio.sleep(0)
        coordinator._started.set()
        assert await asked is JobStatus.CREATED

    asyncio.run(ask())


# --- waiting ----------------------------------------------------------------------------------


def test_a_ring_from_another_thread_ends_a_wait() -> None:
    async def wait() -> None:
        signal = LoopSignal()
        signal.ring()  # nobody waits yet
        ticket = signal.ticket()
        asyncio.get_running_loop().run_in_executor(None, signal.ring)
        await wait_until(ticket, 30.0)
        assert ticket.is_set()
        later = signal.ticket()
        await wait_until(later, 0.0)
        assert not later.is_set()

    asyncio.run(wait())


class Ref:
    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self._future: Future[Any] = Future()
        if error is not None:
            self._future.set_exception(error)
        elif value is not None:
            self._future.set_result(value)

    def future(self) -> Future[Any]:
        return self._future


def test_waiting_for_calls_ends_with_their_results_a_cancel_an_error_or_the_time() -> None:
    cancelled: Future[None] = Future()
    assert wait_for([Ref(1), Ref(2)], 5.0, cancelled) == [1, 2]
    assert wait_for([], 5.0, cancelled) == []
    with pytest.raises(TimeoutError):
        wait_for([Ref(1), Ref()], 0.01, cancelled)
    with pytest.raises(KeyError):
        wait_for([Ref(error=KeyError("x")), Ref()], 5.0, cancelled)
    cancelled.set_exception(JobCancelledError("cancelled"))
    with pytest.raises(JobCancelledError):
        wait_for([Ref(1), Ref()], 5.0, cancelled)
