"""The runs of a session's jobs, as their coordinators know them: started, found, followed, told to
cancel or to stop.

Each coroutine carries out one action of the session, and tells it as an event what came of it. None
ends with an error because a coordinator died, or the registry is away.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from ..core.clock import Clock
from ..core.errors import CheckpointFormatError, CorruptCheckpointError, StromError
from ..core.failure_text import described
from ..core.job_status import JobStatus
from ..engine.hosts import job_record
from ..engine.hosts.control_service import patiently
from ..engine.hosts.coordinator_answers import Followed
from ..engine.hosts.coordinator_names import find_coordinator
from ..engine.hosts.job_outcome import JobOutcome
from ..engine.hosts.job_view import JobView
from ..engine.hosts.kept_slots import KeptSlots
from ..engine.hosts.launch import Submission, make_coordinator, withdraw
from ..engine.hosts.ready_coordinators import ReadyCoordinators
from .actions import Action
from .ledger import Ledger
from .records import JobRecord
from .registry import Registry, leave_word
from .savepoints import state_left_to
from .session import Session

log = logging.getLogger("strom")

ATTEMPTS_OF_A_RUN: Final = 1_000_000
"""More than any coordinator makes."""

PAUSE_S: Final = 1.0
"""Before a coordinator is asked again that could not be reached."""

STOPPING_S: Final = 60.0
"""How long a job may take to end that refuses to be stopped, and may have been asked before."""

HEARD_S: Final = 5.0
"""How long a coordinator may take to note that its end is known."""

ASK_S: Final = 30.0
"""How long a coordinator may keep the question whether the job is over."""

LastWords = tuple[JobOutcome | None, JobView | None]


class Runs:
    """On the dispatcher's loop. Invariant: a coordinator is known here from when its run has
    started, or was found, until the job is forgotten."""

    def __init__(
        self,
        session: Session,
        ledger: Ledger,
        do: Callable[[list[Action]], None],
        keeper: str,
        clock: Clock,
        ready: ReadyCoordinators,
    ) -> None:
        """`do`: has the session's actions carried out. `keeper`: the name of the session's actor;
        while there is one, slots that jobs have left stay. `ready`: a coordinator of these, if
        there is one, is the next job's."""
        self._session = session
        self._ledger = ledger
        self._do = do
        self._keeper = keeper
        self._clock = clock
        self._ready = ready
        self._coordinators: dict[str, Any] = {}
        self._last_words: dict[str, LastWords] = {}
        """What coordinators said in the end."""
        self._directories: dict[str, str | None] = {}
        self._telling: set[asyncio.Task[None]] = set()
        """Ends of which the coordinators are being told that the session knows."""
        self._closing = False

    async def close(self) -> None:
        """Tell no more coordinators that their end is known, and return when the session knows of
        those that were being told. The others find no session when they leave, and give back the
        slots themselves."""
        self._closing = True
        if self._telling:
            await asyncio.wait(self._telling)

    def save_into(self, job_id: str, directory: str | None) -> None:
        """Where the job is to leave its savepoint whose place this one takes, if it is asked to by
        this dispatcher; None: where it leaves others."""
        self._directories[job_id] = directory

    def last_words(self, job_id: str) -> LastWords:
        """What the job's coordinator said in the end, as far as it did."""
        return self._last_words.get(job_id, (None, None))

    def forget(self, job_id: str) -> None:
        """The job is over, or will never be."""
        self._coordinators.pop(job_id, None)
        self._last_words.pop(job_id, None)
        self._directories.pop(job_id, None)

    # --- what the session decides ----------------------------------------------------------------

    async def start(self, record: JobRecord) -> None:
        """Of a run that is in the registry."""
        job_id, run = record.job_id, record.run
        try:
            data = await self._ledger.insist(job_id, lambda known: known.submission(job_id))
            submission: Submission = pickle.loads(data)  # whoever writes there may run anything
            if record.claims is not None:
                submission = replace(submission, claimed=record.claims)
            if run > 0:
                await asyncio.to_thread(withdraw, job_id)
            slots = None if record.group is None else KeptSlots(record.group, self._keeper)
            farewell = partial(leave_word, self._ledger.location, run)
            coordinator = await self._ready.appointed(submission, slots, farewell)
            if coordinator is None:
                coordinator = make_coordinator(submission, slots, farewell)
            # Before anything can come between: nobody else would say so.
            detached = None if record.attached else coordinator.detach.remote()
            await coordinator.start.remote(submission.begun(run * ATTEMPTS_OF_A_RUN))
            if detached is not None:
                await detached
        except Exception as error:
            await asyncio.to_thread(withdraw, job_id)
            cause = getattr(error, "cause", None)
            known = error if isinstance(error, StromError) else cause
            for_good = isinstance(known, StromError) or not isinstance(error, RayError | ValueError)
            why = f"the coordinator could not start: {described(known or error)}"
            self._do(self._session.start_failed(job_id, run, why, for_good, self._clock.now_ms()))
            await self._tidy(record)
        else:
            self._coordinators[job_id] = coordinator
            self._do(self._session.started(job_id, run, self._clock.now_ms()))

    async def find(self, record: JobRecord) -> None:
        """Of a run that a former dispatcher has left."""
        try:
            find = partial(find_coordinator, record.job_id)
            coordinator = await asyncio.to_thread(patiently, find)
        except ValueError:
            coordinator = None
        else:
            self._coordinators[record.job_id] = coordinator
            if not record.attached:  # whoever started it may have died before it said so
                with suppress(RayError):
                    await coordinator.detach.remote()
        if coordinator is None and await self._heard_of_its_end(record):
            await self._tidy(record)
            return
        alive = coordinator is not None
        self._do(self._session.found(record.job_id, record.run, alive, self._clock.now_ms()))
        if not alive:
            await self._tidy(record)

    async def follow(self, record: JobRecord) -> None:
        """Until the run is over, or its coordinator gone."""
        job_id, run = record.job_id, record.run
        known = term = 0
        lacks = False
        added: Mapping[str, float] = record.added
        while True:
            try:
                said: Followed = await self._coordinators[job_id].followed.remote(
                    ASK_S, known, added, self._session.others_wait, lacks
                )
            except ActorUnavailableError:
                await asyncio.sleep(PAUSE_S)
            except ActorDiedError as error:
                why = str(error).strip().splitlines()[-1] if str(error) else "it died"
                await self._gone(record, why)
                return
            except RayError as error:  # what it said got lost on the way
                log.warning("job %s: %s", job_id, described(error))
                await asyncio.sleep(PAUSE_S)
            else:
                if said.term != term and known:
                    term, known = said.term, 0  # it has come back, and has not told the first ones
                    continue
                term = said.term
                known += len(said.savepoints)
                added, lacks = said.added, said.lacks
                self._do(self._session.saved(job_id, run, said.savepoints))
                self._do(self._session.rescaled(job_id, run, added, self._clock.now_ms()))
                self._session.lacks(job_id, run, lacks)
                if said.outcome is not None:
                    self._last_words[job_id] = said.outcome, said.view
                    if not self._closing:
                        telling = asyncio.ensure_future(self._take_slots(record, said.outcome))
                        self._telling.add(telling)
                        telling.add_done_callback(self._telling.discard)
                        await asyncio.shield(telling)
                    return

    async def _take_slots(self, record: JobRecord, outcome: JobOutcome) -> None:
        """The run is over. Its slots are either the session's, which lends them to others then, or
        the coordinator's to give back: so nothing comes between that it is told and the session's
        knowing."""
        job_id = record.job_id
        with suppress(RayError, TimeoutError):  # it is gone, and gives back no slots
            heard = self._coordinators[job_id].end_is_heard.remote()
            await asyncio.wait_for(heard, HEARD_S)
        status, now_ms = JobStatus(outcome.status), self._clock.now_ms()
        self._do(self._session.ended(job_id, record.run, status, outcome.error, now_ms))

    async def cancel(self, record: JobRecord) -> None:
        """Tell the coordinator, as long as there is a job to cancel."""
        while self._session.job(record.job_id) is not None:
            try:
                await self._coordinators[record.job_id].cancel.remote()
            except ActorUnavailableError:
                await asyncio.sleep(PAUSE_S)
            except RayError as error:  # it is gone: who follows it hears that, too
                log.info("job %s: its coordinator is not told to cancel: %s", record.job_id, error)
                return
            else:
                return

    async def stop(self, record: JobRecord) -> None:
        """Have the job that this one follows stopped with a savepoint."""
        job_id, old = record.job_id, str(record.follows)
        asked = job_id not in self._directories
        """Whether it may have been asked before, by a former dispatcher or in vain."""
        directory = self._directories.pop(job_id, None)
        while self._session.job(job_id) is not None:
            try:
                path, why = await self._coordinators[old].savepoint.remote(
                    directory, "halt", job_id
                )
            except ActorUnavailableError:
                asked = True
                await asyncio.sleep(PAUSE_S)
            except (KeyError, RayError) as error:
                path, why = None, f"its coordinator is gone ({described(error)})"
                break
            else:
                break
        else:
            return  # there is no use for it any more
        if path is not None:
            self._do(self._session.stopped(job_id, path, self._clock.now_ms()))
            return
        # If that is because it is over, or stops as it was asked before, that is heard meanwhile.
        ends = self._clock.monotonic() + (STOPPING_S if asked else PAUSE_S)
        while self._session.job(old) is not None and self._clock.monotonic() < ends:
            await asyncio.sleep(PAUSE_S)
        self._do(self._session.stop_failed(job_id, str(why), self._clock.now_ms()))

    async def settle(self, record: JobRecord) -> None:
        """Of the job that this one follows, which is over: a former dispatcher asked for the stop,
        and did not hear of it."""

        def found(registry: Registry) -> str | None:
            old = registry.ended_record(str(record.follows))
            return None if old is None else state_left_to(record.job_id, old)

        try:
            path = await self._ledger.insist(record.job_id, found)
        except (CorruptCheckpointError, CheckpointFormatError) as error:
            log.warning("job %s: what it is to start from: %s", record.job_id, error)
            path = None
        if path is not None:
            self._do(self._session.stopped(record.job_id, path, self._clock.now_ms()))
            return
        why = (
            "that is over, or was stopped by somebody else; where its savepoint is, if it left "
            "one, `strom info` of it tells"
        )
        self._do(self._session.not_stopped(record.job_id, why, self._clock.now_ms()))

    # --- how a run ended -------------------------------------------------------------------------

    async def _gone(self, record: JobRecord, why: str) -> None:
        """Its coordinator: the job may have been over before."""
        if not await self._heard_of_its_end(record):
            self._do(self._session.lost(record.job_id, record.run, why, self._clock.now_ms()))
        await self._tidy(record)

    async def _tidy(self, record: JobRecord) -> None:
        """Its coordinator is gone: unless there is to be another, what it left is of no use."""
        if self._session.job(record.job_id) is None:
            left = job_record.JobRecord(record.checkpoints, record.job_id)
            await asyncio.to_thread(left.remove)

    async def _heard_of_its_end(self, record: JobRecord) -> bool:
        """By what its coordinator left in the registry."""
        job_id, run = record.job_id, record.run
        try:
            said = await self._ledger.insist(job_id, lambda known: known.last_word(record))
        except CorruptCheckpointError as error:
            log.warning("job %s: how its run %d ended: %s", job_id, run, error)
            said = None
        if said is None:
            return False
        self._last_words.setdefault(job_id, (said, None))
        now_ms = self._clock.now_ms()
        self._do(self._session.ended(job_id, run, said.status, said.error, now_ms))
        return True
