"""Records that find the value of their key expired in the middle of a batch, row by row.

A value is fetched once per batch, so a batch is cut ahead of such a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.arrays import Int64s
from ...state.expiry import StateTime
from ...state.ttl import Lifetime
from ..key_expiry import RecordTimes

Part = tuple[slice, list[int] | None]
"""Some records in a row, and their times, which `BulkValueState.fetch` takes."""


class Parting:
    """`parts` of batches, in each of which no value expires behind its key's first record."""

    def __init__(self, life: Lifetime | None, time: StateTime, operator: str) -> None:
        self._life = life
        self._times = RecordTimes(True, time, operator)

    def parts(self, keys: list[Any], stamps: Int64s | None) -> Iterator[Part]:
        """Of a batch. By processing time, or without a time to live, it is one without times."""
        if self._life is None or not self._life.event:
            yield slice(None), None
            return
        array = self._times.of(stamps, len(keys))
        times, ttl, start = array.tolist(), self._life.ms, 0
        if int(array.max()) - int(array.min()) >= ttl:
            latest: dict[Any, int] = {}
            for row, (key, time) in enumerate(zip(keys, times, strict=True)):
                before = latest.get(key, time)
                if before <= time - ttl:
                    yield slice(start, row), times[start:row]
                    start, latest = row, {}
                latest[key] = max(before, time)
        yield slice(start, None), times[start:]
