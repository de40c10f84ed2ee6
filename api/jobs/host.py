"""The seam between describing a job and running it.

The API runs nothing: it hands a job graph to a `Host` and gets a `JobClient` back. Hosts are opened
by name through an opener which the package's root registers, so that nothing here depends on the
engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ...core.errors import ConfigurationError
from ...core.job_status import JobStatus

if TYPE_CHECKING:
    from ...core.ids import OperatorId
    from ...engine.graph.model import JobGraph


JobMetrics = dict[str, Any]
"""A snapshot of a job's figures; plain data."""


@dataclass(frozen=True)
class JobExecutionResult:
    """What is left of a finished job. `checkpoints`: those completed, the terminal included."""

    job_id: str
    net_runtime_ms: float
    checkpoints: int = 0
    restarts: int = 0
    metrics: JobMetrics = field(default_factory=dict, repr=False)

    def get_job_id(self) -> str:
        return self.job_id

    def get_net_runtime(self) -> float:
        """Milliseconds."""
        return self.net_runtime_ms


class JobClient(Protocol):
    """A handle on one submitted job."""

    def get_job_id(self) -> str: ...

    def get_job_status(self) -> JobStatus: ...

    def cancel(self, timeout: timedelta | None = None) -> None:
        """Cancel and wait until the job has stopped (None: for ever). No effect once it is over."""
        ...

    def get_job_execution_result(self, timeout: timedelta | None = None) -> JobExecutionResult:
        """Wait for the end (None: for ever). Raises JobFailedError, JobCancelledError or, when
        `timeout` has passed, TimeoutError."""
        ...

    def metrics(self) -> JobMetrics: ...

    def published(self, operator_id: OperatorId) -> Iterator[Any]:
        """Values published by this operator, from the first; blocks for more until the job ends,
        however it ends."""
        ...


@runtime_checkable
class Host(Protocol):
    """Runs jobs. A host may also have `close()`; the environment that opened it calls it."""

    def submit(self, graph: JobGraph, job_name: str) -> JobClient:
        """Start the job and return without waiting for it."""
        ...


HostOpener = Callable[[str, Mapping[str, Any]], Host]

_openers: list[HostOpener] = []


def register_host_opener(opener: HostOpener) -> None:
    """Make `opener(name, options)` the way hosts are opened by name; replaces an earlier one."""
    _openers[:] = [opener]


def open_host(name_or_host: str | Host, options: Mapping[str, Any] | None = None) -> Host:
    """The host of this name, opened with `options`; a Host is returned as it is."""
    if not isinstance(name_or_host, str):
        if options:
            raise ConfigurationError(
                f"options {sorted(options)} apply to a host opened by name, not to {name_or_host!r}"
            )
        if not isinstance(name_or_host, Host):
            raise ConfigurationError(f"{name_or_host!r} is neither a host nor the name of one")
        return name_or_host
    if not _openers:
        raise ConfigurationError(
            f"host '{name_or_host}' cannot be opened by name: no opener is registered; "
            "import strom, or pass a Host"
        )
    return _openers[0](name_or_host, dict(options or {}))
