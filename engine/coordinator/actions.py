"""What the job master asks of the host that drives it.

Begun in the order given. What may take long goes to two workers of the host, which do one thing
after the other, each in the order given, and whose answers come back as events in that order:

    storage   LoadLatest, LoadForRegion, StoreCheckpoint, DisownCheckpoint, DiscardCheckpoint,
              RemoveSavepoint, ForgetCheckpoints
    sources   PrepareSources, TakeOverSources, RestartReaders, AskForSplits, SnapshotSources,
              ForgetSplits, CloseSources: the user's enumerators

So what an enumerator gave away before its snapshot is answered before the snapshot is, and the job
master hears of losses and cancellation while a disk or an enumerator hangs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...checkpoint.manifest import Manifest
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId, VertexId
from ...core.job_status import JobStatus
from ..graph.model import ExecutionGraph
from ..messages import Mail, SplitsAssigned
from .rescale_figures import RescaleFigures


@dataclass(frozen=True)
class LoadLatest:
    """Find the newest valid checkpoint with an id above `after`
    (`storage.latest_valid(after=after)`), then answer on_loaded or on_load_failed."""

    after: int = 0
    running: bool = False
    """The job may run: what its tasks have taken part in is not read again."""


@dataclass(frozen=True)
class FindTasks:
    """Find what the coordinator before has left running, and make it hear this one; then answer
    on_tasks_found."""


@dataclass(frozen=True)
class TakeOverSources:
    """Make the enumerators of tasks that run: from their states in this checkpoint (0: anew), and
    ask each for what its readers say they have been given since, in the order of then. Then answer
    on_sources_ready, or on_source_failed, also if one answers otherwise than then. `shown`: what
    the writers show, by operator."""

    attempt: Attempt
    checkpoint_id: CheckpointId
    states: Mapping[OperatorId, bytes]
    given: Mapping[OperatorId, tuple[tuple[int, SplitsAssigned], ...]]
    shown: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class LoadForRegion:
    """The same for tasks that begin again while others run, so nothing in the storage is changed:
    answer on_region_loaded or on_region_failed with `attempt`. `newest`: what the others have gone
    on from; a checkpoint behind it may be there that nobody took for complete, and that could not
    be removed."""

    attempt: Attempt
    after: int
    newest: int


@dataclass(frozen=True)
class PrepareSources:
    """Make the enumerators of an attempt from their stored states (pickled, by operator; a source
    that has none begins anew), then answer on_sources_ready or on_source_failed. Those of the
    attempt before have been closed."""

    attempt: Attempt
    states: Mapping[OperatorId, bytes]


@dataclass(frozen=True)
class AskForSplits:
    """`next_splits` for a reader, then answer on_splits or on_source_failed."""

    attempt: Attempt
    operator: OperatorId
    task: TaskId


@dataclass(frozen=True)
class SnapshotSources:
    """Pickle the snapshots of all enumerators, then answer on_sources_snapshot or
    on_source_failed."""

    attempt: Attempt
    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class RestartReaders:
    """Some readers begin again from the newest complete checkpoint. Close the enumerators of
    `sources` and make them anew from their stored states, where there are any; the others go on.
    Then answer on_readers_ready, with what each of `readers` has been given since that checkpoint,
    in order; or on_source_failed, with the attempt of the enumerators, `began`."""

    attempt: Attempt
    began: Attempt
    sources: tuple[OperatorId, ...]
    states: Mapping[OperatorId, bytes]
    readers: tuple[tuple[OperatorId, TaskId], ...]


@dataclass(frozen=True)
class ForgetSplits:
    """Nothing goes back before this checkpoint any more: what was given away before its snapshot
    need not be known. No answer."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class CloseSources:
    """Close the enumerators of the attempt, if they could be made. No answer; what they raise is
    only worth a log line."""

    attempt: Attempt


@dataclass(frozen=True)
class DeployAll:
    """Start every task for this attempt, from `restore` if given; then answer on_deployed or
    on_deploy_failed. Everything of former attempts has stopped. A CancelAll may come meanwhile.
    `revoke`: the sinks have published checkpoints after `restore` and must take them back first.
    `halted`: the job was stopped at `restore`; tasks only commit what that holds."""

    attempt: Attempt
    restore: Manifest | None
    revoke: bool = False
    halted: bool = False


