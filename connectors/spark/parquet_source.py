"""A replayable source of Parquet that Spark reads, filters, prunes and sorts.

The enumerator has the gateway cut the input into splits (see `ranges.py`) and hands them out in
order, two at a time, so that a reader fetches the second while it emits the first. It lets no
reader run away: a split is handed out only while it is at most `2 * parallelism` splits behind
the oldest one being read. With `sort_by` on a time, that bounds how far apart in time the readers
are, and what downstream has to keep; and as each reader reads its splits in ascending order, its
own watermark never runs ahead of what it has still to read.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

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
from ...api.connectors.reads import ColumnReads
from ...core.batch import ColumnBatch
from ...core.clock import Clock
from ...core.errors import ConfigurationError, OperatorError
from .bridge import decode, storable
from .calls import PENDING, GatewayCall, path_told
from .options import SparkOptions, require_spark
from .ranges import ParquetRead, ParquetSplit

SPLITS_PER_REQUEST: Final = 2
_POLL_MS: Final = 20
_PACING_BATCHES_PER_S: Final = 20


class SparkParquetSource(Source):
    """`path`: a Parquet file or folder that Spark's executors can reach.

    `filter` is a Spark SQL condition. With `sort_by` the rows come in ascending order of these
    columns (ties: by file and row), else by file and row, as the files have them. A reader holds
    up to two splits of `rows_per_split` rows, not all of which the filter may leave; None: 65,536
    rows with `sort_by`, which sorts all rows once to cut them, and else what the row groups of the
    files suggest, up to 1,048,576 rows or 32 MiB. `rows_per_second` limits all readers together.
    `schema` is needed only where the path is not readable from the driver with pyarrow.

    All files must have the same columns, of those that the program is known to read; with `fill`
    those that one lacks are null. Folders named `column=value` are columns, and a filter on them
    leaves whole folders out.

    `watch`: look for new files so often, for ever; each is read once, older ones first, in order
    within what was found together. A file must appear whole: by a rename, or under a name that
    begins with `.` or `_` until then.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        sort_by: str | Sequence[str] | None = None,
        *,
        rows_per_split: int | None = None,
        rows_per_second: float | None = None,
        fill: bool = False,
        watch: timedelta | None = None,
        schema: pa.Schema | None = None,
        options: SparkOptions | None = None,
    ) -> None:
        require_spark()
        if rows_per_split is not None and rows_per_split < 1:
            raise ConfigurationError(f"rows_per_split must be at least 1, is {rows_per_split}")
        if rows_per_second is not None and rows_per_second <= 0:
            raise ConfigurationError(f"rows_per_second must be positive, is {rows_per_second}")
        sort = (sort_by,) if isinstance(sort_by, str) else tuple(sort_by or ())
        chosen = None if columns is None else tuple(columns)
        if watch is not None and watch <= timedelta(0):
            raise ConfigurationError(f"watch must be positive, is {watch}")
        self.read = ParquetRead(path_told(path), chosen, filter, sort, rows_per_split, fill)
        self.watch_s = None if watch is None else watch.total_seconds()
        self.rows_per_second = rows_per_second
        self.options = options
        self._schema = schema

    @property
    def bounded(self) -> bool:
        return self.watch_s is None

    @property
    def schema(self) -> pa.Schema:
        """The columns as Spark hands them out: timestamps in microseconds, UTC where zoned."""
        if self._schema is None:
            self._schema = _schema_of(self.read)
        return self._schema

    def reading(self, columns: ColumnReads) -> SparkParquetSource | None:
        known = self._schema
        read = [] if known is None else [one for one in known if one.name in columns.columns]
        if known is None or not 0 < len(read) < len(known):
            return None
        other = copy(self)
        other._schema = pa.schema(read)
        other.read = replace(self.read, columns=tuple(other._schema.names))
        return other

    def reads_from(self) -> tuple[str, ...]:
        return (self.read.path,)

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> ParquetEnumerator:
        return enumerator(self, context, restored)

    def create_reader(self, context: ReaderContext) -> ParquetReader:
        return ParquetReader(self, context)


class SplitRows(Protocol):
    """What a reader asks of its source."""

    rows_per_second: float | None
    watch_s: float | None
    options: SparkOptions | None

    @property
    def read(self) -> ParquetRead: ...

    @property
    def schema(self) -> pa.Schema: ...


