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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from ...core.batch import Batch
from ...core.clock import Clock
from ..types.declared import Scalars
from .reads import ColumnReads


class SourceSplit(Protocol):
    """A part of a source's input with the position reached in it. Picklable."""

    @property
    def split_id(self) -> str:
        """Unique within the source; the same part has the same id in every attempt. Empty: a
        message of the enumerator to the reader, which holds no records and no watermark back, and
        is in no snapshot of the reader."""
        ...


@dataclass(frozen=True, slots=True)
class Emit:
    """Records of one split, in order. `finished`: the split holds nothing more. `side`: records for
    side outputs, each with its tag's id; they go out before the batch, which may be empty.
    `watermark`: the source itself knows that this subtask has no earlier records behind these (ms);
    it counts only where the source has no watermark strategy."""

    batch: Batch
    split_id: str
    finished: bool = False
    side: Sequence[tuple[str, Batch]] = ()
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to read now; ask again at `until_ms` (processing time), or after new splits if
    None. A reader without splits that says so expects none: nobody's event time waits for it."""

    until_ms: int | None


@dataclass(frozen=True, slots=True)
class NeedSplit:
    """All splits given so far are read."""


Polled = Emit | Wait | NeedSplit


@dataclass(frozen=True)
class ReaderContext:
    """Given to a reader when it is created. `operator` names it in errors.

    wake: from any thread: poll again soon, whatever the last `Wait` said. gauge: report a figure,
        by its name, among the operator's metrics. count: add to a counter there.
    """

    operator: str
    subtask: int
    parallelism: int
    batch_size: int
    clock: Clock
    wake: Callable[[], None] = lambda: None
    gauge: Callable[[str, float], None] = lambda name, value: None
    count: Callable[[str, int], None] = lambda name, n: None


@dataclass(frozen=True)
class EnumeratorContext:
    """Given to an enumerator when it is created, inside the coordinator."""

    operator: str
    parallelism: int
    job_id: str


class SplitEnumerator(ABC):
    """Hands out splits. Lives in the coordinator, called from one thread, which all enumerators of
    a job share: while one blocks, no reader gets splits, and no checkpoint is taken.

    If its readers are `independent_readers`, it may be asked for a reader that has begun again: the
    splits that it gave that reader since the checkpoint have been repeated to it already, and what
    it said once (None) it must say again. It must not conclude anything from who asked before."""

    @abstractmethod
    def next_splits(self, subtask: int) -> Sequence[Any] | None:
        """Splits for a reader that asks; None: there will never be more; empty: none now (the
        reader asks again).

        Called also for a reader that still holds splits: a restored one asks before it has read
        anything, one with `asks_every_ms` asks in time, and a repeated question may cross its
        answer. So a question says nothing of what was read. That is said by checkpoints: what was
        given away and is in no reader's `snapshot` of a complete one was read, see
        `SourceReader.notify_checkpoint_complete`."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Picklable state: what is not yet assigned."""

    def close(self) -> None:
        """Release what the enumerator holds."""


class SourceReader(ABC):
    """Reads splits in one subtask. Called from the task's thread only; must not block for long.

    `asks_every_ms`: how often (ms) the enumerator is asked for more splits while some are held, for
    a source whose parts appear in time; None: only when `poll` says NeedSplit. `can_pause`: it
    can let single splits wait, see `pause`; else watermark alignment makes the whole reader
    wait, once the most advanced of its splits is too far ahead.
    """

    asks_every_ms: int | None = None
    can_pause: bool = False

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """New splits, or restored ones with their positions."""

    @abstractmethod
    def poll(self) -> Polled:
        """The next batch (about `batch_size` records), or why there is none."""

    def pause(self, split_ids: frozenset[str]) -> None:
        """Emit nothing of these splits, and of all others what there is, until told anew: their
        event time is ahead of what watermark alignment allows. Called if it `can_pause`."""

    @abstractmethod
    def snapshot(self) -> Sequence[Any]:
        """The unfinished splits with positions exactly after the last batch returned by `poll`."""

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Sequence[Any]) -> None:
        """The positions of this checkpoint are durable (e.g. commit consumer offsets). `splits`:
        what `snapshot` returned for it."""

    def close(self) -> None:
        """Release files and connections; called also on failure and cancel."""


