"""A running job on Ray whose key groups are dealt by load, while processes die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import until
from ray_chaos_kit import coordinator_pid, ends_with_nothing
from shared_ray import ray_of
from skewed_job import SkewedJob
from strom.rest.catalogs.catalog import Refused
from strom.rest.catalogs.session_jobs import SessionJobs

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def test_a_job_of_skewed_keys_is_balanced_and_its_output_is_exact(tmp_path: Path) -> None:
    """The coordinator is killed, and then a task: whoever goes on knows of the deal."""
    job = SkewedJob(tmp_path / "job", "ray")
    before = job.deals(lambda share: share > 0.75)
    made = job.client.rescale(2, balance=True).result(60)
    assert (made.before, made.after) == ({}, {})
    (one,) = made.balance.values()
    assert one.before == pytest.approx(before, abs=0.1)
    assert one.after < 0.62
    job.deals(lambda share: share < 0.65)

    job_id = str(job.client.get_job_id())
    catalog = SessionJobs(session=False)

    def again() -> Any:
        """Few records had been seen of the first deal; the next ones come to rest."""
        try:
            made = catalog.rescale_live(job_id, 2, balance=True)
        except Refused as error:
            if "ask again once some have come" not in str(error):
                raise
            return None
        assert made.after == {}
        return made if made.silence_ms == 0 else None

    stays = until(again, "nothing is to be won", 60.0)
    assert next(iter(stays.balance.values()))["before"] < 0.65
    former = coordinator_pid(job_id)
    os.kill(former, signal.SIGKILL)
    until(lambda: coordinator_pid(job_id) != former, "the next coordinator", 60.0)
    job.deals(lambda share: share < 0.65)
    attempt = job.client.metrics()["attempt"]
    os.kill(job.client.metrics()["tasks"][-1]["pid"], signal.SIGKILL)
    until(lambda: job.client.metrics()["attempt"] > attempt, "the next attempt", 30.0)
    job.deals(lambda share: share < 0.65)
    job.finish()
    ends_with_nothing()
