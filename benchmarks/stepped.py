"""A source whose load changes in steps, whatever becomes of the records.

Record n of a subtask is due at a time that only the steps decide. It carries that time, not the one
at which it left: when the job cannot keep up, the waiting before the source counts too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from strom import (
    ColumnBatch,
    Emit,
    EnumeratorContext,
    NeedSplit,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    Wait,
)

from .streams import KEY_VALUE, KEYS, mix

QUANTUM_MS = 2


@dataclass(frozen=True)
class Step:
    """So many records per second of the whole source, for so long."""

    rate: float
    seconds: float


@dataclass(frozen=True)
class Part:
    """A subtask's share of the load. `origin_ns`: when it began, None before."""

    index: int
    of: int
    position: int = 0
    origin_ns: int | None = None

    @property
    def split_id(self) -> str:
        return f"{self.index}/{self.of}"


def due_records(steps: Sequence[Step], share: float, elapsed_s: float) -> int:
    """How many records of a part with this share are due after so long."""
    due = 0.0
    for step in steps:
        spent = min(max(elapsed_s, 0.0), step.seconds)
        due += step.rate * share * spent
        elapsed_s -= step.seconds
    return int(due + 1e-9)


def due_times(
    steps: Sequence[Step], share: float, numbers: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """After how many seconds these records of the part are due; the inverse of `due_records`."""
    counts = np.cumsum([0.0] + [step.rate * share * step.seconds for step in steps])
    times = np.cumsum([0.0] + [step.seconds for step in steps])
    due: npt.NDArray[np.float64] = np.interp(numbers + 1.0, counts, times)
    return due


class SteppedSource(Source):
    """Bounded by its steps. Keys as in `key_values`; values: when records are due, in ns."""

    bounded = True
    schema = KEY_VALUE

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = tuple(steps)

    def create_enumerator(self, context: EnumeratorContext, restored: Any) -> SplitEnumerator:
        fresh = [Part(i, context.parallelism) for i in range(context.parallelism)]
        return PartEnumerator(fresh if restored is None else restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return SteppedReader(self.steps, context)


class PartEnumerator(SplitEnumerator):
    """One part for each subtask that asks."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts

    def next_splits(self, subtask: int) -> Sequence[Part] | None:
        return [self._parts.pop()] if self._parts else None

    def snapshot(self) -> list[Part]:
        return list(self._parts)


class SteppedReader(SourceReader):
    """Gives what is due, up to a batch at a time, every QUANTUM_MS."""

    def __init__(self, steps: Sequence[Step], context: ReaderContext) -> None:
        self._steps = steps
        self._context = context
        self._length = sum(step.seconds for step in steps)
        self._parts: list[Part] = []

    def add_splits(self, splits: Sequence[Part]) -> None:
        now = time.time_ns()
        self._parts += [s if s.origin_ns else replace(s, origin_ns=now) for s in splits]

    def poll(self) -> Emit | Wait | NeedSplit:
        if not self._parts:
            return NeedSplit()
        part = self._parts[0]
        elapsed = (time.time_ns() - (part.origin_ns or 0)) / 1e9
        due = due_records(self._steps, 1 / part.of, elapsed) - part.position
        over = elapsed >= self._length
        if due <= 0 and not over:
            return Wait(self._context.clock.now_ms() + QUANTUM_MS)
        count = min(due, self._context.batch_size)
        last = over and count == due
        if last:
            self._parts.pop(0)
        else:
            self._parts[0] = replace(part, position=part.position + count)
        return Emit(ColumnBatch(self._records(part, count)), part.split_id, last)

    def snapshot(self) -> Sequence[Part]:
        return list(self._parts)

    def _records(self, part: Part, count: int) -> pa.RecordBatch:
        numbers = np.arange(part.position, part.position + count)
        keys = mix((numbers * part.of + part.index).astype(np.uint64)) % np.uint64(KEYS)
        due = due_times(self._steps, 1 / part.of, numbers) * 1e9 + (part.origin_ns or 0)
        arrays = [pa.array(keys.astype(np.int64)), pa.array(due.astype(np.int64))]
        return pa.RecordBatch.from_arrays(arrays, schema=KEY_VALUE)
