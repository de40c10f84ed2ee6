"""Ray's control service (GCS) dies under a job and comes back: the data goes on meanwhile, and what
else dies while it is away is made up for afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import until, window_sums, within
from ray_chaos_kit import COUNT, Job, coordinator_pid
from shared_ray import stop_ray
from strom.testing.machines.local_nodes import LocalNodes
from strom.testing.redis import RedisServer, RedisServerError

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[LocalNodes]:
    try:
        redis = RedisServer()
    except RedisServerError as error:
        pytest.skip(str(error))
    stop_ray()
    with redis, LocalNodes([2], redis=redis) as nodes:
        yield nodes


def test_the_data_goes_on_and_what_died_meanwhile_comes_back(
    nodes: LocalNodes, tmp_path: Path, capsys: Any
) -> None:
    job = Job(tmp_path / "job", to_files=True, parallelism=1)
    job.read_on()
    job.running(more_checkpoints=1)
    job_id = str(job.client.get_job_id())
    coordinator = coordinator_pid(job_id)

    # Checkpoints complete without it, and the client is answered. Nothing restarts. A program that
    # looks for the job waits.
    nodes.kill_control()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(strom.attach, job_id)
        during = job.running(more_checkpoints=2)
        until(lambda: "(GCS) does not answer; waiting" in capsys.readouterr().err, "the notice")
        assert not found.done()
        nodes.start_control()
        assert within(60.0, "the job", found.result).view()["status"] == "RUNNING"
    after = job.running(more_checkpoints=1)
    assert (during["restarts"], after["restarts"], after["attempt"]) == (0, 0, 0)

    # The coordinator dies meanwhile, and finds all tasks once it can come back.
    nodes.kill_control()
    os.kill(coordinator, signal.SIGKILL)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(job.client.view)
        until(lambda: "waiting until it is back" in capsys.readouterr().err, "the notice")
        assert not asked.done()
        nodes.start_control()
        within(60.0, "the answer", asked.result)
    after = job.running(more_checkpoints=2)
    assert coordinator_pid(job_id) != coordinator
    assert (after["restarts"], after["attempt"]) == (0, 0)

    # A task dies meanwhile.
    nodes.kill_control()
    os.kill(after["tasks"][1]["pid"], signal.SIGKILL)
    until(lambda: job.metrics()["state"] == "RESTARTING", "notice of the death")
    nodes.start_control()
    until(lambda: job.metrics()["attempt"] == 1, "the next attempt", 60.0)
    assert job.running(more_checkpoints=1)["restarts"] == 1

    # The job ends meanwhile.
    nodes.kill_control()
    (job.folder / "release").touch()
    until(lambda: job.files() == window_sums(COUNT), "all of the output", 60.0)
    nodes.start_control()
    job.finish()
