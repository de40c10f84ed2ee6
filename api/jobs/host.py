"""The seam between describing a job and running it.

The API runs nothing: it hands a job graph to a `Host` and gets a `JobClient` back. Hosts are opened
by name through an opener which the package's root registers, so that nothing here depends on the
engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from ...core.answered import Answered, AnsweredDict, CompletableFuture, JobID, Timeout
from ...core.errors import ConfigurationError
from ...core.job_status import JobStatus
from .accumulator_results import AccumulatorResults

if TYPE_CHECKING:
    from ...core.ids import OperatorId
    from ...engine.graph.model import JobGraph
    from ...state.key_group_deals import Balance


JobMetrics = dict[str, Any]
"""A snapshot of a job's figures; plain data."""


@dataclass(frozen=True)
class JobExecutionResult(Answered):
    """What is left of a finished job; also its own future (`result()`). `checkpoints`: those
    completed, the terminal included."""

    job_id: str
    net_runtime_ms: float
    checkpoints: int = 0
    restarts: int = 0
    metrics: JobMetrics = field(default_factory=dict, repr=False)
    accumulators: AccumulatorResults = field(default_factory=AccumulatorResults, repr=False)

    def get_job_id(self) -> JobID:
        return JobID(self.job_id)

    def get_net_runtime(self) -> float:
        """Milliseconds."""
        return self.net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The accumulator merged over all subtasks of the last attempt; None if no function added
        one under the name."""
        return self.accumulators.result(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """All of them, by name."""
        return self.accumulators.results()


@dataclass(frozen=True)
class DetachedJobExecutionResult(JobExecutionResult):
    """What `execute` gives of a job that it did not wait for (`JobConfig.wait`): its id. All else
    raises ConfigurationError."""

    def get_net_runtime(self) -> float:
        raise self._unknown("its runtime")

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        raise self._unknown(f"accumulator '{accumulator_name}'")

    def get_all_accumulator_results(self) -> dict[str, Any]:
        raise self._unknown("its accumulators")

    def _unknown(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{what} is not known: the program did not wait for job {self.job_id} (strom.wait is "
            "false); ask strom.attach(job_id), or wait for it"
        )


@dataclass(frozen=True)
class RescaleResult(Answered):
    """What a rescale of a running job came to. `before`, `after`: the parallelism of each chain of
    operators, by its name; of those that changed, so empty where the job had what was asked for.
    `checkpoint_id`: where it went on from; None: nothing had to stop. `stopped_tasks`: how many
    stopped for it; `held_tasks`: how many stood still for it, and went on with all that they had;
    `silence`: how long not all of these ran. `kept_tasks`: how many went on meanwhile, without a
    pause. `balance`: of operators whose key groups were to be dealt by load, by name: what part of
    the records the busiest subtask had, and is to have."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    checkpoint_id: int | None
    silence: timedelta
    stopped_tasks: int = 0
    kept_tasks: int = 0
    balance: Mapping[str, Balance] = field(default_factory=dict)
    held_tasks: int = 0


