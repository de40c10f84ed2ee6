"""A program's side of the dispatcher: start one, find it, ask it."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    RayError,
    RayTaskError,
)

from ..core.checks import check_count
from ..core.errors import ConfigurationError, StromError, TransportError
from ..engine.hosts.control_service import on_stderr, patiently
from ..engine.hosts.job_outcome import JobOutcome
from ..engine.hosts.ray_connect import NAMESPACE, join_ray
from ..engine.hosts.ready_coordinators import end_ready_coordinators
from ..engine.hosts.ready_tasks import end_ready
from .dispatcher import DISPATCHER, Dispatcher
from .ledger import RETAINED_JOBS
from .records import JobRecord
from .registry import Registry

AWAY_S: Final = 60.0
"""How long a dispatcher that is being started again is waited for, and one that is there for what
takes no time."""

CLOSE_S: Final = 10.0
"""How long a dispatcher that is stopped may still write."""

PAUSE_S: Final = 0.2

READY_TASKS: Final = 4
"""Task processes that a new dispatcher keeps ready on each node, if nobody says how many."""

LONG: Final = frozenset({"submit", "waiting", "next_run"})
"""Calls that may take long: a storage is written, or something is waited for."""


class DispatcherClient:
    """Calls of the dispatcher, which may die and come back meanwhile: all may be made twice.
    TransportError if it stays away, or does not answer what takes no time."""

    def __init__(self, actor: Any, patience: float = AWAY_S) -> None:
        """`patience`: how many seconds one that is away is asked again."""
        self._actor = actor
        self._patience = patience

    def submit(self, record: JobRecord, submission: bytes) -> None:
        self._ask("submit", record, submission)

    def waiting(self, job_id: str, timeout: float, said: str | None) -> tuple[JobRecord, str]:
        """As of `Dispatcher`."""
        found: tuple[JobRecord, str] = self._ask("waiting", job_id, timeout, said)
        return found

    def next_run(self, job_id: str, left: int, timeout: float) -> tuple[JobRecord, str]:
        """As of `Dispatcher`."""
        found: tuple[JobRecord, str] = self._ask("next_run", job_id, left, timeout)
        return found

    def cancel(self, job_id: str) -> None:
        self._ask("cancel", job_id)

    def jobs(self, ended: int = 100) -> list[tuple[JobRecord, str]]:
        """As of `Dispatcher`."""
        found: list[tuple[JobRecord, str]] = self._ask("jobs", ended)
        return found

    def job(self, job_id: str) -> tuple[JobRecord, str]:
        """As of `Dispatcher`."""
        found: tuple[JobRecord, str] = self._ask("job", job_id)
        return found

    def archived(self, job_id: str) -> dict[str, Any] | None:
        """As of `Dispatcher`."""
        found: dict[str, Any] | None = self._ask("archived", job_id)
        return found

    def outcome(self, job_id: str) -> JobOutcome | None:
        """As of `Dispatcher`."""
        found: JobOutcome | None = self._ask("outcome", job_id)
        return found

    def last_view(self, job_id: str) -> Any:
        """As of `Dispatcher`."""
        return self._ask("last_view", job_id)

    def last_lines(self, job_id: str) -> list[dict[str, Any]]:
        """As of `Dispatcher`."""
        found: list[dict[str, Any]] = self._ask("last_lines", job_id)
        return found

    def about(self) -> dict[str, Any]:
        """As of `Dispatcher`."""
        found: dict[str, Any] = self._ask("about")
        return found

    def _ask(self, call: str, *arguments: Any) -> Any:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                if call in LONG:  # one that is there may take its time for it
                    ray.get(self._actor.about.remote(), timeout=AWAY_S)
                answer_s = None if call in LONG else AWAY_S
                return ray.get(getattr(self._actor, call).remote(*arguments), timeout=answer_s)
            except RayTaskError as error:
                if isinstance(error.cause, StromError):
                    raise error.cause from None
                raise
            except GetTimeoutError:
                raise TransportError(
                    f"the dispatcher does not answer within {AWAY_S:g} s: it may be "
                    "starting while its registry cannot be read (its log in Ray's session says "
                    "so), or the machine be overloaded; jobs go on: ask again"
                ) from None
            except ActorUnavailableError as error:
                if time.monotonic() > deadline:
                    raise TransportError(
                        f"the dispatcher does not answer ({error}); jobs go on: ask again"
                    ) from None
            except ActorDiedError as error:
                raise TransportError(
                    f"the dispatcher is gone for good ({error}): start one again on the same "
                    "registry with `strom cluster start`; it takes up the jobs"
                ) from None
            time.sleep(PAUSE_S)


def find(patience: float = AWAY_S) -> DispatcherClient | None:
    """That of the cluster which this process is connected to. `patience`: as of the client."""
    try:
        actor = patiently(partial(ray.get_actor, DISPATCHER, NAMESPACE), on_stderr)
    except ValueError:
        return None
    return DispatcherClient(actor, patience)


def start(
    registry: str,
    address: str | None = None,
    retained: int | None = None,
    ready: int | None = None,
) -> tuple[DispatcherClient, bool]:
    """The dispatcher of the Ray cluster at `address` (as of `join_ray`), and whether it is new.
    `registry`: an fsspec URL or path that all nodes reach. `retained`: how many jobs that are over
    it keeps, at least one; None: as many as it does, a new one `RETAINED_JOBS`. `ready`: how many
    task processes it keeps ready on each node; None: as many as it does, a new one `READY_TASKS`.
    ConfigurationError if there is one with another registry, or that keeps other numbers, or nobody
    understands this registry; CheckpointError if it cannot be used here; ResourceError without a
    cluster."""
    if retained is not None:
        check_count("retained", retained, 1)
    if ready is not None:
        check_count("ready", ready, 0)
    join_ray(address)
    place = registry if "://" in registry else str(Path(registry).absolute())
    Registry(place)
    client = find()
    new = client is None
    if client is None:
        actor = ray.remote(Dispatcher).options(
            name=DISPATCHER,
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            get_if_exists=True,
        )
        kept = READY_TASKS if ready is None else ready
        client = DispatcherClient(actor.remote(place, retained or RETAINED_JOBS, kept))
    try:
        about = client.about()
    except TransportError as error:
        raise ConfigurationError(f"the dispatcher could not start: {error}") from None
    if about["registry"] != place:
        raise ConfigurationError(
            f"the cluster's dispatcher has its registry in '{about['registry']}': use it, or "
            "`strom cluster stop` first"
        )
    if retained not in (None, about["retained_jobs"]):
        raise ConfigurationError(
            f"the cluster's dispatcher keeps {about['retained_jobs']} jobs that are over, and not "
            f"{retained}: `strom cluster stop` first"
        )
    if ready not in (None, about["ready_tasks"]):
        raise ConfigurationError(
            f"the cluster's dispatcher keeps {about['ready_tasks']} task processes ready on each "
            f"node, and not {ready}: `strom cluster stop` first"
        )
    return client, new


def stop(address: str | None = None) -> bool:
    """End the dispatcher, and none of its jobs: they are taken up by the next one on the registry.
    Whether there was one."""
    join_ray(address)
    try:
        actor = ray.get_actor(DISPATCHER, namespace=NAMESPACE)
    except ValueError:
        return False
    with suppress(RayError):  # it may be dead, or unable to write; what it wrote then counts
        ray.get(actor.close.remote(), timeout=CLOSE_S)
    ray.kill(actor, no_restart=True)
    end_ready_coordinators()
    end_ready()
    return True
