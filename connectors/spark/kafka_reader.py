"""Reads the partitions of one subtask: ranges of offsets through Spark, records in order.

Of each partition two ranges are on their way while one is emitted. How far a partition reaches is
asked when all that was known of has been planned; a bounded one is asked once, for the check that
its records have not expired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ...api.connectors.base import (
    Emit,
    NeedSplit,
    Polled,
    ReaderContext,
    SourceReader,
    Wait,
)
from ...core.arrays import numpy_of
from ...core.batch import ColumnBatch
from ...core.errors import ConnectorError
from ...core.value_types import empty_batch
from .bridge import decode
from .calls import PENDING, GatewayCall
from .kafka_ranges import (
    OFFSET,
    TIME,
    KafkaRange,
    KafkaRead,
    KafkaSplit,
    Partition,
    expired,
)
from .options import SparkOptions

RANGES_AHEAD: Final = 2
"""Of a partition."""
RANGES_UNDER_WAY: Final = 8
"""Of all partitions of a subtask: so many ranges it keeps in the object store at most."""

ASK_MS: Final = 500
"""How often readers ask for new partitions, at most; the enumerator looks for them more rarely."""

_POLL_MS: Final = 20


@dataclass(frozen=True)
class Reading:
    """What a reader needs to know of its source. Times in ms; `discover_ms` None: partitions are
    not looked for; `skip_expired`: go on where the log begins, else fail."""

    read: KafkaRead
    schema: pa.Schema
    discover_ms: int | None
    look_ms: int
    records_per_range: int
    skip_expired: bool
    options: SparkOptions | None


@dataclass
class _Part:
    """A partition that is being read."""

    split: KafkaSplit
    planned: int
    """The first offset that Spark was not asked for; never below the split's."""
    bounds: tuple[int, int] | None = None
    """First offset there, and the one behind the last, when last asked."""
    calls: deque[tuple[int, GatewayCall]] = field(default_factory=deque)
    """Ranges under way, in order of offsets: where each ends, and its read."""
    rows: pa.RecordBatch | None = None
    """What is left of the range being emitted; None between ranges."""
    end: int = 0
    """Where that range ends."""

    @property
    def key(self) -> Partition:
        return self.split.topic, self.split.partition

    @property
    def limit(self) -> int:
        """How far it may be read now."""
        assert self.bounds is not None
        last = self.bounds[1]
        return last if self.split.stop is None else min(last, self.split.stop)

    @property
    def behind(self) -> int:
        return 0 if self.bounds is None else max(0, self.limit - self.split.offset)


