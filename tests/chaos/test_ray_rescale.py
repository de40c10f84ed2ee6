"""A running job on Ray goes on at other parallelisms, as the same job, while processes die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import until
from ray_chaos_kit import Job, coordinator_pid, ends_with_nothing, free_cpus
from shared_ray import CPUS, ray_of
from strom import RescaleError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def widths(job: Job) -> set[int]:
    return {vertex["parallelism"] for vertex in job.client.view()["vertices"]}


def at(job: Job, parallelism: int) -> dict[str, Any]:
    """The metrics once all tasks run; a reader without a split has nothing to do any more."""

    def ready() -> Any:
        m = job.metrics()
        running = [task for task in m["tasks"] if task["state"] in ("running", "drained")]
        return m if len(running) == 3 * parallelism and m["state"] == "RUNNING" else None

    found: dict[str, Any] = until(ready, f"{parallelism} subtasks of each, has {job.metrics()}")
    return found


def test_a_job_is_rescaled_and_its_output_is_exact(tmp_path: Path) -> None:
    """2 -> 3, a task and then the coordinator are killed, -> 1; with what it has not got room
    for in between."""
    job = Job(tmp_path / "job", slot_request_timeout=timedelta(seconds=2))
    job.read_on()
    before = job.running(more_checkpoints=1)
    pids = {task["pid"] for task in before["tasks"]}

    grown = job.client.rescale(3).result(60)
    assert set(grown.before.values()) == {2}
    assert set(grown.after.values()) == {3}
    assert grown.silence.total_seconds() < 30
    metrics = at(job, 3)
    assert metrics["restarts"] == before["restarts"]
    assert pids < {task["pid"] for task in metrics["tasks"]}, "the others keep their processes"
    assert free_cpus() == CPUS - 3

    with pytest.raises(RescaleError, match=r"beside what it has the job needs .* slots"):
        job.client.rescale(CPUS + 1).result(60)
    assert job.metrics()["state"] == "RUNNING"

    job.kill(metrics["tasks"][-1])
    at(job, 3)
    job_id = str(job.client.get_job_id())
    former = coordinator_pid(job_id)
    os.kill(former, signal.SIGKILL)
    until(lambda: coordinator_pid(job_id) != former, "the next coordinator", 60.0)
    at(job, 3)
    assert widths(job) == {3}
    assert job.client.rescale(3).result(60).after == {}

    shrunk = job.client.rescale(1).result(60)
    assert set(shrunk.after.values()) == {1}
    at(job, 1)
    until(lambda: free_cpus() == CPUS - 2, "the slot that was added")
    job.finish()
    ends_with_nothing()
