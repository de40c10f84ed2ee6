"""Reports on their way to the coordinator: what cannot be read fails its task and holds up none."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from strom.core.ids import Attempt, TaskId, VertexId
from strom.engine.hosts.job_record import Term
from strom.engine.hosts.ray_coordinator import JobCoordinator
from strom.engine.messages import MetricsReported, TaskFailed, TaskRunning

TASK, ATTEMPT = TaskId(VertexId("v"), 1), Attempt(0)


class Unreadable:
    """Pickles, but cannot be made from its pickle."""

    def __reduce__(self) -> Any:
        return (int, ("not a number",))


def begun() -> JobCoordinator:
    """In its first term."""
    coordinator = JobCoordinator("job")
    coordinator._term.now = Term()
    return coordinator


def heard(*reports: Any) -> list[Any]:
    """What comes out of reports that arrive in reverse order."""
    coordinator = begun()
    numbered = [(number, pickle.dumps(report)) for number, report in enumerate(reports)]
    for number, data in reversed(numbered):
        asyncio.run(coordinator.report(TASK, ATTEMPT, 0, number, data))
    return [coordinator._inbox.get_nowait() for _ in range(coordinator._inbox.qsize())]


def test_reports_come_in_order() -> None:
    reports = [TaskRunning(TASK, ATTEMPT), MetricsReported(TASK, ATTEMPT, {"n": 1})]
    assert heard(*reports) == reports


def test_only_the_newest_attempt_is_heard_and_remembered() -> None:
    coordinator = begun()

    def tell(attempt: int, number: int) -> None:
        data = pickle.dumps(TaskRunning(TASK, Attempt(attempt)))
        asyncio.run(coordinator.report(TASK, Attempt(attempt), 0, number, data))

    for attempt in range(7, 100):
        tell(attempt, 1)  # the first one is late
        tell(attempt, 0)
        assert len(coordinator._reports) == 1
    tell(98, 2)  # of an attempt that is over
    tell(8, 5)
    tell(99, 2)
    told = [coordinator._inbox.get_nowait().attempt for _ in range(coordinator._inbox.qsize())]
    assert told == [*(attempt for attempt in range(7, 100) for _ in range(2)), 99]


def test_what_was_for_a_coordinator_before_is_not_heard() -> None:
    coordinator = JobCoordinator("job")
    coordinator._term.now = Term(number=2)
    data = pickle.dumps(TaskRunning(TASK, ATTEMPT))
    for term in (0, 1, 3, 2):
        asyncio.run(coordinator.report(TASK, ATTEMPT, term, 0, data))
    assert coordinator._inbox.qsize() == 1


def test_one_that_does_not_know_its_term_yet_hears_nobody() -> None:
    """Tasks of the first term may speak to a second coordinator before it has read what it is: the
    numbers of these reports would stand in the way of those that are for it."""
    coordinator = JobCoordinator("job")
    late, ours = TaskRunning(TASK, ATTEMPT), MetricsReported(TASK, ATTEMPT, {"n": 1})
    asyncio.run(coordinator.report(TASK, ATTEMPT, 0, 1, pickle.dumps(late)))
    coordinator._term.now = Term(number=1)
    for number in range(2):
        asyncio.run(coordinator.report(TASK, ATTEMPT, 1, number, pickle.dumps(ours)))
    assert [coordinator._inbox.get_nowait() for _ in range(coordinator._inbox.qsize())] == [
        ours
    ] * 2


def test_an_unreadable_report_is_a_failure_and_no_gap() -> None:
    running = TaskRunning(TASK, ATTEMPT)
    odd = MetricsReported(TASK, ATTEMPT, {"odd": Unreadable()})
    first, failure, last = heard(running, odd, running)
    assert first == last == running
    assert isinstance(failure, TaskFailed)
    assert (failure.task, failure.attempt) == (TASK, ATTEMPT)
    assert "cannot be read by the coordinator: ValueError: " in failure.error
