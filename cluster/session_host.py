"""The Ray host of programs: through the cluster's dispatcher if there is one, else by itself."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from typing import Any, Final

from ..core.errors import ConfigurationError, JobCancelledError, JobFailedError
from ..core.job_status import JobStatus
from ..core.texts import printable
from ..engine.graph.model import JobGraph
from ..engine.hosts.attachment import Attachment
from ..engine.hosts.coordinator_names import find_coordinator
from ..engine.hosts.launch import submission_of
from ..engine.hosts.ray_host import RayHost, RayJobClient
from .dispatcher_client import DispatcherClient, find
from .new_jobs import record_of
from .records import JobRecord, Phase
from .session_client import SessionJobClient

POLL_S: Final = 5.0


class SessionHost(RayHost):
    """As `RayHost`, which see. A job of a session may wait for others; the program waits with it,
    and is told why.

    A submission that breaks off, by an error or an interrupt, leaves no job behind that runs, or
    starts later: it is cancelled, whether the dispatcher has taken it, is about to, or never hears
    of it. Only if no dispatcher can be told is it as the registry says: the next one takes it up if
    it is there, and ends an attached one soon, as no program is heard of. So the id of one that is
    detached is printed.
    """

    def _start(self, graph: JobGraph, job_name: str, job_id: str) -> RayJobClient:
        dispatcher = find()
        if dispatcher is None:
            return super()._start(graph, job_name, job_id)
        submission = submission_of(graph, job_id)
        record = record_of(graph, job_name, submission)
        try:
            dispatcher.submit(record, pickle.dumps(submission))
            started = _await_start(dispatcher, record)
            coordinator = _coordinator(job_id)
            tied = record.attached and coordinator is not None
            attachment = Attachment(job_id, coordinator) if tied else None
            return SessionJobClient(started, coordinator, attachment)
        except BaseException:
            _withdraw(dispatcher, record)
            raise


def _coordinator(job_id: str) -> Any:
    """Of a job that has started. None: it is gone again, and the client hears what comes of it."""
    with suppress(ValueError):
        return find_coordinator(job_id)
    return None


def _withdraw(dispatcher: DispatcherClient, record: JobRecord) -> None:
    """Cancel a job whose submission broke off. Raises nothing of its own."""
    try:
        dispatcher.cancel(record.job_id)
    except ConfigurationError:
        pass  # it is not there, and is refused should it come
    except Exception as error:
        if not record.attached:
            told = (
                f"strom: job '{record.name}' ({record.job_id}) could not be cancelled ({error}): "
                f"it may start later; then `strom cancel {record.job_id}`"
            )
            print(printable(told), file=sys.stderr)


def _await_start(dispatcher: DispatcherClient, record: JobRecord) -> JobRecord:
    said = ""
    while True:
        now, why = dispatcher.waiting(record.job_id, POLL_S, said)
        if now.phase is Phase.RUNNING:
            return now
        if now.status is JobStatus.CANCELED:
            raise JobCancelledError(f"job '{now.name}' ({now.job_id}) was cancelled")
        if now.phase is Phase.ENDED and now.status is not JobStatus.FINISHED:
            raise JobFailedError(f"job '{now.name}' ({now.job_id}) failed: {now.error}")
        if now.phase is Phase.ENDED:
            return now  # its coordinator still is there
        if why and why != said:
            told = f"strom: job '{now.name}' ({now.job_id}) waits: {why}"
            print(printable(told), file=sys.stderr)
        said = why
