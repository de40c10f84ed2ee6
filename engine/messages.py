"""What the job coordinator and its tasks say to each other. All are small, and pickle: a user's
values travel in them as they are only if they are plain, else as `exchange.pickling.Parcel`s, which
are made where an operator can be named if that fails.

Messages between one coordinator and one task arrive in the order sent. Every report carries the
attempt it belongs to; the coordinator ignores those of former attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..checkpoint.handles import SubtaskSnapshot
from ..core.ids import NO_CHECKPOINT, Attempt, CheckpointId, Deal, OperatorId, TaskId

# --- coordinator to task -------------------------------------------------------------------


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Sources only: snapshot and send barrier `checkpoint_id` on, with these fields."""

    checkpoint_id: CheckpointId
    timestamp_ms: int
    terminal: bool = False
    base: CheckpointId = NO_CHECKPOINT
    savepoint: str | None = None
    halt: bool = False


@dataclass(frozen=True)
class EndSources:
    """Sources only: read no more, and end as if all had been read; positions stay as they are."""


@dataclass(frozen=True)
class CheckpointCompleted:
    checkpoint_id: CheckpointId
    terminal: bool = False
    """The job is over once every task has committed: answer with TaskFinished."""


@dataclass(frozen=True)
class CheckpointAborted:
    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class GoOn:
    """No checkpoint up to this one holds the task (`CheckpointBarrier.holds`), whether its barrier
    has come or not: it goes on as it was."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class Rewire:
    """To a task that a checkpoint holds: go on with other channels, those of the graph that the job
    has now; answer with TaskRunning. `wiring`: an `exchange.endpoint.Wiring`, with an attempt that
    only the channels have: the task keeps its own. `deals`, `shape`: as of a deployment."""

    wiring: Any
    deals: Mapping[int, Deal] = field(default_factory=dict)
    shape: str = ""


@dataclass(frozen=True)
class SplitsAssigned:
    """Between processes `splits` is a `Parcel` of them, unless they are plain. `number`: how many
    the enumerator of this attempt had given away before, to whichever reader."""

    operator: OperatorId
    splits: Any
    number: int = 0


@dataclass(frozen=True)
class NoMoreSplits:
    operator: OperatorId


@dataclass(frozen=True)
class AlignWatermarks:
    """Sources: splits whose watermark is beyond `limit_ms` wait; None: none does."""

    operator: OperatorId
    limit_ms: int | None


@dataclass(frozen=True)
class CancelTask:
    """Stop as soon as possible without finishing."""


Mail = (
    TriggerCheckpoint
    | EndSources
    | CheckpointCompleted
    | CheckpointAborted
    | GoOn
    | Rewire
    | SplitsAssigned
    | NoMoreSplits
    | AlignWatermarks
    | CancelTask
)


# --- task to coordinator -------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    task: TaskId
    attempt: Attempt


@dataclass(frozen=True)
class TaskRunning(Report):
    """Open, restored and wired; data may flow. Said again when it is wired anew."""


@dataclass(frozen=True)
class TaskDrained(Report):
    """Every operator has finished; only the terminal commit is left."""


@dataclass(frozen=True)
class TaskFinished(Report):
    """The terminal commit is done; the task is over."""


@dataclass(frozen=True)
class TaskCancelled(Report):
    """The task has stopped after CancelTask."""


@dataclass(frozen=True)
class TaskFailed(Report):
    """The task is over. `error` is the text for the user, `recoverable` False forbids a restart.
    `symptom`: a connection broke, most likely because another task is over. `fenced`: as of
    `StromError`."""

    error: str
    recoverable: bool = True
    symptom: bool = False
    fenced: bool = False


@dataclass(frozen=True)
class SplitsRequested(Report):
    operator: OperatorId


@dataclass(frozen=True)
class WatermarkReported(Report):
    """Of a source that aligns with others, now and then; None: it holds nobody back, because it is
    idle or has ended."""

    operator: OperatorId
    watermark: int | None


@dataclass(frozen=True)
class CheckpointAcknowledged(Report):
    """This subtask's part of the checkpoint is durable."""

    checkpoint_id: CheckpointId
    snapshot: SubtaskSnapshot
    sync_ms: float = 0.0
    async_ms: float = 0.0
    alignment_ms: float = 0.0


@dataclass(frozen=True)
class CheckpointDeclined(Report):
    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True)
class ValuePublished(Report):
    """A value for the client (collected results), or its `Parcel` if it is not plain: only the
    client opens it. Values with a key seen before are dropped."""

    operator: OperatorId
    key: str
    value: Any


@dataclass(frozen=True)
class MetricsReported(Report):
    """Cumulative figures of one subtask: per operator records in/out, watermark, what its functions
    registered; exchange bytes; accumulators, each in its `Parcel`, which only the client opens."""

    metrics: dict[str, Any] = field(default_factory=dict)


TaskReport = (
    TaskRunning
    | TaskDrained
    | TaskFinished
    | TaskCancelled
    | TaskFailed
    | SplitsRequested
    | WatermarkReported
    | CheckpointAcknowledged
    | CheckpointDeclined
    | ValuePublished
    | MetricsReported
)
