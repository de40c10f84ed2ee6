"""A catalog of jobs that a test plays, and clients of its API."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, Literal

from starlette.testclient import TestClient
from strom.checkpoint.savepoints import Stop
from strom.engine.hosts.job_view import JobView
from strom.rest.catalogs.catalog import (
    ENDED,
    Balanced,
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Rescaled,
    Slots,
    summary_of,
)
from strom.rest.servers.api import guarded, make_app
from strom.rest.servers.guard import Access
from strom.rest.servers.tokens import Tokens

READ, OPERATE = "r" * 20, "o" * 20
TOKENS = Tokens(READ, OPERATE)

SOURCE, SUMS = "aaaa000000000001", "bbbb000000000002"


def view_of_a_job(job_id: str = "0123456789abcdef", status: str = "RUNNING") -> JobView:
    """A job of two vertices that has had a checkpoint, a savepoint, a failure of each kind."""
    tasks = [(SOURCE, 0), (SUMS, 0), (SUMS, 1)]
    parts = [
        {
            "vertex": vertex,
            "subtask": subtask,
            "acknowledged_ms": 2_100 + 10 * subtask,
            "size": 1000 * (subtask + 1),
            "new_size": 100 * (subtask + 1),
            "sync_ms": 1.5,
            "async_ms": 20.0,
            "alignment_ms": 3.0 * subtask,
        }
        for vertex, subtask in tasks
    ]
    done = {
        "id": 2,
        "status": "COMPLETED",
        "savepoint": False,
        "terminal": False,
        "triggered_ms": 2_000,
        "ended_ms": 2_200,
        "last_acknowledged_ms": 2_110,
        "reason": None,
        "size": 4000,
        "new_size": 400,
        "subtasks": 3,
        "acknowledged": 3,
        "path": "s3://bucket/chk-2",
        "parts": parts,
    }
    failed = {
        **done,
        "id": 1,
        "status": "FAILED",
        "ended_ms": 1_900,
        "reason": "declined by sums (2/2)",
        "path": None,
        "parts": parts[:1],
        "acknowledged": 1,
    }
    saved = {**done, "id": 3, "savepoint": True, "path": "s3://bucket/savepoint-3"}
    going = {
        **failed,
        "id": 4,
        "status": "IN_PROGRESS",
        "ended_ms": None,
        "reason": None,
        "triggered_ms": 9_000,
    }
    found: Any = {
        "version": 1,
        "id": job_id,
        "name": "sums",
        "status": status,
        "error": None,
        "attempt": 1,
        "restarts": 1,
        "now_ms": 10_000,
        "since": {"CREATED": 1_000, "RESTARTING": 3_000, "RUNNING": 4_000, status: 4_000},
        "parallelism": 2,
        "vertices": [
            {
                "id": SOURCE,
                "name": "Source: numbers",
                "parallelism": 1,
                "max_parallelism": 128,
                "slot_sharing_group": "default",
                "operators": [
                    {
                        "id": SOURCE,
                        "name": "Source: numbers",
                        "description": "",
                        "uid": None,
                        "implementation": "source",
                    }
                ],
                "inputs": [],
            },
            {
                "id": SUMS,
                "name": "sums",
                "parallelism": 2,
                "max_parallelism": 128,
                "slot_sharing_group": "default",
                "operators": [
                    {
                        "id": SUMS,
                        "name": "sums",
                        "description": "",
                        "uid": "sums",
                        "implementation": "kernel",
                    }
                ],
                "inputs": [{"source": SOURCE, "ship": "HASH(k)", "port": 0, "tag": None}],
            },
        ],
        "tasks": [
            {
                "vertex": vertex,
                "subtask": subtask,
                "status": "RUNNING",
                "attempt": 1,
                "since": {"CREATED": 3_000, "DEPLOYING": 3_100, "RUNNING": 4_000},
                "host": "node1",
                "pid": 100 + subtask,
                "metrics": {
                    "busyTimeMsPerSecond": 400.0 * subtask,
                    "backPressuredTimeMsPerSecond": 200.0,
                    "idleTimeMsPerSecond": 800.0 - 400.0 * subtask,
                    "numRecordsIn": 10 * (subtask + 1),
                    "numRecordsOut": 5,
                    "numBytesOut": 50,
                    "currentInputWatermark": 77 if subtask else None,
                    "sums.numRecordsIn": 10,
                },
                "process": {"host": "node1", "pid": 100 + subtask, "peak_rss_bytes": 1 << 20},
            }
            for vertex, subtask in tasks
        ],
        "metrics": {"numRestarts": 1, "uptime": 6_000.0, "lastCheckpointSize": None},
        "accumulators": [
            {"vertex": SUMS, "name": "lines", "type": "IntCounter", "value": "7"},
            {"vertex": None, "name": "lines", "type": "IntCounter", "value": "7"},
        ],
        "checkpoints": {
            "triggered": 4,
            "completed": 1,
            "failed": 1,
            "savepoints": 1,
            "savepoints_failed": 0,
            "restores": 1,
            "restored": {"id": 2, "time_ms": 3_050, "savepoint": False},
            "latest_completed": {**done, "parts": None},
            "latest_savepoint": {**saved, "parts": None},
            "latest_failed": {**failed, "parts": None},
            "history": [going, saved, done, failed],
        },
        "failures": [
            {
                "cause": "operator 'sums' (2/2): ValueError: odd\n  at job.py:7",
                "time_ms": 3_000,
                "attempt": 0,
                "vertex": SUMS,
                "subtask": 1,
                "task": "sums (2/2)",
                "host": "node1",
            },
            {
                "cause": "the job could not be deployed",
                "time_ms": 2_500,
                "attempt": 0,
                "vertex": None,
                "subtask": None,
                "task": None,
                "host": None,
            },
        ],
        "config": {"parallelism": "2", "restart": "FixedDelayRestart", "object_reuse": "true"},
        "parameters": {"topic": "bids"},
        "checkpointing": {
            "interval_ms": 1000,
            "timeout_ms": 60_000,
            "min_pause_ms": 0,
            "max_concurrent": 1,
            "tolerable_failures": 2,
            "retention": "RETAIN_ON_CANCELLATION",
            "storage": "s3://bucket",
            "incremental": True,
            "state_backend": "memory",
        },
    }
    view: JobView = found
    return view


class PlayedJobs:
    """A `JobCatalog` of one job that runs and one that has failed. `asked`: what was."""

    kind: Literal["session", "job", "archive"] = "session"

    def __init__(self) -> None:
        over = view_of_a_job("fedcba9876543210", "FAILED")
        over["error"] = "operator 'sums' (2/2): ValueError: odd"
        self.views = {one["id"]: one for one in (view_of_a_job(), over)}
        self.asked: list[tuple[Any, ...]] = []
        self.kept_lines: list[dict[str, Any]] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.failure: Exception | None = None

    def jobs(self) -> list[JobSummary]:
        return [summary_of(view) for view in self.views.values()]

    def job(self, job_id: str) -> JobSummary:
        return summary_of(self.view(job_id))

    def view(self, job_id: str) -> JobView:
        if self.failure is not None:
            raise self.failure
        if job_id not in self.views:
            raise NoSuchJob(f"there is no job '{job_id}'")
        return self.views[job_id]

    def both(self, job_id: str) -> tuple[JobSummary, JobView]:
        return self.job(job_id), self.view(job_id)

    def views_of(self, job_ids: Collection[str] | None = None) -> list[JobView]:
        if job_ids is None:
            return [one for one in self.views.values() if one["status"] not in ENDED]
        return [self.view(job_id) for job_id in job_ids]

    def slots(self) -> Slots:
        return Slots(4, 1)

    def nodes(self) -> list[Node]:
        return [Node("n1", "node1", 4.0, 1 << 30)]

    def lines(self, job_id: str) -> list[dict[str, Any]]:
        return self.kept_lines

    def cancel(self, job_id: str) -> None:
        self.view(job_id)
        self.asked.append(("cancel", job_id))

    def savepoint(self, job_id: str, directory: str | None, stop: Stop | None) -> str:
        self.asked.append(("savepoint", job_id, directory, stop))
        assert self.may_end.wait(30)
        if directory == "nowhere":
            raise Refused("no savepoint was taken: password=hush is wrong")
        return f"{directory or 'default'}/savepoint-1"

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        self.asked.append(("rescale", job_id, parallelism, directory))
        if parallelism > 100:
            raise Refused("it has 100 key groups")
        return Moved("00000000000000aa", "s3://savepoint-7")

    def rescale_live(
        self, job_id: str, parallelism: int | Mapping[str, int], balance: bool = False
    ) -> Rescaled:
        self.asked.append(("rescale_live", job_id, parallelism, *["balance"][: int(balance)]))
        if parallelism == 101:
            raise Refused("it has 100 key groups")
        if parallelism == 2:
            return Rescaled({}, {}, 0)
        if balance:
            spread: Balanced = {"before": 0.625, "after": 0.5, "limit": "one key group has 50%"}
            return Rescaled({"Map": 2}, {"Map": 3}, 340, 4, 6, {"Map": spread})
        return Rescaled({"Map": 2}, {"Map": 3}, 340, 4, 6)


def client_of(catalog: Any, access: Access | None = None, **options: Any) -> TestClient:
    """Of the API behind its guard."""
    app = guarded(make_app(catalog, access))
    return TestClient(app, base_url="http://127.0.0.1:8081", **options)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
