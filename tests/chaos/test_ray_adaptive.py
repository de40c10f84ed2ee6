"""A job on Ray for which the cluster is too small, becomes large enough, and is too small again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import config, environment, until, within
from ray_chaos_kit import Job, coordinator_pid, live_groups
from shared_ray import stop_ray
from strom import AdaptiveConfig, NoRestart
from strom.testing.machines.local_nodes import LocalNodes

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

SECOND = timedelta(seconds=1)

QUICKLY = AdaptiveConfig(
    enabled=True,
    wait=60 * SECOND,
    stabilization=2 * SECOND,
    cooldown=SECOND,
    growth_stabilization=2 * SECOND,
)


@pytest.fixture(scope="module")
def nodes() -> Iterator[LocalNodes]:
    """The head has no CPUs, another node one."""
    stop_ray()
    with LocalNodes([0, 1]) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def nothing_left(nodes: LocalNodes) -> Iterator[None]:
    yield
    until(lambda: not nodes.actors("TaskActor") and not live_groups(), "the end of all", 30.0)


def at(job: Job, parallelism: int, seconds: float = 60.0) -> dict[str, Any]:
    """The metrics once all tasks run; a reader without a split has nothing to do any more."""

    def ready() -> Any:
        m = job.metrics()
        running = [task for task in m["tasks"] if task["state"] in ("running", "drained")]
        return m if len(running) == 3 * parallelism and m["state"] == "RUNNING" else None

    what = f"{parallelism} subtasks of each, has {job.metrics()['tasks']}"
    found: dict[str, Any] = until(ready, what, seconds)
    return found


def test_it_starts_smaller_and_is_as_large_as_there_is_room_for(
    nodes: LocalNodes, tmp_path: Path
) -> None:
    """One of three; a coordinator dies; a node comes, dies, and another comes. The output is
    exact, and what counts as a restart is the death of the node alone."""
    job = Job(tmp_path / "job", parallelism=3, adaptive=QUICKLY)
    job.read_on()
    small = at(job, 1)
    assert small["shortage"].startswith(
        "runs with 1 of 3: the job needs 3 slots of 1.0 CPU, the cluster has 1.0 CPU of which 0"
    )
    assert (small["restarts"], small["rescales"]) == (0, 0)
    assert job.client.view()["shortage"] == small["shortage"]
    job_id = str(job.client.get_job_id())
    former = coordinator_pid(job_id)
    os.kill(former, signal.SIGKILL)
    until(lambda: coordinator_pid(job_id) != former, "the next coordinator", 60.0)
    assert at(job, 1)["shortage"] == "runs with 1 of 3"

    added = nodes.add(2)
    grown = at(job, 3)
    assert (grown["shortage"], grown["restarts"], grown["rescales"]) == (None, 0, 1)
    assert set(grown["last_rescale"]["after"].values()) == {3}

    nodes.kill(added)
    small = at(job, 1, 120.0)
    assert small["restarts"] == 1
    assert small["shortage"].startswith("runs with 1 of 3: the job needs 3 slots")

    nodes.add(2)
    assert at(job, 3, 120.0)["restarts"] == 1
    job.finish()


def test_it_waits_for_its_least_and_says_what_is_missing(nodes: LocalNodes) -> None:
    short = AdaptiveConfig(enabled=True, min_parallelism=50, wait=SECOND, stabilization=SECOND)
    env = environment(config(parallelism=60, adaptive=short, restart=NoRestart()), "ray")
    env.from_collection([1, 2]).key_by(lambda n: n).map(lambda n: n).print()
    client = env.execute_async("too much")
    with pytest.raises(strom.JobFailedError, match="too little for the least parallelism, 50"):
        within(60.0, "the end", client.get_job_execution_result)
