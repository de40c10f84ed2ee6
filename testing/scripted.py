"""A source that plays scripts: tests say exactly which record comes before which, and when.

    ScriptedSource([lane, lane, ...])       a lane: records and Pause(ms), in order

Each lane is one split. Records of one lane keep their order up to the next shuffle, whatever the
parallelism, the schedule and the crashes; nothing is promised between lanes. So a result that
depends on the order of a key's records is the same in every run if each key lives in one lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ..api.connectors.base import (
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
from ..core.batch import Batch, ObjectBatch, to_columns
from ..core.clock import Clock


@dataclass(frozen=True, slots=True)
class Pause:
    """The lane has nothing for so long; counted from the moment the pause is reached, and again
    from its start after a restore."""

    ms: int


@dataclass(frozen=True, slots=True)
class LaneSplit:
    """Everything before `position` has been played."""

    lane: int
    position: int = 0

    @property
    def split_id(self) -> str:
        return f"lane-{self.lane}"


class ScriptedSource(Source):
    """Bounded. schema: batches are columns of it, else objects. at_once: the most records of a
    batch, where that matters more than the job's batch size."""

    independent_readers = True

    def __init__(
        self,
        lanes: Iterable[Iterable[Any]],
        schema: pa.Schema | None = None,
        at_once: int | None = None,
    ) -> None:
        self.lanes = [list(lane) for lane in lanes]
        self._schema = schema
        self._at_once = at_once

    @property
    def bounded(self) -> bool:
        return True

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def create_enumerator(self, context: EnumeratorContext, restored: Any | None) -> LaneEnumerator:
        fresh = [LaneSplit(i) for i in range(len(self.lanes))]
        return LaneEnumerator(context.parallelism, fresh if restored is None else restored)

    def create_reader(self, context: ReaderContext) -> LaneReader:
        at_once = self._at_once or context.batch_size
        return LaneReader(self.lanes, self._schema, at_once, context.clock)


class LaneEnumerator(SplitEnumerator):
    """Lane i goes to subtask i mod parallelism, all of a subtask's lanes at once."""

    def __init__(self, parallelism: int, unassigned: Sequence[LaneSplit]) -> None:
        self._parallelism = parallelism
        self._unassigned = list(unassigned)

    def next_splits(self, subtask: int) -> list[LaneSplit] | None:
        mine = [s for s in self._unassigned if s.lane % self._parallelism == subtask]
        self._unassigned = [s for s in self._unassigned if s not in mine]
        return mine or None

    def snapshot(self) -> list[LaneSplit]:
        return list(self._unassigned)


class LaneReader(SourceReader):
    """Plays its lanes in turn, a batch of each."""

    def __init__(
        self, lanes: list[list[Any]], schema: pa.Schema | None, at_once: int, clock: Clock
    ) -> None:
        self._lanes = lanes
        self._schema = schema
        self._at_once = at_once
        self._clock = clock
        self._splits: deque[LaneSplit] = deque()
        """Not yet played to the end; the one whose turn it is first."""
        self._until: dict[int, int] = {}
        """When (ms) the pause ends at which a lane stands, by lane."""

    def add_splits(self, splits: Sequence[LaneSplit]) -> None:
        self._splits.extend(splits)

    def poll(self) -> Polled:
        if not self._splits:
            return NeedSplit()
        for _ in range(len(self._splits)):
            split = self._splits.popleft()
            if self._pausing(split):
                self._splits.append(split)
            else:
                return self._play(split)
        return Wait(min(self._until[split.lane] for split in self._splits))

    def snapshot(self) -> list[LaneSplit]:
        return sorted(self._splits, key=lambda split: split.lane)

    def _pausing(self, split: LaneSplit) -> bool:
        """Whether the lane stands at a pause that is not over."""
        lane = self._lanes[split.lane]
        item = lane[split.position] if split.position < len(lane) else None
        if not isinstance(item, Pause):
            return False
        now = self._clock.now_ms()
        return now < self._until.setdefault(split.lane, now + item.ms)

    def _play(self, split: LaneSplit) -> Emit:
        lane, start = self._lanes[split.lane], split.position
        if self._until.pop(split.lane, None) is not None:
            start += 1
        stop = start
        while stop < min(len(lane), start + self._at_once) and not isinstance(lane[stop], Pause):
            stop += 1
        finished = stop == len(lane)
        if not finished:
            self._splits.append(replace(split, position=stop))
        return Emit(self._batch(lane[start:stop]), split.split_id, finished)

    def _batch(self, records: list[Any]) -> Batch:
        batch = ObjectBatch(records)
        return batch if self._schema is None else to_columns(batch, self._schema)
