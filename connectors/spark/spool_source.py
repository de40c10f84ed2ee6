"""The stream's side of the bridge: micro-batches out of a spool, in order of their ids.

A split is a file of a micro-batch with the rows emitted so far, so a checkpoint holds the batch ids
and positions that are left, and a restore reads on exactly there.

What goes. Every split says from which micro-batch on something was not given away yet, to whoever,
behind it (`ahead`), so what a reader is given later is not before that. The lowest of this and of
what it holds at a checkpoint is what it needs if the job goes back there; it says so to the spool,
which lets go of what no subtask needs. It does when the next checkpoint is complete, too, so that
the job can go back by one. Only readers say what was read: one may ask for splits while it holds
some, as a restored one does, and as one whose question and answer cross.

Spark's watermark. What Spark says of micro-batch n holds behind its last row: windows that its
watermark closed come out in n itself. So it is told with the first split of a later micro-batch
and, when nothing more is there, by a split without a file, to each subtask.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from ...api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    Polled,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from ...core.batch import ColumnBatch, Timestamps
from ...core.errors import ConnectorError
from ...core.value_types import empty_batch
from .calls import PENDING, GatewayCall
from .options import SparkOptions
from .spool import ENDED, FAILED, Spool, SpooledBatch
from .types import fitted, millis

SPLITS_PER_REQUEST: Final = 8
MARK_EVERY: Final = 16
"""So many micro-batches may pass before a subtask that has nothing to read hears of them."""
SILENCE_S: Final = 60.0
"""A query whose process has not been heard of for so long is taken for dead."""
KEEP_S: Final = 1.0
"""How often the gateway is asked to keep its query running."""


@dataclass(frozen=True)
class SpoolSplit:
    """A file of a micro-batch; `position`: rows of it that were emitted. Without a file: only what
    is said beside it. `watermark`: of the micro-batches before (ms). `ahead`: all micro-batches
    below had been given away with this. `reading`: the attempt whose enumerator gave it, see
    `Spool.needs`; empty in checkpoints."""

    batch: int
    file: str | None
    rows: int
    watermark: int | None = None
    position: int = 0
    ahead: int = 0
    reading: str = ""

    @property
    def split_id(self) -> str:
        return f"{self.batch:012d}/{self.file or ''}"


@dataclass(frozen=True)
class Upkeep:
    """A query that the gateway runs. `arguments`: of `SparkGateway.stream`, all but the last."""

    arguments: tuple[Any, ...]
    options: SparkOptions | None

    def call(self, when: str, operator: str) -> GatewayCall:
        """Ask the gateway to run it; `when`: see `SparkGateway.stream`."""
        return GatewayCall(
            "stream", *self.arguments, when, options=self.options, operator=operator, subtask=0
        )


class SpoolSource(Source):
    """Rows of a spool with the columns of `schema`. `event_time`: the column that gives the records
    their time; with `spark_watermark` Spark's watermark is the stream's. `upkeep`: the query runs
    in the gateway; None: in some program."""

    def __init__(
        self,
        spool: Spool,
        schema: pa.Schema,
        *,
        bounded: bool,
        event_time: str | None = None,
        spark_watermark: bool = False,
        upkeep: Upkeep | None = None,
    ) -> None:
        self.spool = spool
        self.event_time = event_time
        self.spark_watermark = spark_watermark
        self.upkeep = upkeep
        self._schema = schema
        self._bounded = bounded

    def __repr__(self) -> str:
        return f"SpoolSource({self.spool.folder})"

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> SpoolEnumerator:
        return SpoolEnumerator(self, context, restored)

    def create_reader(self, context: ReaderContext) -> SpoolReader:
        return SpoolReader(self, context)


@dataclass(frozen=True)
class EnumeratorState:
    """`next`: the first micro-batch not looked at; `left`: splits of those before; `watermark`: of
    the last one before."""

    next: int
    left: tuple[SpoolSplit, ...]
    watermark: int | None


class SpoolEnumerator(SplitEnumerator):
    """Hands out files in order of micro-batches."""

    def __init__(
        self, source: SpoolSource, context: EnumeratorContext, restored: EnumeratorState | None
    ) -> None:
        self._source = source
        self._spool = source.spool
        self._context = context
        self._next = 0 if restored is None else max(0, restored.next)
        self._left = deque(() if restored is None else restored.left)
        self._watermark = None if restored is None else restored.watermark
        """Of micro-batch `_next - 1`, or the last before it that had one."""
        self._reading = uuid4().hex
        """This attempt, to the spool."""
        self._told: dict[int, SpoolSplit] = {}
        """Per subtask the last split without a file that it got."""
        self._taken: int | None = None
        """What the spool knows of `_next`, as far as all before was handed out."""
        self._heard = time.monotonic()
        self._beat: int | None = None
        """The query's last beat, and when it was heard."""
        self._call: GatewayCall | None = None
        self._call_at = 0.0
        self._when = "again"
        self._spool.begin(self._reading)

    def next_splits(self, subtask: int) -> Sequence[SpoolSplit] | None:
        self._keep()
        state = self._spool.state()
        self._look()
        if self._left:
            return self._give(subtask)
        self._take(self._next)
        if (mark := self._mark(subtask)) is not None:
            return (mark,)
        if state is not None and state.state == ENDED:
            return None
        self._check(state)
        return ()

    def snapshot(self) -> EnumeratorState:
        return EnumeratorState(self._next, tuple(self._left), self._watermark)

    def close(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _give(self, subtask: int) -> Sequence[SpoolSplit]:
        share = -(-len(self._left) // self._context.parallelism)
        given = [self._left.popleft() for _ in range(min(share, SPLITS_PER_REQUEST))]
        ahead = self._left[0].batch if self._left else self._next
        self._take(ahead)
        return tuple(replace(split, ahead=ahead, reading=self._reading) for split in given)

    def _mark(self, subtask: int) -> SpoolSplit | None:
        """A split without a file, if the subtask has something to hear: a watermark, or that many
        micro-batches without rows have passed."""
        mark = SpoolSplit(
            self._next, None, 0, self._watermark, ahead=self._next, reading=self._reading
        )
        told = self._told.get(subtask, SpoolSplit(0, None, 0))
        news = self._source.spark_watermark and mark.watermark != told.watermark
        if not news and mark.ahead - told.ahead < MARK_EVERY:
            return None
        self._told[subtask] = mark
        return mark

    def _take(self, batch: int) -> None:
        if self._taken is None or batch > self._taken:
            self._taken = batch
            self._spool.take(batch)

    def _look(self) -> None:
        """Take up what is new. A micro-batch that is missing before others has been removed."""
        for batch in self._spool.batches(self._next):
            if self._next < batch.id:
                raise ConnectorError(
                    f"operator '{self._context.operator}': micro-batch {self._next} is not in "
                    f"'{self._spool.folder}', though {batch.id} is: it was removed before this job "
                    "read it. Restore from the newest checkpoint, or begin with a new folder"
                )
            self._left += [
                SpoolSplit(batch.id, name, rows, self._watermark) for name, rows in batch.files
            ]
            self._watermark = _later(self._watermark, batch)
            self._next = batch.id + 1

    def _keep(self) -> None:
        """Have the gateway run the query, if it is its own."""
        upkeep = self._source.upkeep
        if upkeep is None:
            return
        if self._call is not None:
            if self._call.poll() is PENDING:
                return
            self._call = None
            self._heard = time.monotonic()
        if time.monotonic() >= self._call_at:
            self._call_at = time.monotonic() + KEEP_S
            self._call = upkeep.call(self._when, self._context.operator)
            self._when = "keep"

    def _check(self, state: Any) -> None:
        """Whether more may still come."""
        where = f"operator '{self._context.operator}'"
        if state is not None and state.state == FAILED and self._call is None:
            raise ConnectorError(f"{where}: the Spark query that feeds it failed: {state.message}")
        beat = None if state is None else state.beat
        if beat != self._beat or self._call is not None:
            self._beat, self._heard = beat, time.monotonic()
        elif time.monotonic() - self._heard > SILENCE_S:
            raise ConnectorError(
                f"{where}: nothing was heard for {SILENCE_S:.0f} s of the program that runs the "
                f"Spark query into '{self._spool.folder}': it ended, or hangs. Run it again, with "
                "the same folder, and restore this job"
            )


class SpoolReader(SourceReader):
    """Reads files in order of micro-batches, a batch of rows at a time."""

    def __init__(self, source: SpoolSource, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._splits: deque[SpoolSplit] = deque()
        """In order of micro-batches; the first is being read."""
        self._rows: Iterator[pa.RecordBatch] | None = None
        """What is left of the first split; None before it is opened."""
        self._ahead = 0
        """No split that will be given to this reader is of a micro-batch below."""
        self._reading = ""
        """The attempt, to the spool; empty until a split of its enumerator has come."""
        self._snapshots: deque[tuple[Sequence[SpoolSplit], int]] = deque()
        """What was said at checkpoints that may still complete, and the first micro-batch that this
        reader needs if the job goes back there."""
        self._needed = 0
        """That micro-batch, of the last complete checkpoint."""

    def add_splits(self, splits: Sequence[SpoolSplit]) -> None:
        reading = [self._splits.popleft()] if self._rows is not None else []
        rest = sorted([*self._splits, *splits], key=lambda s: (s.batch, s.file or ""))
        self._splits = deque([*reading, *rest])
        self._ahead = max([self._ahead, *(split.ahead for split in splits)])
        self._reading = next((s.reading for s in splits if s.reading), self._reading)

    def poll(self) -> Polled:
        if not self._splits:
            return NeedSplit()
        split = self._splits[0]
        mark = split.watermark if self._source.spark_watermark else None
        if split.file is None:
            self._splits.popleft()
            return Emit(self._empty(), split.split_id, True, watermark=_before(mark))
        if mark is not None:
            self._splits[0] = replace(split, watermark=None)
            return Emit(self._empty(), split.split_id, watermark=_before(mark))
        if self._rows is None:
            self._rows = self._open(split)
        data = next(self._rows, None)
        after = split.rows if data is None else split.position + data.num_rows
        finished = after >= split.rows
        if finished:
            self._splits.popleft()
            self._rows = None
        else:
            self._splits[0] = replace(split, position=after)
        batch = self._empty() if data is None else self._batch(data)
        return Emit(batch, split.split_id, finished)

    def snapshot(self) -> Sequence[SpoolSplit]:
        splits = [replace(split, reading="") for split in self._splits]
        # Found again by its identity, which an empty tuple has not.
        self._snapshots.append((splits, min([self._ahead, *(split.batch for split in splits)])))
        return splits

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Sequence[SpoolSplit]) -> None:
        if not any(known is splits for known, _ in self._snapshots):
            return
        before = self._needed
        while self._snapshots:
            known, self._needed = self._snapshots.popleft()
            if known is splits:
                break
        if before and self._reading:
            context = self._context
            self._source.spool.needs(before, self._reading, context.subtask, context.parallelism)

    def close(self) -> None:
        self._rows = None

    def _open(self, split: SpoolSplit) -> Iterator[pa.RecordBatch]:
        """The rows of a file behind its position."""
        import pyarrow.parquet as pq

        assert split.file is not None
        path = self._source.spool.file(split.batch, split.file)
        try:
            file = pq.ParquetFile(path)
        except FileNotFoundError:
            raise ConnectorError(
                f"operator '{self._context.operator}', subtask {self._context.subtask}: "
                f"micro-batch {split.batch} is not in the spool any more ('{path}'): a newer "
                "checkpoint had covered it. Restore from the newest checkpoint"
            ) from None
        with file:
            skip = split.position
            for batch in file.iter_batches(self._context.batch_size):
                left = batch.slice(min(skip, batch.num_rows))
                skip -= batch.num_rows - left.num_rows
                if left.num_rows:
                    yield left

    def _batch(self, data: pa.RecordBatch) -> ColumnBatch:
        rows = fitted(data, self._source.schema)
        return ColumnBatch(rows, self._times(rows))

    def _times(self, rows: pa.RecordBatch) -> Timestamps | None:
        name = self._source.event_time
        return None if name is None else millis(rows.column(name), name)

    def _empty(self) -> ColumnBatch:
        return ColumnBatch(empty_batch(self._source.schema))


def _later(watermark: int | None, batch: SpooledBatch) -> int | None:
    if batch.watermark is None or (watermark is not None and batch.watermark < watermark):
        return watermark
    return batch.watermark


def _before(watermark: int | None) -> int | None:
    """Spark's watermark is the least time that may still come, ours the greatest that may not."""
    return None if watermark is None else watermark - 1
