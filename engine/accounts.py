"""What a task can say of itself to a coordinator that takes over its job while it runs.

A coordinator that died took with it what only it knew: who waits for splits, who was given which,
which checkpoints were on. Each task knows its own part of that, because all of it passed between
the two: a `Ledger` reads along, on both ways, and sums it up. Pure; the host calls it under a lock
of its own, so that what it says and the numbers of the messages behind it fit together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..core.ids import NO_CHECKPOINT, Attempt, CheckpointId, OperatorId, TaskId
from .messages import (
    CancelTask,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    EndSources,
    Mail,
    NoMoreSplits,
    Rewire,
    SplitsAssigned,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskReport,
    TaskRunning,
    TriggerCheckpoint,
    ValuePublished,
    WatermarkReported,
)


class Stage(Enum):
    """How far a task has told that it is, or STOPPING: it was told to stop, and may still run."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINED = "drained"
    FINISHED = "finished"
    STOPPING = "stopping"
    OVER = "over"
    """It failed, or was cancelled."""

    @property
    def goes_on(self) -> bool:
        """Whether a coordinator can take it over as it is."""
        return self in (Stage.RUNNING, Stage.DRAINED, Stage.FINISHED)


@dataclass(frozen=True)
class TaskAccount:
    """One task in one attempt, as a new coordinator is told of it.

    `began_with`: the checkpoint that it was restored from. `failure`: what it failed with, if it
    did. `asked`: sources that wait for splits. `given`: what each was given since the newest
    checkpoint of which it knows that it is complete, or since its start, in order; what came behind
    the trigger of a later checkpoint n is behind `marks[n]` of them. `watermarks`: what sources
    that align told last. `seen`: the highest checkpoint it has heard of, complete or not.
    `completed`: the newest it knows to be complete. `ending`: it was told to end its sources.
    `published`: what it published behind its part in that checkpoint; all before, the coordinator
    that completed it has written down (`hosts.result_log`).
    `shape`, `own_share`, `tokens`: as of `TaskDeployment`, the first, if it was rewired, as of
    `Rewire`. Whether a checkpoint holds it, it does not say: who takes over tells it to go on.
    """

    task: TaskId
    attempt: Attempt
    stage: Stage
    began_with: CheckpointId = NO_CHECKPOINT
    failure: TaskFailed | None = None
    asked: tuple[OperatorId, ...] = ()
    given: tuple[SplitsAssigned, ...] = ()
    marks: Mapping[CheckpointId, int] = field(default_factory=dict)
    watermarks: Mapping[OperatorId, int | None] = field(default_factory=dict)
    seen: CheckpointId = NO_CHECKPOINT
    completed: CheckpointId = NO_CHECKPOINT
    ending: bool = False
    published: tuple[ValuePublished, ...] = ()
    shape: str = ""
    own_share: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict)

    def given_since(self, checkpoint_id: CheckpointId) -> tuple[SplitsAssigned, ...]:
        """What it was given behind the trigger of this checkpoint; all, if it has not heard of it:
        it began with it then."""
        return self.given[self.marks.get(checkpoint_id, 0) :]


