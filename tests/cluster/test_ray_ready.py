"""Task processes that a session keeps ready, on a real Ray: taken, lost, left, and given back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray
from chaos_kit import until
from ray_chaos_kit import actor_pid, coordinator_pid
from session_kit import Counting, completed
from shared_ray import ray_of
from strom import attach
from strom.cluster import dispatcher_client
from strom.cluster.dispatcher import DISPATCHER
from strom.core.errors import ConfigurationError
from strom.engine.graph.slots import slots_of
from strom.engine.hosts.ray_connect import NAMESPACE
from strom.engine.hosts.ready_tasks import PREFIX, await_ready, count_ready, taken
from strom.rest.catalogs.session_jobs import jobs_there

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

READY = 2


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of(4):
        yield


@pytest.fixture
def session(tmp_path: Path) -> Iterator[dispatcher_client.DispatcherClient]:
    client, _ = dispatcher_client.start(str(tmp_path / "registry"), ready=READY)
    yield client
    for one in jobs_there().jobs():
        if one.end_ms is None:
            attach(one.id).cancel(timedelta(seconds=60))
    dispatcher_client.stop()
    until(lambda: not _ready_names(), "no process that is kept ready", 30.0)


def test_a_job_has_them_and_its_next_coordinator_finds_them(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    """Both coordinators and a task's process are killed; nothing is lost, nothing is left."""
    with pytest.raises(ConfigurationError, match="keeps 2 task processes ready on each node"):
        dispatcher_client.start(session.about()["registry"], ready=3)
    until(lambda: count_ready() == READY, "processes that are ready", 60.0)
    await_ready(60.0)
    ready = {actor_pid(name) for name in _ready_names()}
    job = Counting(tmp_path / "job", 2)
    client = job.submit()
    completed(client, 2)
    used = _pids(client)
    assert len(slots_of(job.graph)) == len(used) == READY * 2, "a source and windows in each slot"
    assert ready < used

    os.kill(coordinator_pid(str(client.get_job_id())), signal.SIGKILL)
    completed(client, 2)
    assert _pids(client) == used
    assert client.metrics()["restarts"] == 0

    until(lambda: count_ready() == READY, "others, for the next job", 60.0)
    spare = {actor_pid(name) for name in _ready_names() if name not in taken()}
    os.kill(min(ready), signal.SIGKILL)
    until(lambda: client.metrics()["restarts"] == 1, "the next attempt", 60.0)
    completed(client, 2)
    assert _pids(client) & spare

    job.release()
    client.get_job_execution_result()
    job.check()
    until(lambda: not taken(), "the end of its processes, and of the notes of them", 60.0)


def test_those_that_die_unused_are_replaced_and_a_restarted_dispatcher_keeps_them(
    session: dispatcher_client.DispatcherClient,
) -> None:
    until(lambda: count_ready() == READY, "processes that are ready", 60.0)
    before = {name: actor_pid(name) for name in _ready_names()}
    os.kill(actor_pid(DISPATCHER), signal.SIGKILL)
    session.about()
    gone, stays = sorted(before)
    os.kill(before[gone], signal.SIGKILL)
    until(lambda: gone not in _ready_names() and count_ready() == READY, "another", 60.0)
    assert actor_pid(stays) == before[stays]


def test_slots_of_a_job_whose_session_never_heard_of_its_end(tmp_path: Path) -> None:
    """Nobody lends them any more: they are given back by the coordinator, as it leaves."""
    dispatcher_client.start(str(tmp_path / "registry"), ready=0)
    job = Counting(tmp_path / "job", 1)
    client = job.submit()
    completed(client, 1)
    direct = attach(str(client.get_job_id()))
    dispatcher = actor_pid(DISPATCHER)
    os.kill(dispatcher, signal.SIGSTOP)
    try:
        job.release()
        direct.get_job_execution_result()
        assert ray.available_resources()["CPU"] < 4
    finally:
        ray.kill(ray.get_actor(DISPATCHER, NAMESPACE), no_restart=True)
        os.kill(dispatcher, signal.SIGKILL)
    until(lambda: ray.available_resources().get("CPU") == 4, "its slot", 60.0)
    job.check()


def _ready_names() -> list[str]:
    """Also of those that were taken."""
    named: list[Any] = ray.util.list_named_actors(all_namespaces=True)
    return [one["name"] for one in named if one["name"].startswith(PREFIX)]


def _pids(client: Any) -> set[int]:
    """Of the job's task processes."""
    return {int(task["pid"]) for task in client.view()["tasks"]}