@dataclass(frozen=True)
class DeployTasks:
    """Start these tasks for an attempt of their own, beside others that run; as DeployAll, but that
    the answer may come any time later, or none if all went well. `own_share`: of these vertices
    each gets what was its own, as of a deployment. `stays`: tasks that run already and are held;
    once the others can be reached, these are told to go on with the channels that the job's graph
    has now (`Rewire`), which have this attempt."""

    attempt: Attempt
    tasks: tuple[TaskId, ...]
    restore: Manifest | None
    own_share: frozenset[VertexId] = frozenset()
    stays: tuple[TaskId, ...] = ()


@dataclass(frozen=True)
class CancelTasks:
    """Stop these tasks, of this attempt or former ones, as CancelAll does; then answer
    on_tasks_stopped with the same. Some may be gone."""

    attempt: Attempt
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True)
class CancelAll:
    """Stop every task of this attempt and former ones, by force if need be, also those still
    starting; then answer on_all_stopped. Nothing of them runs after that answer."""

    attempt: Attempt


@dataclass(frozen=True)
class Send:
    """Deliver to a task in its current attempt, in order. Dropped if the task is gone."""

    task: TaskId
    mail: Mail


@dataclass(frozen=True)
class StoreCheckpoint:
    """`storage.publish(manifest)`, then answer on_stored or on_store_failed; always one of them.
    `savepoint`: the folder to publish it in instead."""

    manifest: Manifest
    savepoint: str | None = None


@dataclass(frozen=True)
class DiscardCheckpoint:
    """`storage.delete(checkpoint_id)`, after what was asked of the storage before. No answer; a
    failure is only worth a log line."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True)
class DisownCheckpoint:
    """Wait no more for the StoreCheckpoint of this checkpoint, or savepoint at `location`: if it is
    published after all, take that back. What its files are needed for stays until then."""

    checkpoint_id: CheckpointId
    location: str | None = None


@dataclass(frozen=True)
class RemoveSavepoint:
    """Delete all there is in the folder of a savepoint that failed, after what was asked of the
    storage before. No answer; a failure is only worth a log line."""

    location: str


@dataclass(frozen=True)
class AnswerSavepoint:
    """What a request for a savepoint is answered with, once: `path`, or the reason in `error`."""

    request: int
    path: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class MakeRoom:
    """Have slots for all tasks of this graph, beside those that run; then answer on_room, with why
    there are none if so."""

    request: int
    graph: ExecutionGraph


@dataclass(frozen=True)
class LeaveRoom:
    """What MakeRoom has brought is not needed: the job keeps its graph. It may still be on. No
    answer."""


@dataclass(frozen=True)
class KeepGraph:
    """Write down what the job's graph is from now on, and what it goes back to if that does not
    come up (None: it has), or has come from if it `returns`; then answer on_graph_kept."""

    graph: ExecutionGraph
    former: ExecutionGraph | None
    returns: bool = False


@dataclass(frozen=True)
class AnswerRescale:
    """What a request for a rescale is answered with, once: its `figures`, or why there was none."""

    request: int
    figures: RescaleFigures | None = None
    error: str | None = None


@dataclass(frozen=True)
class ForgetCheckpoints:
    """`storage.forget()`, after what was asked of the storage before. No answer; a failure is only
    worth a log line."""


@dataclass(frozen=True)
class TickAt:
    """Call on_tick at this time (ms) or soon after; replaces the TickAt before."""

    time_ms: int


@dataclass(frozen=True)
class Publish:
    """A value for the job's client; each (operator, key) comes once."""

    operator: OperatorId
    key: str
    value: Any


@dataclass(frozen=True)
class Warn:
    """Worth a log line; the job goes on."""

    message: str


@dataclass(frozen=True)
class JobEnded:
    """The job reached a terminal state; no action follows. Let the workers do what was asked of
    them, within reason, and release everything of the job, also the processes of tasks that
    finished by themselves. `error`: the first cause of a failure."""

    status: JobStatus
    error: str | None = None


Action = (
    LoadLatest
    | LoadForRegion
    | FindTasks
    | PrepareSources
    | TakeOverSources
    | RestartReaders
    | AskForSplits
    | SnapshotSources
    | ForgetSplits
    | CloseSources
    | DeployAll
    | DeployTasks
    | CancelTasks
    | CancelAll
    | Send
    | StoreCheckpoint
    | DiscardCheckpoint
    | DisownCheckpoint
    | RemoveSavepoint
    | AnswerSavepoint
    | MakeRoom
    | LeaveRoom
    | KeepGraph
    | AnswerRescale
    | ForgetCheckpoints
    | TickAt
    | Publish
    | Warn
    | JobEnded
)
Actions = tuple[Action, ...]
