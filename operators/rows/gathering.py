"""What calls of a user's function gave, record by record, where a record that raises is put aside.

In place of a `Collector` where the operator writes dead letters. All that a record gave goes out,
or nothing of it: results are taken to the end before the next call, and kept apart by record until
they have been found to be of the declared types. So what one call gives has to fit into memory
here, and a generator without end never comes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...api.types.declared import Declared, as_declared
from ...core.batch import Batch, ObjectBatch, Timestamps
from ...core.elements import LatencyMarker
from ...state.copies import FIXED
from ..base import IN_STATE, Operator, Steps
from ..letters import DueTimer, Letters, is_of_record
from .collector import Collector, iterator
from .emitted import keeper
from .pace import Pace
from .timers import Timer

_LISTS = (list, tuple)

Part = tuple[str | None, Batch]
"""A batch, and the side output that it is for; None: the main one."""


class Gathering:
    """Between two flushes either every record has a timestamp or none has."""

    def __init__(
        self, operator: Operator, letters: Letters, declared: Declared | None, sides: bool
    ) -> None:
        """In `open`. declared: what the main output becomes. sides: whether a pair of a tag and a
        value goes to a side output."""
        self._out = operator.out
        self._letters = letters
        self._keep = keeper(operator.ctx.config)
        self._pace = Pace(operator.ctx.config.batch_size, operator.ctx.clock)
        self._sides = sides
        self.declared = declared
        """Without sides it may be changed, behind a flush."""
        self._side_types: Mapping[str, Declared] = operator.side_types
        self._found = _Found()
        self._sorting = Collector(self._found, declared, self._pace, self._keep)
        self._records: list[tuple[Any, int | None, str]] = []
        """Each with its timestamp and the method that was called for it."""
        self._values: list[Any] = []
        self._size = self._pace.size
        """At how many values or records a batch is there."""
        self._bounds: list[int] = []
        """End of each record's results within `_values`."""

    def take(
        self, record: Any, stamp: int | None, function: str, call: Callable[..., Any], *args: Any
    ) -> bool:
        """All that `call(*args)` gives for the record; if it raises, the record is put aside.
        Whether a batch is there, or as many calls gave nothing, so that it is time to flush, and to
        pause."""
        values, records, fixed = self._values, self._records, FIXED
        if not records:
            self._size = self._pace.begin()
        before = len(values)
        try:
            results = call(*args)
            if results is not None:
                keep = self._keep
                for one in results if type(results) in _LISTS else iterator(results, function):
                    values.append(one if type(one) in fixed else keep(one))
        except Exception as error:
            del values[before:]
            self._letters.add(record, error, stamp, function)
        else:
            records.append((record, stamp, function))
            self._bounds.append(len(values))
        return len(values) >= self._size or len(records) >= self._size

    @property
    def full(self) -> bool:
        """What `take` said."""
        return max(len(self._values), len(self._records)) >= self._size

    def flush(self) -> None:
        """Send what is there, but for records whose results do not fit the declared types."""
        if self.full:
            self._pace.full()
        if self._values:
            self._send(0, len(self._records))
        self._records, self._values, self._bounds = [], [], []

    def _send(self, first: int, end: int) -> None:
        """The results of these records. What does not fit is found by halving."""
        try:
            parts = self._parts(first, end)
        except Exception as error:
            if not is_of_record(error):
                raise
            if end - first == 1:
                record, stamp, function = self._records[first]
                self._letters.add(record, error, stamp, function)
                return
        else:
            for tag, batch in parts:
                if tag is None:
                    self._out.emit(batch)
                else:
                    self._out.emit_side(tag, batch)
            return
        middle = (first + end) // 2
        self._send(first, middle)
        self._send(middle, end)

    def _parts(self, first: int, end: int) -> list[Part]:
        """What they become, before anything of it goes out."""
        start = self._bounds[first - 1] if first else 0
        values = self._values[start : self._bounds[end - 1]]
        bounds = [bound - start for bound in self._bounds[first:end]]
        stamps = _stamps([stamp for _, stamp, _ in self._records[first:end]])
        if not values:
            return []
        if not self._sides:
            if stamps is not None:
                stamps = np.repeat(stamps, np.diff(bounds, prepend=0))
            batch: Batch = ObjectBatch(values, stamps)
            return [(None, batch if self.declared is None else as_declared(batch, self.declared))]
        self._found.parts = []
        self._sorting.values, self._sorting.bounds = values, bounds
        self._sorting.flush_groups(stamps)
        return [(tag, self._as_side(tag, batch)) for tag, batch in self._found.parts]

    def _as_side(self, tag: str | None, batch: Batch) -> Batch:
        declared = None if tag is None else self._side_types.get(tag)
        return batch if declared is None else as_declared(batch, declared)

    # --- as `process.each_record` and `KeyedProcessOperator` do it otherwise --------------------

    def each_record(
        self,
        call: Callable[..., Any],
        method: str,
        context: Any,
        batch: Batch,
        keys: Sequence[Any] | None = None,
        current: Any = None,
    ) -> Steps:
        """See `process.each_record`."""
        rows, times = batch.rows(), batch.timestamps
        stamps = [None] * len(rows) if times is None else times.tolist()
        for at, (record, stamp) in enumerate(zip(rows, stamps, strict=True)):
            if keys is not None:
                current.key = keys[at]
            context.stamp = stamp
            if self.take(record, stamp, method, call, record, context):
                self.flush()
                yield None
        self.flush()

    def each_timer(
        self, call: Callable[..., Any], domain: Any, context: Any, due: Iterable[Timer]
    ) -> Steps:
        """What `KeyedProcessOperator` fires. A timer that raises is over; its letter has no
        record."""
        for timestamp, key, _ in due:
            context.domain, context.stamp = domain, timestamp
            timer = DueTimer(key, timestamp)
            if self.take(timer, timestamp, "on_timer", call, timestamp, context):
                self.flush()
                yield IN_STATE
        self.flush()


class _Found:
    """An `Output` that keeps what a collector sends."""

    def __init__(self) -> None:
        self.parts: list[Part] = []

    def emit(self, batch: Batch) -> None:
        self.parts.append((None, batch))

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.parts.append((tag, batch))

    def emit_watermark(self, timestamp: int) -> None:
        raise AssertionError("a collector sends records alone")

    def emit_status(self, active: bool) -> None:
        raise AssertionError("a collector sends records alone")

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        raise AssertionError("a collector sends records alone")


def _stamps(stamps: list[int | None]) -> Timestamps | None:
    return None if stamps[0] is None else np.array(stamps, dtype=np.int64)
