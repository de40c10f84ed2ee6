"""The jobs of a cluster as their coordinators tell them: all there is where no dispatcher keeps
account.

A coordinator is an actor, found by its job's id. It is there from the job's submission until some
time after the job's end (`LINGER_S`), so that is how long such a job is known.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayError
from ray.util import placement_group_table

from ..core.errors import ConfigurationError, TransportError
from ..core.job_status import JobStatus
from ..engine.hosts.control_service import on_stderr, patiently
from ..engine.hosts.coordinator_answers import coordinator_name
from ..engine.hosts.coordinator_life import LINGER_S
from ..engine.hosts.coordinator_names import find_coordinator, jobs_with_coordinators
from ..engine.hosts.job_view import JobView
from .records import JobRecord, Phase

ANSWER_S: Final = 5.0
"""How long a coordinator may take to answer."""

LIST_S: Final = 1.0
"""The same, where all are asked."""

SILENT: Final = "its coordinator does not answer"

Listed = list[tuple[JobRecord, str]]


def job_ids() -> list[str]:
    """Of all jobs that have a coordinator on the cluster which this process is connected to."""
    return patiently(jobs_with_coordinators, on_stderr)


def views_of(job_ids: Sequence[str], timeout: float) -> dict[str, JobView]:
    """What coordinators answer that are asked at once: one that hangs holds up no other."""
    calls: dict[Any, str] = {}
    for job_id in job_ids:
        with suppress(ValueError):  # it is gone meanwhile
            calls[find_coordinator(job_id).view.remote()] = job_id
    if not calls:
        return {}
    found: dict[str, JobView] = {}
    ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=timeout)
    for call in ready:
        with suppress(RayError):
            found[calls[call]] = ray.get(call)
    return found


class Coordinators:
    """Answers for jobs as `DispatcherClient` does. Nothing waits, and nothing is kept of jobs whose
    coordinator has left. TransportError of one that does not answer."""

    def __init__(self) -> None:
        self._cancelled: set[str] = set()
        """By this object; their coordinators may not be so far yet."""

    def jobs(self, ended: int = 100, but: Collection[str] = ()) -> Listed:
        """All jobs that are not over, in the order of their submission, and the last that are;
        each with what is amiss. Without those in `but`."""
        there = job_ids()
        self._cancelled.intersection_update(there)
        ids = [job_id for job_id in there if job_id not in but]
        if not ids:
            return []
        views, held = views_of(ids, LIST_S), _cpus()
        told = [self._record(views[one], held) for one in ids if one in views]
        over = [record for record in told if record.phase is Phase.ENDED]
        over.sort(key=lambda record: -(record.ended_ms or 0))
        now = [record for record in told if record.phase is not Phase.ENDED]
        now.sort(key=lambda record: record.submitted_ms)
        still = set(job_ids()) if len(views) < len(ids) else set()
        silent = [_unknown(one, held) for one in ids if one not in views and one in still]
        return [
            *((record, "") for record in now),
            *((record, SILENT) for record in silent),
            *((record, "") for record in over[:ended]),
        ]

    def job(self, job_id: str) -> tuple[JobRecord, str]:
        """ConfigurationError if there is none."""
        view: JobView = self._ask(job_id, "view")
        return self._record(view, _cpus()), ""

    def cancel(self, job_id: str) -> None:
        """Have it cancelled, and do not wait. Of one that is over this changes nothing."""
        self._ask(job_id, "cancel")
        self._cancelled.add(job_id)

    def _record(self, view: JobView, held: Mapping[str, float]) -> JobRecord:
        return _record_of(view, held, cancelling=view["id"] in self._cancelled)

    def _ask(self, job_id: str, call: str) -> Any:
        try:
            actor = find_coordinator(job_id)
            return ray.get(getattr(actor, call).remote(), timeout=ANSWER_S)
        except (ValueError, ActorDiedError):
            raise ConfigurationError(
                f"this cluster has no job '{job_id}': it runs on another, or ended more than "
                f"{LINGER_S:.0f} s ago (only a session, `strom cluster start`, keeps account)"
            ) from None
        except (GetTimeoutError, RayActorError):
            raise TransportError(
                f"the coordinator of job '{job_id}' does not answer; the job may go on: ask again"
            ) from None


def _record_of(view: JobView, held: Mapping[str, float], cancelling: bool = False) -> JobRecord:
    """The line in the account of a job that nobody keeps account of. `held`: CPUs of jobs."""
    status, since = JobStatus(view["status"]), view["since"]
    began = since.get("CREATED", view["now_ms"])
    return JobRecord(
        view["id"],
        view["name"],
        cpus=held.get(view["id"], 0.0),
        slots=_slots(view),
        attached=view["config"].get("attached") == "true",
        patience_ms=0,
        submitted_ms=began,
        checkpoints=view["checkpointing"].get("storage"),
        phase=Phase.ENDED if status.is_terminal else Phase.RUNNING,
        started_ms=began,
        ended_ms=since.get(status, view["now_ms"]) if status.is_terminal else None,
        status=status,
        error=view["error"],
        cancelling=cancelling or status is JobStatus.CANCELLING,
        tasks=dict(Counter(task["status"] for task in view["tasks"])),
    )


def _unknown(job_id: str, held: Mapping[str, float]) -> JobRecord:
    """Of a job of which there is no more than its coordinator's name."""
    now_ms = time.time_ns() // 1_000_000
    cpus = held.get(job_id, 0.0)
    return JobRecord(job_id, job_id, cpus, 0, False, 0, now_ms, phase=Phase.RUNNING)


def _slots(view: JobView) -> int:
    """A slot takes a subtask of each vertex of its sharing group."""
    groups: dict[str, int] = {}
    for vertex in view["vertices"]:
        group = vertex["slot_sharing_group"]
        groups[group] = max(groups.get(group, 0), vertex["parallelism"])
    return sum(groups.values())


def _cpus() -> dict[str, float]:
    """What jobs hold, or held a moment ago, by their ids: their slots are named as their
    coordinators are, those that were added to them with a plus behind that."""
    prefix = coordinator_name("")
    held: dict[str, float] = {}
    for group in placement_group_table().values():
        job_id, plus, _ = group["name"].removeprefix(prefix).partition("+")
        if not group["name"].startswith(prefix) or (plus and group["state"] == "REMOVED"):
            continue
        cpus = sum(float(one.get("CPU", 0.0)) for one in group["bundles"].values())
        held[job_id] = held.get(job_id, 0.0) + cpus
    return held
