"""A cluster of played jobs, for the real REST API: a test moves its clock, and the figures of its
jobs follow."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any, Literal

from played_jobs import NOON, Played, PlayedJob
from strom.checkpoint.savepoints import Stop
from strom.engine.hosts.job_view import JobView
from strom.rest.catalogs.catalog import JobSummary, Moved, Node, NoSuchJob, Refused, Slots

SHOP, CLICKS, QUEUED, FAILED, DONE = (
    f"{n:016x}" for n in (0x5B0D1A7E40C29F31, 0xC11C75, 0xA1B2C3D4, 0xFA11EDFA11EDFA11, 0xD00D)
)

MOVED = "1e5ca1ed00000001"
"""What a job that was rescaled goes on as."""

TRACE = """operator 'enrich', subtask 1: KeyError: 'currency' (at orders/enrich.py:41 in price_of)
Traceback (most recent call last):
  File "/srv/shop/orders/job.py", line 18, in enrich
    return replace(order, price=price_of(order))
                                ^^^^^^^^^^^^^^^
  File "/srv/shop/orders/enrich.py", line 41, in price_of
    rate = RATES[order.meta["currency"]]
                 ~~~~~~~~~~^^^^^^^^^^^^
  File "/usr/lib/python3.11/site-packages/rates/table.py", line 7, in __getitem__
    raise KeyError(name)
KeyError: 'currency'"""


SHOP_VERTICES = (
    Played("Source: orders", 4, (), 42_000, 1.0, 0.31, 0.58, 420, runs_as="source"),
    Played("Source: payments", 2, (), 18_000, 1.0, 0.22, 0.0, 380, runs_as="source"),
    Played("parse -> valid", 4, ((0, "FORWARD"),), 42_000, 0.96, 0.38, 0.55, 650),
    Played("enrich", 4, ((2, "REBALANCE"),), 40_300, 1.0, 0.93, 0.0, 1_450, runs_as="rows"),
    Played("match payments", 6, ((3, "HASH(order)"), (1, "HASH(order)")), 58_300, 0.62, 0.54, 0.0,
           2_100, runs_as="columns", state=210_000_000),
    Played("revenue per shop and minute", 6, ((4, "HASH(shop)"),), 36_100, 0.02, 0.46, 0.0, 3_800,
           0.9, runs_as="kernel", state=64_000_000),
    Played("Sink: revenue", 2, ((5, "REBALANCE"),), 720, 1.0, 0.05, 0.0, 4_200, runs_as="sink"),
    Played("Sink: suspicious orders", 1, ((4, "FORWARD"),), 610, 1.0, 0.04, 0.0, 2_600,
           runs_as="sink"),
)  # fmt: skip


def usual_jobs() -> list[PlayedJob]:
    """One that has come back from a failure, a small one, one that waits, two that are over."""
    failure = {
        "cause": TRACE,
        "time_ms": NOON - 70_000,
        "attempt": 0,
        "vertex": f"{4:08x}{SHOP[:8]}",
        "subtask": 1,
        "task": "enrich (2/4)",
        "host": "node-2",
    }
    small = (
        Played("Source: clicks", 1, (), 5_200, runs_as="source"),
        Played("clicks per page", 2, ((0, "HASH(page)"),), 5_200, 0.1, runs_as="kernel"),
        Played("Sink: files", 1, ((1, "REBALANCE"),), 520, runs_as="sink"),
    )
    why = "it needs 24 CPUs, and 7 of 48 are free: orders (5b0d1a7e40c29f31) has 29, clicks has 4"
    lost = {**failure, "time_ms": NOON - 3_000_000, "vertex": None, "subtask": None, "task": None}
    return [
        PlayedJob(SHOP, "orders", SHOP_VERTICES, failures=[failure], restarts=1),
        PlayedJob(CLICKS, "clicks", small, began_ms=NOON - 5_400_000),
        PlayedJob(QUEUED, "backfill of 2025", began_ms=NOON + 120_000, waits_for=why),
        PlayedJob(
            FAILED,
            "currency rates",
            small,
            "FAILED",
            NOON - 3_600_000,
            NOON - 3_000_000,
            failures=[lost],
        ),
        PlayedJob(DONE, "daily report", small, "FINISHED", NOON - 30_000_000, NOON - 28_000_000),
    ]


class PlayedCluster:
    """A `JobCatalog`. `now_ms`: what time it is; `asked`: what was to be done to jobs."""

    def __init__(self, jobs: list[PlayedJob] | None = None) -> None:
        self.kind: Literal["session", "job", "archive"] = "session"
        self.now_ms = NOON + 600_000
        self.played = {job.id: job for job in (usual_jobs() if jobs is None else jobs)}
        self.asked: list[tuple[Any, ...]] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def jobs(self) -> list[JobSummary]:
        return [job.summary(self.now_ms) for job in self.played.values()]

    def job(self, job_id: str) -> JobSummary:
        return self._found(job_id).summary(self.now_ms)

    def view(self, job_id: str) -> JobView:
        return self._found(job_id).view(self.now_ms)

    def both(self, job_id: str) -> tuple[JobSummary, JobView]:
        return self.job(job_id), self.view(job_id)

    def views_of(self, job_ids: Collection[str] | None = None) -> list[JobView]:
        running = [job.id for job in self.played.values() if job.status == "RUNNING"]
        return [self.view(job_id) for job_id in (running if job_ids is None else job_ids)]

    def slots(self) -> Slots:
        return Slots(48, 7)

    def nodes(self) -> list[Node]:
        return [Node(f"n{i}", f"node-{i}", 16.0, 64 << 30) for i in (1, 2, 3)]

    def cancel(self, job_id: str) -> None:
        self.asked.append(("cancel", job_id))
        job = self._found(job_id)
        job.status, job.ended_ms = "CANCELED", self.now_ms

    def savepoint(self, job_id: str, directory: str | None, stop: Stop | None) -> str:
        self.asked.append(("savepoint", job_id, directory, stop))
        assert self.may_end.wait(30)
        if directory == "nowhere":
            raise Refused("no savepoint was taken: there is no such folder")
        if stop is not None:
            job = self._found(job_id)
            job.status, job.ended_ms = "FINISHED", self.now_ms
        return f"{directory or 's3://shop/savepoints'}/savepoint-5b0d1a-1"

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        self.asked.append(("rescale", job_id, parallelism, directory))
        job = self._found(job_id)
        job.status, job.ended_ms = "FINISHED", self.now_ms
        self.played[MOVED] = PlayedJob(MOVED, job.name, job.vertices, began_ms=self.now_ms)
        return Moved(MOVED, "s3://shop/savepoints/savepoint-5b0d1a-2")

    def rescale_live(self, job_id: str, parallelism: Any, balance: bool = False) -> Any:
        raise Refused("these jobs are played")

    def _found(self, job_id: str) -> PlayedJob:
        if job_id not in self.played:
            raise NoSuchJob(f"there is no job '{job_id}'")
        return self.played[job_id]
