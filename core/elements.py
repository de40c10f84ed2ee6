"""What travels in order with batches on each channel.

Control elements cut batches: every record written before an element is delivered before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .batch import Batch
from .ids import NO_CHECKPOINT, CheckpointId, OperatorId

MIN_TIMESTAMP: Final = -(2**63)
"""The watermark before any watermark."""

MAX_TIMESTAMP: Final = 2**63 - 1
"""The watermark after the last record of a bounded stream: closes every window, fires every
timer."""

LEAST_EVENT_TIME: Final = -(2**62)
GREATEST_EVENT_TIME: Final = 2**62
"""Event times that records are given lie between these, 146 million years before and after 1970: a
window or an interval around such a time stays within int64."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with a timestamp <= `timestamp` (ms since the epoch) is expected any more."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """An idle channel does not hold the watermark back until it turns active again."""

    active: bool


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """Separates what belongs to checkpoint `checkpoint_id` from what does not.

    `terminal` marks the barrier behind the last record of a bounded job: its completion commits
    sinks for good. `timestamp_ms` is when the coordinator triggered it. `base` is the newest
    complete checkpoint at that time, 0 for none: what was taken between the two never completes.
    `savepoint`: the URL or path of the folder that it becomes, None for a checkpoint of the job's
    own. `halt`: whoever has taken it emits nothing more, unless it is given up. `overtakes`:
    whether it may pass what waits before it, which is part of the checkpoint then. `passed`:
    whether it has, at the sender of the channel that it comes on.
    """

    checkpoint_id: CheckpointId
    timestamp_ms: int
    terminal: bool = False
    base: CheckpointId = NO_CHECKPOINT
    savepoint: str | None = None
    halt: bool = False
    overtakes: bool = False
    passed: bool = field(default=False, compare=False)

    @property
    def holds(self) -> bool:
        """Whether it is of a rescale, behind which tasks stand still until they are told more."""
        return self.halt and self.savepoint is None and not self.terminal


@dataclass(frozen=True, slots=True)
class EndOfData:
    """The last data element of a channel; only barriers may follow it."""


@dataclass(frozen=True, slots=True)
class LatencyMarker:
    """Tells how long records are on their way: made by subtask `subtask` of the source `source` at
    `marked_ms`, it goes where a record could go, behind those before it. Operators know nothing of
    it but when it comes; none waits for it, no state has it, and a barrier may pass it."""

    source: OperatorId
    subtask: int
    marked_ms: int


Control = Watermark | StreamStatus | CheckpointBarrier | EndOfData | LatencyMarker
Element = Batch | Control
