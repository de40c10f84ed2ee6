"""A vertex of a job on Ray goes on at another parallelism, while those around it stand still and
keep their processes and what these hold."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_kit import until
from ray_chaos_kit import coordinator_pid, ends_with_nothing
from shared_ray import ray_of
from stages_kit import Stages

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def test_readers_and_writers_stay_open(tmp_path: Path) -> None:
    """2 -> 3 -> 2, and the output is exact."""
    job = Stages(tmp_path, "ray")
    job.checkpoint()
    before = [job.tasks(name) for name in ("paced", "sink")]
    for width, stopped in ((3, 2), (2, 3)):
        made = job.client.rescale({"sums": width}).result(60)
        assert (made.stopped_tasks, made.held_tasks, made.kept_tasks) == (stopped, 4, 0)
        assert made.silence.total_seconds() < 30
        assert [job.tasks(name) for name in ("paced", "sink")] == before
        assert (job.opened("reader"), job.opened("writer")) == (2, 2)
        job.checkpoint()
    assert job.finish().restarts == 0
    ends_with_nothing()


def test_when_the_coordinator_dies_meanwhile_all_begin_again(tmp_path: Path) -> None:
    """Right behind the moment when three are written down."""
    job = Stages(tmp_path, "ray")
    job.checkpoint()
    job_id = str(job.client.get_job_id())
    former = coordinator_pid(job_id)

    for width in (3, 2, 3, 2, 3):  # it may be over before anybody looks
        asked = job.client.rescale({"sums": width})
        until(lambda asked=asked: asked.done() or job.kept()["former"], "the new parallelism", 60.0)
        if not asked.done():
            break
    os.kill(former, signal.SIGKILL)
    asked.result(120)
    job.checkpoint()
    assert len(job.tasks("sums")) == width
    job.finish()
    ends_with_nothing()


def test_one_that_stays_may_be_killed_behind_it(tmp_path: Path) -> None:
    """All of its region begin again, from a later checkpoint."""
    job = Stages(tmp_path, "ray")
    job.checkpoint()
    job.client.rescale({"sums": 3}).result(60)
    _, _, pid = job.tasks("paced")[0]
    attempt = job.client.metrics()["attempt"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: job.client.metrics()["attempt"] > attempt, "the next attempt", 60.0)
    job.checkpoint()
    assert job.opened("reader") == 4
    assert job.finish().restarts == 1
    ends_with_nothing()
