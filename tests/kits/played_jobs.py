"""Jobs that a test plays: what they tell is made of plain tables of vertices (`Played`), the same
for the same moment."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from strom.engine.hosts.job_view import JobView
from strom.engine.hosts.task_figures import operator_labels
from strom.rest.catalogs.catalog import ENDED, JobSummary, summary_of, view_without_run

NOON = 1_772_452_800_000
"""2026-03-02 12:00 UTC: when the played jobs began."""


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
