"""The watermark in checkpoints, for state that expires by event time.

An access by a late record counts from the watermark, which sources do not send again after a
restore. All subtasks have had the same one at a barrier. It is stored once for each key group, and
so goes wherever the group's state goes: `__key_group | watermark`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..core.elements import MAX_TIMESTAMP
from ..core.ids import KeyGroupRange
from .expiry import UNKNOWN, StateTime
from .stored import KEY_GROUP, StateTable

EVENT_TIME = "__event_time"
KIND = "event_time"
WATERMARK = "watermark"


@dataclass(frozen=True)
class TimeFreeze:
    """A point in time of the watermark."""

    watermark: int
    groups: KeyGroupRange

    def table(self, max_parallelism: int) -> StateTable | None:
        groups = np.arange(self.groups.first, self.groups.last + 1, dtype=np.int32)
        marks = np.full(len(groups), self.watermark, dtype=np.int64)
        data = pa.table({KEY_GROUP: pa.array(groups), WATERMARK: pa.array(marks)})
        return StateTable(EVENT_TIME, KIND, data, {})


def frozen_time(time: StateTime, groups: KeyGroupRange) -> list[TimeFreeze]:
    """What a snapshot keeps: nothing, unless a state goes by event time and there is one."""
    if not time.by_event or time.watermark == UNKNOWN:
        return []
    return [TimeFreeze(time.watermark, groups)]


def restore_time(time: StateTime, table: StateTable) -> None:
    """Event time is what was stored; of several, which former subtasks stored, the least.
    The end of all time, which older versions stored, is none."""
    marks = [mark for mark in table.data.column(WATERMARK).to_pylist() if mark != MAX_TIMESTAMP]
    if marks:
        known = [] if time.watermark == UNKNOWN else [time.watermark]
        time.watermark = min(marks + known)
        time.by_event = time.restored = True
