"""Nodes that die under jobs on Ray: under their tasks, and under their coordinators."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import until, within
from ray_chaos_kit import Job, live_groups
from shared_ray import stop_ray
from strom.engine.hosts import launch
from strom.testing.machines.local_nodes import LocalNodes

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

TASKS, COORDINATOR = "TaskActor", "JobCoordinator"


@pytest.fixture(scope="module")
def nodes() -> Iterator[LocalNodes]:
    """The head has no CPUs, the others one each."""
    stop_ray()
    with LocalNodes([0, 1, 1, 1]) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def nothing_left(nodes: LocalNodes) -> Iterator[None]:
    yield
    until(lambda: not nodes.actors(TASKS) and not live_groups(), "the end of all tasks", 30.0)


def causes(job: Job) -> list[str]:
    return [failure["cause"] for failure in job.client.view()["failures"]]


def test_its_tasks_restart_once_elsewhere_or_wait_for_room(
    nodes: LocalNodes, tmp_path: Path
) -> None:
    """The node is dead for seconds before Ray knows. The next one leaves no room: the job says so,
    and goes on with a node that is added."""
    job = Job(tmp_path / "job", slot_request_timeout=timedelta(seconds=1))
    job.read_on()
    job.running(more_checkpoints=2)
    assert list(nodes.actors(COORDINATOR)) == [nodes.head]
    first, second = nodes.actors(TASKS)
    nodes.kill(first)
    until(lambda: job.metrics()["attempt"] == 1, "the next attempt", 60.0)
    after = job.running(more_checkpoints=2)
    assert (after["restarts"], after["attempt"]) == (1, 1)
    assert first in causes(job)[0]
    assert "its node died" in causes(job)[0]
    nodes.kill(second)
    until(lambda: "no room for them" in causes(job)[0], f"the reason, not {causes(job)}", 60.0)
    assert "1 of the job's slots lay on nodes that died" in causes(job)[0]
    assert "the job needs 2 slots of 1.0 CPU, the cluster has 1.0 CPU" in causes(job)[0]
    nodes.add(1)
    job.running(more_checkpoints=2)
    job.finish()


@pytest.fixture
def there(nodes: LocalNodes, monkeypatch: pytest.MonkeyPatch) -> str:
    """As if the program that submits the job were on this node."""
    while len(nodes.others) < 3:
        nodes.add(1)
    node = nodes.others[-1]
    monkeypatch.setattr(launch, "home_node", lambda: node)
    return node


def test_its_coordinator_comes_back_elsewhere(
    nodes: LocalNodes, there: str, tmp_path: Path, capsys: Any
) -> None:
    """The tasks that live go on or restart, and the client waits, and says so."""
    job = Job(tmp_path / "job")
    job.read_on()
    job.running(more_checkpoints=2)
    assert list(nodes.actors(COORDINATOR)) == [there]
    hit = there in nodes.actors(TASKS)
    nodes.kill(there)
    until(lambda: nodes.is_known_dead(there), "the death", 60.0)
    after = job.running(more_checkpoints=2)
    assert after["restarts"] == hit
    job.finish()
    assert "cannot be reached; waiting until it is back" in capsys.readouterr().err


def test_without_a_storage_the_job_ends_and_says_why(
    nodes: LocalNodes, there: str, tmp_path: Path
) -> None:
    env: Any = strom.StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.set_parallelism(1)
    env.from_source(strom.connectors.datagen.DataGenSource(lambda a, n: [1] * n, rate=10.0)).print()
    client = env.execute_async("no storage")
    until(lambda: client.view()["status"] == "RUNNING", "the job", 60.0)
    nodes.kill(there)
    with pytest.raises(strom.JobFailedError, match="died with its node, or before the job began"):
        within(60.0, "the end", client.get_job_execution_result)
