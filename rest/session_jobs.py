"""The catalog of a session: its dispatcher's jobs, their coordinators, and its registry.

The dispatcher is asked for its list only. What is known of a job its coordinator tells, and the
registry once it is over.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayError

from ..cluster.dispatcher import DISPATCHER
from ..cluster.records import JobRecord, Phase
from ..core.errors import ConfigurationError, GraphError, StromError
from ..engine.hosts.driver import new_job_id
from ..engine.hosts.job_view import JobView
from ..engine.hosts.launch import Submission
from ..engine.hosts.ray_connect import NAMESPACE
from ..engine.hosts.ray_coordinator import Rescaled, coordinator_name
from .archive import KeptJobs, summary_of_record
from .catalog import (
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Slots,
    Stop,
    Unavailable,
    task_counts,
    view_without_run,
)
from .kept_views import KeptViews

ANSWER_S: Final = 5.0
"""How long a dispatcher or coordinator may take to answer."""

LIST_S: Final = 1.0
"""The same, where many are asked: of one that does not, the dispatcher's word is shown."""

FRESH_S: Final = 0.5
MOST_ENDED: Final = 1000
"""So many jobs that are over are listed."""

T = TypeVar("T")
Listed = list[tuple[JobRecord, str]]


class SessionJobs:
    """A `JobCatalog`, in a process that is connected to the cluster."""

    kind: Literal["session", "job", "archive"] = "session"

    def __init__(self) -> None:
        """Unavailable if the cluster has no dispatcher."""
        self._kept = KeptJobs(self._ask_dispatcher("about")["registry"])
        self._views = KeptViews()
        self._listed: Listed = []
        self._listed_at: float | None = None
        self._listing = threading.Lock()

    # --- what there is ---------------------------------------------------------------------------

    def jobs(self) -> list[JobSummary]:
        listed = self._list()
        self._ask_all([r for r, _ in listed if r.phase is Phase.RUNNING])
        return [_summary(r, why, self._views.known(r.job_id)) for r, why in listed]

    def job(self, job_id: str) -> JobSummary:
        return self._summary(*self._found(job_id))

    def view(self, job_id: str) -> JobView:
        return self._view(*self._found(job_id))

    def both(self, job_id: str) -> tuple[JobSummary, JobView]:
        record, why = self._found(job_id)
        view = self._view(record, why)
        return _summary(record, why, view), view

    def slots(self) -> Slots:
        total = int(ray.cluster_resources().get("CPU", 0))
        held = sum(r.cpus for r, _ in self._list() if r.phase in (Phase.STARTING, Phase.RUNNING))
        return Slots(total, max(0, int(total - held)))

    def nodes(self) -> list[Node]:
        return [
            Node(
                str(node["NodeID"]),
                str(node["NodeManagerHostname"]),
                float(node["Resources"].get("CPU", 0.0)),
                int(node["Resources"].get("memory", 0)),
                bool(node["Alive"]),
            )
            for node in ray.nodes()
        ]

    # --- what may be done ------------------------------------------------------------------------

    def cancel(self, job_id: str) -> None:
        self._found(job_id)
        self._ask_dispatcher("cancel", job_id)
        self._views.forget(job_id)

    def savepoint(self, job_id: str, directory: str | None, stop: Stop | None) -> str:
        record, _ = self._found(job_id)
        if record.phase is not Phase.RUNNING:
            status = "waiting" if record.phase is Phase.QUEUED else record.status.value
            raise Refused(f"job '{job_id}' is {status}: only a job that runs takes savepoints")
        call = self._coordinator(record).savepoint.remote(directory, stop)
        try:
            path, error = ray.get(call)
        except RayError as gone:
            raise Refused(
                f"job '{job_id}': no savepoint: its coordinator is gone ({gone})"
            ) from None
        self._views.forget(job_id)
        if error is not None:
            raise Refused(f"job '{job_id}': {error}")
        return str(path)

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        record, _ = self._found(job_id)
        if record.attached:
            raise Refused(f"job '{job_id}' ends with its program, which waits for it: detach it")
        if record.phase is not Phase.RUNNING:
            raise Refused(f"job '{job_id}' does not run: only a job that runs is rescaled")
        made = self._rescaled(record, parallelism)
        self._check_room(record, made)
        before: Submission = pickle.loads(self._kept.submission(job_id))  # as the dispatcher does
        savepoint = self.savepoint(job_id, directory, "halt")
        new = new_job_id()
        submission = replace(before, job_id=new, payload=made.payload, claimed=savepoint)
        account = JobRecord(
            new,
            record.name,
            made.resources.pop("CPU", 0.0),
            made.slots,
            attached=False,
            patience_ms=record.patience_ms,
            submitted_ms=time.time_ns() // 1_000_000,
            checkpoints=record.checkpoints,
            others=made.resources,
        )
        try:
            self._ask_dispatcher("submit", account, pickle.dumps(submission))
        except StromError as error:
            raise Refused(
                f"job '{job_id}' is stopped, and could not be started again: {error}; run its "
                f"program from the savepoint {savepoint}"
            ) from None
        return Moved(new, savepoint)

    def _rescaled(self, record: JobRecord, parallelism: int) -> Rescaled:
        call = self._coordinator(record).rescaled.remote(parallelism)
        try:
            made: Rescaled = _answer(call, f"the coordinator of job '{record.job_id}'")
        except GraphError as error:
            raise Refused(str(error)) from None
        return made

    def _check_room(self, record: JobRecord, made: Rescaled) -> None:
        """Refused while it would wait: it runs as it is meanwhile."""
        holding = (Phase.STARTING, Phase.RUNNING)
        others = sum(
            one.cpus
            for one, _ in self._list()
            if one.phase in holding and one.job_id != record.job_id
        )
        free = float(ray.cluster_resources().get("CPU", 0.0)) - others
        if made.resources.get("CPU", 0.0) > free:
            cpus = made.resources["CPU"]
            raise Refused(
                f"job '{record.job_id}' would need {cpus:g} CPUs, and {free:g} are there for "
                "it: add nodes, or ask again when others are done"
            )

    # --- asking ----------------------------------------------------------------------------------

    def _summary(self, record: JobRecord, why: str) -> JobSummary:
        """Of a job that runs: as its coordinator says, if it answers."""
        if record.phase is not Phase.RUNNING:
            return _summary(record, why, None)
        try:
            return _summary(record, why, self._view(record, why))
        except (Unavailable, NoSuchJob):
            return _summary(record, why, None)

    def _view(self, record: JobRecord, why: str) -> JobView:
        over = record.phase is Phase.ENDED
        return self._views.get(record.job_id, over, lambda: self._fetch(record, why))

    def _list(self) -> Listed:
        with self._listing:
            now = time.monotonic()
            if self._listed_at is None or now - self._listed_at > FRESH_S:
                self._listed = self._ask_dispatcher("jobs", MOST_ENDED)
                self._listed_at = time.monotonic()
            return self._listed

    def _found(self, job_id: str) -> tuple[JobRecord, str]:
        found: tuple[JobRecord, str] = self._ask_dispatcher("job", job_id)
        return found

    def _fetch(self, record: JobRecord, why: str) -> JobView:
        if record.phase is Phase.ENDED:
            return self._last_view(record)
        if record.phase is not Phase.RUNNING:
            now_ms = time.time_ns() // 1_000_000
            return view_without_run(summary_of_record(record, why), record.error, now_ms)
        return self._running_view(record)

    def _running_view(self, record: JobRecord) -> JobView:
        call = self._coordinator(record).view.remote()
        view: JobView = _answer(call, f"the coordinator of job '{record.job_id}'")
        return view

    def _last_view(self, record: JobRecord) -> JobView:
        """A job is over before that is archived, which may take a while: its coordinator stays
        longer."""
        if self._kept.record(record.job_id) is not None:
            return self._kept.view(record)
        return self._running_view(record)

    def _coordinator(self, record: JobRecord) -> Any:
        try:
            return ray.get_actor(coordinator_name(record.job_id), namespace=NAMESPACE)
        except ValueError:
            raise Unavailable(
                f"the coordinator of job '{record.job_id}' is gone; the session looks after it: "
                "ask again"
            ) from None

    def _ask_all(self, records: Sequence[JobRecord]) -> None:
        """The coordinators of jobs that run, at once: one that hangs holds up no list."""
        calls: dict[Any, str] = {}
        for record in records:
            if self._views.known(record.job_id) is None:
                with suppress(Unavailable):
                    calls[self._coordinator(record).view.remote()] = record.job_id
        if not calls:
            return
        ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=LIST_S)
        for call in ready:
            with suppress(RayError):
                self._views.keep(calls[call], False, ray.get(call))

    def _ask_dispatcher(self, call: str, *arguments: Any) -> Any:
        try:
            dispatcher = ray.get_actor(DISPATCHER, namespace=NAMESPACE)
        except ValueError:
            raise Unavailable("the cluster has no dispatcher: `strom cluster start`") from None
        return _answer(getattr(dispatcher, call).remote(*arguments), "the dispatcher")


def _summary(record: JobRecord, why: str, view: JobView | None) -> JobSummary:
    """`view`: of the same run."""
    found = summary_of_record(record, why)
    if view is None or record.phase is not Phase.RUNNING:
        return found
    status = "CANCELLING" if record.cancelling else view["status"]
    return replace(found, status=status, tasks=task_counts(view))


def _answer(call: Any, whose: str) -> Any:
    try:
        return ray.get(call, timeout=ANSWER_S)
    except GetTimeoutError:
        raise Unavailable(f"{whose} does not answer within {ANSWER_S:g} s: ask again") from None
    except (ActorDiedError, ActorUnavailableError) as error:
        raise Unavailable(f"{whose} cannot be reached now: ask again ({_line(error)})") from None
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ConfigurationError):
            raise NoSuchJob(str(cause)) from None
        if isinstance(cause, GraphError):
            raise cause from None
        if isinstance(cause, StromError):
            raise Unavailable(str(cause)) from None
        raise


def _line(error: Exception) -> str:
    lines: Sequence[str] = str(error).strip().splitlines()
    return lines[-1][:300] if lines else type(error).__name__
