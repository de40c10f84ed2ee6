"""The connector seam: replayable sources made of splits, and sinks with two-phase commit.

Reading. An enumerator (one per source and job, inside the coordinator) hands out splits; a reader
(one per subtask) reads them. A split is a small picklable value that holds its own position.

    coordinator                         source subtask
    SplitEnumerator.next_splits(i)  ->  SourceReader.add_splits
                                    <-  poll() -> NeedSplit
    snapshot() at the trigger of n      snapshot() when the subtask handles the trigger of n

What was assigned before the trigger of checkpoint n reaches the reader before the trigger, so each
split is in exactly one of the two snapshots.

Writing. `write` collects, `prepare_commit(n)` makes everything since n-1 durable but invisible and
returns what is needed to publish it, `commit` publishes. The committables are part of checkpoint
n; `commit` runs after n completed, again after a restore from n, and must be idempotent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from ...core.batch import Batch
from ...core.clock import Clock


class SourceSplit(Protocol):
    """A part of a source's input with the position reached in it. Picklable."""

    @property
    def split_id(self) -> str:
        """Unique within the source; the same part has the same id in every attempt."""
        ...


@dataclass(frozen=True, slots=True)
class Emit:
    """Records of one split, in order. `finished`: the split holds nothing more."""

    batch: Batch
    split_id: str
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to read now; ask again at `until_ms` (processing time), or after new splits if
    None."""

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class NeedSplit:
    """All splits given so far are read."""


Polled = Emit | Wait | NeedSplit


@dataclass(frozen=True)
class ReaderContext:
    """Given to a reader when it is created. `operator` names it in errors."""

    operator: str
    subtask: int
    parallelism: int
    batch_size: int
    clock: Clock


@dataclass(frozen=True)
class EnumeratorContext:
    """Given to an enumerator when it is created, inside the coordinator."""

    operator: str
    parallelism: int
    job_id: str


class SplitEnumerator(ABC):
    """Hands out splits. Lives in the coordinator, called from one thread, must not block long."""

    @abstractmethod
    def next_splits(self, subtask: int) -> Sequence[Any] | None:
        """Splits for a reader that has none left; None: there will never be more; empty: none now
        (the reader asks again)."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Picklable state: what is not yet assigned."""

    def close(self) -> None:
        """Release what the enumerator holds."""


class SourceReader(ABC):
    """Reads splits in one subtask. Called from the task's thread only; must not block for long."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """New splits, or restored ones with their positions."""

    @abstractmethod
    def poll(self) -> Polled:
        """The next batch (about `batch_size` records), or why there is none."""

    @abstractmethod
    def snapshot(self) -> Sequence[Any]:
        """The unfinished splits with positions exactly after the last batch returned by `poll`."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The positions of this checkpoint are durable (e.g. commit consumer offsets)."""

    def close(self) -> None:
        """Release files and connections; called also on failure and cancel."""


class Source(ABC):
    """A replayable source: reading a split again from a position gives the same records."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source ends by itself."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of its batches, or None for objects."""
        return None

    @abstractmethod
    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> SplitEnumerator:
        """`restored`: what `snapshot()` returned at the checkpoint restored from, else None."""

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader: ...


@dataclass(frozen=True)
class WriterContext:
    """Given to a sink writer when it is created.

    `job_id` and `operator_id` are the same in every attempt, `attempt` counts them. `publish`
    sends a picklable value to the job's client; values carrying a `key` seen before are dropped.
    """

    operator: str
    operator_id: str
    job_id: str
    subtask: int
    parallelism: int
    attempt: int
    clock: Clock
    publish: Callable[[str, Any], None]
    checkpointing: bool


PreparedCommit = Sequence[Any] | Callable[[], Sequence[Any]]
"""Committables, or a function that makes them: it runs beside the task's thread, so slow writes
do not stall the stream. The checkpoint completes only after it returned."""


class SinkWriter(ABC):
    """Writes in one subtask. Called from the task's thread only."""

    @abstractmethod
    def write(self, batch: Batch) -> None: ...

    @abstractmethod
    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        """Make all that was written since the last call durable but invisible.

        `checkpoint_id` grows from call to call, also over restarts. Picklable committables."""

    @abstractmethod
    def commit(self, committables: Sequence[Any]) -> None:
        """Publish. Idempotent: committables may be published already, by this or a dead attempt."""

    def recover(self, committables: Sequence[Any]) -> None:
        """First call after a restore, with the committables of the restored checkpoint (possibly
        of several former subtasks): publish them, then remove leftovers of dead attempts."""
        self.commit(committables)

    def revoke(self, after: int) -> None:
        """First call of all, if the job had to go back to checkpoint `after` because later ones are
        lost: take back what was published at later ones. Only of sinks that are `revocable`."""

    def close(self) -> None:
        """Release files and connections; called also on failure and cancel."""


class Sink(ABC):
    """Where a stream ends.

    `revocable`: `SinkWriter.revoke` works, or it does no harm to publish again. A job with another
    sink fails when its newest complete checkpoint turns out to be damaged.
    """

    revocable: ClassVar[bool] = False

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter: ...
