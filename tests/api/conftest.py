"""A host that runs nothing and remembers what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from strom.api.jobs.host import JobExecutionResult, JobMetrics
from strom.api.streams.data_stream import StreamExecutionEnvironment
from strom.core.answered import CompletableFuture, JobID
from strom.core.errors import JobCancelledError, JobFailedError
from strom.core.job_status import JobStatus
from strom.engine.graph.model import JobGraph


@dataclass
class FakeClient:
    """Plays back `values`; then the job has ended as `outcome` says."""

    graph: JobGraph
    values: list[list[Any]]
    outcome: JobStatus = JobStatus.FINISHED
    asked: list[str] = field(default_factory=list)
    cancelled: bool = False
    ends_with_program: bool = True

    def get_job_id(self) -> JobID:
        return JobID("job-1")

    def get_job_status(self) -> JobStatus:
        return JobStatus.CANCELED if self.cancelled else self.outcome

    def cancel(self, timeout: timedelta | None = None) -> CompletableFuture[None]:
        self.cancelled = True
        return CompletableFuture()

    def get_job_execution_result(self, timeout: timedelta | None = None) -> JobExecutionResult:
        if self.cancelled:
            raise JobCancelledError("cancelled")
        if self.outcome is JobStatus.FAILED:
            raise JobFailedError("operator 'Map', subtask 0: boom")
        return JobExecutionResult("job-1", 12.5)

    def metrics(self) -> JobMetrics:
        return {}

    def published(self, operator_id: str) -> Iterator[Any]:
        self.asked.append(operator_id)
        yield from self.values


class FakeHost:
    def __init__(self) -> None:
        self.submitted: list[FakeClient] = []
        self.values: list[list[Any]] = []
        self.outcome = JobStatus.FINISHED

    def submit(self, graph: JobGraph, job_name: str) -> FakeClient:
        assert graph.name == job_name
        self.submitted.append(FakeClient(graph, self.values, self.outcome))
        return self.submitted[-1]


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def env(host: FakeHost) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(host=host)
