"""Reports on their way to the coordinator: what cannot be read fails its task and holds up none."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from strom.core.ids import Attempt, TaskId, VertexId
from strom.engine.hosts.ray_coordinator import JobCoordinator
from strom.engine.messages import MetricsReported, TaskFailed, TaskRunning

TASK, ATTEMPT = TaskId(VertexId("v"), 1), Attempt(0)


class Unreadable:
    """Pickles, but cannot be made from its pickle."""

    def __reduce__(self) -> Any:
        return (int, ("not a number",))


def heard(*reports: Any) -> list[Any]:
    """What comes out of reports that arrive in reverse order."""
    coordinator = JobCoordinator(b"", "job")
    numbered = [(number, pickle.dumps(report)) for number, report in enumerate(reports)]
    for number, data in reversed(numbered):
        asyncio.run(coordinator.report(TASK, ATTEMPT, number, data))
    return [coordinator._inbox.get_nowait() for _ in range(coordinator._inbox.qsize())]


def test_reports_come_in_order() -> None:
    reports = [TaskRunning(TASK, ATTEMPT), MetricsReported(TASK, ATTEMPT, {"n": 1})]
    assert heard(*reports) == reports


def test_an_unreadable_report_is_a_failure_and_no_gap() -> None:
    running = TaskRunning(TASK, ATTEMPT)
    odd = MetricsReported(TASK, ATTEMPT, {"odd": Unreadable()})
    first, failure, last = heard(running, odd, running)
    assert first == last == running
    assert isinstance(failure, TaskFailed)
    assert (failure.task, failure.attempt) == (TASK, ATTEMPT)
    assert "cannot be read by the coordinator: ValueError: " in failure.error
