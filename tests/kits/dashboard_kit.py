"""Jobs for the dashboard that a test plays: their figures follow a clock that the test moves.

`PlayedCluster` is a `JobCatalog` behind the real REST API. What it tells is made of plain tables
of vertices (`Played`), the same for the same moment.
"""

from __future__ import annotations

import json
import math
import re
import threading
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from strom import DiscardSink, JobConfig, StreamExecutionEnvironment
from strom.checkpoint.savepoints import Stop
from strom.connectors.datagen import DataGenSource
from strom.engine.hosts.job_view import JobView
from strom.engine.hosts.task_figures import operator_labels
from strom.rest.catalogs.catalog import (
    ENDED,
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Slots,
    summary_of,
    view_without_run,
)
from strom.rest.servers.api import guarded, make_app
from strom.rest.servers.guard import Access
from strom.rest.servers.listener import RestServer

NOON = 1_772_452_800_000
"""2026-03-02 12:00 UTC: when the played jobs began."""

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


@dataclass(frozen=True)
class Played:
    """A vertex. `rate`: records that come in each second, in all; `gives`: records out for each in;
    `busy` and `held`: shares of time; `skew`: how much more subtask 0 gets than another."""

    name: str
    parallelism: int
    inputs: tuple[tuple[int, str], ...] = ()
    rate: float = 1000.0
    gives: float = 1.0
    busy: float = 0.2
    held: float = 0.0
    lag_ms: int | None = 800
    skew: float = 0.0
    runs_as: str = "columns"
    state: int = 0
    """Bytes of a subtask."""


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


