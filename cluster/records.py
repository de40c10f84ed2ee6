"""What a dispatcher knows of a job, and keeps in its registry: plain, JSON-able data.

    QUEUED ──▶ STARTING ──▶ RUNNING ──▶ ENDED
      ▲           │            │
      └───────────┴────────────┘   its coordinator is gone: the next run

A run is one coordinator's life; all runs have the job's id, and so its checkpoints. `status` is the
job's last known one, as its coordinator or the dispatcher says; a job that is queued or starting is
CREATED.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final

from ..core.job_status import JobStatus


class Phase(StrEnum):
    """Where the dispatcher is with a job. ENDED is for good."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    ENDED = "ENDED"


MOST_SAVEPOINTS: Final = 100
"""So many of a job's last savepoints are known."""


@dataclass(frozen=True)
class TakenSavepoint:
    """One that was complete at a time (ms since the epoch); it may have been moved since."""

    path: str
    time_ms: int


@dataclass(frozen=True)
class JobRecord:
    """One job. Times are ms since the epoch."""

    job_id: str
    name: str
    cpus: float
    """What all its slots take."""
    slots: int
    attached: bool
    """Whether it is cancelled when the program that submitted it is gone."""
    patience_ms: int
    """How long it may wait for more than the whole cluster has."""
    submitted_ms: int
    checkpoints: str | None = None
    """The storage that outlives its coordinators, if it has one."""
    phase: Phase = Phase.QUEUED
    run: int = 0
    started_ms: int | None = None
    """When the run began that is on, or was the last."""
    ended_ms: int | None = None
    status: JobStatus = JobStatus.CREATED
    error: str | None = None
    cancelling: bool = False
    """Whether somebody wants it cancelled, whatever run it is in."""
    tasks: dict[str, int] = field(default_factory=dict, hash=False)
    """Of a job that is over: how many subtasks ended how."""
    others: dict[str, float] = field(default_factory=dict, hash=False)
    """What its slots take beside CPUs, by Ray's names."""
    shape: str = ""
    """Of its slots, as of `slot_pool.shape_of`; empty: they are not the session's."""
    idle_ms: int = 0
    """How long the session keeps its slots when it has left them."""
    group: str | None = None
    """The name of the slots that it has, while it is starting or runs."""
    savepoints: tuple[TakenSavepoint, ...] = ()
    """The last ones, the newest last."""
    follows: str | None = None
    """The job whose place it takes, as long as that is being stopped for it: it is QUEUED, and all
    that it will need more than that one is kept for it."""
    claims: str | None = None
    """The savepoint of that, which it starts from and which is its own."""
    successor: str | None = None
    """Of a job that is over: the one that was to take its place."""
    added: dict[str, float] = field(default_factory=dict, hash=False)
    """What its run has beside, since it was rescaled, by Ray's names. Of an adaptive job all that
    it has, once that is known."""
    least: dict[str, float] = field(default_factory=dict, hash=False)
    """Of an adaptive job: what it starts with if there is no more, by Ray's names."""

    @property
    def needs(self) -> dict[str, float]:
        """All that its slots take, by Ray's names. An adaptive job takes what it finds, so until
        that is known it counts as all that it wants."""
        began = self.began_with
        if self.least:
            return (self.added or began) if self.holds_slots else self.least
        if not self.holds_slots:
            return began
        return began | {name: began.get(name, 0.0) + more for name, more in self.added.items()}

    @property
    def began_with(self) -> dict[str, float]:
        """The same of those that a run of it begins with."""
        return {"CPU": self.cpus, **self.others}

    @property
    def holds_slots(self) -> bool:
        """Whether what it needs is its own, as far as the session decides."""
        return self.phase in (Phase.STARTING, Phase.RUNNING)

    @property
    def waits_in_line(self) -> bool:
        """Whether it starts once its turn comes and there is room; not who follows another."""
        return self.phase is Phase.QUEUED and self.follows is None

    def with_savepoints(self, taken: Iterable[tuple[str, int]]) -> JobRecord:
        """As (path, time), in their order; those that it has already are passed over, and so are
        those before them, which it knew, or knows no more."""
        known = {one.path for one in self.savepoints}
        new: list[TakenSavepoint] = []
        for path, time_ms in taken:
            if path in known:
                new.clear()
            else:
                new.append(TakenSavepoint(path, time_ms))
        return replace(self, savepoints=(*self.savepoints, *new)[-MOST_SAVEPOINTS:])

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"savepoints": [asdict(one) for one in self.savepoints]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> JobRecord:
        """What `to_json` gave. Fields of later versions are passed over. Raises what Python does
        for what is no record."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in found.items() if name in known}
        given["phase"] = Phase(given["phase"])
        given["status"] = JobStatus(given["status"])
        given["savepoints"] = tuple(TakenSavepoint(**one) for one in given.get("savepoints", ()))
        return cls(**given)
