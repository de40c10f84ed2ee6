"""What the job master asks of the host that drives it. Carried out in the order given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...checkpoint.manifest import Manifest
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..messages import Mail


@dataclass(frozen=True)
class LoadLatest:
    """Find the newest valid checkpoint with an id above `after`
    (`storage.latest_valid(after=after)`), then answer on_loaded or on_load_failed."""

    after: int = 0


@dataclass(frozen=True)
class DeployAll:
    """Start every task for this attempt, from `restore` if given; then answer on_deployed or
    on_deploy_failed. Everything of former attempts has stopped. A CancelAll may come meanwhile.
    `revoke`: the sinks have published checkpoints after `restore` and must take them back first."""

    attempt: Attempt
    restore: Manifest | None
    revoke: bool = False


@dataclass(frozen=True)
class CancelAll:
    """Stop every task of this attempt, by force if need be, also those still starting; then answer
    on_all_stopped. Nothing of the attempt runs after that answer."""

    attempt: Attempt


@dataclass(frozen=True)
class Send:
    """Deliver to a task of the current attempt, in order. Dropped if the task is gone."""

    task: TaskId
    mail: Mail


@dataclass(frozen=True)
class StoreCheckpoint:
    """`storage.publish(manifest)`, then answer on_stored or on_store_failed; always one of them."""

    manifest: Manifest


@dataclass(frozen=True)
class DiscardCheckpoint:
    """`storage.delete(checkpoint_id)`. No answer; a failure is only worth a log line."""

    checkpoint_id: CheckpointId


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
    """The job reached a terminal state; no action follows. Release everything of it, also the
    processes of tasks that finished by themselves. `error`: the first cause of a failure."""

    status: JobStatus
    error: str | None = None


Action = (
    LoadLatest
    | DeployAll
    | CancelAll
    | Send
    | StoreCheckpoint
    | DiscardCheckpoint
    | TickAt
    | Publish
    | Warn
    | JobEnded
)
Actions = tuple[Action, ...]
