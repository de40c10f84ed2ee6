"""A vertex of a job on Ray goes on at another parallelism, while those around it stand still and
keep their processes and what these hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_chaos_kit import ends_with_nothing
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
