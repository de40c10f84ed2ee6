"""A session whose dispatcher and coordinators a test plays: who is asked, how often, and what those
that hang hold up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from rest_kit import client_of, view_of_a_job
from strom.cluster import coordinators
from strom.cluster.dispatcher import DISPATCHER
from strom.cluster.records import JobRecord, Phase
from strom.core.errors import ConfigurationError
from strom.core.job_status import JobStatus
from strom.engine.hosts.coordinator_answers import coordinator_name
from strom.engine.hosts.ray_connect import NAMESPACE
from strom.rest.catalogs import actors, caches, session_jobs
from strom.rest.catalogs.actors import ANSWER_S
from strom.rest.catalogs.catalog import Unavailable
from strom.rest.catalogs.session_jobs import SessionJobs

JOBS = [f"{n:016x}" for n in (1, 2, 3)]


def record(job_id: str) -> JobRecord:
    made = JobRecord(job_id, job_id, 1.0, 1, False, 0, 0)
    return JobRecord(**{**vars(made), "phase": Phase.RUNNING, "status": JobStatus.RUNNING})


class Call:
    """What is given back at once; its answer comes when the actor does not hang."""

    def __init__(self, actor: Actor, answer: Any) -> None:
        self.actor, self.answer = actor, answer


class Actor:
    """`asked`: the names of what was called."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.hangs = False
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Call:
            self.asked.append(name)
            return Call(self, self.answers[name](*arguments))

        return SimpleNamespace(remote=remote)


class Cluster:
    """Stands in for Ray. Its clock goes on by what is waited."""

    def __init__(self) -> None:
        self.now = 100.0
        self.records = {job_id: (record(job_id), "") for job_id in JOBS}
        self.dispatcher = Actor(
            about=lambda: {"registry": "memory://"},
            jobs=lambda most: list(self.records.values()),
            job=self.job,
            cancel=lambda job_id: None,
        )
        self.coordinators = {
            job_id: Actor(view=lambda job_id=job_id: view_of_a_job(job_id)) for job_id in JOBS
        }
        self.actors = {
            DISPATCHER: self.dispatcher,
            **{coordinator_name(job_id): one for job_id, one in self.coordinators.items()},
        }

    def job(self, job_id: str) -> Any:
        if job_id not in self.records:
            return ray.exceptions.RayTaskError(
                "job", "", ConfigurationError("there is no such job")
            )
        return self.records[job_id]

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return 10**18

    def get_actor(self, name: str, namespace: str) -> Actor:
        if name not in self.actors:
            raise ValueError(name)
        return self.actors[name]

    def find_coordinator(self, job_id: str) -> Actor:
        return self.get_actor(coordinator_name(job_id), NAMESPACE)

    def get(self, call: Call, timeout: float) -> Any:
        if call.actor.hangs:
            self.now += timeout
            raise ray.exceptions.GetTimeoutError("too late")
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer

    def wait(self, calls: list[Call], num_returns: int, timeout: float) -> Any:
        ready = [call for call in calls if not call.actor.hangs]
        if len(ready) < num_returns:
            self.now += timeout
        return ready, [call for call in calls if call.actor.hangs]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0}

    def nodes(self) -> list[Any]:
        return []


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    for module in (session_jobs, actors, caches):
        monkeypatch.setattr(module, "time", cluster)
    monkeypatch.setattr(coordinators, "jobs_with_coordinators", list)
    monkeypatch.setattr(session_jobs, "find_coordinator", cluster.find_coordinator)
    for module in (session_jobs, actors):
        monkeypatch.setattr(
            module,
            "ray",
            SimpleNamespace(
                get=lambda call, timeout=60.0: cluster.get(call, timeout),
                get_actor=cluster.get_actor,
                wait=cluster.wait,
                cluster_resources=cluster.cluster_resources,
                nodes=cluster.nodes,
                exceptions=ray.exceptions,
            ),
        )
    return cluster


def test_a_dispatcher_that_hangs_is_asked_now_and_then(cluster: Cluster) -> None:
    jobs = SessionJobs()
    assert len(jobs.jobs()) == 3
    cluster.now += 1.0
    cluster.dispatcher.hangs = True
    cluster.dispatcher.asked.clear()
    began = cluster.now
    for _ in range(5):
        for ask in (jobs.jobs, jobs.slots, lambda: jobs.job(JOBS[0]), lambda: jobs.view(JOBS[1])):
            with pytest.raises(Unavailable, match="the dispatcher does not answer"):
                ask()
    assert cluster.dispatcher.asked == ["jobs"]
    assert cluster.now == began + ANSWER_S
    cluster.dispatcher.hangs = False
    cluster.now += ANSWER_S
    assert len(jobs.jobs()) == 3


def test_what_many_look_at_is_asked_for_once(cluster: Cluster) -> None:
    jobs = SessionJobs()
    cluster.dispatcher.asked.clear()
    for _ in range(10):
        jobs.jobs()
        jobs.both(JOBS[0])
        jobs.views_of()
    assert cluster.dispatcher.asked == ["jobs", "job"]
    assert [one.asked for one in cluster.coordinators.values()] == [["view"]] * 3
    jobs.cancel(JOBS[0])
    jobs.job(JOBS[0])
    assert cluster.dispatcher.asked == ["jobs", "job", "job", "cancel", "job"]
    assert cluster.coordinators[JOBS[0]].asked == ["view"] * 2


def test_a_coordinator_that_hangs_is_left_out(cluster: Cluster) -> None:
    late = cluster.coordinators[JOBS[1]]
    late.hangs = True
    del cluster.actors[coordinator_name(JOBS[2])]
    with client_of(SessionJobs()) as client:
        began = cluster.now
        for _ in range(3):
            managers = client.get("/v1/taskmanagers").json()["taskmanagers"]
            assert [one["tasks"] for one in managers] == [2, 1]
            metrics = client.get("/v1/jobs/metrics?get=numRestarts&agg=sum").json()
            assert metrics == [{"id": "numRestarts", "sum": 1.0}]
            named = client.get(f"/v1/jobs/metrics?jobs={','.join(JOBS)}&get=numRestarts")
            assert named.json()[0]["max"] == 1.0
            assert len(client.get("/v1/jobs").json()["jobs"]) == 3
            cluster.now += 2.0
        # It was waited for once, and is asked again when it has answered.
        assert cluster.now - began == actors.LIST_S + 3 * 2.0
        assert late.asked == ["view"]
        late.hangs = False
        lines = client.get("/v1/jobs/overview").json()["jobs"]
        assert late.asked == ["view"] * 2
        assert [one["tasks"]["running"] for one in lines] == [3, 3, 0]
        assert client.get(f"/v1/jobs/metrics?jobs={'0' * 16}").status_code == 404
