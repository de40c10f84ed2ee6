"""The catalog of a cluster: the jobs of its session, and those that no dispatcher knows of.

The dispatcher is asked for its list only. What is known of a job its coordinator tells, and the
registry once it is over.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

import ray
from ray.exceptions import RayError

from ...checkpoint.savepoints import Stop
from ...cluster.account import Account
from ...cluster.coordinators import Listed
from ...cluster.dispatcher import DISPATCHER
from ...cluster.dispatcher_client import AWAY_S, PAUSE_S, find
from ...cluster.new_jobs import rescaled
from ...cluster.records import JobRecord, Phase
from ...core.errors import ConfigurationError, GraphError, StromError, TransportError
from ...engine.hosts.balancing import Balanced
from ...engine.hosts.coordinator_answers import Rescaled
from ...engine.hosts.coordinator_names import find_coordinator
from ...engine.hosts.job_view import JobView
from ...engine.hosts.launch import Submission
from ...engine.hosts.ray_connect import NAMESPACE
from ...logs.records import Entry
from .actors import ManyViews, answer
from .caches import FRESH_S, KeptViews, SharedAnswers
from .catalog import (
    NO_SESSION,
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Slots,
    Unavailable,
    task_counts,
    told,
    view_without_run,
)
from .catalog import Rescaled as LiveRescaled
from .kept_jobs import KeptJobs, summary_of_record

MOST_ENDED: Final = 1000
"""So many jobs that are over are listed."""

T = TypeVar("T")


class SessionJobs:
    """A `JobCatalog`, in a process that is connected to the cluster."""

    def __init__(self, session: bool = True) -> None:
        """`session`: whether the cluster has a dispatcher, which may be away for a while."""
        self.kind: Literal["session", "job", "archive"] = "session" if session else "job"
        self._account = Account(_Dispatcher() if session else None)
        self._registry: KeptJobs | None = None
        self._views = KeptViews()
        self._many = ManyViews(self._views)
        self._lists: SharedAnswers[Listed] = SharedAnswers()
        self._records: SharedAnswers[tuple[JobRecord, str]] = SharedAnswers()
        """By job."""

    @property
    def _kept(self) -> KeptJobs | None:
        """None without a session; Unavailable while its dispatcher, which says where that is, is
        away."""
        if self._registry is None and self.kind == "session":
            self._registry = KeptJobs(_ask("about")["registry"])
        return self._registry

    # --- what there is ---------------------------------------------------------------------------

    def jobs(self) -> list[JobSummary]:
        listed = self._list()
        self._ask_all([r for r, _ in listed])
        return [_summary(r, why, self._views.known(r.job_id)) for r, why in listed]

    def job(self, job_id: str) -> JobSummary:
        return self._summary(*self._known(job_id))

    def view(self, job_id: str) -> JobView:
        return self._view(*self._known(job_id))

    def both(self, job_id: str) -> tuple[JobSummary, JobView]:
        record, why = self._known(job_id)
        view = self._view(record, why)
        return _summary(record, why, view), view

    def views_of(self, job_ids: Collection[str] | None = None) -> list[JobView]:
        if job_ids is None:
            listed = [one for one in self._list() if one[0].phase is Phase.RUNNING]
        else:
            listed = [self._known(job_id) for job_id in dict.fromkeys(job_ids)]
        self._ask_all([record for record, _ in listed])
        found = []
        for record, why in listed:
            view = self._views.known(record.job_id)
            if record.phase is not Phase.RUNNING:
                with suppress(Unavailable):
                    view = self._view(record, why)
            found += [] if view is None else [view]
        return found

    def slots(self) -> Slots:
        total = int(ray.cluster_resources().get("CPU", 0))
        held = sum(record.needs["CPU"] for record, _ in self._list() if record.holds_slots)
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

    def lines(self, job_id: str) -> list[Entry]:
        kept = self._kept
        return [] if kept is None else kept.lines(job_id)

    # --- what may be done ------------------------------------------------------------------------

    def cancel(self, job_id: str) -> None:
        self._found(job_id)
        _told(lambda: self._account.cancel(job_id))
        self._changed(job_id)

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
        self._changed(job_id)
        if error is not None:
            raise Refused(f"job '{job_id}': {error}")
        return str(path)

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        """The dispatcher stops the one and starts the other, so that it cannot be that neither
        runs, or that another job has their slots, whoever dies meanwhile."""
        record, _ = self._found(job_id)
        kept = self._kept
        if kept is None or not self._account.is_dispatched(job_id):
            raise Refused(f"job '{job_id}': {NO_SESSION}")
        if record.phase is not Phase.RUNNING:
            raise Refused(f"job '{job_id}' does not run: only a job that runs is rescaled")
        made = self._rescaled(record, parallelism)
        before: Submission = pickle.loads(kept.submission(job_id))  # as the dispatcher does
        new, submission = rescaled(record, before, made)
        savepoint = self._moved(new, pickle.dumps(submission), directory)
        self._changed(job_id)
        return Moved(new.job_id, savepoint)

    def rescale_live(
        self, job_id: str, parallelism: int | Mapping[str, int], balance: bool = False
    ) -> LiveRescaled:
        record, _ = self._found(job_id)
        if record.phase is not Phase.RUNNING:
            raise Refused(f"job '{job_id}' does not run: only a job that runs is rescaled")
        wanted = Balanced(parallelism) if balance else parallelism
        call = self._coordinator(record).rescale.remote(wanted)
        try:
            figures, error = ray.get(call)
        except RayError as gone:
            raise Refused(
                f"job '{job_id}': its coordinator is gone ({gone}); whether it was rescaled "
                "`strom info` tells"
            ) from None
        self._changed(job_id)
        if error is not None:
            raise Refused(f"job '{job_id}' was {error}")
        return LiveRescaled(
            figures.before,
            figures.after,
            figures.silence_ms,
            figures.stopped_tasks,
            figures.kept_tasks,
            told(figures.balance),
            figures.held_tasks,
        )

    def _moved(self, new: JobRecord, submission: bytes, directory: str | None) -> str:
        """Once the dispatcher has the savepoint, which may take its time; the dispatcher may die
        and come back meanwhile."""
        deadline = None
        while True:
            try:
                dispatcher = ray.get_actor(DISPATCHER, namespace=NAMESPACE)
                found = ray.get(dispatcher.take_place.remote(new, submission, directory))
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, StromError):
                    raise Refused(str(error.cause)) from None
                raise
            except (ValueError, RayError) as error:
                deadline = deadline or time.monotonic() + AWAY_S
                if time.monotonic() > deadline:
                    raise Refused(
                        f"the dispatcher does not answer ({error}); job '{new.follows}' may still "
                        f"be stopped for job '{new.job_id}', which starts from its "
                        "savepoint then: see `strom list`"
                    ) from None
                time.sleep(PAUSE_S)
            else:
                if found is None:
                    raise Refused(
                        f"job '{new.follows}' was not stopped for job '{new.job_id}': it goes "
                        "on, or ended by itself"
                    )
                return str(found)

    def _rescaled(self, record: JobRecord, parallelism: int) -> Rescaled:
        call = self._coordinator(record).rescaled.remote(parallelism)
        try:
            made: Rescaled = answer(call, f"the coordinator of job '{record.job_id}'")
        except GraphError as error:
            raise Refused(str(error)) from None
        return made

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
        return self._lists.get("all", lambda: _told(lambda: self._account.jobs(MOST_ENDED)))

    def _known(self, job_id: str) -> tuple[JobRecord, str]:
        """As `_found`, and maybe of a moment ago: for who only looks."""
        return self._records.get(job_id, lambda: _told(lambda: self._account.job(job_id)))

    def _changed(self, job_id: str) -> None:
        self._views.forget(job_id)
        self._records.forget(job_id)
        self._lists.forget("all")

    def _found(self, job_id: str) -> tuple[JobRecord, str]:
        return _told(lambda: self._account.job(job_id))

    def _fetch(self, record: JobRecord, why: str) -> JobView:
        if record.phase is Phase.ENDED:
            return self._last_view(record)
        if record.phase is not Phase.RUNNING:
            now_ms = time.time_ns() // 1_000_000
            return view_without_run(summary_of_record(record, why), record.error, now_ms)
        return self._running_view(record)

    def _running_view(self, record: JobRecord) -> JobView:
        call = self._coordinator(record).view.remote()
        view: JobView = answer(call, f"the coordinator of job '{record.job_id}'")
        return view

    def _last_view(self, record: JobRecord) -> JobView:
        """A job is over before that is archived, which may take a while: its coordinator stays
        longer."""
        kept = self._kept
        if kept is not None and kept.record(record.job_id) is not None:
            return kept.view(record)
        return self._running_view(record)

    def _coordinator(self, record: JobRecord) -> Any:
        try:
            return find_coordinator(record.job_id)
        except ValueError:
            raise Unavailable(
                f"the coordinator of job '{record.job_id}' is gone; its session, if it has one, "
                "looks after it: ask again"
            ) from None

    def _ask_all(self, records: Sequence[JobRecord]) -> None:
        """The coordinators of those that run."""
        running = {r.job_id: r for r in records if r.phase is Phase.RUNNING}
        self._many.ask([*running], lambda job_id: self._coordinator(running[job_id]).view.remote())


def jobs_there() -> SessionJobs:
    """Those of the cluster that this process is connected to, with a dispatcher or without."""
    return SessionJobs(session=find() is not None)


def _summary(record: JobRecord, why: str, view: JobView | None) -> JobSummary:
    """`view`: of the same run."""
    found = summary_of_record(record, why)
    if view is None or record.phase is not Phase.RUNNING:
        return found
    status = "CANCELLING" if record.cancelling else view["status"]
    return replace(found, status=status, tasks=task_counts(view))


def _told(ask: Callable[[], T]) -> T:
    """What an account tells, in the words of catalogs if it does not."""
    try:
        return ask()
    except NoSuchJob:
        raise
    except ConfigurationError as error:
        raise NoSuchJob(str(error)) from None
    except TransportError as error:
        raise Unavailable(str(error)) from None


class _Dispatcher:
    """As `DispatcherClient`, but Unavailable within seconds, and from any thread. That it does not
    answer is remembered for as long as it took."""

    def __init__(self) -> None:
        self._silent: tuple[float, Unavailable] | None = None
        """Until when it is not asked what it knows."""

    def jobs(self, ended: int) -> Listed:
        found: Listed = self._asked("jobs", ended)
        return found

    def job(self, job_id: str) -> tuple[JobRecord, str]:
        found: tuple[JobRecord, str] = self._asked("job", job_id)
        return found

    def cancel(self, job_id: str) -> None:
        _ask("cancel", job_id)

    def archived(self, job_id: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._asked("archived", job_id)
        return found

    def _asked(self, call: str, *arguments: Any) -> Any:
        began = time.monotonic()
        if self._silent is not None and began < self._silent[0]:
            raise self._silent[1].with_traceback(None)
        try:
            return _ask(call, *arguments)
        except Unavailable as error:
            now = time.monotonic()
            self._silent = (now + max(FRESH_S, now - began), error)
            raise


def _ask(call: str, *arguments: Any) -> Any:
    """The dispatcher."""
    try:
        dispatcher = ray.get_actor(DISPATCHER, namespace=NAMESPACE)
    except ValueError:
        raise Unavailable("the cluster has no dispatcher: `strom cluster start`") from None
    return answer(getattr(dispatcher, call).remote(*arguments), "the dispatcher")
