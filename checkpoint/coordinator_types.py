"""What the checkpoint coordinator asks of its host, and the figures it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..core.ids import NO_CHECKPOINT, CheckpointId, TaskId
from .handles import SubtaskSnapshot
from .savepoints import Answer as Answer
from .savepoints import DiscardSavepoint as DiscardSavepoint
from .savepoints import Savepoint


@dataclass
class PendingCheckpoint:
    """A checkpoint on its way. `told`: the sources have been; `storing` from the last
    acknowledgement on. `savepoint`: what it is taken for, None for one of the job's own.
    `stopped_with`: of the terminal one behind a savepoint that stopped the job, where that is.
    `base`: what tasks were told to build on, 0 for nothing; `depth`: how many checkpoints the chain
    of it will have, with this one."""

    checkpoint_id: CheckpointId
    timestamp_ms: int
    terminal: bool = False
    acknowledged: dict[TaskId, SubtaskSnapshot] = field(default_factory=dict)
    told: bool = False
    storing: bool = False
    savepoint: Savepoint | None = None
    stopped_with: str | None = None
    base: CheckpointId = NO_CHECKPOINT
    depth: int = 1

    @property
    def stopped(self) -> bool:
        """Whether the job ends with it though its sources had more."""
        return self.stopped_with is not None

    @property
    def size(self) -> int:
        """Bytes of all files acknowledged so far."""
        return sum(snapshot.size for snapshot in self.acknowledged.values())


@dataclass(frozen=True, slots=True)
class Trigger:
    """Snapshot the enumerators and tell all source tasks. `base`: the newest complete checkpoint,
    0 for none."""

    checkpoint_id: CheckpointId
    timestamp_ms: int
    terminal: bool
    base: CheckpointId = NO_CHECKPOINT
    savepoint: Savepoint | None = None
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Store:
    """Every task acknowledged: publish the manifest, then answer on_stored or on_store_failed."""

    checkpoint: PendingCheckpoint


@dataclass(frozen=True, slots=True)
class Disown:
    """There was no answer to a Store in time, and nobody waits for it any more: the checkpoint, or
    savepoint at `location`, has failed. What is published after all is to be taken back."""

    checkpoint_id: CheckpointId
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """The checkpoint is durable: tell all tasks."""

    checkpoint_id: CheckpointId
    terminal: bool


@dataclass(frozen=True, slots=True)
class Abort:
    """The checkpoint will never complete: tell all tasks."""

    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete all files of the checkpoint; there may be none."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Forget:
    """All checkpoints of the job are discarded: remove what held them, if it is empty."""


@dataclass(frozen=True, slots=True)
class FailJob:
    """More checkpoints failed in a row than are tolerable."""

    reason: str


@dataclass(frozen=True, slots=True)
class Say:
    """A checkpoint failed tolerably, for a cause not said since one completed: worth a log line."""

    message: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Tell all source tasks to end; a savepoint is taken once all tasks have drained."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The pending savepoint is stored. No task is told."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class Halted:
    """The savepoint of a stop is stored, and no task emits anything more: the terminal checkpoint
    follows."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """The sources have ended for a savepoint that failed: the job restarts from its last checkpoint
    and goes on, whatever its restart strategy."""

    reason: str


Action = (
    Trigger
    | Store
    | Disown
    | Complete
    | Abort
    | Discard
    | DiscardSavepoint
    | Answer
    | Drain
    | Saved
    | Halted
    | GoBack
    | Forget
    | FailJob
    | Say
)
Actions = tuple[Action, ...]


@dataclass(frozen=True)
class CheckpointStatistics:
    """Figures since the job was created. Durations: ms from trigger to completion; sizes: bytes.

    `failed` counts all that were triggered and will never complete, also those that a restart
    ended, and those that a newer one made needless. `in_progress` ascends. Savepoints count as such
    only, but for `in_progress`.
    """

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    in_progress: tuple[CheckpointId, ...] = ()
    latest_completed: CheckpointId | None = None
    restored_from: CheckpointId | None = None
    last_duration_ms: int | None = None
    last_size: int | None = None
    last_failure: str | None = None
    savepoints: int = 0
    savepoints_failed: int = 0

    def triggered_one(self, checkpoint: PendingCheckpoint) -> CheckpointStatistics:
        count = self.triggered + (checkpoint.savepoint is None)
        going = (*self.in_progress, checkpoint.checkpoint_id)
        return replace(self, triggered=count, in_progress=going)

    def completed_one(self, checkpoint: PendingCheckpoint, now_ms: int) -> CheckpointStatistics:
        going = self._without(checkpoint.checkpoint_id)
        if checkpoint.savepoint is not None:
            return replace(self, savepoints=self.savepoints + 1, in_progress=going)
        return replace(
            self,
            completed=self.completed + 1,
            in_progress=going,
            latest_completed=checkpoint.checkpoint_id,
            last_duration_ms=now_ms - checkpoint.timestamp_ms,
            last_size=checkpoint.size,
        )

    def failed_one(self, n: CheckpointId, reason: str) -> CheckpointStatistics:
        going = self._without(n)
        return replace(self, failed=self.failed + 1, in_progress=going, last_failure=reason)

    def savepoint_failed(self, n: CheckpointId) -> CheckpointStatistics:
        count = self.savepoints_failed + 1
        return replace(self, savepoints_failed=count, in_progress=self._without(n))

    def _without(self, n: CheckpointId) -> tuple[CheckpointId, ...]:
        return tuple(one for one in self.in_progress if one != n)

    def restored(self, checkpoint_id: CheckpointId | None) -> CheckpointStatistics:
        return replace(self, restored_from=checkpoint_id)
