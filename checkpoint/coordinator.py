"""When checkpoints are triggered, complete, fail and go: the protocol of one job's checkpoints.

Pure: the job master feeds events in with the time, and carries out the returned actions in order.
One checkpoint at a time. A checkpoint passes through

    trigger -> collecting acknowledgements -> storing (host publishes manifest) -> completed
                   |  decline, timeout, restart   |  store failed
                   +----------> aborted <---------+

A savepoint is one whose files and manifest go to a folder of its own. It is taken in turn with the
others, is not this job's (neither counted nor discarded by retention, never restored from), and
its failure is nobody's but the one's who asked (`savepoints.py`). No task is told that a savepoint
is complete: what sinks prepared for it is committed with the next checkpoint, which is the one
that a failure goes back to. Behind the savepoint of a stop, that is the terminal one.

A checkpoint that is being stored neither times out nor is aborted by a restart: its manifest may
be published already, so only the host's answer says what became of it. Whoever restores must wait
while `storing` is true, else it might pick the checkpoint before, and the sinks would have
committed more than the state knows.

The files of an aborted checkpoint are discarded at once, and again when the next one completes or
the job ends: a task that had not heard of the abort may have written more of them.

Failures that are tolerated are followed by a pause that doubles (`retry.py`), and said once: what
fails for the same cause again and again, as on a full disk, is tried ever more seldom and in
silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from ..core.config import CheckpointConfig
from ..core.errors import ConfigurationError, IllegalTransitionError
from ..core.ids import NO_CHECKPOINT, CheckpointId, TaskId
from ..core.job_status import JobStatus
from .coordinator_types import (
    Abort,
    Action,
    Actions,
    CheckpointStatistics,
    Complete,
    Discard,
    Drain,
    FailJob,
    Forget,
    GoBack,
    Halted,
    PendingCheckpoint,
    Saved,
    Say,
    Store,
    Trigger,
)
from .handles import SubtaskSnapshot
from .retry import Causes
from .savepoints import Answer, Savepoint, SavepointRequests
from .schedule import Schedule

MOST_NAMED: Final = 4
"""So many late tasks a message names."""

Kind = Literal["periodic", "manual", "terminal"]
Mode = Literal["stopped", "running", "terminal", "closed"]
"""stopped: no job is running. running: periodic and manual triggers. terminal: nothing but the
terminal checkpoint is wanted. closed: the terminal checkpoint is complete."""


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
        self._labels = labels or {}
        self._schedule = Schedule(config.interval, config.min_pause)
        self._timeout_ms = int(config.timeout.total_seconds() * 1000)
        self._tolerable = config.tolerable_failures
        self._retained = config.retained
        self._retention = config.retention
        self._mode: Mode = "stopped"
        self._last_id = highest_id
        """Only grows; the next checkpoint takes the id after it."""
        self._pending: PendingCheckpoint | None = None
        self._manual_wanted = False
        self._completed: list[CheckpointId] = []
        """Kept, ascending; the last `retained` of them are complete."""
        self._leftovers: list[CheckpointId] = []
        """Aborted or rejected ones, to be discarded (again) when the next one completes."""
        self._aborted: set[CheckpointId] = set()
        """Those of `_leftovers` of which no manifest was ever published."""
        self._savepoints = SavepointRequests()
        self._consecutive_failures = 0
        """Failed since the last completed one or restart; at most `tolerable` while running."""
        self._causes = Causes()
        self._statistics = CheckpointStatistics()

    @property
    def storing(self) -> bool:
        """Whether the host owes an answer to a Store."""
        return self._pending is not None and self._pending.storing

    @property
    def pending(self) -> PendingCheckpoint | None:
        return self._pending

    @property
    def _base(self) -> CheckpointId:
        """What tasks may build on: the newest that completed, not one that was restored from."""
        return self._statistics.latest_completed or NO_CHECKPOINT

    @property
    def newest_complete(self) -> CheckpointId:
        """The newest checkpoint known to have completed, 0 if none: sinks may have published all
        that it holds. Only grows."""
        figures = self._statistics
        return CheckpointId(max(figures.latest_completed or 0, figures.restored_from or 0))

    def statistics(self) -> CheckpointStatistics:
        return self._statistics

    # --- life of the job ---------------------------------------------------------------------

    def start(self, now_ms: int) -> Actions:
        """Every task of a new attempt runs, and goes on with its work."""
        self._expect("start", self._mode == "stopped", "already started")
        self._mode = "running"
        self._consecutive_failures = 0
        self._schedule.start(now_ms)
        return tuple(self._savepoints.not_stopped("its last checkpoint could not be used"))

    def on_job_restart(self, why: str = "the job is being restarted or stopped") -> Actions:
        """The attempt failed, or the job is being stopped: no task will acknowledge any more. A job
        that was stopped with a savepoint ends all the same if its terminal checkpoint is complete,
        or may become so."""
        actions: list[Action] = []
        closing = self._mode in ("closed", "stopped")
        if self._pending is not None:
            closing |= self._pending.stopped and self._pending.storing
            if not self._pending.storing:
                saving = self._pending.savepoint is not None
                self._give_up(actions, why if saving else "the job is being restarted or stopped")
        self._mode = "stopped"
        self._schedule.stop()
        self._manual_wanted = False
        self._savepoints.draining = False
        actions += self._savepoints.fail(why)
        if not closing:
            actions += self._savepoints.not_stopped(why)
        return tuple(actions)

    def on_job_end(self, status: JobStatus) -> Actions:
        """The job is over with `status`, and none of its tasks runs. What could not be restored
        from is kept: somebody may want to look at it; but nothing is if checkpoints do not outlive
        such an end."""
        finished = status is JobStatus.FINISHED
        answers = self._savepoints.stopped() if finished else ()
        actions = (*answers, *self.on_job_restart(f"the job is {status.value}"))
        actions = (*actions, *self._savepoints.not_stopped(f"it is {status.value}"))
        if self._pending is not None and self._pending.savepoint is not None:
            why = f"the job is {status.value}, and whether the savepoint is complete is not known"
            actions = (*actions, Answer(self._pending.savepoint.request, error=why))
        actions = (*actions, *self._savepoints.sweep())
        if self._retention.removes(status):
            return (*actions, *self._remove_all(actions))
        discards = [Discard(c) for c in sorted(self._aborted) if Discard(c) not in actions]
        self._leftovers = [c for c in self._leftovers if c not in self._aborted]
        self._aborted.clear()
        return (*actions, *discards)

    def _remove_all(self, done: Actions) -> Actions:
        """The oldest first: if this is interrupted, the newest is what is left. One that is being
        stored is removed behind that. Of a checkpoint that is not this job's, as the one it started
        from may be, its storage has nothing."""
        storing = [] if self._pending is None else [self._pending.checkpoint_id]
        mine = sorted({*self._completed, *self._leftovers, *storing})
        for known in (self._completed, self._leftovers, self._aborted):
            known.clear()
        discards = [Discard(c) for c in mine if Discard(c) not in done]
        return (*discards, Forget())

    def on_restored(
        self, checkpoint_id: CheckpointId | None, stored: Iterable[CheckpointId], highest_id: int
    ) -> None:
        """The job starts (again) from `checkpoint_id`, None: from the beginning.

        stored: what the storage holds of this job. Newer ones were found to be unusable and go with
        the next completion, older ones are kept as long as retention allows.
        `highest_id`: no checkpoint gets an id up to this.
        """
        self._expect("on_restored", self._mode == "stopped", "still running")
        self._expect("on_restored", self._pending is None, "a checkpoint is pending")
        floor = 0 if checkpoint_id is None else checkpoint_id
        found = set(stored)
        self._leftovers = sorted({c for c in found if c > floor} | set(self._leftovers))
        self._completed = sorted({c for c in found if c <= floor} - set(self._leftovers))
        self._last_id = max(self._last_id, highest_id, floor)
        self._statistics = self._statistics.restored(checkpoint_id)

    def on_tick(self, now_ms: int) -> Actions:
        """Some time passed. May be called at any time, any number of times."""
        actions: list[Action] = []
        pending = self._pending
        if pending is not None and not pending.storing and self._deadline(pending) <= now_ms:
            self._failed(actions, self._why_late(pending), now_ms)
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    # --- triggers ----------------------------------------------------------------------------

    def trigger(self, now_ms: int, kind: Kind = "manual") -> Actions:
        """Take a checkpoint now, or as soon as the pending one is over."""
        if kind == "terminal":
            return self.trigger_terminal(now_ms)
        self._expect("trigger", self._mode == "running", f"mode is {self._mode}")
        if kind == "manual":
            self._manual_wanted = True
        else:
            self._schedule.now(now_ms)
        actions: list[Action] = []
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    def trigger_terminal(self, now_ms: int) -> Actions:
        """All data is processed: take the last checkpoint.

        Waits for the pending one (its uploads are not thrown away), then triggers without pause.
        If it fails tolerably it is taken again after a pause. It is also the answer to a manual
        trigger that still waits.
        """
        self._expect("trigger_terminal", self._mode == "running", f"mode is {self._mode}")
        self._mode = "terminal"
        self._schedule.stop()
        self._manual_wanted = False
        self._schedule.without_pause(now_ms)
        actions: list[Action] = []
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    def request_savepoint(self, savepoint: Savepoint, now_ms: int) -> Actions:
        """Take it now, or as soon as what is pending is over; one that drains the job when all
        tasks have come to their end. There is an Answer for it some time.

        While the job is drained nothing else is taken: windows fire before their time, and if the
        savepoint fails the job goes back to where they had not."""
        if self._mode != "running":
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
        pending = self._collecting(checkpoint_id)
        if pending is not None:
            pending.told = True

    def on_acknowledge(
        self, task: TaskId, checkpoint_id: CheckpointId, snapshot: SubtaskSnapshot, now_ms: int
    ) -> Actions:
        """`task` made its part durable. Late and repeated ones are ignored."""
        self._check_known("on_acknowledge", task, checkpoint_id)
        pending = self._collecting(checkpoint_id)
        if pending is None or task in pending.acknowledged:
            return ()
        pending.acknowledged[task] = snapshot
        if len(pending.acknowledged) < len(self._tasks):
            return ()
        pending.storing = True
        return (Store(pending),)

    def on_decline(
        self, task: TaskId, checkpoint_id: CheckpointId, reason: str, now_ms: int
    ) -> Actions:
        """`task` cannot take its part; `reason` names it."""
        self._check_known("on_decline", task, checkpoint_id)
        if self._collecting(checkpoint_id) is None:
            return ()
        actions: list[Action] = []
        self._failed(actions, reason, now_ms)
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    def on_stored(self, checkpoint_id: CheckpointId, now_ms: int) -> Actions:
        """The host published the manifest: the checkpoint is complete, whatever happens next."""
        pending = self._stored("on_stored", checkpoint_id)
        self._pending = None
        if pending.savepoint is not None:
            return self._on_saved(pending, pending.savepoint, now_ms)
        self._consecutive_failures = 0
        self._schedule.completed(now_ms)
        self._causes.forget()
        self._completed.append(checkpoint_id)
        self._statistics = self._statistics.completed_one(pending, now_ms)
        actions: list[Action] = [Complete(checkpoint_id, pending.terminal)]
        while len(self._completed) > self._retained:
            actions.append(Discard(self._completed.pop(0)))
        actions += [Discard(left) for left in self._leftovers]
        actions += self._savepoints.sweep()
        self._leftovers.clear()
        self._aborted.clear()
        if pending.terminal and self._mode == "terminal":
            self._mode = "closed"
        self._trigger_due(actions, now_ms, after_success=True)
        return tuple(actions)

    def _on_saved(self, pending: PendingCheckpoint, savepoint: Savepoint, now_ms: int) -> Actions:
        self._statistics = self._statistics.completed_one(pending, now_ms)
        if self._mode == "stopped":
            return (Saved(), self._savepoints.late(savepoint, "its attempt failed meanwhile"))
        actions: list[Action] = [Saved()]
        if savepoint.stop is None:
            actions.append(Answer(savepoint.request, path=savepoint.location))
            self._schedule.over(now_ms)
        else:
            self._savepoints.stopping = savepoint
            actions += [*self._savepoints.fail("the job is stopped by another"), Halted()]
            self._mode = "terminal"
            self._schedule.stop()
            self._manual_wanted = False
            self._schedule.without_pause(now_ms)
        self._trigger_due(actions, now_ms, after_success=True)
        return tuple(actions)

    def on_store_failed(self, checkpoint_id: CheckpointId, why: str, now_ms: int) -> Actions:
        """The host could not publish the manifest, and nothing of it is visible."""
        self._stored("on_store_failed", checkpoint_id)
        actions: list[Action] = []
        reason = f"the manifest could not be stored: {why}"
        if self._mode == "stopped":
            self._give_up(actions, reason)
            actions += self._savepoints.not_stopped("its terminal checkpoint could not be stored")
        else:
            self._failed(actions, reason, now_ms)
        self._trigger_due(actions, now_ms)
        return tuple(actions)

    # --- time --------------------------------------------------------------------------------

    def next_tick_ms(self) -> int | None:
        """When `on_tick` has something to do, None when only other events matter."""
        if self._pending is not None:
            return None if self._pending.storing else self._deadline(self._pending)
        if self._mode == "terminal":
            return self._schedule.pause_ends_ms
        if self._mode == "running" and not self._savepoints.draining:
            return self._schedule.next_ms()
        return None

    def validate(self) -> None:
        """Assert the invariants of the fields."""
        assert self._completed == sorted(set(self._completed)), self._completed
        assert all(c <= self._last_id for c in [*self._completed, *self._leftovers])
        assert not set(self._completed) & set(self._leftovers)
        assert self._aborted <= set(self._leftovers)
        if self._mode != "running":
            assert not self._schedule.periodic
            assert not self._manual_wanted
        pending = self._pending
        if pending is None:
            return
        assert pending.checkpoint_id == self._last_id
        assert set(pending.acknowledged) <= self._tasks
        assert pending.storing == (set(pending.acknowledged) == self._tasks)
        assert pending.storing or self._mode in ("running", "terminal")

    # --- inside ------------------------------------------------------------------------------

    def _trigger_due(self, actions: list[Action], now_ms: int, after_success: bool = False) -> None:
        if self._pending is not None or any(isinstance(a, FailJob | GoBack) for a in actions):
            return
        if self._mode == "running" and self._savepoints.draining:
            return
        if self._mode in ("running", "terminal") and self._savepoints.stopping is None:
            if self._mode == "running" and self._savepoints.drain():
                actions.append(Drain())
                return
            savepoint = self._savepoints.next()
            if savepoint is not None:
                self._begin(actions, now_ms, terminal=False, savepoint=savepoint)
                return
        if self._mode == "terminal":
            if after_success or not self._schedule.paused(now_ms):
                self._begin(actions, now_ms, terminal=True)
        elif self._mode == "running" and (self._manual_wanted or self._schedule.due(now_ms)):
            self._begin(actions, now_ms, terminal=False)

    def _begin(
        self,
        actions: list[Action],
        now_ms: int,
        terminal: bool,
        savepoint: Savepoint | None = None,
    ) -> None:
        self._last_id += 1
        checkpoint_id = CheckpointId(self._last_id)
        stopped = terminal and self._savepoints.stopping is not None
        self._pending = PendingCheckpoint(
            checkpoint_id, now_ms, terminal, savepoint=savepoint, stopped=stopped
        )
        if savepoint is None:
            self._manual_wanted = False
            self._schedule.begun(now_ms)
        self._statistics = self._statistics.triggered_one(self._pending)
        actions.append(Trigger(checkpoint_id, now_ms, terminal, self._base, savepoint, stopped))

    def _failed(self, actions: list[Action], reason: str, now_ms: int) -> None:
        """The pending checkpoint failed by itself: counts against the tolerable failures, unless it
        is a savepoint."""
        assert self._pending is not None
        saving = self._pending.savepoint
        checkpoint_id = self._give_up(actions, reason)
        if saving is not None:
            if saving.stop == "drain":
                actions.append(GoBack(f"the job goes on, as its savepoint failed: {reason}"))
            return
        self._consecutive_failures += 1
        self._schedule.failed(now_ms)
        in_a_row = self._consecutive_failures
        count = f"{in_a_row} in a row, " if in_a_row > 1 else ""
        text = f"checkpoint {checkpoint_id} failed: {reason}"
        allowed = f"{count}tolerable_failures is {self._tolerable}"
        is_new = self._causes.is_new(reason)
        if in_a_row > self._tolerable:
            actions.append(FailJob(f"{text} ({allowed})"))
        elif is_new:
            quiet = "until one completes, others that fail for this cause are not logged"
            actions.append(Say(f"{text} ({allowed}; {quiet})"))

    def _give_up(self, actions: list[Action], reason: str) -> CheckpointId:
        assert self._pending is not None
        checkpoint_id, savepoint = self._pending.checkpoint_id, self._pending.savepoint
        self._pending = None
        if savepoint is not None:
            self._statistics = self._statistics.savepoint_failed()
            actions += [Abort(checkpoint_id, reason), *self._savepoints.dropped(savepoint, reason)]
            return checkpoint_id
        self._leftovers.append(checkpoint_id)
        self._aborted.add(checkpoint_id)
        self._statistics = self._statistics.failed_one(f"checkpoint {checkpoint_id}: {reason}")
        actions += [Abort(checkpoint_id, reason), Discard(checkpoint_id)]
        return checkpoint_id

    def _why_late(self, pending: PendingCheckpoint) -> str:
        if not pending.told:
            return f"the sources' enumerators took no snapshot within {self._timeout_ms} ms"
        missing = sorted(self._tasks - pending.acknowledged.keys())
        names = ", ".join(self._labels.get(task, str(task)) for task in missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        return f"not acknowledged within {self._timeout_ms} ms by {names}{more}"

    def _deadline(self, pending: PendingCheckpoint) -> int:
        return pending.timestamp_ms + self._timeout_ms

    def _collecting(self, checkpoint_id: CheckpointId) -> PendingCheckpoint | None:
        pending = self._pending
        if pending is None or pending.storing or pending.checkpoint_id != checkpoint_id:
            return None
        return pending

    def _stored(self, event: str, checkpoint_id: CheckpointId) -> PendingCheckpoint:
        pending = self._pending
        if pending is None or not pending.storing or pending.checkpoint_id != checkpoint_id:
            self._expect(event, False, f"checkpoint {checkpoint_id} is not being stored")
        assert pending is not None
        return pending

    def _check_known(self, event: str, task: TaskId, checkpoint_id: CheckpointId) -> None:
        self._expect(event, task in self._tasks, f"{task} is not a task of this job")
        known = checkpoint_id <= self._last_id
        self._expect(event, known, f"checkpoint {checkpoint_id} was never triggered")

    def _expect(self, event: str, holds: bool, why: str) -> None:
        if not holds:
            raise IllegalTransitionError(
                f"checkpoint coordinator: {event}: {why}; mode {self._mode}, last id "
                f"{self._last_id}, pending {self._pending}, completed {self._completed}"
            )
