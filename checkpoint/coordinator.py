"""When checkpoints are triggered, complete, fail and go: the protocol of one job's checkpoints.

Pure: the job master feeds events in with the time, and carries out the returned actions in order.
A checkpoint passes through

    trigger -> collecting acknowledgements -> storing (host publishes manifest) -> completed
                   |  decline, timeout, restart   |  store failed, timeout
                   +----------> aborted <---------+

As many are on their way at once as the configuration says (`pending.py`). Each fails by itself, and
the tasks are told of each; one that completes makes those before it needless: they are aborted, and
that is no failure of theirs (`courses.py`). What is kept, and what builds on what, says
`kept_checkpoints.py`; what becomes of all of them with an attempt or the job, `endings.py`.

A savepoint is one whose files and manifest go to a folder of its own. It takes its turn or, where
several may be on their way, is taken beside the others; it is not this job's (neither counted nor
discarded by retention, never restored from), and its failure is nobody's but the one's who asked
(`savepoints.py`). No task is told that a savepoint is complete: what sinks prepared for it is
committed with the next checkpoint, which is the one that a failure goes back to. Behind the
savepoint of a stop, that is the terminal one.

A checkpoint that is being stored is not aborted by a restart: its manifest may be published
already, and only the host's answer says what became of it. Whoever restores waits while `storing`
is true, so that what was just completed is not lost. If there is no answer within the checkpoint's
timeout, it is *disowned*: it has failed, whatever its storage does with it later, and the host
takes back what is published after all. That is safe, as nobody was told that it is complete.

The files of an aborted checkpoint are discarded at once, and again when the next one completes or
the job ends: a task that had not heard of the abort may have written more of them.

Failures that are tolerated (`tolerance.py`) are followed by a pause that doubles (`retry.py`): what
fails again and again is tried ever more seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from ..core.config import CheckpointConfig
from ..core.errors import ConfigurationError, IllegalTransitionError
from ..core.ids import CheckpointId, TaskId
from ..core.job_status import JobStatus
from .coordinator_types import (
    Action,
    Actions,
    CheckpointStatistics,
    Disown,
    Drain,
    FailJob,
    GoBack,
    Halted,
    PendingCheckpoint,
)
from .courses import Courses
from .endings import Endings
from .handles import SubtaskSnapshot
from .kept_checkpoints import KeptCheckpoints
from .lateness import Lateness
from .pending import PendingCheckpoints
from .savepoints import Answer, Savepoint, SavepointRequests
from .schedule import Schedule
from .tolerance import Tolerance
from .turns import Turns

Kind = Literal["periodic", "manual", "rescale", "terminal"]


class CheckpointCoordinator:
    """Decides about the checkpoints of one job; lives as long as the job, over all its restarts."""

    def __init__(
        self,
        tasks: Iterable[TaskId],
        config: CheckpointConfig,
        highest_id: int = 0,
        labels: Mapping[TaskId, str] | None = None,
    ) -> None:
        """`highest_id`: the highest checkpoint id known to have been used, complete or not.
        `labels`: what messages call the tasks."""
        if config.retained < 1:
            raise ConfigurationError(f"checkpoints retained must be >= 1, is {config.retained}")
        if config.interval is not None and config.interval.total_seconds() <= 0:
            raise ConfigurationError(f"checkpoint interval must be > 0, is {config.interval}")
        self._tasks = frozenset(tasks)
        self._schedule = Schedule(config.interval, config.min_pause)
        timeout_ms = int(config.timeout.total_seconds() * 1000)
        self._lateness = Lateness(timeout_ms, self._tasks, labels or {})
        self._tolerance = Tolerance(config.tolerable_failures)
        self._pending = PendingCheckpoints(config.at_once, len(self._tasks))
        self._kept = KeptCheckpoints(config.retained, config.full_every)
        self._savepoints = SavepointRequests()
        self._turns = Turns(self._schedule, self._savepoints, self._pending)
        self._courses = Courses(self._pending, self._kept, self._savepoints, highest_id)
        self._endings = Endings(
            self._pending,
            self._kept,
            self._savepoints,
            self._turns,
            self._courses,
            config.retention,
        )
        self._for_rescale = False
        """Whether the next one of the job's own is the one that a rescale has asked for."""
        self.asked: CheckpointId | None = None
        """The last that a rescale has asked for, once it has begun; its failure is not the job's.
        Changed here only."""

    @property
    def storing(self) -> bool:
        """Whether the host owes an answer to a Store."""
        return self._pending.storing

    @property
    def stopped_with(self) -> str | None:
        """Where the savepoint is with which the job was stopped, once it has nothing left to do but
        to commit."""
        return self._savepoints.stopped_with

    def repeats(self, savepoint: Savepoint) -> bool:
        """Whether it is a stop that was done already, as a coordinator may have told nobody before
        it died."""
        return self._savepoints.repeats(savepoint)

    @property
    def pending(self) -> tuple[CheckpointId, ...]:
        """Those on their way, ascending."""
        return self._pending.ids

    @property
    def newest_complete(self) -> CheckpointId:
        """The newest checkpoint known to have completed, 0 if none: sinks may have published all
        that it holds. Only grows."""
        return self._courses.newest_complete

    def statistics(self) -> CheckpointStatistics:
        return self._courses.figures

    # --- life of the job ---------------------------------------------------------------------

    def start(self, now_ms: int) -> Actions:
        """Every task of a new attempt runs, and goes on with its work."""
        self._expect("start", self._turns.mode == "stopped", "already started")
        self._turns.run(now_ms)
        self._tolerance.begin()
        return tuple(self._savepoints.not_stopped("its last checkpoint could not be used"))

    def adopt(self, tasks: Iterable[TaskId], labels: Mapping[TaskId, str]) -> None:
        """The job has other tasks from now on, of which none runs. What they write next builds on
        nothing that others have written."""
        self._expect("adopt", self._turns.mode == "stopped", "still running")
        self._expect("adopt", not self._pending, "a checkpoint is pending")
        self._tasks = frozenset(tasks)
        self._lateness.adopt(self._tasks, labels)
        self._pending.adopt(len(self._tasks))
        self._kept.begin_anew()

    def resume(self, now_ms: int) -> Actions:
        """All tasks run again, after some of them were restarted (`on_job_restart`). If there are
        periodic ones, one is taken now: a part that fails ever again would put it off for ever."""
        actions = self.start(now_ms)
        if self._schedule.periodic:
            actions = (*actions, *self.trigger(now_ms, "periodic"))
        return actions

    @property
    def saving(self) -> bool:
        """Whether a savepoint is on its way, or waits for its turn."""
        taken = any(one.savepoint is not None for one in self._pending)
        return taken or self._savepoints.first is not None

    @property
    def ending(self) -> bool:
        """Whether the job is about to end: a stop is asked for, or the terminal checkpoint is
        being stored or complete. No part of it can be restarted alone then."""
        return self._endings.near

    def on_job_restart(self, why: str = "the job is being restarted or stopped") -> Actions:
        """The attempt failed, or the job is being stopped: no task will acknowledge any more. A job
        that was stopped with a savepoint ends all the same if its terminal checkpoint is complete,
        or may become so."""
        return self._endings.of_attempt(why)

    def on_job_end(self, status: JobStatus) -> Actions:
        """The job is over with `status`, and none of its tasks runs. What was complete and could
        not be restored from is kept: somebody may want to look at it; but nothing is if checkpoints
        do not outlive such an end."""
        return self._endings.of_job(status)

    def on_restored(
        self,
        checkpoint_id: CheckpointId | None,
        stored: Iterable[CheckpointId],
        highest_id: int,
        torn: Iterable[CheckpointId] = (),
    ) -> None:
        """The job starts (again) from `checkpoint_id`, None: from the beginning.

        stored: what the storage holds of this job. Newer ones were found to be unusable and go with
        the next completion, and so do those that are `torn`, newer or older, which nobody can ever
        restore from: a coordinator may have died that was to complete or to remove them. If nothing
        completes any more, these go at the end of the job. The other older ones are kept as long as
        retention allows.
        `highest_id`: no checkpoint gets an id up to this.
        """
        self._expect("on_restored", self._turns.mode == "stopped", "still running")
        self._expect("on_restored", not self._pending, "a checkpoint is pending")
        self._courses.restored(checkpoint_id, stored, highest_id, torn)

    def on_left(self, ids: Iterable[CheckpointId]) -> None:
        """Tasks that another coordinator has left had begun these, which will not complete."""
        self._courses.left(ids)

    def sweep(self) -> Actions:
        """The job was taken over at its end, and nothing completes any more: what goes with the
        next completion goes now."""
        return self._courses.sweep()

    def on_tick(self, now_ms: int) -> Actions:
        """Some time passed. May be called at any time, any number of times."""
        actions: list[Action] = []
        for pending in self._pending:
            if self._lateness.deadline(pending) <= now_ms:
                if pending.storing:
                    saving = pending.savepoint
                    location = None if saving is None else saving.location
                    actions.append(Disown(pending.checkpoint_id, location))
                self._failed(actions, pending, self._lateness.why(pending), now_ms)
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    # --- triggers ----------------------------------------------------------------------------

    def trigger(self, now_ms: int, kind: Kind = "manual") -> Actions:
        """Take a checkpoint now, or as soon as there is room for it."""
        if kind == "terminal":
            return self.trigger_terminal(now_ms)
        self._expect("trigger", self._turns.mode == "running", f"mode is {self._turns.mode}")
        if kind == "rescale":
            self._for_rescale, self.asked = True, None
        if kind in ("manual", "rescale"):
            self._turns.want()
        else:
            self._schedule.now(now_ms)
        actions: list[Action] = []
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    def trigger_terminal(self, now_ms: int) -> Actions:
        """All data is processed: take the last checkpoint.

        Waits for those that are pending (their uploads are not thrown away), then triggers without
        pause. If it fails tolerably it is taken again after a pause. It is also the answer to a
        manual trigger that still waits.
        """
        self._expect(
            "trigger_terminal", self._turns.mode == "running", f"mode is {self._turns.mode}"
        )
        self._turns.end(now_ms)
        actions: list[Action] = []
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    def request_savepoint(self, savepoint: Savepoint, now_ms: int) -> Actions:
        """Take it now, or as soon as there is room for it; one that drains the job when all tasks
        have come to their end. There is an Answer for it some time.

        While the job is drained nothing else is taken: windows fire before their time, and if the
        savepoint fails the job goes back to where they had not. A stop that another coordinator
        has done is not done again: it is answered once the job has ended."""
        if self._savepoints.repeated(savepoint):
            return ()
        if self._turns.mode != "running":
            return (
                Answer(savepoint.request, error="no savepoint was taken: the job is finishing"),
            )
        actions: list[Action] = []
        self._savepoints.add(savepoint)
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    # --- answers of tasks and host -----------------------------------------------------------

    def on_told(self, checkpoint_id: CheckpointId) -> None:
        """The enumerators' part is taken, and the source tasks have been told to begin theirs."""
        pending = self._pending.collecting(checkpoint_id)
        if pending is not None:
            pending.told = True

    def on_acknowledge(
        self, task: TaskId, checkpoint_id: CheckpointId, snapshot: SubtaskSnapshot, now_ms: int
    ) -> Actions:
        """`task` made its part durable. Late and repeated ones are ignored."""
        self._check_known("on_acknowledge", task, checkpoint_id)
        pending = self._pending.collecting(checkpoint_id)
        if pending is None or task in pending.acknowledged:
            return ()
        pending.acknowledged[task] = snapshot
        return tuple(self._courses.store()) if self._pending.is_acknowledged(pending) else ()

    def on_decline(
        self, task: TaskId, checkpoint_id: CheckpointId, reason: str, now_ms: int
    ) -> Actions:
        """`task` cannot take its part; `reason` names it."""
        self._check_known("on_decline", task, checkpoint_id)
        pending = self._pending.collecting(checkpoint_id)
        if pending is None:
            return ()
        actions: list[Action] = []
        self._failed(actions, pending, reason, now_ms)
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    def on_stored(self, checkpoint_id: CheckpointId, now_ms: int) -> Actions:
        """The host published the manifest: the checkpoint is complete, whatever happens next."""
        pending = self._stored("on_stored", checkpoint_id)
        if pending.savepoint is not None:
            return self._on_saved(pending, pending.savepoint, now_ms)
        self._tolerance.completed()
        self._schedule.completed(now_ms)
        actions = self._courses.complete(pending, now_ms)
        if pending.terminal and self._turns.mode == "terminal":
            self._turns.close()
        self._trigger_due(actions, now_ms, after_success=True)
        return tuple(actions)

    def _on_saved(self, pending: PendingCheckpoint, savepoint: Savepoint, now_ms: int) -> Actions:
        saved = self._courses.saved(pending, now_ms)
        if self._turns.mode == "stopped":
            return (saved, self._savepoints.late(savepoint, "its attempt failed meanwhile"))
        actions: list[Action] = [saved]
        if savepoint.stop is None:
            actions.append(Answer(savepoint.request, path=savepoint.location))
            self._schedule.over(now_ms)
        else:
            self._savepoints.stopping = savepoint
            actions += [*self._savepoints.fail("the job is stopped by another"), Halted()]
            self._turns.end(now_ms)
        self._trigger_due(actions, now_ms, after_success=True)
        return tuple(actions)

    def on_stopped_before(self, location: str | None) -> None:
        """The job begins, or goes on, at its terminal checkpoint, behind the savepoint at
        `location` that stopped it; None: anywhere else."""
        self._savepoints.stopped_with = location

    def on_store_failed(self, checkpoint_id: CheckpointId, why: str, now_ms: int) -> Actions:
        """The host could not publish the manifest, and nothing of it is visible."""
        pending = self._stored("on_store_failed", checkpoint_id)
        actions: list[Action] = []
        self._failed(actions, pending, f"the manifest could not be stored: {why}", now_ms)
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    # --- time --------------------------------------------------------------------------------

    def next_tick_ms(self) -> int | None:
        """When `on_tick` has something to do, None when only other events matter."""
        times = [self._lateness.deadline(one) for one in self._pending]
        due_ms = self._turns.next_ms()
        return min([*times, *([] if due_ms is None else [due_ms])], default=None)

    def validate(self) -> None:
        """Assert the invariants of the fields."""
        self._kept.validate(self._courses.last_id)
        self._courses.validate()
        self._pending.validate()
        self._turns.validate()
        for pending in self._pending:
            assert set(pending.acknowledged) <= self._tasks
            assert pending.storing or self._turns.mode in ("running", "terminal")

    # --- inside ------------------------------------------------------------------------------

    def _trigger_due(self, actions: list[Action], now_ms: int, after_success: bool = False) -> None:
        if any(isinstance(a, FailJob | GoBack) for a in actions):
            return
        for turn in self._turns.due(now_ms, after_success):
            if isinstance(turn, Drain):
                actions.append(turn)
            else:
                self._begin(actions, now_ms, turn.terminal, turn.savepoint)

    def _begin(
        self,
        actions: list[Action],
        now_ms: int,
        terminal: bool,
        savepoint: Savepoint | None = None,
    ) -> None:
        trigger = self._courses.begin(now_ms, terminal, savepoint)
        if savepoint is None:
            self._turns.begun(now_ms)
            if self._for_rescale:
                self._for_rescale, self.asked = False, trigger.checkpoint_id
        actions.append(trigger)

    def _failed(
        self, actions: list[Action], pending: PendingCheckpoint, reason: str, now_ms: int
    ) -> None:
        """A checkpoint failed by itself: counts against the tolerable failures, unless it is a
        savepoint, or its attempt is over."""
        saving, checkpoint_id = pending.savepoint, pending.checkpoint_id
        actions += self._courses.give_up(pending, reason)
        actions += self._courses.store()
        actions += self._courses.retire()
        if self._turns.mode == "stopped":
            actions += self._savepoints.not_stopped("its terminal checkpoint could not be stored")
            return
        if saving is not None:
            if saving.stop == "drain":
                actions.append(GoBack(f"the job goes on, as its savepoint failed: {reason}"))
            return
        if checkpoint_id == self.asked:
            self._schedule.over(now_ms)
            return
        self._schedule.failed(now_ms)
        actions += self._tolerance.failed(checkpoint_id, reason)

    def _stored(self, event: str, checkpoint_id: CheckpointId) -> PendingCheckpoint:
        pending = self._pending.get(checkpoint_id)
        if pending is None or not pending.storing:
            self._expect(event, False, f"checkpoint {checkpoint_id} is not being stored")
        assert pending is not None
        return pending

    def _check_known(self, event: str, task: TaskId, checkpoint_id: CheckpointId) -> None:
        if task not in self._tasks:
            self._expect(event, False, f"{task} is not a task of this job")
        if checkpoint_id > self._courses.last_id:
            self._expect(event, False, f"checkpoint {checkpoint_id} was never triggered")

    def _expect(self, event: str, holds: bool, why: str) -> None:
        if not holds:
            raise IllegalTransitionError(
                f"checkpoint coordinator: {event}: {why}; mode {self._turns.mode}, last id "
                f"{self._courses.last_id}, pending {list(self._pending)}, completed "
                f"{self._kept.completed}"
            )
