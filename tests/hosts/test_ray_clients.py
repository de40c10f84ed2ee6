"""What a coordinator waits for when its job has ended, and what its client knows by itself."""

from __future__ import annotations

import asyncio
import time
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from strom.core.errors import JobFailedError, TransportError
from strom.core.job_status import JobStatus
from strom.engine.hosts import ray_host
from strom.engine.hosts.coordinator_life import LINGER_S, TOLD_S
from strom.engine.hosts.job_outcome import JobOutcome
from strom.engine.hosts.ray_coordinator import JobCoordinator
from strom.engine.hosts.ray_host import RayJobClient

FAILED = JobOutcome("id", "job", JobStatus.FAILED, "boom", 1.0, 0, 0, {"state": "FAILED"})


@pytest.fixture
def coordinator() -> JobCoordinator:
    """Of a job that has published a value and failed; not an actor."""
    made = JobCoordinator("id")
    made._published.add("sink", "key", "value")
    made._published.close()
    made._started.set()
    made._outcome = FAILED
    return made


def test_it_stays_until_outcome_and_values_are_known(coordinator: JobCoordinator) -> None:
    assert coordinator._linger_s == LINGER_S
    assert asyncio.run(coordinator.outcome(0.0)) == FAILED
    assert coordinator._linger_s == LINGER_S
    read = asyncio.run(coordinator.published("sink", 0, 0.0))
    assert (read.values, read.closed) == ([("key", "value")], True)
    assert coordinator._linger_s == TOLD_S


def test_a_question_before_the_end_tells_nothing(coordinator: JobCoordinator) -> None:
    coordinator._outcome = None
    assert asyncio.run(coordinator.outcome(0.0)) is None
    assert not coordinator._told


class Stand:
    """A coordinator as its client sees it: the method's name is its call's reference."""

    def __init__(self, coordinator: JobCoordinator) -> None:
        self.coordinator: JobCoordinator | None = coordinator

    def __getattr__(self, name: str) -> Any:
        class Method:
            @staticmethod
            def remote(*arguments: Any) -> Any:
                assert self.coordinator is not None, f"{name} asked of a coordinator that is gone"
                return asyncio.run(getattr(self.coordinator, name)(*arguments))

        return Method


def test_a_client_that_knows_the_end_asks_no_more(
    coordinator: JobCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand(coordinator)
    monkeypatch.setattr(ray_host.ray, "get", lambda value, timeout=None: value)
    client = RayJobClient("id", "job", stand)
    values = client.published("sink")
    assert next(values) == "value"
    with pytest.raises(JobFailedError, match="boom"):
        client.get_job_execution_result()
    stand.coordinator = None
    assert list(values) == []
    assert client.get_job_status() is JobStatus.FAILED
    assert client.metrics() == {"state": "FAILED"}
    client.cancel()
    with pytest.raises(JobFailedError, match="boom"):
        client.get_job_execution_result()


# --- a coordinator that is gone ---------------------------------------------------------------

ACCOUNT = """The actor died unexpectedly before finishing this task.
\tclass_name: JobCoordinator
\tactor_id: 2f0c
\tpid: 71
\tname: strom-job-id
\tnamespace: strom
\tip: 127.0.0.1
"""
"""How Ray begins."""


def gone(
    monkeypatch: pytest.MonkeyPatch,
    end: str,
    checkpoints: str | None = None,
    name: str | None = "job",
) -> str:
    def get(call: Any, timeout: float | None = None) -> Any:
        error = ray_host.ray.exceptions.ActorDiedError()
        error.error_msg = ACCOUNT + end
        raise error

    monkeypatch.setattr(ray_host.ray, "get", get)
    stand = types.SimpleNamespace(state=types.SimpleNamespace(remote=lambda: None))
    with pytest.raises(JobFailedError) as caught:
        RayJobClient("id", name, stand, checkpoints).get_job_status()
    assert caught.value.__suppress_context__
    return str(caught.value)


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
         "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of "
         "file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM "
         "killer due to high memory usage. (2) ray stop --force is called.", "its process died"),
        ("The actor is dead because it was killed by `ray.kill`.", "it was ended by ray.kill"),
        ("The actor died because its node has died. Node Id: 1f", "its node died"),
        ("1 worker(s) were killed due to the node running low on memory.",
         "its process was killed as its node ran low on memory"),
    ],
)  # fmt: skip
def test_what_a_coordinator_died_of_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, end: str, cause: str
) -> None:
    text = gone(monkeypatch, end)
    assert f"the coordinator of job 'job' (id) is gone, and the job with it: {cause}" in text
    assert "\n" not in text
    assert "start it again from the beginning" in text


def test_where_the_checkpoints_of_a_job_without_coordinator_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "in s3://bucket/state/id" in gone(monkeypatch, "", "s3://bucket/state/")


def test_who_attached_to_a_job_does_not_know_whether_it_kept_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = gone(monkeypatch, "", name=None)
    assert text.startswith("the coordinator of job id is gone")
    assert "restore_from its newest checkpoint, if it keeps any" in text
    assert "from the beginning" not in text


def test_a_wait_for_the_coordinator_is_told_once_however_many_calls_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And once more when it is away again."""
    back_at = 0.0

    def get(call: Any, timeout: float | None = None) -> Any:
        if time.monotonic() < back_at:
            raise ray_host.ray.exceptions.ActorUnavailableError("GOAWAY", None)
        return JobStatus.RUNNING

    monkeypatch.setattr(ray_host.ray, "get", get)
    monkeypatch.setattr(ray_host, "SOON_S", 0.02)
    monkeypatch.setattr(ray_host, "PAUSE_S", 0.02)
    stand = types.SimpleNamespace(state=types.SimpleNamespace(remote=lambda: None))
    client = RayJobClient("id", None, stand)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            back_at = time.monotonic() + 0.3
            calls = [pool.submit(client.get_job_status) for _ in range(4)]
            assert {call.result() for call in calls} == {JobStatus.RUNNING}
    told = "strom: the coordinator of job id cannot be reached; waiting until it is back\n"
    assert capsys.readouterr().err == told * 2


def test_a_coordinator_out_of_reach_may_come_back(
    coordinator: JobCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(call: Any, timeout: float | None = None) -> Any:
        raise ray_host.ray.exceptions.ActorUnavailableError("GOAWAY\nmore", None)

    monkeypatch.setattr(ray_host.ray, "get", get)
    monkeypatch.setattr(ray_host, "AWAY_S", 0.5)
    client = RayJobClient("id", "job", Stand(coordinator))
    with pytest.raises(TransportError, match=r"strom.attach\('id'\)") as caught:
        client.get_job_execution_result()
    assert "GOAWAY" not in str(caught.value)
