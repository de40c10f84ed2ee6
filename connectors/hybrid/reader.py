"""Reads the splits of the source that is being read, with that source's own reader."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...api.connectors.base import (
    Emit,
    NeedSplit,
    Polled,
    ReaderContext,
    Source,
    SourceReader,
    Wait,
)
from ...core.batch import Batch, ColumnBatch
from ...core.errors import ConnectorError
from .stages import News, Records, Stage, StageSplit, check_same, plain

ASK_AGAIN_MS = 100
"""Pause before the enumerator is asked again when it had nothing now."""


class HybridReader(SourceReader):
    """Asks by itself, whatever it holds, instead of having it done by `asks_every_ms`, so that no
    question goes out once the enumerator has said that a source is over, but the one that says that
    all of it is read."""

    def __init__(self, stages: Sequence[Stage], context: ReaderContext) -> None:
        self._stages = stages
        self._context = context
        self._stage = -1
        """Whose reader `_inner` is."""
        self._inner: SourceReader | None = None
        """None until the enumerator has first answered."""
        self._former: list[SourceReader] = []
        """Readers that have read all, and that no checkpoint has told so yet."""
        self._pending: list[StageSplit] = []
        """Restored splits, until the enumerator says what source they are of."""
        self._records = Records(None, None)
        self._over = False
        """Nothing more of this source will be given."""
        self._done = False
        """Nothing more will be given of any source, and all is read."""
        self._again_at: int | None = None
        """When to ask again, because there was nothing; before, there is no use in it."""
        self._next_at: int | None = None
        """When to ask beside what is held, as the source's reader wants to."""
        self._taken: deque[tuple[Sequence[Any], list[tuple[SourceReader, Sequence[Any]]]]] = deque()
        """What `snapshot` returned, and what the readers' did."""
        self._paused: frozenset[str] = frozenset()

    def add_splits(self, splits: Sequence[Any]) -> None:
        for split in splits:
            if isinstance(split, News):
                self._hear(split)
            else:
                self._pending.append(split)
        if self._inner is not None and self._pending:
            given, self._pending = self._pending, []
            strange = [split.split_id for split in given if split.stage != self._stage]
            assert not strange, (strange, self._stage)
            self._inner.add_splits([split.split for split in given])

    def poll(self) -> Polled:
        now = self._context.clock.now_ms()
        due = [at for at in (self._again_at, self._next_at) if at is not None]
        if due and min(due) <= now:
            self._context.wake()  # for what there is to read while the question is on its way
            return self._ask()
        polled = NeedSplit() if self._inner is None else self._inner.poll()
        match polled:
            case Emit(batch, split_id, finished, side, watermark):
                name = f"{self._stage}/{split_id}"
                return Emit(self._fitted(batch), name, finished, side, watermark)
            case Wait(until_ms):
                times = due if until_ms is None else [*due, until_ms]
                return Wait(min(times, default=None))
        if self._again_at is not None:
            return Wait(min(due))
        self._done = self._over and self._stage == len(self._stages) - 1
        return self._ask()

    def pause(self, split_ids: frozenset[str]) -> None:
        self._paused = split_ids
        if self._inner is not None and self._inner.can_pause:
            prefix = f"{self._stage}/"
            mine = [name.removeprefix(prefix) for name in split_ids if name.startswith(prefix)]
            self._inner.pause(frozenset(mine))

    def snapshot(self) -> Sequence[StageSplit]:
        readers = [*self._former, *([] if self._inner is None else [self._inner])]
        theirs = [(reader, reader.snapshot()) for reader in readers]
        held = [] if self._inner is None else theirs[-1][1]
        mine = [*self._pending, *(StageSplit(self._stage, split) for split in held)]
        self._taken.append((mine, theirs))
        return mine

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Sequence[Any]) -> None:
        theirs = self._snapshots_of(splits)
        for reader, snapshot in theirs:
            reader.notify_checkpoint_complete(checkpoint_id, snapshot)
        told = [reader for reader, _ in theirs[:-1] if reader in self._former]
        self._former = [reader for reader in self._former if reader not in told]
        for reader in told:
            reader.close()

    def close(self) -> None:
        readers, self._former = self._former, []
        if self._inner is not None:
            readers.append(self._inner)
            self._inner = None
        _close_all(readers)

    def _snapshots_of(self, splits: Sequence[Any]) -> list[tuple[SourceReader, Sequence[Any]]]:
        """What the readers' snapshots were when `splits` was this one's. If it never was: the
        checkpoint was taken after the end, when this reader is asked no more; or it is an old one,
        of which no former reader is told."""
        for at, (known, theirs) in enumerate(self._taken):
            if known is splits:
                for _ in range(at + 1):
                    self._taken.popleft()
                return theirs
        if self._inner is None:
            return []
        former = self._former if self._done and not splits else ()
        mine = [split.split for split in splits if split.stage == self._stage]
        return [*((reader, ()) for reader in former), (self._inner, mine)]

    def _hear(self, news: News) -> None:
        if news.stage != self._stage:
            self._enter(news)
        assert self._inner is not None
        self._over = news.over
        every, now = self._inner.asks_every_ms, self._context.clock.now_ms()
        self._again_at = self._next_at = None
        if news.pause:
            self._again_at = now + (ASK_AGAIN_MS if every is None else every)
        elif every is not None and not news.over:
            self._next_at = now + every

    def _enter(self, news: News) -> None:
        """All of the former source is read; go on with this one."""
        if news.records is not None:
            self._records = news.records
        source: Any = self._stages[news.stage].source
        if news.source is not None:
            source = pickle.loads(news.source)
        assert isinstance(source, Source)
        if self._inner is not None:
            self._former.append(self._inner)
        self._inner = source.create_reader(self._context)
        self._stage = news.stage
        self.can_pause = self._inner.can_pause
        self.pause(self._paused)

    def _ask(self) -> NeedSplit:
        self._again_at = self._next_at = None
        return NeedSplit()

    def _fitted(self, batch: Batch) -> Batch:
        """In the order of the first source's columns, and with nothing else but these."""
        schema = self._records.schema
        if isinstance(batch, ColumnBatch) and schema is not None:
            data = batch.data
            if data.schema.equals(schema):
                return batch
            self._check(data.schema)
            columns = [data.column(name) for name in schema.names]
            fitted = pa.RecordBatch.from_arrays(columns, schema=schema)
            return ColumnBatch(fitted, batch.timestamps)
        if len(batch) and isinstance(batch, ColumnBatch) != (schema is not None):
            self._check(batch.data.schema if isinstance(batch, ColumnBatch) else None)
        return batch

    def _check(self, found: pa.Schema | None) -> None:
        """A source whose batches are not what it says."""
        name = self._stages[self._stage].name
        try:
            check_same(self._records, self._records_of(found), self._stage, name)
        except ValueError as error:
            raise ConnectorError(str(error)) from error

    def _records_of(self, found: pa.Schema | None) -> Records:
        return Records(plain(found), self._records.upsert_key)


def _close_all(readers: list[SourceReader]) -> None:
    """Also those behind one that raises."""
    if readers:
        try:
            readers[0].close()
        finally:
            _close_all(readers[1:])