def wide(vertices: int = 100, subtasks: int = 1000) -> tuple[Played, ...]:
    """A plan of layers of five vertices; the last has `subtasks`."""
    found = []
    for i in range(vertices):
        last = i == vertices - 1
        before = () if i < 5 else ((i - 5, "FORWARD"), ((i - 5) // 5 * 5 + (i + 1) % 5, "HASH(k)"))
        inputs = tuple(dict.fromkeys(before)) if i % 3 == 0 else before[:1]
        busy = (i * 37 % 100) / 100
        found.append(Played(f"vertex {i}", subtasks if last else 4, inputs, 1000.0 + i, 1.0, busy))
    return tuple(found)


@dataclass
class PlayedJob:
    """`began_ms`: since when it runs."""

    id: str
    name: str
    vertices: tuple[Played, ...] = ()
    status: str = "RUNNING"
    began_ms: int = NOON
    ended_ms: int | None = None
    waits_for: str = ""
    failures: list[dict[str, Any]] = field(default_factory=list)
    restarts: int = 0
    interval_ms: int = 10_000

    def summary(self, now_ms: int) -> JobSummary:
        if self.waits_for:
            return JobSummary(
                self.id, self.name, "CREATED", self.began_ms, None, {}, self.waits_for
            )
        return summary_of(self.view(now_ms))

    def view(self, now_ms: int) -> JobView:
        if self.waits_for:
            waits = JobSummary(self.id, self.name, "CREATED", self.began_ms)
            return view_without_run(waits, None, now_ms)
        now = now_ms if self.ended_ms is None else self.ended_ms
        since = {"CREATED": self.began_ms, "RUNNING": self.began_ms + 900}
        if self.ended_ms is not None:
            since[self.status] = self.ended_ms
        found: Any = {
            "version": 1,
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "error": self.failures[0]["cause"] if self.status == "FAILED" else None,
            "attempt": self.restarts,
            "restarts": self.restarts,
            "now_ms": now,
            "since": since,
            "parallelism": max((one.parallelism for one in self.vertices), default=1),
            "vertices": [self._vertex(i) for i in range(len(self.vertices))],
            "tasks": [
                self._task(i, subtask, now)
                for i, one in enumerate(self.vertices)
                for subtask in range(one.parallelism)
            ],
            "metrics": {"numRestarts": self.restarts, "uptime": float(now - self.began_ms)},
            "checkpoints": self._checkpoints(now),
            "failures": self.failures,
            "config": {
                "parallelism": "6",
                "restart": "FixedDelayRestart(attempts=3, delay=5 s)",
                "checkpoint.interval": "10 s",
                "checkpoint.storage": "s3://shop/checkpoints",
                "state.backend": "rocksdb",
                "kafka.password": "***",
            },
            "parameters": {"topic": "orders", "region": "eu-central"},
            "checkpointing": {
                "interval_ms": self.interval_ms,
                "timeout_ms": 600_000,
                "min_pause_ms": 0,
                "max_concurrent": 1,
                "tolerable_failures": 2,
                "retention": "RETAIN_ON_CANCELLATION",
                "storage": "s3://shop/checkpoints",
                "incremental": True,
                "state_backend": "rocksdb",
            },
        }
        view: JobView = found
        return view

    def vertex_id(self, number: int) -> str:
        return f"{number + 1:08x}{self.id[:8]}"

    def _vertex(self, number: int) -> dict[str, Any]:
        one = self.vertices[number]
        names = one.name.split(" -> ")
        return {
            "id": self.vertex_id(number),
            "name": one.name,
            "parallelism": one.parallelism,
            "max_parallelism": 128,
            "slot_sharing_group": "default",
            "operators": [
                {
                    "id": f"{number:04x}{i:012x}",
                    "name": name,
                    "description": "",
                    "uid": None if i else name.lower().replace(" ", "-"),
                    "implementation": one.runs_as,
                }
                for i, name in enumerate(names)
            ],
            "inputs": [
                {"source": self.vertex_id(source), "ship": ship, "port": i, "tag": None}
                for i, (source, ship) in enumerate(one.inputs)
            ],
        }

    def _task(self, number: int, subtask: int, now: int) -> dict[str, Any]:
        one, seconds = self.vertices[number], (now - self.began_ms) / 1000
        wave = 1 + 0.09 * math.sin(seconds / 11 + number) + 0.04 * math.sin(seconds / 3.1 + subtask)
        share = 1 / one.parallelism
        if one.skew and one.parallelism > 1:
            rest = (1 - share * (1 + one.skew * 2.4)) / (one.parallelism - 1)
            share = share * (1 + one.skew * 2.4) if subtask == 0 else rest
        # The integral of a rate that goes up and down.
        seen = seconds * one.rate - one.rate * 0.09 * 11 * math.cos(seconds / 11 + number)
        records = max(0, int(seen * share))
        pull = 1 + one.skew if subtask == 0 else 1 - 0.06 * (subtask % 3)
        busy = min(0.99, max(0.0, one.busy * wave * pull))
        held = min(1 - busy, max(0.0, one.held * (2 - wave)))
        lag = None if one.lag_ms is None else int(one.lag_ms * wave * (1 + 0.05 * subtask))
        mark = None if lag is None else now - lag
        metrics: dict[str, Any] = {
            "busyTimeMsPerSecond": 1000 * busy,
            "backPressuredTimeMsPerSecond": 1000 * held,
            "idleTimeMsPerSecond": 1000 * (1 - busy - held),
            "accumulateBusyTimeMs": 1000 * busy * seconds,
            "accumulateBackPressuredTimeMs": 1000 * held * seconds,
            "accumulateIdleTimeMs": 1000 * (1 - busy - held) * seconds,
            "numRecordsIn": records if one.inputs else 0,
            "numRecordsOut": int(records * one.gives),
            "numRecordsInPerSecond": one.rate * share if one.inputs else 0.0,
            "numRecordsOutPerSecond": one.rate * share * one.gives,
            "numBytesOut": int(records * one.gives * 48),
            "inFlightBytes": int(400_000 * (held + 0.1) * wave),
            "currentInputWatermark": mark if one.inputs else None,
        }
        labels = operator_labels((str(i), name) for i, name in enumerate(one.name.split(" -> ")))
        for name in labels.values():
            metrics[f"{name}.numRecordsIn"] = records
            metrics[f"{name}.numRecordsOut"] = records
            metrics[f"{name}.numRecordsInPerSecond"] = one.rate * share
            metrics[f"{name}.numRecordsOutPerSecond"] = one.rate * share
            metrics[f"{name}.currentOutputWatermark"] = mark
        status = "RUNNING" if self.status not in ENDED else self.status
        since = {"CREATED": self.began_ms, "DEPLOYING": self.began_ms + 40}
        since["RUNNING"] = self.began_ms + 900
        if self.ended_ms is not None:
            since[status] = self.ended_ms
        rss = int(310e6 + 24e6 * math.sin(seconds / 23 + subtask) + 55e3 * min(seconds, 1200))
        pid = 4200 + subtask % 12
        host = f"node-{subtask % 3 + 1}"
        return {
            "vertex": self.vertex_id(number),
            "subtask": subtask,
            "status": status,
            "attempt": self.restarts,
            "since": since,
            "host": host,
            "pid": pid,
            "metrics": metrics,
            "process": {"host": host, "pid": pid, "rss_bytes": rss, "peak_rss_bytes": rss},
        }

    # --- checkpoints -------------------------------------------------------------------------

    def _checkpoints(self, now: int) -> dict[str, Any]:
        last = (now - self.began_ms) // self.interval_ms
        history = [self._checkpoint(n, now) for n in range(last, max(0, last - 60), -1)]
        done = [one for one in history if one["status"] == "COMPLETED"]
        plain = [one for one in done if not one["savepoint"]]
        saved = [one for one in done if one["savepoint"]]
        failed = [one for one in history if one["status"] == "FAILED"]
        return {
            "triggered": len(history),
            "completed": len(plain),
            "failed": len(failed),
            "savepoints": len(saved),
            "savepoints_failed": 0,
            "restores": self.restarts,
            "restored": None
            if not self.restarts
            else {"id": 3, "time_ms": self.began_ms, "savepoint": False},
            "latest_completed": {**plain[0], "parts": None} if plain else None,
            "latest_savepoint": {**saved[0], "parts": None} if saved else None,
            "latest_failed": {**failed[0], "parts": None} if failed else None,
            "history": history,
        }

    def _checkpoint(self, number: int, now: int) -> dict[str, Any]:
        began = self.began_ms + number * self.interval_ms
        broken = number % 17 == 11
        parts = [
            self._part(i, subtask, number, began)
            for i, one in enumerate(self.vertices)
            for subtask in range(one.parallelism)
        ]
        took = max((part["acknowledged_ms"] for part in parts), default=began) - began + 12
        going = began + took > now and self.status not in ENDED
        if going:
            parts = [part for part in parts if part["acknowledged_ms"] <= now]
        if broken:
            parts = parts[: len(parts) // 2]
        status = "IN_PROGRESS" if going else "FAILED" if broken else "COMPLETED"
        return {
            "id": number,
            "status": status,
            "savepoint": number % 29 == 7,
            "terminal": False,
            "triggered_ms": began,
            "ended_ms": None if going else began + took,
            "last_acknowledged_ms": max((p["acknowledged_ms"] for p in parts), default=None),
            "reason": "declined by enrich (2/4): the disk is full" if broken else None,
            "size": sum(part["size"] for part in parts),
            "new_size": sum(part["new_size"] for part in parts),
            "subtasks": sum(one.parallelism for one in self.vertices),
            "acknowledged": len(parts),
            "path": f"s3://shop/checkpoints/{self.id}/chk-{number}"
            if status == "COMPLETED"
            else None,
            "parts": parts,
        }

    def _part(self, vertex: int, subtask: int, number: int, began: int) -> dict[str, Any]:
        one = self.vertices[vertex]
        grown = 1 + 0.004 * number
        size = int((one.state + 2_000) * grown)
        alignment = 3 + 9 * vertex + 70 * one.skew * (1 + math.sin(number)) + 4 * (subtask % 3)
        write = 14 + one.state / 900_000 * (1 + 0.3 * math.sin(number * 1.7)) + subtask
        return {
            "vertex": self.vertex_id(vertex),
            "subtask": subtask,
            "acknowledged_ms": began + int(20 + alignment + write),
            "size": size,
            "new_size": int(size * (0.06 + 0.03 * math.sin(number / 2))),
            "sync_ms": 0.8 + 0.1 * subtask,
            "async_ms": write,
            "alignment_ms": alignment,
        }


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

    def rescale_live(self, job_id: str, parallelism: Any) -> Any:
        raise Refused("these jobs are played")

    def _found(self, job_id: str) -> PlayedJob:
        if job_id not in self.played:
            raise NoSuchJob(f"there is no job '{job_id}'")
        return self.played[job_id]


LINK = re.compile(r"strom: dashboard of job (\w+): (http://[\d.]+:\d+)/#(?:token=([\w-]+)&)?(\S+)")


def link_in(said: str) -> tuple[str, str, str]:
    """What a program says of its job's dashboard: address, token ('': it needs none), page."""
    found = LINK.search(said)
    assert found is not None, said
    assert found[4] == f"/jobs/{found[1]}"
    return found[2], found[3] or "", found[4]


def get(url: str, token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return json.load(answer)


def endless(host: str = "local", **settings: Any) -> StreamExecutionEnvironment:
    """A program of two vertices with two subtasks each, which runs until it is cancelled."""
    config = JobConfig(**settings)
    env = StreamExecutionEnvironment.get_execution_environment(config, host=host)
    env.set_parallelism(2)
    source = DataGenSource(_numbers, rate=2_000)
    pairs = env.from_source(source).map(lambda one: (one["key"], one["value"])).name("pairs")
    sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sums.name("sums").sink_to(DiscardSink()).name("out")
    return env


def _numbers(start: int, n: int) -> list[dict[str, int]]:
    return [{"key": i % 7, "value": i} for i in range(start, start + n)]


def serve(catalog: Any, access: Access | None = None, port: int = 0) -> RestServer:
    """The API and the dashboard of `catalog`, on loopback."""
    return RestServer(guarded(make_app(catalog, access)), port=port)


class Visit:
    """A page in a browser (playwright's), and what its console said."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.expected: list[str] = []
        """Parts of complaints that the test provokes."""
        self._said: list[str] = []
        page.on("pageerror", lambda error: self._said.append(f"raised: {error}"))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._said.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def complaints(self) -> list[str]:
        return [one for one in self._said if not any(part in one for part in self.expected)]

    def go(self, path: str) -> None:
        """`path`: what is behind the address, `#/jobs/...`."""
        self.page.goto(f"{self.url}/{path}")
        self.page.locator("h1").wait_for()

    def refresh(self) -> None:
        """A round of questions now; it is over when this returns."""
        self.page.evaluate(
            "async () => {"
            "  const polling = await import('/static/app/polling.js');"
            "  await polling.answered();"
            "  await polling.refreshAfter();"
            "  await polling.answered();"
            "}"
        )

    def text(self, selector: str = "main") -> str:
        found: str = self.page.locator(selector).inner_text()
        return found
