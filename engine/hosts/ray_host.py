"""The Ray host: starts or joins a cluster, submits a job to a coordinator of its own, follows
it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import cloudpickle
import ray

from ...api.jobs.host import JobExecutionResult
from ...core.errors import JobFailedError, StromError
from ...core.ids import OperatorId
from ...core.job_status import JobStatus
from ..graph.model import JobGraph
from .driver import JobOutcome, new_job_id, result_of
from .ray_cluster import slots_of
from .ray_connect import NAMESPACE, connect_to_ray
from .ray_coordinator import JobCoordinator, coordinator_name

POLL_S = 1.0


class RayJobClient:
    """Follows one job through its coordinator; works from any process of the cluster. Needs the
    coordinator no more once it knows how the job ended."""

    def __init__(self, job_id: str, name: str, coordinator: Any) -> None:
        self._job_id = job_id
        self._name = name
        self._coordinator = coordinator
        self._outcome: JobOutcome | None = None
        """How the job ended, once this client has been told."""

    @classmethod
    def attach(cls, job_id: str) -> RayJobClient:
        """The client of a job submitted elsewhere. ValueError if there is no such job."""
        return cls(job_id, job_id, ray.get_actor(coordinator_name(job_id), namespace=NAMESPACE))

    def get_job_id(self) -> str:
        return self._job_id

    def get_job_status(self) -> JobStatus:
        if self._outcome is not None:
            return self._outcome.status
        state: JobStatus = self._ask(self._coordinator.state.remote())
        return state

    def cancel(self, timeout: timedelta | None = None) -> None:
        """Stop the job and wait until it has."""
        if self._outcome is None:
            self._ask(self._coordinator.cancel.remote())
            self._wait(timeout)

    def get_job_execution_result(self, timeout: timedelta | None = None) -> JobExecutionResult:
        """Wait for the end. Raises JobFailedError, JobCancelledError, TimeoutError."""
        return result_of(self._wait(timeout))

    def _wait(self, timeout: timedelta | None) -> JobOutcome:
        deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while self._outcome is None:
            left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
            self._outcome = self._ask(self._coordinator.outcome.remote(max(0.0, left)))
            if self._outcome is not None:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job '{self._name}' still runs after {timeout}")
        return self._outcome

    def metrics(self) -> dict[str, Any]:
        if self._outcome is not None:
            return self._outcome.metrics
        metrics: dict[str, Any] = self._ask(self._coordinator.metrics.remote())
        return metrics

    def published(self, operator_id: OperatorId) -> Iterator[Any]:
        position, closed = 0, False
        while not closed:
            call = self._coordinator.published.remote(operator_id, position, POLL_S)
            values, closed = self._ask(call)
            yield from values
            position += len(values)

    def _ask(self, ref: Any) -> Any:
        try:
            return ray.get(ref)
        except ray.exceptions.ActorDiedError as error:
            raise JobFailedError(
                f"the coordinator of job '{self._name}' ({self._job_id}) is gone: {error}"
            ) from error


class RayHost:
    """Runs each job under a coordinator actor of its own."""

    def __init__(
        self,
        address: str | None = None,
        num_cpus: int | None = None,
        log_to_driver: bool = True,
    ) -> None:
        """`address`: of a running cluster. `num_cpus`: logical CPUs of a cluster started for this
        program; default: what the job and the machine ask for. `log_to_driver`: show what tasks
        print, if this program is not connected to Ray yet."""
        self._address = address
        self._num_cpus = num_cpus
        self._log_to_driver = log_to_driver

    def submit(self, graph: JobGraph, job_name: str) -> RayJobClient:
        slots = max(slots_of(graph).values()) + 1
        wanted = max(os.cpu_count() or 1, round(slots * graph.config.slot_cpus + 0.5))
        connect_to_ray(self._num_cpus or wanted, self._address, self._log_to_driver)
        job_id = new_job_id()
        actor = ray.remote(JobCoordinator).options(
            name=coordinator_name(job_id),
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_restarts=0,
        )
        coordinator = actor.remote(cloudpickle.dumps(graph), job_id)
        try:
            ray.get(coordinator.start.remote())
        except ray.exceptions.RayError as error:
            ray.kill(coordinator)
            raise _start_error(job_name, error) from error
        return RayJobClient(job_id, job_name, coordinator)


def _start_error(job_name: str, error: Exception) -> Exception:
    """What kept the coordinator from starting: strom's own error, or one that says where."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, StromError):
        return cause
    return JobFailedError(f"job '{job_name}': its coordinator could not start: {error}")
