"""Coordinators of jobs on Ray that die, and come back: the data goes on, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import strom
from chaos_kit import as_window_sums, until, window_sums, within
from ray_chaos_kit import COUNT, Job, coordinator_pid, ends_with_nothing
from shared_ray import ray_of
from strom.engine.hosts.ray_connect import NAMESPACE

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


@pytest.fixture(autouse=True)
def nothing_left(cluster: None) -> Iterator[None]:
    yield
    ends_with_nothing()


def kill(job: Job) -> None:
    """SIGKILL, and wait until there is another."""
    former = coordinator_pid(job.client.get_job_id())
    os.kill(former, signal.SIGKILL)
    until(lambda: coordinator_pid(job.client.get_job_id()) != former, "the next", 60.0)


def attempts(job: Job) -> set[Any]:
    return {task["attempt"] for task in job.client.view()["tasks"]}


def test_the_job_runs_on_whenever_its_coordinator_dies(tmp_path: Path) -> None:
    """At random moments, in the middle of checkpoints, twice within a second, with a task, and
    while the job comes to its end, and when it is over. Tasks are restarted for none of it but the
    one that is killed; who reads as values come has all of them once, and so has who reads none
    before the last coordinator of all."""
    rng = random.Random(7)
    job = Job(tmp_path / "job")
    job.read_on()
    late = job.client.published(job.sink)
    pids = {task["pid"] for task in job.running(more_checkpoints=1)["tasks"]}
    for _ in range(3):
        kill(job)
        time.sleep(rng.random() / 2)
    after = job.running(more_checkpoints=1)
    assert {task["pid"] for task in after["tasks"]} == pids
    assert (attempts(job), after["restarts"]) == ({0}, 0), job.client.view()["failures"]
    former = coordinator_pid(job.client.get_job_id())
    os.kill(after["tasks"][3]["pid"], signal.SIGKILL)
    os.kill(former, signal.SIGKILL)
    until(lambda: attempts(job) == {1}, "the next attempt", 60.0)
    job.running(more_checkpoints=1)
    (tmp_path / "job" / "release").touch()
    kill(job)
    assert job.reading is not None
    within(90.0, "the end", job.reading.result)
    kill(job)
    found = within(60.0, "all of it", lambda: [row for rows in late for row in rows])
    assert as_window_sums(found) == window_sums(COUNT)
    result = job.finish()
    assert result.restarts <= 1


def test_it_dies_while_the_job_starts(tmp_path: Path) -> None:
    job = Job(tmp_path / "job", to_files=True, parallelism=1)
    job.read_on()
    kill(job)
    job.running(more_checkpoints=1)
    job.finish()


def test_a_savepoint_is_taken_all_the_same(tmp_path: Path) -> None:
    """Whoever waits for it waits for the next coordinator."""
    job = Job(tmp_path / "job", to_files=True, parallelism=1)
    job.read_on()
    job.running(more_checkpoints=1)
    taken = job.client.trigger_savepoint(str(tmp_path / "savepoints"))
    kill(job)
    path = within(60.0, "the savepoint", taken.result)
    assert (Path(str(path)) / "manifest.json").exists()
    job.finish()


def test_one_that_is_ended_for_good_takes_its_job_with_it(tmp_path: Path) -> None:
    """By whoever asks Ray for it: the client is told, and the tasks end by themselves."""
    job = Job(tmp_path / "job", parallelism=1)
    job.running()
    job_id = job.client.get_job_id()
    ray.kill(ray.get_actor(f"strom-job-{job_id}", namespace=NAMESPACE), no_restart=True)
    with pytest.raises(strom.JobFailedError) as caught:
        within(30.0, "the failure", lambda: list(job.published))
    assert str(caught.value) == (
        f"the coordinator of job 'job' ({job_id}) is gone, and the job with it: it was ended by "
        "ray.kill, or by itself as nobody had asked for its job for 120 s after the end; start it "
        f"again with restore_from the newest checkpoint in {job.state}/{job_id}"
    )
    assert caught.value.__suppress_context__, "Ray's own account is shown, too"
    until(lambda: not (job.state / ".coordinators").exists(), "the end of what it left", 60.0)
