"""A job that fails again and again is given up, however often its coordinator dies."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from strom import FixedDelayRestart
from strom.core.job_status import JobStatus
from strom.engine.hosts.driver import JobDriver
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, checkpointed
from strom.testing.probes import CollectProbe

RESTART = FixedDelayRestart(3, timedelta(milliseconds=2))


def fails_at_last(n: int) -> int:
    if n == 37:
        raise ValueError("odd")
    return n


def failing(env: Any) -> Any:
    return env.from_collection(list(range(40))).map(fails_at_last)


def too_often(seed: int) -> bool:
    """Whether such a job was begun more often than the strategy says, but for the times when its
    coordinator died while it was being restarted, which is no failure."""
    config = replace(checkpointed(Ways(), 1), restart=RESTART)
    plan = SimulationPlan(seed, coordinator_crashes=8, tasks_stay=100, crash_window=900)
    result = Simulation(CollectProbe(failing).graph(config), plan).run()
    assert result.outcome is not None
    assert result.outcome.status is JobStatus.FAILED
    last = int(result.outcome.metrics["attempt"])
    return last > RESTART.attempts + result.taken_over


def test_its_restarts_are_counted_over_all_its_coordinators() -> None:
    assert not any(too_often(seed) for seed in range(12))


def test_a_coordinator_that_begins_to_count_anew_is_noticed(monkeypatch: Any) -> None:
    monkeypatch.setattr(JobDriver, "failed", ())
    assert any(too_often(seed) for seed in range(12))
