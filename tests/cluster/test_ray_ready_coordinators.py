"""The coordinator that a session keeps ready, on a real Ray: which job has it, and what becomes of
both when processes are killed. Nothing is left of any."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from chaos_kit import until
from ray_chaos_kit import actor_pid, coordinator_pid
from session_kit import Counting, answer_of, completed
from shared_ray import ray_of
from strom import attach
from strom.cluster import dispatcher_client
from strom.cluster.dispatcher import DISPATCHER
from strom.engine.hosts.coordinator_answers import coordinator_name
from strom.engine.hosts.coordinator_names import appointments, named_actors
from strom.engine.hosts.launch import withdraw
from strom.engine.hosts.ray_connect import NAMESPACE
from strom.engine.hosts.ready_coordinators import PREFIX
from strom.rest.catalogs.session_jobs import SessionJobs

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of(4):
        yield


@pytest.fixture
def session(tmp_path: Path) -> Iterator[dispatcher_client.DispatcherClient]:
    client, _ = dispatcher_client.start(str(tmp_path / "registry"), ready=1)
    yield client
    for one in SessionJobs().jobs():
        if one.end_ms is None:
            attach(one.id).cancel(timedelta(seconds=60))
    until(lambda: not appointments(), "no note of a coordinator", 60.0)
    left = [actor_pid(name) for name in standing_by()]
    dispatcher_client.stop()
    until(lambda: not standing_by(), "no coordinator that is kept ready", 30.0)
    until(lambda: not any(map(psutil.pid_exists, left)), f"the end of {left}", 30.0)


def standing_by() -> list[str]:
    """The names of those without a job."""
    appointed = {one.actor for one in appointments()}
    return [one for one in named_actors() if one.startswith(PREFIX) and one not in appointed]


def ready(session: dispatcher_client.DispatcherClient) -> str:
    """The name of the one that the next job has."""

    def names() -> list[str]:
        there = standing_by()  # first: the session may not have heard yet that the last one is gone
        return there if session.about()["ready_coordinator"] else []

    (name,) = until(names, "a coordinator that is ready", 60.0)
    return str(name)


def is_ordinary(client: Any) -> bool:
    """Whether its job has a coordinator that was made for it."""
    return coordinator_name(client.get_job_id()) in named_actors()


def end(*jobs: Counting) -> None:
    """Each has all its results once."""
    for job in jobs:
        job.release()
    for job in jobs:
        job.client.get_job_execution_result()
        job.check()


def test_a_job_has_it_and_outlives_its_process_and_the_dispatcher(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    """It is found by the job's id, from wherever somebody looks."""
    former = actor_pid(ready(session))
    job = Counting(tmp_path / "job", 1, attached=False)
    client = job.submit()
    job_id = str(client.get_job_id())
    assert coordinator_pid(job_id) == former
    assert not is_ordinary(client)
    completed(client, 1)
    os.kill(former, signal.SIGKILL)
    completed(client, 2)
    assert coordinator_pid(job_id) != former
    assert (client.metrics()["restarts"], client.view()["failures"]) == (0, [])

    os.kill(actor_pid(DISPATCHER), signal.SIGKILL)
    assert session.job(job_id)[0].run == 0
    assert SessionJobs().view(job_id)["status"] == "RUNNING"
    completed(attach(job_id), 1)
    registry = session.about()["registry"]
    dispatcher_client.stop()
    (listed,) = [one for one in json.loads(answer_of("list", "--json")) if one["phase"] != "ENDED"]
    assert (listed["job_id"], listed["status"]) == (job_id, "RUNNING")
    completed(attach(job_id), 1)
    again, _ = dispatcher_client.start(registry, ready=1)
    assert again.job(job_id)[0].phase == "RUNNING"
    end(job)
    until(lambda: again.job(job_id)[0].phase == "ENDED", "the account of its end", 60.0)


def test_of_two_jobs_at_once_one_has_an_ordinary_one(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    name = ready(session)
    jobs = Counting(tmp_path / "one", 1), Counting(tmp_path / "two", 1)
    clients = [job.submit() for job in jobs]
    assert [is_ordinary(client) for client in clients] == [False, True]
    assert ready(session) != name, "the next job's"
    end(*jobs)


def test_a_job_with_a_runtime_environment_of_its_own_has_an_ordinary_one(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    name = ready(session)
    job = Counting(tmp_path / "job", 1, runtime_env={"env_vars": {"COLOUR": "red"}})
    assert is_ordinary(job.submit())
    assert ready(session) == name
    end(job)


def test_those_that_die_before_a_job_has_them_are_replaced(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    """And one that the job would have had, in the very moment when it gets it, or that hangs."""
    first = ready(session)
    os.kill(actor_pid(first), signal.SIGKILL)
    until(lambda: first not in standing_by(), "its end for good", 60.0)
    second = ready(session)
    assert second != first
    os.kill(actor_pid(second), signal.SIGKILL)
    job = Counting(tmp_path / "job", 1)
    assert is_ordinary(job.submit())

    third = ready(session)
    hangs = actor_pid(third)
    os.kill(hangs, signal.SIGSTOP)
    try:
        other = Counting(tmp_path / "other", 1)
        assert is_ordinary(other.submit())
    finally:
        with suppress(ProcessLookupError):
            os.kill(hangs, signal.SIGCONT)
    until(lambda: third not in named_actors(), "its end", 60.0)
    end(job, other)


def test_the_next_dispatcher_has_what_the_last_one_made(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    name = ready(session)
    pid, dispatcher = actor_pid(name), actor_pid(DISPATCHER)
    os.kill(dispatcher, signal.SIGKILL)
    until(lambda: actor_pid(DISPATCHER) != dispatcher, "the next one", 60.0)
    assert ready(session) == name
    job = Counting(tmp_path / "job", 1)
    client = job.submit()
    assert coordinator_pid(str(client.get_job_id())) == pid
    end(job)


def test_it_ends_with_a_job_that_is_withdrawn_and_with_a_dispatcher_that_is_ended(
    tmp_path: Path, session: dispatcher_client.DispatcherClient
) -> None:
    ready(session)
    client = Counting(tmp_path / "job", 1).submit()
    completed(client, 1)
    pid = coordinator_pid(str(client.get_job_id()))
    next_one = actor_pid(ready(session))
    registry = session.about()["registry"]
    ray.kill(ray.get_actor(DISPATCHER, NAMESPACE), no_restart=True)
    withdraw(str(client.get_job_id()))
    assert not appointments()
    until(lambda: not any(map(psutil.pid_exists, (pid, next_one))), "the end of both", 60.0)
    dispatcher_client.start(registry, ready=1)
