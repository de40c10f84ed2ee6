"""The API of one job, on the local host: what it shows, and what may be done with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chaos_kit import config, environment, until, windows_of
from leashed_source import Leashed
from rest_kit import client_of, view_of_a_job
from starlette.testclient import TestClient
from strom import DiscardSink
from strom.core.errors import JobFailedError, TransportError
from strom.rest.catalogs import caches
from strom.rest.catalogs.one_job import OneJob


class Local:
    """A job of this process that sums windows until it is released, and a client of its API."""

    def __init__(self, folder: Path, client: TestClient, job: Any) -> None:
        self.folder, self.client, self.job = folder, client, job
        self.path = f"/v1/jobs/{job.get_job_id()}"

    def get(self, path: str = "") -> Any:
        answer = self.client.get(self.path + path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def outcome_of(self, what: str, body: Any) -> Any:
        asked = self.client.post(f"{self.path}/{what}", json=body).json()
        place = f"/savepoints/{asked['request-id']}"

        def done() -> Any:
            found = self.get(place)
            return found if found["status"]["id"] == "COMPLETED" else None

        return until(done, what)["operation"]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    env = environment(config(tmp_path / "state", interval_ms=20, batch_size=20))
    windows_of(env, Leashed(tmp_path / "release", 400)).sink_to(DiscardSink())
    job = env._submit(env.get_job_graph("one"))
    with client_of(OneJob(job)) as client:
        yield Local(tmp_path, client, job)
    job.cancel()


def test_a_savepoint_and_a_stop(local: Local) -> None:
    until(lambda: local.get("/checkpoints")["counts"]["completed"] > 0, "a checkpoint")
    assert local.get()["state"] == "RUNNING"
    taken = local.outcome_of("savepoints", {"target-directory": str(local.folder / "s")})
    assert Path(taken["location"]).is_dir()
    failed = local.outcome_of("savepoints", {})
    assert "savepoint_directory" in failed["failure-cause"]["stack-trace"]
    local.outcome_of("stop", {"targetDirectory": str(local.folder / "s"), "drain": True})
    until(lambda: local.get()["state"] == "FINISHED", "its end")
    assert local.get("/checkpoints")["latest"]["savepoint"]["id"] > 1


def test_a_cancel(local: Local) -> None:
    until(lambda: local.get()["state"] == "RUNNING", "its start")
    assert local.client.patch(local.path).status_code == 202
    until(lambda: local.get()["state"] == "CANCELED", "its end")
    assert local.client.patch(local.path).status_code == 202
    (line,) = local.client.get("/v1/jobs/overview").json()["jobs"]
    assert line["tasks"]["canceled"] == line["tasks"]["total"]


def test_what_is_not_there(local: Local) -> None:
    assert local.client.get("/v1/jobs/0000000000000000").status_code == 404
    assert local.client.patch("/v1/jobs/0000000000000000").status_code == 404
    asked = local.client.patch(f"{local.path}/rescaling?parallelism=3").json()

    def refused() -> Any:
        found = local.get(f"/rescaling/{asked['request-id']}")
        return found.get("operation")

    done = until(refused, "the refusal")
    assert "only a session" in done["failure-cause"]["stack-trace"]
    assert local.client.get("/v1/config").json()["features"] == {
        "web-submit": False,
        "web-cancel": True,
        "web-rescale": False,
        "web-history": False,
    }


class Played:
    """A client that a test plays, of a job on Ray: what it knows goes some time after the end."""

    def __init__(self) -> None:
        self.asked = self.cancels = 0
        self.failure: Exception | None = None
        self.ended: Any = None
        self.may_end = threading.Event()

    def get_job_id(self) -> str:
        return "0123456789abcdef"

    def view(self) -> Any:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return view_of_a_job()

    def cancel(self) -> None:
        self.cancels += 1
        assert self.may_end.wait(60)
        raise TransportError("it does not answer")

    def last_view(self, timeout: timedelta) -> Any:
        self.may_end.wait(timeout.total_seconds())
        return view_of_a_job(status="FINISHED") if self.may_end.is_set() else None


def test_however_many_look_its_coordinator_is_asked_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(caches, "time", SimpleNamespace(monotonic=lambda: clock.now))
    played = Played()
    shown = OneJob(played)
    with client_of(shown) as client:
        path = "/v1/jobs/0123456789abcdef"
        for _ in range(10):
            assert client.get(path).json()["state"] == "RUNNING"
            assert client.get("/v1/jobs/overview").status_code == 200
        assert played.asked == 1
        clock.now += caches.FRESH_S
        played.failure = TransportError("it does not answer")
        for _ in range(5):
            assert client.get(path).status_code == 503
        assert client.get("/v1/taskmanagers").json()["taskmanagers"] == []
        assert played.asked == 2
    shown.close()
    played.may_end.set()


def test_the_pages_of_a_job_stay_though_nobody_looked_at_its_end() -> None:
    played = Played()
    shown = OneJob(played)
    played.failure = JobFailedError("its coordinator is gone")
    played.may_end.set()
    until(lambda: shown._last, "the last view")
    with client_of(shown) as client:
        assert client.get("/v1/jobs/0123456789abcdef").json()["state"] == "FINISHED"
    assert played.asked == 0


def test_who_cancels_again_and_again_has_one_thread_wait_for_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    played = Played()
    shown = OneJob(played)
    shown.close()
    job_id, before = played.get_job_id(), set(threading.enumerate())
    for _ in range(5):
        shown.cancel(job_id)
    until(lambda: played.cancels, "the first")
    new = {one for one in threading.enumerate() if one.name == "strom-rest-cancel"} - before
    assert (len(new), played.cancels) == (1, 1)
    played.may_end.set()
    until(lambda: "could not be cancelled: TransportError: it does not" in caplog.text, "its end")


def test_jobs_that_are_asked_for_count_once_and_no_others() -> None:
    played = Played()
    played.may_end.set()
    shown = OneJob(played)
    job_id = played.get_job_id()
    assert [one["id"] for one in shown.views_of([job_id, job_id])] == [job_id]
    assert shown.views_of([]) == []
    shown.close()