@runtime_checkable
class JobClient(Protocol):
    """A handle on one submitted job. Calls answer with values; those that PyFlink gives futures
    for have `result()` as well, and are answered when they return."""

    @property
    def ends_with_program(self) -> bool:
        """Whether an interrupt of the program that waits for the job is to cancel it."""
        ...

    def get_job_id(self) -> JobID: ...

    def get_job_status(self) -> JobStatus: ...

    def cancel(self, timeout: timedelta | None = None) -> CompletableFuture[None]:
        """Cancel and wait until the job has stopped (None: for ever). No effect once it is over."""
        ...

    def get_job_execution_result(self, timeout: Timeout = None) -> JobExecutionResult:
        """Wait for the end (None: for ever). Raises JobFailedError, JobCancelledError or, when
        `timeout` has passed, TimeoutError."""
        ...

    def metrics(self) -> JobMetrics: ...

    def get_accumulators(self) -> AnsweredDict:
        """The accumulators' results by name, merged over the subtasks as they last reported."""
        ...

    @property
    def prometheus_address(self) -> str | None:
        """`host:port` where the job's metrics are read over HTTP (`MetricsConfig`), or None."""
        ...

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint in a new folder below `savepoint_directory` (an fsspec URL or path that
        all tasks reach; None: the job's default). The future has the folder's location once it is
        complete; its `result()` raises CheckpointError, with the reason, if there will be none."""
        ...

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        *,
        drain: bool | None = None,
    ) -> CompletableFuture[str]:
        """The same, and end the job FINISHED with it: nothing comes behind the savepoint.
        `advance_to_end_of_event_time`, or `drain`: the watermark goes to the end of all time first,
        so that windows fire and timers go off. The future is done when the job is over; if the
        savepoint fails, the job goes on."""
        ...

    def rescale(
        self, parallelism: int | Mapping[str, int], *, balance: bool = False
    ) -> CompletableFuture[RescaleResult]:
        """Go on at another parallelism, as the same job: of all operators that the program gave
        none of their own, or of those that are named, by name or uid, with all that is chained to
        them or connected one to one. Exactly once: the job takes a checkpoint at once, and tasks
        that exchange records with what changes stop, and go on from that; pipelines that have
        nothing to do with it run on. The future is done when they run again; its `result()` raises
        RescaleError, with the reason, where the job stayed, or is again, as it was. Nobody gets
        more subtasks than key groups, and what was planned for one stays at that. `balance`: deal
        key groups to subtasks by the load of each that was measured, so that the busiest subtask
        has as little as can be; at the parallelism that it has, too. Else each has as many groups.
        Refused where no load is known."""
        ...

    def show(self, interval: timedelta = ..., *, wait: bool = True) -> None:
        """Show the job's figures, as `strom top` does, anew every `interval` until it is over,
        however it ends: of a notebook in one output of the cell, else in the terminal. An interrupt
        ends the showing, not the job. `wait` False: return at once; in a notebook the figures go on
        changing, in a terminal they are shown once."""
        ...

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


class JobPages(Protocol):
    """The dashboard of one job, from when it was opened until it is closed."""

    @property
    def url(self) -> str:
        """For the user's browser alone: it may hold a token."""
        ...

    def close(self) -> None: ...


PagesOpener = Callable[[JobClient], JobPages]

_pages_openers: list[PagesOpener] = []


def register_pages_opener(opener: PagesOpener) -> None:
    """Make `opener(client)` the way to a job's dashboard; replaces an earlier one."""
    _pages_openers[:] = [opener]


def open_pages(client: JobClient) -> JobPages:
    """The dashboard of this job."""
    if not _pages_openers:
        raise ConfigurationError("dashboard: nothing is registered that serves it; import strom")
    return _pages_openers[0](client)


# --- which host --------------------------------------------------------------------------------

SUBMITTED_BY: Final = "STROM_SUBMITTED_BY"
"""The environment variable by which who starts a program for a cluster tells it so, by its name."""

_RAY_JOB: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The environment variable that the entrypoint of `ray job submit` has: neither workers of Ray nor
programs that are started otherwise have it."""


def default_host(environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The name of the host of a program that names none in code or configuration, and, if it is not
    the local one, why: as with Flink, a program that was handed to a cluster runs on it."""
    by = environment.get(SUBMITTED_BY)
    if by:
        return "ray", f"it was submitted by {by}"
    job = _ray_job(environment.get(_RAY_JOB, ""))
    return ("local", "") if job is None else ("ray", f"it is Ray job '{job}'")


def _ray_job(config: str) -> str | None:
    """The id under which it was submitted, as its configuration tells; None: there is none."""
    try:
        return str(json.loads(config)["metadata"]["job_submission_id"])
    except (ValueError, LookupError, TypeError):
        return None


HostOpener = Callable[[str, Mapping[str, Any]], Host]

_openers: list[HostOpener] = []


def register_host_opener(opener: HostOpener) -> None:
    """Make `opener(name, options)` the way hosts are opened by name; replaces an earlier one."""
    _openers[:] = [opener]


_instead: list[Host] = []


def send_all_jobs_to(host: Host) -> None:
    """From now on `host` gets all jobs of this process, whatever its program says: for tools that
    look at programs."""
    _instead[:] = [host]


def open_host(name_or_host: str | Host, options: Mapping[str, Any] | None = None) -> Host:
    """The host of this name, opened with `options`; a Host is returned as it is."""
    if _instead:
        return _instead[0]
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
