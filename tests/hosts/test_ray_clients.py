"""What a coordinator waits for when its job has ended, and what its client knows by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import cloudpickle
import pytest
from strom.core.errors import JobFailedError
from strom.core.job_status import JobStatus
from strom.engine.hosts import ray_host
from strom.engine.hosts.driver import JobOutcome
from strom.engine.hosts.ray_coordinator import LINGER_S, TOLD_S, JobCoordinator
from strom.engine.hosts.ray_host import RayJobClient

FAILED = JobOutcome("id", "job", JobStatus.FAILED, "boom", 1.0, 0, 0, {"state": "FAILED"})


@pytest.fixture
def coordinator() -> JobCoordinator:
    """Of a job that has published a value and failed; not an actor."""
    made = JobCoordinator(cloudpickle.dumps(None), "id")
    made._published.add("sink", "key", "value")
    made._published.close()
    made._outcome = FAILED
    return made


def test_it_stays_until_outcome_and_values_are_known(coordinator: JobCoordinator) -> None:
    assert coordinator._linger_s == LINGER_S
    assert asyncio.run(coordinator.outcome(0.0)) == FAILED
    assert coordinator._linger_s == LINGER_S
    assert asyncio.run(coordinator.published("sink", 0, 0.0)) == (["value"], True)
    assert coordinator._linger_s == TOLD_S


def test_a_question_before_the_end_tells_nothing(coordinator: JobCoordinator) -> None:
    coordinator._outcome = None
    assert asyncio.run(coordinator.outcome(0.0)) is None
    assert not coordinator._told


class Stand:
    """A coordinator as its client sees it: the method's name is its call's reference."""

    def __init__(self, coordinator: JobCoordinator) -> None:
        self.coordinator: JobCoordinator | None = coordinator

    def __getattr__(self, name: str) -> Any:
        class Method:
            @staticmethod
            def remote(*arguments: Any) -> Any:
                assert self.coordinator is not None, f"{name} asked of a coordinator that is gone"
                return asyncio.run(getattr(self.coordinator, name)(*arguments))

        return Method


def test_a_client_that_knows_the_end_asks_no_more(
    coordinator: JobCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand(coordinator)
    monkeypatch.setattr(ray_host.ray, "get", lambda value: value)
    client = RayJobClient("id", "job", stand)
    values = client.published("sink")
    assert next(values) == "value"
    with pytest.raises(JobFailedError, match="boom"):
        client.get_job_execution_result()
    stand.coordinator = None
    assert list(values) == []
    assert client.get_job_status() is JobStatus.FAILED
    assert client.metrics() == {"state": "FAILED"}
    client.cancel()
    with pytest.raises(JobFailedError, match="boom"):
        client.get_job_execution_result()