class Source(ABC):
    """A replayable source: reading a split again from a position gives the same records.

    `independent_readers`: its enumerator does not mind that a single reader begins again from its
    snapshot while the others go on, and gets once more, in the same order, what it was given since;
    see `SplitEnumerator`. Else all readers are restarted together, and the enumerator with them.
    """

    independent_readers: bool = False

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """Whether the source ends by itself."""

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of its batches, or None for objects. Asked while the program is written, too:
        a FileNotFoundError there (or one as the cause of a ConnectorError), and what else says that
        something cannot be reached, means that they are not known yet."""
        return None

    @property
    def scalars(self) -> Scalars | None:
        """What its records are declared as, if they are one value each, and are such values; None
        for columns, and where nobody says."""
        return None

    @property
    def upsert_key(self) -> tuple[str, ...] | None:
        """Of a source whose batches are an upsert changelog (`core/row_kind.py`): the columns by
        which its updates replace rows, none where they are not known yet; None for all others."""
        return None

    def malformed_to(self, tag: str) -> Source | None:
        """The same source, whose readers send what they cannot make records of to the side output
        `tag`: rows of whatever a record is made of, with a column `error` that says, in text, why
        not. For `on_error`. None, by default: such records fail the job, or it has said already
        what becomes of them."""
        return None

    def reading(self, columns: ColumnReads) -> Source | None:
        """The same source, whose batches leave out what nobody reads: they have no others than
        `columns`, in any order, but for one of which there is something to read where none of
        these is there. None, by default: it cannot, or has no others. It looks nothing up."""
        return None

    def reads_from(self) -> tuple[str, ...]:
        """What it reads, each thing by its own: paths, topics, a table; the same wherever and
        whenever it is made. What goes on from a checkpoint beside other sources (`HybridSource`)
        compares it: a source that does not read all that it read then is refused. None, by
        default: only its class is compared."""
        return ()

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
    `checkpoint_every_s`: seconds between checkpoints; None: only the terminal one is taken.
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
    checkpoint_every_s: float | None = None
    token: str = ""
    """That of the `OutputClaim` with which the sink was taken over, or what the sink made of that
    (`Sink.writers_token`); empty: it was not taken over."""


PreparedCommit = Sequence[Any] | Callable[[], Sequence[Any]]
"""Committables, or a function that makes them: it runs beside the task's thread, so slow writes
do not stall the stream. The checkpoint completes only after it returned."""


class SinkWriter(ABC):
    """Writes in one subtask. Called from the task's thread only.

    `tends_every_ms`: how often (ms) `tend` is called, also while nothing is written; None: never.

    Leftovers. A restored checkpoint's committables are dealt out one by one: what one former
    subtask prepared goes to several writers, which publish it in any order, and none can tell from
    its own share what else is a leftover. What dead attempts left belongs to nobody when a
    checkpoint of this attempt is complete (at the first `commit`); at `recover` only if there is a
    single subtask.

    `published`: behind a `commit` or `recover` that raised, how many of its committables are
    published, from the first on; None: it cannot say. For the message alone."""

    tends_every_ms: int | None = None
    published: int | None = None

    @abstractmethod
    def write(self, batch: Batch) -> Iterator[None] | None:
        """Take the records; or, where that has to wait, begin to and return the rest as work in
        steps, of some milliseconds each: the task takes them to the end, hears its mail in between,
        and calls for no snapshot and no other batch before."""

    @abstractmethod
    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        """Make all that was written since the last call durable but invisible.

        `checkpoint_id` grows from call to call, also over restarts. Picklable committables."""

    @abstractmethod
    def commit(self, committables: Sequence[Any]) -> Iterator[None] | None:
        """Publish; or, where that has to wait, begin to and return the rest as work in steps, as
        `write` does. Idempotent: committables may be published already, by this or a dead attempt,
        and after a commit that was begun and not taken to its end they come again.

        It may raise, published something or nothing. RetryableCommitError, and errors of networks
        and storages that may pass (`core.transient`): it is called again with the same committables
        after a pause, in which all else goes on, `prepare_commit` included. CommitError, and what
        says otherwise that it is final: the job fails. Other errors fail the task, and the restart
        strategy decides."""

    def finish(self) -> None:
        """No more records come: what the next `prepare_commit` returns must leave nothing to a
        later one, for the job may be over after it. Called again after a restore."""

    def recover(self, committables: Sequence[Any]) -> Iterator[None] | None:
        """First call after a restore, with the committables of the restored checkpoint (possibly
        of several former subtasks): publish them, then remove leftovers of dead attempts. In steps
        as `commit`, and called again as that; nothing is written and no snapshot taken before it is
        done."""
        return self.commit(committables)

    def tend(self) -> None:
        """What has to be done now and then, such as hearing what a client says. It must not block,
        and is not called between the steps of a `write`. What it raises fails the task."""

    def revoke(self, after: int) -> None:
        """First call of all, if the job had to go back to checkpoint `after` because later ones are
        lost: take back what was published at later ones. Only of sinks that are `revocable`."""

    def close(self) -> None:
        """Release files and connections; called also on failure and cancel."""


@dataclass(frozen=True)
class OutputClaim:
    """What the coordinator of a job says to a sink when the job begins, and when it is over.

    `token`: of the coordinators of one run of the job: one that comes back has that of the one
    before; of another run it is another. `shown`: what the writers show that it has found, as of
    `Sink.writers_token`: some may go on, all are of coordinators with its token. `origin`: the job
    and checkpoint (or savepoint) of another job that this one continues; None: it begins anew, or
    goes on from a checkpoint of its own. `place`: host and process of the coordinator. `epoch`,
    `origin_epoch`: which of the coordinators of this job it is, and which of those who started
    from its origin; who has a greater one fences it. 0: that is not known. `home`: a folder or URL
    with its checkpoints, the newest of which is in `<home>/<job_id>`; None: they are in memory.
    """

    job_id: str
    job_name: str
    operator: str
    operator_id: str
    token: str
    place: str
    origin: tuple[str, int] | None = None
    epoch: int = 0
    origin_epoch: int = 0
    home: str | None = None
    shown: frozenset[str] = frozenset()


class Sink(ABC):
    """Where a stream ends.

    `revocable`: `SinkWriter.revoke` works, or it does no harm to publish again. A job with another
    sink fails when its newest complete checkpoint turns out to be damaged. `remark`: what a plan
    says of it, for a guarantee that is less than exactly once. `only_reads`: a writer has taken
    what it keeps of a batch, as bytes say, when `write` returns, and neither changes a record nor
    pauses anywhere; it then needs no copy of its own where records have several readers.
    `independent_writers`: one writer may begin again, under a later attempt, while those of other
    subtasks go on under theirs: it neither removes nor publishes what these wrote. Else all writers
    are restarted together.
    """

    independent_writers: bool = False
    revocable: bool = False
    only_reads: bool = False
    remark: ClassVar[str | None] = None

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter: ...

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        """Called once by a coordinator, before its first attempt: from now on nobody else commits
        here, and what was published behind the job's origin is taken back. What is worth a
        warning. OutputRefusedError if that must not be; other errors: it could not be done, and
        the job goes on without. Writers go on that show one of `claim.shown`: they are not to be
        refused if it is that of who has taken over last."""
        return ()

    def writers_token(self, claim: OutputClaim) -> str:
        """What writers show (`WriterContext.token`) once this was taken over; asked right behind
        `take_over`. The claim's own, by default."""
        return claim.token

    def release(self, claim: OutputClaim, status: str) -> None:
        """The job that took over is over, and how; whoever comes next is not asked."""