def enumerator(
    source: SplitRows, context: EnumeratorContext, restored: EnumeratorState | None, kind: str = ""
) -> ParquetEnumerator:
    """Of a source of ranges. `kind`: how the names of the gateway's methods for them begin."""
    read = source.read

    def ask(method: str, *arguments: Any) -> GatewayCall:
        return GatewayCall(
            f"{kind}{method}",
            read,
            *arguments,
            options=source.options,
            operator=context.operator,
            subtask=0,
        )

    if source.watch_s is not None:
        return WatchingEnumerator(context.parallelism, ask, source.watch_s, restored)
    unplanned = restored is None or restored.splits is None
    return ParquetEnumerator(context.parallelism, ask("plan") if unplanned else None, restored)


@dataclass(frozen=True)
class EnumeratorState:
    """`splits`: what is not assigned; None while planning. Of a watched input: `seen`, all files
    that were planned (see `ranges.unseen`), and the number of the next split."""

    splits: tuple[ParquetSplit, ...] | None
    seen: bytes = b""
    next: int = 0


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
        """Per subtask the lowest split it may still be reading, as far as its questions tell. One
        that has not asked yet may be reading restored splits. One that asks is taken to hold none:
        if it does, others may run ahead of it by what it was given before, too, and no more depends
        on it."""

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


class WatchingEnumerator(ParquetEnumerator):
    """Hands out what there is, and looks for more every `every_s`. `ask`: makes a gateway call."""

    def __init__(
        self,
        parallelism: int,
        ask: Callable[..., GatewayCall],
        every_s: float,
        restored: EnumeratorState | None,
    ) -> None:
        state = restored or EnumeratorState(())
        super().__init__(parallelism, None, state)
        self._ask = ask
        self._every_s = every_s
        self._seen = state.seen
        self._next = state.next
        self._due = 0.0
        """Monotonic time of the next look."""

    def next_splits(self, subtask: int) -> Sequence[ParquetSplit] | None:
        return super().next_splits(subtask) or ()

    def snapshot(self) -> EnumeratorState:
        splits = self._planned()
        return EnumeratorState(tuple(splits or ()), self._seen, self._next)

    def _planned(self) -> deque[ParquetSplit] | None:
        assert self._splits is not None
        if self._plan is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._every_s
            self._plan = self._ask("plan_new", self._seen, self._next)
        result = None if self._plan is None else self._plan.poll()
        if result is not None and result is not PENDING:
            splits, self._seen = result
            self._plan = None
            self._splits.extend(splits)
            self._next += len(splits)
        return self._splits


class ParquetReader(SourceReader):
    """Fetches its splits in ascending order, one ahead of the one being emitted."""

    def __init__(self, source: SplitRows, context: ReaderContext, method: str = "read") -> None:
        """method: of the gateway, that reads a split."""
        self._source = source
        self._method = method
        self._context = context
        self._pending: list[ParquetSplit] = []
        """Splits with rows not yet emitted, ascending by index."""
        self._calls: dict[int, GatewayCall] = {}
        """Reads under way, by split index; a subset of `_pending` without the one in `_table`."""
        self._table: Rows | None = None
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
                    self._method,
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
        schema = self._source.schema
        table = decode(block).select(schema.names).cast(schema)
        if table.num_rows != split.rows:
            raise OperatorError(
                self._context.operator,
                self._context.subtask,
                f"split {split.split_id} was planned with {split.rows} rows and now has "
                f"{table.num_rows}: the input changed while the job reads it",
            )
        self._table = Rows(table)
        return True

    def _emit(self, rows: Rows) -> Emit:
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


class Rows:
    """A table whose rows are taken from front to back as batches, without copying them."""

    def __init__(self, table: pa.Table) -> None:
        self._batches = table.to_batches()
        self._first = 0
        """Row of the table that the first of the batches begins with."""

    def slice(self, position: int, limit: int) -> pa.RecordBatch:
        """Rows from `position` on, `limit` at most, and at least one. Never goes back."""
        while position >= self._first + self._batches[0].num_rows:
            self._first += self._batches.pop(0).num_rows
        return self._batches[0].slice(position - self._first, limit)


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
    whole = dataset.schema
    if read.fill:
        parts = [fragment.physical_schema for fragment in dataset.get_fragments()]
        whole = pa.unify_schemas([whole, *parts])
    found = storable(whole)
    unknown = sorted(set(read.columns or ()) - set(found.names))
    if unknown:
        raise ConfigurationError(f"no column {unknown} in '{read.path}'; it has {found.names}")
    names = found.names if read.columns is None else read.columns
    return pa.schema([found.field(name) for name in names])
