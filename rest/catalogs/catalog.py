"""What the REST API serves: a catalog of jobs. A session, one running job, or an archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from typing_extensions import TypedDict

from ...checkpoint.savepoints import Stop
from ...core.errors import ConfigurationError, StromError
from ...core.job_status import JobStatus
from ...core.redaction import redacted
from ...engine.hosts.job_view import VERSION, JobView
from ...logs.records import Entry

ENDED: Final = frozenset(str(status) for status in JobStatus if status.is_terminal)
"""Statuses of jobs that are over."""

NO_SESSION: Final = (
    "only a session (`strom cluster start`) starts jobs again: stop this one with a savepoint, and "
    "run its program from that at another parallelism"
)
"""Why a job is not rescaled."""


class NoSuchJob(ConfigurationError):
    """Nobody knows a job of this id."""


class Unavailable(StromError):
    """Who knows does not answer now: ask again."""


class Refused(StromError):
    """What was asked for cannot be done, or not now; the text says why."""


@dataclass(frozen=True)
class JobSummary:
    """One line of a list of jobs. Times are ms since the epoch. `tasks`: how many subtasks are in
    each status. `waits_for`: why it has not started."""

    id: str
    name: str
    status: str
    start_ms: int
    end_ms: int | None = None
    tasks: Mapping[str, int] = field(default_factory=dict)
    waits_for: str = ""


@dataclass(frozen=True)
class Slots:
    """Of the whole cluster: CPUs, rounded down, as a slot takes one unless told otherwise."""

    total: int = 0
    free: int = 0


@dataclass(frozen=True)
class Node:
    """A machine that jobs run on."""

    id: str
    host: str
    cpus: float
    memory: int = 0
    """Bytes."""
    alive: bool = True


@dataclass(frozen=True)
class Moved:
    """A job that goes on under another id, from this savepoint."""

    job_id: str
    savepoint: str


class Balanced(TypedDict):
    """What part of an operator's records its busiest subtask had, and is to have; what keeps that
    from being less, or nothing."""

    before: float
    after: float
    limit: str


@dataclass(frozen=True)
class Rescaled:
    """A job that goes on at other parallelisms, as the same job: of each chain that changed, by its
    name. `stopped_tasks`: how many stopped for it; `held_tasks`: how many stood still for it;
    `silence_ms`: how long not all of these ran; `kept_tasks`: how many went on. `balance`: of those
    that were dealt by load."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    silence_ms: int
    stopped_tasks: int = 0
    kept_tasks: int = 0
    balance: Mapping[str, Balanced] = field(default_factory=dict)
    held_tasks: int = 0


def told(balance: Mapping[str, Any]) -> dict[str, Balanced]:
    """As plain data."""
    return {
        name: {"before": one.before, "after": one.after, "limit": one.limit}
        for name, one in balance.items()
    }


class JobCatalog(Protocol):
    """Called from several threads at once. Calls answer within seconds or raise Unavailable, but
    for savepoints; those of jobs raise NoSuchJob."""

    kind: Literal["session", "job", "archive"]
    """"job": it has jobs that nobody starts again."""

    def jobs(self) -> list[JobSummary]:
        """Those that are not over, and the last that are, the latest first."""
        ...

    def job(self, job_id: str) -> JobSummary: ...

    def view(self, job_id: str) -> JobView:
        """May be some hundred milliseconds old."""
        ...

    def both(self, job_id: str) -> tuple[JobSummary, JobView]:
        """Of the same moment."""
        ...

    def views_of(self, job_ids: Collection[str] | None = None) -> list[JobView]:
        """Of these, or of all that run, without those of which nobody can say anything now:
        however many there are, within seconds."""
        ...

    def slots(self) -> Slots: ...

    def nodes(self) -> list[Node]: ...

    def lines(self, job_id: str) -> list[Entry]:
        """The last of the log that are kept of a job that is over, for when its files are gone."""
        ...

    def cancel(self, job_id: str) -> None:
        """Have it cancelled, and do not wait. Of one that is over this changes nothing."""
        ...

    def savepoint(self, job_id: str, directory: str | None, stop: Stop | None) -> str:
        """Take one and wait for it: its path. Refused if there is none. `directory`: None for the
        job's default; `stop`: the job ends with it."""
        ...

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        """Stop the job with a savepoint and start it again from that at another parallelism; do not
        wait until it runs. Refused if that cannot be, and then it goes on; but for one that cannot
        be started again, of which the text tells the savepoint. `directory`: as of `savepoint`."""
        ...

    def rescale_live(
        self, job_id: str, parallelism: int | Mapping[str, int], balance: bool = False
    ) -> Rescaled:
        """Have it go on at another parallelism, of all operators or of these, as the same job, and
        wait until it does. `balance`: with key groups dealt by load. Refused if it does not:
        then it is as it was."""
        ...


def view_without_run(summary: JobSummary, error: str | None, now_ms: int) -> JobView:
    """Of a job that never ran, or of which nothing else is known."""
    since = {"CREATED": summary.start_ms}
    if summary.end_ms is not None:
        since[summary.status] = summary.end_ms
    return {
        "version": VERSION,
        "id": summary.id,
        "name": summary.name,
        "status": summary.status,
        "error": None if error is None else redacted(error),
        "attempt": 0,
        "restarts": 0,
        "now_ms": now_ms,
        "since": since,
        "parallelism": 1,
        "vertices": [],
        "tasks": [],
        "metrics": {},
        "accumulators": [],
        "checkpoints": {
            "triggered": 0,
            "completed": 0,
            "failed": 0,
            "savepoints": 0,
            "savepoints_failed": 0,
            "restores": 0,
            "restored": None,
            "latest_completed": None,
            "latest_savepoint": None,
            "latest_failed": None,
            "history": [],
        },
        "failures": [],
        "config": {},
        "parameters": {},
        "checkpointing": {},
    }


def summary_of(view: Mapping[str, Any]) -> JobSummary:
    """The line of a job of which the whole is known."""
    since: Mapping[str, int] = view["since"]
    over = view["status"] in ENDED
    return JobSummary(
        view["id"],
        view["name"],
        view["status"],
        since.get("CREATED", view["now_ms"]),
        since.get(view["status"], view["now_ms"]) if over else None,
        task_counts(view),
    )


def task_counts(view: Mapping[str, Any]) -> dict[str, int]:
    """How many subtasks are in each status."""
    return dict(Counter(task["status"] for task in view["tasks"]))
