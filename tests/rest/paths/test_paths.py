"""Each path answers in Flink's shape."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from rest_kit import SOURCE, SUMS, PlayedJobs, client_of
from starlette.testclient import TestClient

JOB, OVER = "0123456789abcdef", "fedcba9876543210"
AT = f"/v1/jobs/{JOB}"


@pytest.fixture
def catalog() -> PlayedJobs:
    return PlayedJobs()


@pytest.fixture
def client(catalog: PlayedJobs) -> Iterator[TestClient]:
    with client_of(catalog) as client:
        yield client


def get(client: TestClient, path: str, status: int = 200) -> Any:
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_cluster(client: TestClient) -> None:
    found = get(client, "/v1/overview")
    assert {name: found[name] for name in ("taskmanagers", "slots-total", "slots-available")} == {
        "taskmanagers": 1,
        "slots-total": 4,
        "slots-available": 1,
    }
    assert (found["jobs-running"], found["jobs-failed"], found["jobs-finished"]) == (1, 1, 0)
    assert get(client, "/v1/config")["features"]["web-cancel"] is True
    managers = get(client, "/v1/taskmanagers")["taskmanagers"]
    assert [(one["id"], one["tasks"]) for one in managers] == [("node1:100", 2), ("node1:101", 1)]
    assert managers[0]["hardware"] == {
        "cpuCores": 4,
        "physicalMemory": 1 << 30,
        "freeMemory": 0,
        "managedMemory": 0,
    }


def test_jobs(client: TestClient) -> None:
    assert get(client, "/v1/jobs") == {
        "jobs": [{"id": JOB, "status": "RUNNING"}, {"id": OVER, "status": "FAILED"}]
    }
    running, failed = get(client, "/v1/jobs/overview")["jobs"]
    assert (running["start-time"], running["end-time"], running["state"]) == (1000, -1, "RUNNING")
    assert (running["tasks"]["total"], running["tasks"]["running"]) == (3, 3)
    assert (failed["end-time"], failed["duration"]) == (4000, 3000)


def test_a_job(client: TestClient) -> None:
    found = get(client, AT)
    assert (found["jid"], found["state"], found["maxParallelism"]) == (JOB, "RUNNING", 128)
    assert (found["timestamps"]["RESTARTING"], found["timestamps"]["FAILED"]) == (3000, 0)
    source, sums = found["vertices"]
    assert (source["id"], sums["parallelism"], sums["status"]) == (SOURCE, 2, "RUNNING")
    assert (sums["start-time"], sums["end-time"], sums["duration"]) == (3100, -1, 6900)
    assert (sums["metrics"]["read-records"], sums["metrics"]["write-bytes"]) == (30, 100)
    assert sums["metrics"]["read-bytes-complete"] is False
    assert found["status-counts"]["RUNNING"] == 2
    plan = get(client, f"{AT}/plan")["plan"]
    assert plan == found["plan"]
    assert plan["nodes"][1]["inputs"] == [
        {"num": 0, "id": SOURCE, "ship_strategy": "HASH(k)", "exchange": "pipelined_bounded"}
    ]


def test_what_a_job_was_told(client: TestClient) -> None:
    found = get(client, f"{AT}/config")["execution-config"]
    assert found == {
        "execution-mode": "PIPELINED",
        "restart-strategy": "FixedDelayRestart",
        "job-parallelism": 2,
        "object-reuse-mode": True,
        "user-config": {"topic": "bids"},
    }
    checkpoints = get(client, f"{AT}/checkpoints/config")
    assert (checkpoints["mode"], checkpoints["interval"]) == ("exactly_once", 1000)
    assert checkpoints["externalization"] == {"enabled": True, "delete_on_cancellation": False}


def test_a_job_without_checkpoints_has_no_configuration_of_them(
    client: TestClient, catalog: PlayedJobs
) -> None:
    catalog.views[JOB]["checkpointing"]["interval_ms"] = None
    get(client, f"{AT}/checkpoints/config", 404)


def test_exceptions(client: TestClient) -> None:
    found = get(client, f"{AT}/exceptions")
    assert found["root-exception"].startswith("operator 'sums' (2/2)")
    assert (found["timestamp"], found["truncated"]) == (3000, False)
    first, second = found["exceptionHistory"]["entries"]
    assert first["exceptionName"] == "operator 'sums' (2/2): ValueError: odd"
    assert first["taskName"] == "sums (2/2) - execution #0"
    assert (second["taskName"], second["stacktrace"]) == (None, "the job could not be deployed")
    cut = get(client, f"{AT}/exceptions?maxExceptions=1")
    assert (len(cut["all-exceptions"]), cut["exceptionHistory"]["truncated"]) == (1, True)


def test_metrics(client: TestClient) -> None:
    vertex = f"{AT}/vertices/{SUMS}"
    assert {"id": "numRestarts"} in get(client, f"{AT}/metrics")
    wanted = "numRestarts,lastCheckpointSize,none"
    assert get(client, f"{AT}/metrics?get={wanted}") == [{"id": "numRestarts", "value": "1"}]
    assert {"id": "1.sums.numRecordsIn"} in get(client, f"{vertex}/metrics")
    assert get(client, f"{vertex}/metrics?get=1.busyTimeMsPerSecond") == [
        {"id": "1.busyTimeMsPerSecond", "value": "400.0"}
    ]
    assert get(client, f"{vertex}/subtasks/1/metrics?get=numRecordsIn") == [
        {"id": "numRecordsIn", "value": "20"}
    ]
    (found,) = get(client, f"{vertex}/subtasks/metrics?get=numRecordsIn")
    assert found == {
        "id": "numRecordsIn",
        "min": 10,
        "max": 20,
        "avg": 15,
        "sum": 30,
        "skew": pytest.approx(100 / 3),
    }
    some = f"{vertex}/subtasks/metrics?get=numRecordsIn&agg=max&subtasks=0"
    assert get(client, some) == [{"id": "numRecordsIn", "max": 10}]
    assert get(client, f"{vertex}/subtasks/metrics?get=numRecordsIn&subtasks=5-7") == []
    for wrong in ("agg=mode", "subtasks=a", "subtasks=-1", "subtasks=1-", "subtasks=%C2%B2"):
        get(client, f"{vertex}/subtasks/metrics?{wrong}", 400)
    assert get(client, "/v1/jobs/metrics?get=numRestarts&agg=sum") == [
        {"id": "numRestarts", "sum": 1}
    ]


def test_vertices_and_subtasks(client: TestClient) -> None:
    vertex = f"{AT}/vertices/{SUMS}"
    found = get(client, vertex)
    assert [one["subtask"] for one in found["subtasks"]] == [0, 1]
    one = get(client, f"{vertex}/subtasks/1")
    assert one == found["subtasks"][1]
    assert (one["host"], one["taskmanager-id"], one["attempt"]) == ("node1", "node1:101", 1)
    assert one["status-duration"] == {
        "CREATED": 100,
        "SCHEDULED": -1,
        "DEPLOYING": 900,
        "INITIALIZING": -1,
        "RUNNING": 6000,
    }
    times = get(client, f"{vertex}/subtasktimes")
    assert times["subtasks"][0]["timestamps"]["DEPLOYING"] == 3100
    assert get(client, f"{vertex}/watermarks") == [
        {"id": "0.currentInputWatermark", "value": str(-(1 << 63))},
        {"id": "1.currentInputWatermark", "value": "77"},
    ]
    pressure = get(client, f"{vertex}/backpressure")
    assert (pressure["backpressure-level"], pressure["subtasks"][1]["busyRatio"]) == ("low", 0.4)
    get(client, f"{vertex}/subtasks/2", 404)


def test_checkpoints(client: TestClient) -> None:
    found = get(client, f"{AT}/checkpoints")
    assert found["counts"] == {
        "restored": 1,
        "total": 4,
        "in_progress": 1,
        "completed": 2,
        "failed": 1,
    }
    assert found["summary"]["state_size"]["max"] == 4000
    assert [one["id"] for one in found["history"]] == [4, 3, 2, 1]
    assert found["latest"]["failed"]["failure_message"] == "declined by sums (2/2)"
    assert found["latest"]["savepoint"]["external_path"] == "s3://bucket/savepoint-3"
    assert found["latest"]["restored"]["restore_timestamp"] == 3050
    done = get(client, f"{AT}/checkpoints/details/2")
    assert (done["checkpointed_size"], done["end_to_end_duration"]) == (400, 200)
    assert done["tasks"][SUMS]["state_size"] == 3000
    sums = get(client, f"{AT}/checkpoints/details/2/subtasks/{SUMS}")
    assert sums["subtasks"][1]["alignment"]["duration"] == 3.0
    assert sums["summary"]["checkpoint_duration"]["async"]["avg"] == 20.0
    going = get(client, f"{AT}/checkpoints/details/4/subtasks/{SUMS}")
    assert [one["status"] for one in going["subtasks"]] == ["pending_or_failed"] * 2
    assert going["num_acknowledged_subtasks"] == 0
    get(client, f"{AT}/checkpoints/details/9", 404)


def test_an_older_checkpoint_of_which_only_sums_are_known(
    client: TestClient, catalog: PlayedJobs
) -> None:
    known = catalog.views[JOB]["checkpoints"]
    done = known["history"][2]
    done.update(parts=None, alignment_ms=3.0, discarded=True, path=None)
    latest: Any = known["latest_completed"]
    latest.update(alignment_ms=3.0)
    found = get(client, f"{AT}/checkpoints")
    assert found["history"][2]["alignment_duration"] == 3.0
    assert found["history"][2]["discarded"] is True
    assert found["latest"]["completed"]["alignment_duration"] == 3.0
    details = get(client, f"{AT}/checkpoints/details/2")
    assert (details["state_size"], details["tasks"]) == (4000, {})
    answer = get(client, f"{AT}/checkpoints/details/2/subtasks/{SUMS}", 404)
    assert "only sums are known" in answer["errors"][0]


def test_accumulators(client: TestClient) -> None:
    lines = [{"name": "lines", "type": "IntCounter", "value": "7"}]
    assert get(client, f"{AT}/accumulators")["user-task-accumulators"] == lines
    assert get(client, f"{AT}/vertices/{SUMS}/accumulators")["user-accumulators"] == lines
    assert get(client, f"{AT}/vertices/{SOURCE}/accumulators")["user-accumulators"] == []


def test_paths_without_a_version_are_the_same(client: TestClient) -> None:
    assert get(client, "/jobs") == get(client, "/v1/jobs")


def test_what_is_not_there(client: TestClient) -> None:
    assert get(client, "/v1/jobs/abc", 404) == {"errors": ["there is no job 'abc'"]}
    answer = get(client, f"{AT}/vertices/cccc", 404)
    assert answer == {"errors": [f"job '{JOB}' has no vertex 'cccc'"]}
    assert get(client, "/v1/nothing", 404) == {"errors": ["Not Found"]}
    assert client.delete(AT).json() == {"errors": ["Method Not Allowed"]}


def wait_for(client: TestClient, path: str) -> Any:
    deadline = time.monotonic() + 30
    while (found := get(client, path))["status"]["id"] == "IN_PROGRESS":
        assert time.monotonic() < deadline
    return found["operation"]


def test_savepoints(client: TestClient, catalog: PlayedJobs) -> None:
    catalog.may_end.clear()
    asked = {"target-directory": "s3://x", "triggerId": "mine"}
    answer = client.post(f"{AT}/savepoints", json=asked)
    assert (answer.status_code, answer.json()) == (202, {"request-id": "mine"})
    assert get(client, f"{AT}/savepoints/mine") == {"status": {"id": "IN_PROGRESS"}}
    assert client.post(f"{AT}/savepoints", json=asked).json() == {"request-id": "mine"}
    catalog.may_end.set()
    assert wait_for(client, f"{AT}/savepoints/mine") == {"location": "s3://x/savepoint-1"}
    assert catalog.asked == [("savepoint", JOB, "s3://x", None)]
    get(client, f"{AT}/savepoints/other", 404)
    get(client, f"/v1/jobs/{OVER}/savepoints/mine", 404)
    get(client, f"{AT}/rescaling/mine", 404)


def test_a_savepoint_that_fails(client: TestClient) -> None:
    asked = client.post(f"{AT}/savepoints", json={"target-directory": "nowhere"}).json()
    done = wait_for(client, f"{AT}/savepoints/{asked['request-id']}")
    assert done == {
        "failure-cause": {
            "class": "Refused",
            "stack-trace": "no savepoint was taken: password=*** is wrong",
        }
    }


def test_stopping_and_cancelling(client: TestClient, catalog: PlayedJobs) -> None:
    for body in (None, {"drain": True, "targetDirectory": "d"}):
        asked = client.post(f"{AT}/stop", json=body).json()
        wait_for(client, f"{AT}/savepoints/{asked['request-id']}")
    assert client.post(f"{AT}/savepoints", json={"cancel-job": True}).status_code == 202
    assert client.patch(AT).json() == {}
    assert client.patch(f"{AT}?mode=cancel").status_code == 202
    assert client.patch(f"{AT}?mode=stop").status_code == 400
    assert client.patch("/v1/jobs/abc").status_code == 404
    assert client.post("/v1/jobs/abc/stop").status_code == 404
    assert client.post(f"{AT}/stop", json={"drian": True}).status_code == 400
    assert sorted(catalog.asked, key=str) == [
        ("cancel", JOB),
        ("cancel", JOB),
        ("savepoint", JOB, "d", "drain"),
        ("savepoint", JOB, None, "halt"),
        ("savepoint", JOB, None, "halt"),
    ]


def test_rescaling(client: TestClient, catalog: PlayedJobs) -> None:
    answer = client.patch(f"{AT}/rescaling?parallelism=4&targetDirectory=d")
    assert (answer.status_code, list(answer.json())) == (200, ["request-id"])
    described = get(client, "/v1/openapi.json")["paths"]["/v1/jobs/{jobid}/rescaling"]["patch"]
    assert [code for code in described["responses"] if code < "3"] == ["200"]
    asked = answer.json()
    done = wait_for(client, f"{AT}/rescaling/{asked['request-id']}")
    get(client, f"{AT}/rescaling/{'0' * 32}", 404)
    get(client, f"/v1/jobs/{OVER}/rescaling/{asked['request-id']}", 404)
    get(client, f"{AT}/savepoints/{asked['request-id']}", 404)
    again = client.post(f"{AT}/savepoints", json={"triggerId": asked["request-id"]})
    assert again.status_code == 409, "it is no savepoint"
    assert done == {"jobid": "00000000000000aa", "location": "s3://savepoint-7"}
    asked = client.patch(f"{AT}/rescaling?parallelism=400").json()
    done = wait_for(client, f"{AT}/rescaling/{asked['request-id']}")
    assert done["failure-cause"]["stack-trace"] == "it has 100 key groups"
    asked = client.patch(f"{AT}/rescaling?parallelism=4&mode=live").json()
    done = wait_for(client, f"{AT}/rescaling/{asked['request-id']}")
    told = {"jobid": JOB, "silence-ms": 340, "stopped-tasks": 4, "held-tasks": 0, "kept-tasks": 6}
    assert done == told
    asked = client.patch(f"{AT}/rescaling?parallelism=4&mode=live&balance=true").json()
    done = wait_for(client, f"{AT}/rescaling/{asked['request-id']}")
    spread = {"before": 0.625, "after": 0.5, "limit": "one key group has 50%"}
    assert done == told | {"balance": {"Map": spread}}
    assert client.patch(f"{AT}/rescaling?parallelism=4&balance=true").status_code == 400
    refused = client.patch(f"{AT}/rescaling?parallelism=4&mode=live&targetDirectory=d")
    assert refused.status_code == 400
    assert client.patch(f"{AT}/rescaling").status_code == 400
    assert client.patch(f"{AT}/rescaling?parallelism=0").status_code == 400
    assert catalog.asked[0] == ("rescale", JOB, 4, "d")


def test_an_error_of_strom_itself_says_nothing_of_its_inside(catalog: PlayedJobs) -> None:
    catalog.failure = RuntimeError("secret inside")
    with client_of(catalog, raise_server_exceptions=False) as client:
        answer = client.get(AT)
    assert (answer.status_code, "secret" in answer.text) == (500, False)
