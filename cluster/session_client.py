"""The client of a job of a session: of the job, whichever coordinator runs it, and of one that
waits or is over.

While there is a coordinator it is asked, as without a session. If it dies, or there is none yet,
the dispatcher says what becomes of the job (`Following` decides): calls wait for the next run, and
say so on stderr. What is asked twice then changes nothing twice.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import ray

from ..checkpoint.savepoints import Stop
from ..core.answered import CompletableFuture, Promise
from ..core.errors import ConfigurationError, JobFailedError, StromError, TransportError
from ..core.job_status import JobStatus
from ..core.texts import printable
from ..engine.hosts.attachment import Attachment
from ..engine.hosts.coordinator_names import find_coordinator
from ..engine.hosts.job_outcome import JobOutcome
from ..engine.hosts.job_view import JobView
from ..engine.hosts.ray_connect import join_ray
from ..engine.hosts.ray_host import JobOver, RayJobClient, why_gone
from ..engine.hosts.savepoint_calls import answer, answered_by_end, refused
from .dispatcher_client import DispatcherClient, find
from .following import AWAY_MS, NOT_STARTED, Attach, Following, GiveUp, Over, Step, Wait
from .records import JobRecord, Phase

POLL_S: Final = 5.0
PAUSE_S: Final = 0.2

SOON_S: Final = 0.5
"""What is waited for no longer than that, nobody has to be told of."""


def attach(job_id: str, address: str | None = None) -> RayJobClient:
    """The client of a job that another program submitted on Ray; the job does not end with this
    one. Of a job of a session also while it waits, and when it is over. `address`: of its cluster,
    else as of `connect_to_ray`; one of its own has no such job. ConfigurationError if there is no
    such job, ResourceError if there is no such cluster."""
    join_ray(address)
    dispatcher, unknown = find(), None
    if dispatcher is not None:
        try:
            record, _ = dispatcher.job(job_id)
            return SessionJobClient(record)
        except TransportError:  # it is stopped
            pass
        except ConfigurationError as error:  # the job was there before
            unknown = f"{error} (`strom list`), and beside it none runs under that id"
    try:
        return RayJobClient.attach(job_id)
    except ConfigurationError as error:
        raise ConfigurationError(unknown or str(error)) from None


class SessionJobClient(RayJobClient):
    """Calls may wait for the job's next run; then they raise JobFailedError if there will be none,
    and TransportError if nobody knows for a minute. From any thread."""

    def __init__(
        self, record: JobRecord, coordinator: Any = None, attachment: Attachment | None = None
    ) -> None:
        """`record`: what the dispatcher says of the job. `coordinator`: of the run that it is in;
        None: it is looked for."""
        super().__init__(record.job_id, record.name, coordinator, record.checkpoints, attachment)
        self._run = record.run if record.phase is Phase.RUNNING else NOT_STARTED
        """That the coordinator is of; none: the last one that there was."""
        self._why_gone: str | None = None
        """What the last coordinator died of."""
        self._following = threading.Lock()
        """Held by the one thread that looks for a coordinator."""
        if coordinator is None and record.phase in (Phase.RUNNING, Phase.ENDED):
            with suppress(ValueError):  # of a job that is over it may still be there
                self._coordinator = find_coordinator(self._job_id)

    # --- calls that do not wait for the next run --------------------------------------------------

    def get_job_status(self) -> JobStatus:
        """Between two runs, and before the first, it is what the dispatcher says: CREATED."""
        if self._outcome is None and self._coordinator is not None:
            with suppress(ray.exceptions.RayError):
                status: JobStatus = ray.get(self._coordinator.state.remote())
                return status
        if self._outcome is not None:
            return self._outcome.status
        record, _ = self._dispatcher().job(self._job_id)
        return record.status

    def cancel(self, timeout: timedelta | None = None) -> CompletableFuture[None]:
        """Stop the job, whatever run it is in, and wait until it has."""
        if self._outcome is None:
            told = False
            if self._coordinator is not None:
                with suppress(ray.exceptions.RayError):
                    ray.get(self._coordinator.cancel.remote())
                    told = True
            try:
                self._dispatcher().cancel(self._job_id)
            except StromError:  # there is none any more, or it does not know the job
                if not told:
                    raise
            self._wait(timeout)
        return CompletableFuture()

    def view(self) -> JobView:
        """All that is known of the job; of one that is over and had none, ConfigurationError."""
        with suppress(JobOver):
            return super().view()
        found: JobView | None = self._dispatcher().last_view(self._job_id)
        if found is None:
            raise ConfigurationError(f"nothing is known of job {self._job_id}: it never ran")
        return found

    def last_view(self, timeout: timedelta) -> JobView | None:
        with suppress(JobOver):
            return super().last_view(timeout)
        return self.view()

    # --- savepoints ------------------------------------------------------------------------------

    def _savepoint(self, directory: str | None, stop: Stop | None) -> CompletableFuture[str]:
        if self._outcome is not None:
            return refused(self._name, f"the job is {self._outcome.status.value}")
        promise: Promise[str] = Promise()

        def take() -> None:
            try:
                answer(promise, self._name, *self._saved(directory, stop))
            except BaseException as error:
                promise.fail(error)

        threading.Thread(target=take, name="strom-savepoint", daemon=True).start()
        return promise

    def _saved(self, directory: str | None, stop: Stop | None) -> tuple[str | None, str | None]:
        """As `JobCoordinator.savepoint`. One that its coordinator took with it into its end is
        taken anew by the next."""
        while True:
            try:
                coordinator = self._reached(None)
                path, error = ray.get(coordinator.savepoint.remote(directory, stop))
                return path, error
            except ray.exceptions.ActorDiedError as gone:
                self._lost(coordinator, gone)
            except ray.exceptions.ActorUnavailableError:
                with suppress(JobOver):
                    self._ask(lambda c: c.state.remote())
            except JobOver:
                assert self._outcome is not None
                return answered_by_end(self._outcome, directory, stop)

    # --- from one coordinator to the next ---------------------------------------------------------

    def _lost(self, coordinator: Any, error: Exception) -> None:
        if self._coordinator is coordinator:
            self._why_gone = why_gone(str(error))
            self._coordinator = None

    def _reached(self, deadline: float | None) -> Any:
        """Waits for it. JobOver, TimeoutError; JobFailedError, TransportError as of the class."""
        coordinator = self._coordinator
        if coordinator is not None:
            return coordinator
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if not self._following.acquire(timeout=left):
            raise self._none_yet()
        try:
            if self._coordinator is None:
                self._follow(deadline)
            coordinator = self._coordinator
        finally:
            self._following.release()
        if coordinator is None:
            self._release()
            raise JobOver
        return coordinator

    def _none_yet(self) -> TimeoutError:
        return TimeoutError(f"{self._job} has no coordinator yet")

    def _follow(self, deadline: float | None) -> None:
        """Find the next coordinator, or learn how the job ended."""
        if self._outcome is not None:
            return
        following = Following(self._job, self._run)
        while True:
            left = POLL_S if following.said else SOON_S
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
            match self._step(following, max(0.0, left)):
                case Attach(run):
                    try:
                        found = find_coordinator(self._job_id)
                    except ValueError:
                        following.missing(run)
                    else:
                        self._coordinator, self._run = found, run
                        return
                case Over(record):
                    self._outcome = self._outcome_of(record)
                    return
                case Wait(say):
                    if say is not None:
                        print(printable(say), file=sys.stderr, flush=True)
                case GiveUp(why):
                    raise TransportError(f"{self._job} is lost: {why}")
            if left <= 0:
                raise self._none_yet()

    def _step(self, following: Following, seconds: float) -> Step:
        now_ms = time.monotonic_ns() // 1_000_000
        dispatcher = find(patience=0.0)
        if dispatcher is None:
            time.sleep(min(PAUSE_S, seconds))
            return following.away(now_ms)
        try:
            record, why = dispatcher.next_run(self._job_id, following.left, seconds)
        except TransportError:
            time.sleep(min(PAUSE_S, seconds))
            return following.away(now_ms)
        except ConfigurationError:
            self._release()
            raise JobFailedError(
                f"the coordinator of {self._job} is gone "
                f"({self._why_gone}), and the session does not know the job: {self._remedy()}"
            ) from None
        return following.told(record, why)

    def _outcome_of(self, record: JobRecord) -> JobOutcome:
        """What the registry keeps. It may be a moment late; who waits for it gets at least the
        record."""
        deadline = time.monotonic() + AWAY_MS / 1000
        while time.monotonic() < deadline:
            with suppress(StromError):
                kept = self._dispatcher().outcome(self._job_id)
                if kept is not None:
                    return kept
            time.sleep(PAUSE_S)
        return JobOutcome(record.job_id, record.name, record.status, record.error, 0.0, 0, 0, {})

    def _dispatcher(self) -> DispatcherClient:
        found = find()
        if found is None:
            raise TransportError(
                f"the dispatcher that knows of {self._job} is gone: "
                "`strom cluster start` on the same registry"
            )
        return found
