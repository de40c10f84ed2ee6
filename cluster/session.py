"""What a dispatcher decides: which job starts when, and what becomes of one whose coordinator is
gone. Pure: events in, actions out; times are given.

Jobs start in the order of their submission, each once its slots fit beside those of all that have
started (`room`): none overtakes another, but those that are larger than the whole cluster hold up
nobody. A job with checkpoints of its own that is not attached survives its coordinator: the next
run goes on from the newest checkpoint. Runs that end soon one after another end the job.

A job may take the place of one that is stopped for it (`succession`): it waits for the other one's
end, and what it needs more is kept for it meanwhile, so that it starts whoever else waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..core.errors import ConfigurationError
from ..core.job_status import JobStatus
from .actions import Action, Cancel, Find, Follow, Release, Start, Store
from .records import JobRecord, Phase
from .room import Room
from .slot_pool import PREFIX
from .succession import Succession

SHORT_MS = 60_000
"""A run that its coordinator did not survive for so long was short."""

MOST_SHORT = 5
"""One short run more, one after another, ends a job."""

DELAYS_MS = (0, 1_000, 4_000, 15_000, 60_000)
"""Before the next run, by how many short ones there were."""

SILENCE_MS = 15_000
"""An attached job that waits is given up when its program says nothing for so long."""


class Session:
    """See the module. Invariant: what all jobs take that are STARTING or RUNNING was free when each
    of them started."""

    def __init__(self, slots: str = PREFIX) -> None:
        """`slots`: what the names of its slots begin with."""
        self._jobs: dict[str, JobRecord] = {}
        self._room = Room(self._jobs, slots)
        self._succession = Succession(self._jobs, self._room)
        self._heard: dict[str, int] = {}
        """When the programs of attached jobs that wait were last heard of."""
        self._short: dict[str, int] = {}
        """Short runs one after another, by job."""
        self._not_before: dict[str, int] = {}
        self._large_since: dict[str, int] = {}
        """Since when jobs have been larger than the whole cluster."""
        self._lacking: dict[str, int] = {}
        """Which run of which jobs would take more than it has."""

    @property
    def jobs(self) -> list[JobRecord]:
        """All that are not over, in the order of their submission."""
        return list(self._jobs.values())

    def job(self, job_id: str) -> JobRecord | None:
        return self._jobs.get(job_id)

    # --- events: each answers with what is to be done, in this order ------------------------------

    def recover(
        self, records: Iterable[JobRecord], now_ms: int, groups: Iterable[str] = ()
    ) -> list[Action]:
        """Once, at first: jobs that a former dispatcher has left, none of which is over, and the
        session's slots that there are, by name."""
        actions: list[Action] = []
        for record in sorted(records, key=lambda record: (record.submitted_ms, record.job_id)):
            self._jobs[record.job_id] = record
            self._heard[record.job_id] = now_ms
            if record.phase is not Phase.QUEUED:
                actions.append(Find(record))
        for record in self._succession.followers:
            if record.follows not in self._jobs:
                actions += self._settle(record, now_ms)
        return [*self.there(groups), *actions]

    def submit(self, record: JobRecord, now_ms: int) -> list[Action]:
        """A new job, which the registry has. Again for a known one is nothing new."""
        if record.job_id not in self._jobs:
            self._jobs[record.job_id] = record
            self._heard[record.job_id] = now_ms
        return self._admit(now_ms)

    def check_replaced(self, job_id: str, record: JobRecord) -> None:
        """Whether `record`, a new job, may take the place of a job that runs: ConfigurationError
        with the reason, of which the last is that there is no room for it, so that it would wait
        while nothing runs."""
        self._succession.check(job_id, record)

    def take_place(self, record: JobRecord, now_ms: int) -> list[Action]:
        """A new job, which the registry has, takes the place of the one that it `follows`.
        ConfigurationError as of `check_replaced`."""
        assert record.follows is not None
        self.check_replaced(record.follows, record)
        self._jobs[record.job_id] = record
        self._heard[record.job_id] = now_ms
        return self._succession.ask(record)

    def stopped(self, job_id: str, savepoint: str, now_ms: int) -> list[Action]:
        """The job that this one follows left this savepoint, and is over or about to be."""
        record = self._succession.answered(job_id)
        if record is None:
            return []
        record = self._changed(record, claims=savepoint)
        if record.follows in self._jobs:
            return [Store(record)]
        return [Store(record), *self._moved_up(record, now_ms)]

    def stop_failed(self, job_id: str, why: str, now_ms: int) -> list[Action]:
        """Who was to stop for this one took no savepoint, or was over before it was asked."""
        record = self._succession.answered(job_id)
        if record is None or record.follows in self._jobs:
            return self.not_stopped(job_id, why, now_ms)
        return self._settle(record, now_ms)

    def not_stopped(self, job_id: str, why: str, now_ms: int) -> list[Action]:
        """The job that this one follows goes on, or ended otherwise: it does not start."""
        record = self._succession.answered(job_id)
        if record is None or record.claims is not None:
            return []
        error = f"it does not take the place of job {record.follows}: {why}"
        return self._end(record, JobStatus.FAILED, error, now_ms)

    def capacity(self, has: Mapping[str, float], now_ms: int) -> list[Action]:
        """What the whole cluster has, by Ray's names; now and then, also when nothing has
        changed."""
        self._room.resize(has)
        over = self._room.clear() if self._room_is_lacked() else self._room.expired(now_ms)
        return [*map(Release, over), *self._admit(now_ms), *self._given_up(now_ms)]

    def there(self, groups: Iterable[str]) -> list[Action]:
        """The names of the session's slots that there are, or were a moment ago; now and then. Of
        some nobody knows any more: a coordinator may die while it makes slots, which are there only
        after they were released."""
        return [Release(name) for name in self._room.unknown(groups)]

    def close(self) -> list[Action]:
        """The session ends, and its jobs go on: what none of them has is released."""
        return [Release(name) for name in self._room.clear()]

    def heard(self, job_id: str, now_ms: int) -> None:
        """The program of an attached job waits for it."""
        if job_id in self._jobs:
            self._heard[job_id] = now_ms

    def started(self, job_id: str, run: int, now_ms: int) -> list[Action]:
        record = self._of_run(job_id, run, Phase.STARTING)
        if record is None:
            return []
        record = self._changed(
            record, phase=Phase.RUNNING, started_ms=now_ms, status=JobStatus.RUNNING, added={}
        )
        actions: list[Action] = [Store(record), Follow(record)]
        return [*actions, Cancel(record)] if record.cancelling else actions

    def start_failed(
        self, job_id: str, run: int, error: str, for_good: bool, now_ms: int
    ) -> list[Action]:
        """`for_good`: another try would fail, too."""
        record = self._of_run(job_id, run, Phase.STARTING)
        if record is None:
            return []
        if for_good or record.cancelling:
            return self._end(record, _failed_or_canceled(record), error, now_ms)
        return self._again(record, error, now_ms, record.run)

    def found(self, job_id: str, run: int, alive: bool, now_ms: int) -> list[Action]:
        """Of a job that a former dispatcher left."""
        record = self._jobs.get(job_id)
        if record is None or record.run != run or record.phase in (Phase.QUEUED, Phase.ENDED):
            return []
        if not alive:
            return self.lost(job_id, run, "it did not outlive the dispatcher", now_ms)
        record = self._changed(
            record,
            phase=Phase.RUNNING,
            started_ms=record.started_ms or now_ms,
            status=JobStatus.RUNNING,
        )
        actions: list[Action] = [Store(record), Follow(record)]
        if record.cancelling:
            actions.append(Cancel(record))
        return [*actions, *self._succession.ask_again(job_id)]

    def saved(self, job_id: str, run: int, taken: Iterable[tuple[str, int]]) -> list[Action]:
        """The run has complete savepoints: paths, with times (ms)."""
        record = self._of_run(job_id, run, Phase.RUNNING)
        if record is None:
            return []
        changed = record.with_savepoints(taken)
        if changed == record:
            return []
        return [Store(self._changed(record, savepoints=changed.savepoints))]

    def rescaled(
        self, job_id: str, run: int, added: Mapping[str, float], now_ms: int
    ) -> list[Action]:
        """The run has so much beside what it began with."""
        record = self._of_run(job_id, run, Phase.RUNNING)
        if record is None or record.added == added:
            return []
        return [Store(self._changed(record, added=dict(added))), *self._admit(now_ms)]

    def lacks(self, job_id: str, run: int, lacks: bool) -> None:
        """The run would take more than it has, or no more: as long as it would, slots do not wait
        for jobs that may come."""
        if lacks and self._of_run(job_id, run, Phase.RUNNING) is not None:
            self._lacking[job_id] = run
        else:
            self._lacking.pop(job_id, None)

    def ended(
        self, job_id: str, run: int, status: JobStatus, error: str | None, now_ms: int
    ) -> list[Action]:
        """As the coordinator says."""
        record = self._jobs.get(job_id)
        if record is None or record.run != run:
            return []
        return self._end(record, status, error, now_ms)

    def lost(self, job_id: str, run: int, why: str, now_ms: int) -> list[Action]:
        """The run's coordinator is gone, and nobody knows how the job ended."""
        record = self._jobs.get(job_id)
        if record is None or record.run != run or record.phase is Phase.QUEUED:
            return []
        error = f"the coordinator of the job is gone: {why}"
        if self._succession.was_stopped(job_id):
            return self._end(record, JobStatus.FINISHED, None, now_ms)
        if record.cancelling:
            return self._end(record, JobStatus.CANCELED, None, now_ms)
        if record.attached:
            return self._end(record, JobStatus.FAILED, error, now_ms)
        if record.checkpoints is None:
            error += "; it keeps no checkpoints in a storage to go on from"
            return self._end(record, JobStatus.FAILED, error, now_ms)
        return self._again(record, error, now_ms, record.run + 1)

    def cancel(self, job_id: str, now_ms: int) -> list[Action]:
        """And who waits to take its place. ConfigurationError if no such job is on."""
        record = self._jobs.get(job_id)
        if record is None:
            raise ConfigurationError(f"no job '{job_id}' runs or waits in this session")
        if record.phase is Phase.QUEUED:
            return self._end(record, JobStatus.CANCELED, None, now_ms)
        actions: list[Action] = []
        for one in self._succession.followers_of(job_id):
            actions += self._end(one, JobStatus.CANCELED, None, now_ms)
        record = self._changed(record, cancelling=True)
        actions.append(Store(record))
        return [*actions, Cancel(record)] if record.phase is Phase.RUNNING else actions

    # --- what people ask -------------------------------------------------------------------------

    def waits_for(self, job_id: str) -> str | None:
        """Why a queued job has not started; None: it has, or is about to, or it is not known yet
        what the cluster has."""
        record = self._jobs.get(job_id)
        if record is None or record.phase is not Phase.QUEUED or not self._room.is_known:
            return None
        too_large = self._room.why_too_large(record)
        if too_large is not None:
            return too_large
        if record.follows is not None:
            return f"job {record.follows}, whose place it takes, is being stopped with a savepoint"
        line = (one for one in self._jobs.values() if one.waits_in_line)
        first = next(one for one in line if not self._room.is_too_large(one))
        if first.job_id != job_id:
            return f"job {first.name} ({first.job_id}) came before it, and waits"
        why = self._room.why_not_now(record)
        return why or "its coordinator was lost, and is started again in a moment"

    @property
    def others_wait(self) -> bool:
        """Whether there is somebody in line for what gets free."""
        return any(not self._room.is_too_large(record) for record in self._queue())

    # --- decisions -------------------------------------------------------------------------------

    def _room_is_lacked(self) -> bool:
        """By jobs that run, and nobody comes before them."""
        lacking = self._lacking.items()
        lacked = any(self._of_run(job_id, run, Phase.RUNNING) for job_id, run in lacking)
        return lacked and not self.others_wait

    def _queue(self) -> list[JobRecord]:
        return [record for record in self._jobs.values() if record.waits_in_line]

    def _admit(self, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        for record in self._queue():
            if self._room.is_too_large(record):
                self._large_since.setdefault(record.job_id, now_ms)
                continue
            self._large_since.pop(record.job_id, None)
            if self._not_before.get(record.job_id, now_ms) > now_ms:
                continue
            if not self._room.fits(record):
                break
            actions += self._begin(record, now_ms)
        return actions

    def _begin(self, record: JobRecord, now_ms: int) -> list[Action]:
        group, released = self._room.slots_for(record, now_ms)
        record = self._changed(
            record, phase=Phase.STARTING, started_ms=now_ms, group=group, added={}
        )
        return [*map(Release, released), Start(record)]

    def _moved_up(self, record: JobRecord, now_ms: int) -> list[Action]:
        """It follows nobody any more, and starts before all that wait: its room was kept."""
        record = self._changed(record, follows=None)
        started = self._begin(record, now_ms) if self._room.fits(record) else [Store(record)]
        return [*started, *self._admit(now_ms)]

    def _settle(self, record: JobRecord, now_ms: int) -> list[Action]:
        """The job that it follows is over."""
        if record.claims is not None:
            return self._moved_up(record, now_ms)
        return self._succession.settle(record)

    def _left(self, record: JobRecord, now_ms: int) -> list[Action]:
        """The job has its slots no more."""
        return [Release(name) for name in self._room.leave(record, now_ms)]

    def _given_up(self, now_ms: int) -> list[Action]:
        """Jobs that have waited for too much, or that nobody waits for any more."""
        actions: list[Action] = []
        for job_id in [record.job_id for record in self._queue()]:
            record = self._jobs.get(job_id)
            if record is None or record.phase is not Phase.QUEUED:
                continue  # another one that was given up made room for it
            since = self._large_since.get(job_id)
            if since is not None and now_ms - since >= record.patience_ms:
                error = f"the job did not start: {self.waits_for(job_id)}"
                actions += self._end(record, JobStatus.FAILED, error, now_ms)
            elif record.attached and now_ms - self._heard[job_id] > SILENCE_MS:
                actions += self._end(record, JobStatus.CANCELED, None, now_ms)
        return actions

    def _again(self, record: JobRecord, error: str, now_ms: int, run: int) -> list[Action]:
        lived = now_ms - (record.started_ms or now_ms)
        short = self._short.get(record.job_id, 0) + 1 if lived < SHORT_MS else 1
        if short > MOST_SHORT:
            why = f"{short} runs one after another did not last; the last: {error}"
            return self._end(record, JobStatus.FAILED, why, now_ms)
        self._short[record.job_id] = short
        self._not_before[record.job_id] = now_ms + DELAYS_MS[short - 1]
        left = self._left(record, now_ms)
        for one in self._succession.followers_of(record.job_id):
            left += self.not_stopped(one.job_id, f"{error}; it goes on", now_ms)
        record = self._changed(
            record, phase=Phase.QUEUED, run=run, status=JobStatus.CREATED, group=None
        )
        self._heard[record.job_id] = now_ms
        return [Store(record), *left, *self._admit(now_ms)]

    def _end(
        self, record: JobRecord, status: JobStatus, error: str | None, now_ms: int
    ) -> list[Action]:
        after = self._succession.followers_of(record.job_id)
        ended = replace(
            record,
            phase=Phase.ENDED,
            status=status,
            error=error,
            ended_ms=now_ms,
            group=None,
            successor=after[0].job_id if after else None,
        )
        self._drop(record.job_id)
        left = self._left(record, now_ms)
        settled = [action for one in after for action in self._settle(one, now_ms)]
        return [Store(ended), *left, *settled, *self._admit(now_ms)]

    def _drop(self, job_id: str) -> None:
        del self._jobs[job_id]
        self._succession.drop(job_id)
        known = (
            self._heard,
            self._short,
            self._not_before,
            self._large_since,
            self._lacking,
        )
        for each in known:
            each.pop(job_id, None)

    def _of_run(self, job_id: str, run: int, phase: Phase) -> JobRecord | None:
        record = self._jobs.get(job_id)
        return record if record is not None and (record.run, record.phase) == (run, phase) else None

    def _changed(self, record: JobRecord, **changes: object) -> JobRecord:
        changed = replace(record, **changes)  # type: ignore[arg-type]
        self._jobs[record.job_id] = changed
        return changed


def _failed_or_canceled(record: JobRecord) -> JobStatus:
    return JobStatus.CANCELED if record.cancelling else JobStatus.FAILED
