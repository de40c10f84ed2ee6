"""A replayable source of Parquet that Spark reads, filters, prunes and sorts.

The enumerator has the gateway cut the input into splits (see `ranges.py`) and hands them out in
order, two at a time, so that a reader fetches the second while it emits the first. It lets no
reader run away: a split is handed out only while it is at most `2 * parallelism` splits behind
the oldest one being read. With `sort_by` on a time, that bounds how far apart in time the readers
are, and what downstream has to keep; and as each reader reads its splits in ascending order, its
own watermark never runs ahead of what it has still to read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
    Wait,
)
from ...core.batch import ColumnBatch
from ...core.clock import Clock
from ...core.errors import ConfigurationError, OperatorError
from .bridge import decode, storable
from .calls import PENDING, GatewayCall
from .options import SparkOptions, require_spark
from .ranges import ParquetRead, ParquetSplit

SPLITS_PER_REQUEST: Final = 2
_POLL_MS: Final = 20
_PACING_BATCHES_PER_S: Final = 20


class SparkParquetSource(Source):
    """`path`: a Parquet file or folder that Spark's executors can reach.

    `filter` is a Spark SQL condition. With `sort_by` the rows come in ascending order of these
    columns (ties: by file and row), else by file and row. `rows_per_second` limits all readers
    together. `schema` is needed only where the path is not readable from the driver with pyarrow.
    """

    def __init__(
        self,
        path: str,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        sort_by: str | Sequence[str] | None = None,
        *,
        rows_per_split: int = 65_536,
        rows_per_second: float | None = None,
        schema: pa.Schema | None = None,
        options: SparkOptions | None = None,
    ) -> None:
        require_spark()
        if rows_per_split < 1:
            raise ConfigurationError(f"rows_per_split must be at least 1, is {rows_per_split}")
        if rows_per_second is not None and rows_per_second <= 0:
            raise ConfigurationError(f"rows_per_second must be positive, is {rows_per_second}")
        sort = (sort_by,) if isinstance(sort_by, str) else tuple(sort_by or ())
        chosen = None if columns is None else tuple(columns)
        self.read = ParquetRead(str(path), chosen, filter, sort, rows_per_split)
        self.rows_per_second = rows_per_second
        self.options = options
        self._schema = schema

    @property
    def bounded(self) -> bool:
        return True

    @property
    def schema(self) -> pa.Schema:
        """The columns as Spark hands them out: timestamps in microseconds, UTC where zoned."""
        if self._schema is None:
            self._schema = _schema_of(self.read)
        return self._schema

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> ParquetEnumerator:
        plan = None
        if restored is None or restored.splits is None:
            plan = GatewayCall(
                "plan", self.read, options=self.options, operator=context.operator, subtask=0
            )
        return ParquetEnumerator(context.parallelism, plan, restored)

    def create_reader(self, context: ReaderContext) -> ParquetReader:
        return ParquetReader(self, context)


@dataclass(frozen=True)
class EnumeratorState:
    """`splits`: what is not assigned; None while planning."""

    splits: tuple[ParquetSplit, ...] | None


class ParquetEnumerator(SplitEnumerator):
    """Hands out splits in order. `plan` is the call that makes them, None when restored."""

    def __init__(
        self, parallelism: int, plan: GatewayCall | None, restored: EnumeratorState | None
    ) -> None:
        self._plan = plan
        self._splits: deque[ParquetSplit] | None = None
        """Unassigned splits, ascending; None while planning."""
        if plan is None:
            assert restored is not None
            assert restored.splits is not None
            self._splits = deque(restored.splits)
        self._lead = SPLITS_PER_REQUEST * parallelism
        first = self._splits[0].index - self._lead if self._splits else 0
        self._reading = dict.fromkeys(range(parallelism), max(0, first))
        """Per subtask the lowest split it may still be reading. A subtask that has not asked yet
        may be reading restored splits."""

    def next_splits(self, subtask: int) -> Sequence[ParquetSplit] | None:
        splits = self._planned()
        if splits is None:
            return ()
        if not splits:
            return None
        first = splits[0].index
        self._reading[subtask] = first
        taken: list[ParquetSplit] = []
        while splits and len(taken) < SPLITS_PER_REQUEST:
            if splits[0].index - min(self._reading.values()) > self._lead:
                break
            taken.append(splits.popleft())
        return tuple(taken)

    def snapshot(self) -> EnumeratorState:
        splits = self._planned()
        return EnumeratorState(None if splits is None else tuple(splits))

    def close(self) -> None:
        if self._plan is not None:
            self._plan.cancel()

    def _planned(self) -> deque[ParquetSplit] | None:
        if self._splits is None and self._plan is not None:
            result = self._plan.poll()
            if result is not PENDING:
                self._splits, self._plan = deque(result), None
        return self._splits


class ParquetReader(SourceReader):
    """Fetches its splits in ascending order, one ahead of the one being emitted."""

    def __init__(self, source: SparkParquetSource, context: ReaderContext) -> None:
        self._source = source
        self._context = context
        self._pending: list[ParquetSplit] = []
        """Splits with rows not yet emitted, ascending by index."""
        self._calls: dict[int, GatewayCall] = {}
        """Reads under way, by split index; a subset of `_pending` without the one in `_table`."""
        self._table: pa.RecordBatch | None = None
        """All rows of `_pending[0]`, once read."""
        share = source.rows_per_second
        self._pace = None if share is None else Pace(share / context.parallelism, context.clock)

    def add_splits(self, splits: Sequence[ParquetSplit]) -> None:
        current = self._pending[:1] if self._table is not None else []
        rest = [*self._pending[len(current) :], *splits]
        self._pending = current + sorted(rest, key=lambda s: s.index)

    def poll(self) -> Polled:
        if not self._pending:
            return NeedSplit()
        self._fetch_ahead()
        if self._table is None and not self._receive():
            return Wait(self._context.clock.now_ms() + _POLL_MS)
        assert self._table is not None
        if self._pace is not None and (resume := self._pace.blocked_until()) is not None:
            return Wait(resume)
        return self._emit(self._table)

    def snapshot(self) -> Sequence[ParquetSplit]:
        return tuple(self._pending)

    def close(self) -> None:
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
        self._table = None

    def _fetch_ahead(self) -> None:
        start = 0 if self._table is None else 1
        for split in self._pending[start:SPLITS_PER_REQUEST]:
            if split.index not in self._calls:
                self._calls[split.index] = GatewayCall(
                    "read",
                    self._source.read,
                    split.at(0),
                    options=self._source.options,
                    operator=self._context.operator,
                    subtask=self._context.subtask,
                    fetch=True,
                )

    def _receive(self) -> bool:
        split = self._pending[0]
        block = self._calls[split.index].poll()
        if block is PENDING:
            return False
        del self._calls[split.index]
        table = decode(block).cast(self._source.schema)
        if table.num_rows != split.rows:
            raise OperatorError(
                self._context.operator,
                self._context.subtask,
                f"split {split.split_id} was planned with {split.rows} rows and now has "
                f"{table.num_rows}: the Parquet input changed while the job reads it",
            )
        self._table = table.combine_chunks().to_batches()[0]
        return True

    def _emit(self, rows: pa.RecordBatch) -> Emit:
        split = self._pending[0]
        limit = self._context.batch_size
        if self._pace is not None:
            limit = min(limit, self._pace.batch_rows)
        batch = rows.slice(split.position, limit)
        after = split.position + batch.num_rows
        finished = after >= split.rows
        if self._pace is not None:
            self._pace.spend(batch.num_rows)
        if finished:
            self._pending.pop(0)
            self._table = None
        else:
            self._pending[0] = split.at(after)
        return Emit(ColumnBatch(batch), split.split_id, finished)


class Pace:
    """Lets rows pass at `rate` per second. Time lost waiting for input is made up for, up to 1
    s."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._due: float | None = None
        """Monotonic time at which the next row may pass; None before the first."""
        self.batch_rows = max(1, int(rate / _PACING_BATCHES_PER_S))

    def blocked_until(self) -> int | None:
        """Processing time (ms) before which nothing may pass, or None if it may now."""
        ahead = 0.0 if self._due is None else self._due - self._clock.monotonic()
        return None if ahead <= 0 else self._clock.now_ms() + max(1, round(ahead * 1000))

    def spend(self, rows: int) -> None:
        now = self._clock.monotonic()
        start = now if self._due is None else max(self._due, now - 1.0)
        self._due = start + rows / self._rate


def _schema_of(read: ParquetRead) -> pa.Schema:
    import pyarrow.dataset as ds

    location = read.path.removeprefix("file://")
    if "://" in location or not Path(location).exists():
        raise ConfigurationError(
            f"cannot look at the Parquet input '{read.path}' from here; give its columns with "
            "SparkParquetSource(schema=...), or correct the path"
        )
    dataset = ds.dataset(location, format="parquet", partitioning="hive")
    found = storable(dataset.schema)
    unknown = sorted(set(read.columns or ()) - set(found.names))
    if unknown:
        raise ConfigurationError(f"no column {unknown} in '{read.path}'; it has {found.names}")
    names = found.names if read.columns is None else read.columns
    return pa.schema([found.field(name) for name in names])