class KafkaReader(SourceReader):
    """Reads the partitions of one subtask, in turns."""

    def __init__(self, reading: Reading, context: ReaderContext) -> None:
        self._reading = reading
        self._context = context
        self._parts: list[_Part] = []
        """Next in turn first."""
        self._look: GatewayCall | None = None
        """The question how far the partitions reach."""
        self._look_at = 0
        """When to ask it again, at the earliest (ms)."""
        self._commit: GatewayCall | None = None
        if reading.discover_ms is not None:
            self.asks_every_ms = min(reading.discover_ms, ASK_MS)

    def add_splits(self, splits: Sequence[KafkaSplit]) -> None:
        self._parts += [_Part(split, split.offset) for split in splits]
        self._look_at = 0

    def poll(self) -> Polled:
        if not self._parts:
            return NeedSplit()
        self._listen()
        self._fetch_ahead()
        for _ in range(len(self._parts)):
            part = self._parts[0]
            if (emit := self._advance(part)) is not None:
                if emit.finished:
                    self._parts.pop(0)
                else:
                    self._parts.append(self._parts.pop(0))
                return emit
            self._parts.append(self._parts.pop(0))
        return Wait(self._context.clock.now_ms() + _POLL_MS)

    def snapshot(self) -> Sequence[KafkaSplit]:
        return tuple(part.split for part in self._parts)

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Sequence[KafkaSplit]) -> None:
        """Commit for the group, beside the stream. One that fails, or is slower than the
        checkpoints, is made good by the next."""
        if self._reading.read.group is None or not splits:
            return
        if self._commit is not None and self._commit_runs():
            return
        positions = {(s.topic, s.partition): s.offset for s in splits}
        self._commit = self._call("kafka_commit", positions)

    def close(self) -> None:
        calls = [call for part in self._parts for _, call in part.calls]
        for call in (*calls, self._look, self._commit):
            if call is not None:
                call.cancel()
        self._parts = []

    def _listen(self) -> None:
        """Ask how far the partitions reach, where that is to be known, and hear it."""
        if self._look is not None:
            found = self._look.poll()
            if found is PENDING:
                return
            self._look = None
            for part in self._parts:
                if part.key in found:
                    part.bounds = found[part.key]
                    self._check(part)
            self._context.gauge("records_behind", sum(part.behind for part in self._parts))
        now = self._context.clock.now_ms()
        wanted = [part.key for part in self._parts if self._unknown(part)]
        if wanted and now >= self._look_at:
            self._look_at = now + self._reading.look_ms
            self._look = self._call("kafka_bounds", wanted)

    def _unknown(self, part: _Part) -> bool:
        if part.bounds is None:
            return True
        stop = part.split.stop
        return part.planned >= part.bounds[1] and (stop is None or part.planned < stop)

    def _check(self, part: _Part) -> None:
        """Whether the position is in the log still."""
        assert part.bounds is not None
        first, last = part.bounds
        offset = part.split.offset
        where = f"topic '{part.split.topic}', partition {part.split.partition}"
        if part.planned > last:
            raise self._error(
                f"{where} ends at offset {last}, before this job's position {offset}: the topic "
                "was made anew, or lost records; start the job without this source's state "
                "(another uid)"
            )
        if offset >= first or part.calls or part.rows is not None:
            return
        if not self._reading.skip_expired:
            raise self._error(expired(part.key, offset, first))
        part.split = part.split.at(first)
        part.planned = first

    def _fetch_ahead(self) -> None:
        """A range of each partition first, then a second one, as many as may be under way."""
        free = RANGES_UNDER_WAY - sum(len(part.calls) for part in self._parts)
        for depth in range(RANGES_AHEAD):
            for part in self._parts:
                if free > 0 and len(part.calls) == depth and self._fetch(part):
                    free -= 1

    def _fetch(self, part: _Part) -> bool:
        """Ask for the next range of a partition; False if there is none."""
        if part.bounds is None:
            return False
        end = min(part.limit, part.planned + self._reading.records_per_range)
        if end <= part.planned:
            return False
        wanted = KafkaRange(*part.key, part.planned, end)
        part.calls.append((end, self._call("kafka_read", wanted, fetch=True)))
        part.planned = end
        return True

    def _advance(self, part: _Part) -> Emit | None:
        """The next records of a partition, None if there are none now."""
        while part.rows is None:
            stop = part.split.stop
            if stop is not None and part.split.offset >= stop:
                empty = empty_batch(self._reading.schema)
                return Emit(ColumnBatch(empty), part.split.split_id, finished=True)
            if not part.calls:
                return None
            end, call = part.calls[0]
            block = call.poll()
            if block is PENDING:
                return None
            part.calls.popleft()
            table = decode(block)
            self._check_columns(table)
            if table.num_rows:
                part.rows, part.end = table.combine_chunks().to_batches()[0], end
            else:
                part.split = part.split.at(end)
        return self._emit(part, part.rows)

    def _emit(self, part: _Part, rows: pa.RecordBatch) -> Emit:
        taken = rows.slice(0, self._context.batch_size)
        rest = rows.slice(taken.num_rows)
        offsets = taken.column(OFFSET)
        if rest.num_rows:
            part.rows = rest
            part.split = part.split.at(offsets[-1].as_py() + 1)
        else:
            part.rows = None
            part.split = part.split.at(part.end)
        times = numpy_of(taken.column(TIME))
        data = taken.select(self._reading.schema.names).cast(self._reading.schema)
        stop = part.split.stop
        finished = stop is not None and part.split.offset >= stop
        return Emit(ColumnBatch(data, times), part.split.split_id, finished)

    def _check_columns(self, table: pa.Table) -> None:
        made = [name for name in table.column_names if name not in (OFFSET, TIME)]
        wanted = self._reading.schema.names
        if made != wanted:
            raise self._error(f"`select` makes the columns {made}, and `schema` names {wanted}")

    def _commit_runs(self) -> bool:
        assert self._commit is not None
        try:
            return self._commit.poll() is PENDING
        except Exception:
            return False

    def _call(self, method: str, *arguments: Any, fetch: bool = False) -> GatewayCall:
        return GatewayCall(
            method,
            self._reading.read,
            *arguments,
            options=self._reading.options,
            operator=self._context.operator,
            subtask=self._context.subtask,
            fetch=fetch,
        )

    def _error(self, text: str) -> ConnectorError:
        return ConnectorError(
            f"operator '{self._context.operator}', subtask {self._context.subtask}: {text}"
        )
