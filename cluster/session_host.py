"""The Ray host of programs: through the cluster's dispatcher if there is one, else by itself."""

from __future__ import annotations

import pickle
import sys
from contextlib import suppress
from typing import Final

import ray

from ..core.errors import JobCancelledError, JobFailedError, StromError
from ..core.job_status import JobStatus
from ..engine.graph.model import JobGraph
from ..engine.hosts.attachment import Attachment
from ..engine.hosts.launch import submission_of
from ..engine.hosts.ray_connect import NAMESPACE
from ..engine.hosts.ray_coordinator import coordinator_name
from ..engine.hosts.ray_host import RayHost, RayJobClient
from .clusters import DispatcherClient, find
from .new_jobs import record_of
from .records import JobRecord, Phase
from .session_client import SessionJobClient

POLL_S: Final = 5.0


class SessionHost(RayHost):
    """As `RayHost`, which see. A job of a session may wait for others; the program waits with it,
    and is told why."""

    def _start(self, graph: JobGraph, job_name: str, job_id: str) -> RayJobClient:
        dispatcher = find()
        if dispatcher is None:
            return super()._start(graph, job_name, job_id)
        submission = submission_of(graph, job_id)
        record = record_of(graph, job_name, submission)
        try:
            dispatcher.submit(record, pickle.dumps(submission))
            started = _await_start(dispatcher, record)
        except BaseException:
            with suppress(StromError):  # there may be no dispatcher any more
                dispatcher.cancel(job_id)
            raise
        coordinator = ray.get_actor(coordinator_name(job_id), namespace=NAMESPACE)
        attachment = Attachment(job_id, coordinator) if record.attached else None
        return SessionJobClient(started, coordinator, attachment)


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
            print(f"strom: job '{now.name}' ({now.job_id}) waits: {why}", file=sys.stderr)
        said = why