class Ledger:
    """Of one task in one attempt. `begins_with`: the checkpoint that it is restored from. `shape`,
    `own_share`, `tokens`: as of `TaskAccount`.

    Invariant: `_marks` and `_heard` are of checkpoints above `_completed`, and ascend with their
    ids.

    >>> from strom.core.ids import VertexId
    >>> task, attempt, source = TaskId(VertexId(0), 0), Attempt(0), OperatorId("s")
    >>> ledger = Ledger(task, attempt)
    >>> for n in range(3):
    ...     ledger.on_report(SplitsRequested(task, attempt, source))
    ...     ledger.on_mail(SplitsAssigned(source, (n,)))
    ...     ledger.on_mail(TriggerCheckpoint(CheckpointId(n + 1), 0))
    >>> [one.splits for one in ledger.account().given_since(CheckpointId(1))]
    [(1,), (2,)]
    >>> ledger.on_mail(CheckpointCompleted(CheckpointId(2)))
    >>> [one.splits for one in ledger.account().given]
    [(2,)]
    """

    def __init__(
        self,
        task: TaskId,
        attempt: Attempt,
        begins_with: CheckpointId = NO_CHECKPOINT,
        shape: str = "",
        own_share: bool = False,
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        self._shape = shape
        self._own_share = own_share
        self._tokens = tokens or {}
        self._task = task
        self._attempt = attempt
        self._stage = Stage.STARTING
        self._began_with = begins_with
        self._failure: TaskFailed | None = None
        self._asked: dict[OperatorId, None] = {}
        self._given: list[SplitsAssigned] = []
        self._marks: dict[CheckpointId, int] = {}
        self._watermarks: dict[OperatorId, int | None] = {}
        self._seen = self._completed = begins_with
        self._ending = False
        self._published: list[ValuePublished] = []
        """Behind the part in `_completed`."""
        self._heard: dict[CheckpointId, int] = {}
        """How many of them came before the part in a later checkpoint."""

    def on_report(self, report: TaskReport) -> None:
        """The task is about to say this."""
        match report:
            case TaskRunning():
                self._come_to(Stage.RUNNING)
            case TaskDrained():
                self._come_to(Stage.DRAINED)
            case TaskFinished():
                self._stage = Stage.FINISHED
            case TaskFailed():
                self._stage = Stage.OVER
                self._failure = self._failure or report
            case TaskCancelled():
                self._stage = Stage.OVER
            case SplitsRequested(operator=operator):
                self._asked[operator] = None
            case WatermarkReported(operator=operator, watermark=watermark):
                self._watermarks[operator] = watermark
            case CheckpointAcknowledged(checkpoint_id=n):
                self._see(n)
                if n > self._completed:
                    self._heard[n] = len(self._published)
            case CheckpointDeclined(checkpoint_id=n):
                self._see(n)
            case ValuePublished():
                self._published.append(report)

    def on_mail(self, mail: Mail) -> None:
        """The task is about to be told this."""
        match mail:
            case SplitsAssigned(operator=operator, splits=splits):
                if splits == ():
                    return  # there are none now: the question stands
                self._asked.pop(operator, None)
                self._given.append(mail)
            case NoMoreSplits(operator=operator):
                self._asked.pop(operator, None)
            case TriggerCheckpoint(checkpoint_id=n):
                self._see(n)
                self._marks[n] = len(self._given)
            case CheckpointAborted(checkpoint_id=n):
                self._see(n)
            case CheckpointCompleted(checkpoint_id=n):
                self._see(n)
                self._on_completed(n)
            case EndSources():
                self._ending = True
            case Rewire(shape=shape):
                self._shape = shape
            case CancelTask() if self._stage not in (Stage.FINISHED, Stage.OVER):
                self._stage = Stage.STOPPING

    def account(self) -> TaskAccount:
        """At this moment."""
        return TaskAccount(
            self._task,
            self._attempt,
            self._stage,
            self._began_with,
            self._failure,
            tuple(self._asked),
            tuple(self._given),
            dict(self._marks),
            dict(self._watermarks),
            self._seen,
            self._completed,
            self._ending,
            tuple(self._published),
            self._shape,
            self._own_share,
            self._tokens,
        )

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._completed <= self._seen
        assert all(n > self._completed for n in self._heard), (self._heard, self._completed)
        assert all(0 <= count <= len(self._published) for count in self._heard.values())
        assert list(self._marks.values()) == sorted(self._marks.values())
        assert all(n > self._completed for n in self._marks), (self._marks, self._completed)
        assert all(0 <= count <= len(self._given) for count in self._marks.values())

    def _come_to(self, stage: Stage) -> None:
        """Nobody goes on who was told to stop, however far it comes until it hears that."""
        if self._stage is not Stage.STOPPING:
            self._stage = stage

    def _see(self, n: CheckpointId) -> None:
        self._seen = max(self._seen, n)

    def _on_completed(self, n: CheckpointId) -> None:
        """Nothing goes back before this checkpoint any more."""
        if n <= self._completed:
            return
        self._completed = n
        heard = self._heard.get(n, 0)
        del self._published[:heard]
        self._heard = {k: count - heard for k, count in self._heard.items() if k > n}
        gone = self._marks.get(n, 0)
        del self._given[:gone]
        self._marks = {k: count - gone for k, count in self._marks.items() if k > n}
