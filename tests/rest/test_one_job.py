"""The API of one job, on the local host: what it shows, and what may be done with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import config, environment, until, windows_of
from leashed_source import Leashed
from rest_kit import client_of
from starlette.testclient import TestClient
from strom import DiscardSink
from strom.rest.one_job import OneJob


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
