"""The sink that keeps a stream, and the source that reads what was kept.

    CacheSink in subtask i   put(token, part, data) ...   prepare_commit(n) names the parts
    n complete               commit(token, parts, ends)   they count
    end of input             Ended(i, of)                 the last committable of subtask i

A sink that cannot write gives up and says so in the log; the token then never is complete, and the
job goes on. Records are lost from the next checkpoint on, so giving up is a part of that one and of
all later ones:

    it has given up             Spoilt(i), nothing else       in each prepare_commit
    restart from such a one     who gets Spoilt gives up, and never sends Ended
    restart from an older one   the records come again, and nothing is lost
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ...core.batch import Batch
from ...core.errors import ConnectorError
from ...core.failure_text import described
from .base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    Polled,
    PreparedCommit,
    ReaderContext,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitEnumerator,
    WriterContext,
)
from .cached_parts import (
    Ended,
    Kept,
    Part,
    PartStore,
    Spoilt,
    StoreAccess,
    opened_batch,
    sealed_batch,
)

_log = logging.getLogger("strom")

PART_BYTES = 8 << 20
"""A part is written when its batches are so large."""


class CacheSink(Sink):
    """Keeps records under a token; None: nothing, in a job that does not see all of them.
    `cached_node`: the operator whose records they are."""

    revocable = True
    only_reads = True

    def __init__(self, access: StoreAccess, token: str | None, node: int) -> None:
        self.access = access
        self.cache_token = token
        self.cached_node = node

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return CacheWriter(self, context)


class CacheWriter(SinkWriter):
    """Invariant: what is in `_batches` is in no part; `_parts` are put and not prepared. Once it
    has given up it has neither, and every checkpoint says so."""

    def __init__(self, sink: CacheSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._name = uuid.uuid4().hex
        self._batches: list[Any] = []
        """Sealed when they come: who else gets the records may change them."""
        self._bytes = 0
        self._parts: list[Part] = []
        self._number = 0
        self._finished = False
        self._given_up = sink.cache_token is None
        self._store: PartStore | None = None

    def write(self, batch: Batch) -> None:
        if self._given_up:
            return
        if self._try(lambda: self._batches.append(sealed_batch(batch))):
            self._bytes += len(self._batches[-1][1])
            if self._bytes >= PART_BYTES:
                self._put()

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        self._put()
        parts, self._parts = self._parts, []
        if self._sink.cache_token is None:
            return []
        where = self._context
        if self._given_up:
            return [Spoilt(where.subtask)]
        ends = [Ended(where.subtask, where.parallelism, where.attempt)] if self._finished else []
        return [*(Kept(part, checkpoint_id) for part in parts), *ends]

    def commit(self, committables: Sequence[Any]) -> None:
        token = self._sink.cache_token
        if not committables or token is None:
            return
        if any(isinstance(one, Spoilt) for one in committables):
            self._give_up()
            with suppress(Exception):  # it never is complete, whether the store hears of it or not
                self._opened().drop(token)
            return
        kept = [one for one in committables if isinstance(one, Kept)]
        ends = [one for one in committables if isinstance(one, Ended)]
        self._try(lambda: self._opened().commit(token, kept, ends))

    def finish(self) -> None:
        self._finished = True

    def revoke(self, after: int) -> None:
        token = self._sink.cache_token
        if token is not None:
            self._try(lambda: self._opened().revoke(token, after))

    def _put(self) -> None:
        batches, self._batches, self._bytes = self._batches, [], 0
        if not batches or self._given_up:
            return
        token = self._sink.cache_token
        assert token is not None
        part = Part(self._context.subtask, self._name, self._number)
        self._number += 1
        if self._try(lambda: self._opened().put(token, part, batches)):
            self._parts.append(part)

    def _opened(self) -> PartStore:
        if self._store is None:
            self._store = self._sink.access.open()
        return self._store

    def _try(self, call: Callable[[], object]) -> bool:
        """Whether it worked. The job does not need what is kept: if it cannot be, a later one has
        to compute it again, and this one goes on."""
        if self._given_up:
            return False
        try:
            call()
        except Exception as error:
            self._give_up()
            _log.warning(
                "operator '%s', subtask %s: the stream is not cached, later jobs compute it again: "
                "%s",
                self._context.operator,
                self._context.subtask,
                described(error),
            )
            return False
        return True

    def _give_up(self) -> None:
        self._given_up = True
        self._batches, self._bytes, self._parts = [], 0, []


@dataclass(frozen=True, order=True, slots=True)
class CachedSplit:
    """A part, from batch `position` on. `index`: its place among all parts."""

    index: int
    part: Part = field(compare=False)
    position: int = field(default=0, compare=False)

    @property
    def split_id(self) -> str:
        return f"part-{self.index:08d}"


class CachedSource(Source):
    """The records of a token. What one subtask wrote one subtask reads, in the same order. Event
    times are those of the records; event time itself does not advance before the end."""

    def __init__(self, access: StoreAccess, token: str, schema: pa.Schema | None) -> None:
        self.access = access
        self.token = token
        self._schema = schema

    def __repr__(self) -> str:
        return "CachedSource()"

    @property
    def bounded(self) -> bool:
        return True

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> SplitEnumerator:
        if restored is not None:
            return _Enumerator(list(restored), context.parallelism)
        try:
            parts = self.access.open().parts(self.token)
        except Exception as error:
            raise _lost(context.operator, described(error)) from error
        if parts is None:
            raise _lost(context.operator, "it was invalidated, or its environment was closed")
        splits = [CachedSplit(index, part) for index, part in enumerate(parts)]
        return _Enumerator(splits, context.parallelism)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Reader(self, context.operator)


def _lost(operator: str, why: str) -> ConnectorError:
    return ConnectorError(
        f"operator '{operator}': the cached stream cannot be read ({why}): run the job again, "
        "which makes it anew"
    )


class _Enumerator(SplitEnumerator):
    def __init__(self, splits: list[CachedSplit], parallelism: int) -> None:
        self._splits = sorted(splits)
        self._parallelism = parallelism

    def next_splits(self, subtask: int) -> Sequence[Any] | None:
        for at, split in enumerate(self._splits):
            if split.part.subtask % self._parallelism == subtask:
                return [self._splits.pop(at)]
        return None

    def snapshot(self) -> Any:
        return list(self._splits)


class _Reader(SourceReader):
    def __init__(self, source: CachedSource, operator: str) -> None:
        self._source = source
        self._operator = operator
        self._splits: list[CachedSplit] = []
        self._data: list[Any] | None = None
        """Of the first split."""
        self._store: PartStore | None = None

    def add_splits(self, splits: Sequence[CachedSplit]) -> None:
        head, rest = self._splits[:1], self._splits[1:]
        self._splits = [*head, *sorted([*rest, *splits])]

    def poll(self) -> Polled:
        if not self._splits:
            return NeedSplit()
        split = self._splits[0]
        if self._data is None:
            self._data = self._load(split.part)
        batch = opened_batch(self._data[split.position])
        finished = split.position + 1 == len(self._data)
        if finished:
            del self._splits[0]
            self._data = None
        else:
            self._splits[0] = replace(split, position=split.position + 1)
        return Emit(batch, split.split_id, finished)

    def snapshot(self) -> Sequence[Any]:
        return list(self._splits)

    def _load(self, part: Part) -> list[Any]:
        try:
            if self._store is None:
                self._store = self._source.access.open()
            data: list[Any] = self._store.get(self._source.token, part)
        except Exception as error:
            raise _lost(self._operator, described(error)) from error
        return data
